use super::*;
use proptest::prelude::*;
use std::sync::Arc;

type Memory = Arc<[AtomicU64]>;

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u32 = 2;
const SLOT_BYTES: usize = 2048;
const SLOTS: u32 = 2;
const RECEIVE_BYTES: usize = BLOCKS as usize * BLOCK_BYTES;

fn memory() -> Memory {
    let bytes = RECEIVE_BYTES + SLOTS as usize * SLOT_BYTES;
    (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

fn blocks(memory: &Memory) -> ReceiveBlocks<Memory> {
    ReceiveBlocks::new(memory.clone(), BLOCKS, BLOCK_BYTES).unwrap()
}

fn slots(memory: &Memory) -> TransmitSlots<Memory> {
    TransmitSlots::new(memory.clone(), RECEIVE_BYTES, SLOTS, SLOT_BYTES).unwrap()
}

fn bytes_of(payload: Payload<'_>) -> Vec<u8> {
    let mut bytes = vec![0; payload.len()];
    payload.copy_to(0, &mut bytes);
    bytes
}

/// Fills a block as the kernel does, and returns where the header of each frame is.
fn fill(memory: &Memory, block: usize, frames: &[&[u8]]) -> Vec<usize> {
    let base = block * BLOCK_BYTES;
    let all = Payload::new(memory, 0, memory.len() * 8);
    let mut at = HEADER_BYTES;
    let mut places = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let bytes = u32::try_from(frame.len()).unwrap();
        let whole = (82 + frame.len()).next_multiple_of(8);
        let next = if index + 1 == frames.len() { 0 } else { u32::try_from(whole).unwrap() };
        let words =
            [word(next, 1), word(2, bytes), word(bytes, 0x50), word(82, 0), word(7, 0x8100)];
        for (index, word) in words.into_iter().enumerate() {
            memory[(base + at) / 8 + index].store(word, Relaxed);
        }
        all.fill(base + at + 82, frame);
        places.push(base + at);
        at += whole;
    }
    memory[base / 8 + 2].store(word(48, 0), Relaxed);
    memory[base / 8 + 1].store(word(USER, u32::try_from(frames.len()).unwrap()), Release);
    places
}

fn is_kernels(memory: &Memory, block: usize) -> bool {
    halves(memory[block * BLOCK_BYTES / 8 + 1].load(Relaxed)).0 == 0
}

#[test]
fn frames_come_in_order_and_blocks_go_back_after_their_last() {
    let memory = memory();
    let mut ring = blocks(&memory);
    assert!(ring.take().unwrap().is_none());
    ring.release();
    for round in 0..5u8 {
        let block = usize::from(round) % 2;
        fill(&memory, block, &[&[round; 60], &[round + 1; 61], &[round + 2; 1514]]);
        for (index, len) in [(0, 60), (1, 61), (2, 1514)] {
            assert!(!is_kernels(&memory, block));
            let frame = ring.take().unwrap().unwrap();
            assert_eq!(bytes_of(frame.payload), vec![round + index; len]);
            assert_eq!((frame.status, frame.tag_control, frame.tag_protocol), (0x50, 7, 0x8100));
            assert_eq!(frame.whole_bytes as usize, len);
            ring.release();
        }
        assert!(is_kernels(&memory, block));
        assert!(ring.take().unwrap().is_none());
        ring.release();
    }
}

#[test]
fn a_block_that_comes_between_take_and_release_is_not_lost() {
    let memory = memory();
    let mut ring = blocks(&memory);
    assert!(ring.take().unwrap().is_none());
    fill(&memory, 0, &[&[1; 60]]);
    ring.release();
    assert!(ring.take().unwrap().is_some());
}

#[test]
fn an_impossible_number_is_a_fault_that_stays() {
    let cases: [(&str, usize, u64); 6] = [
        ("frames", BLOCK_BYTES + 8, word(USER, 1000)),
        ("first frame", BLOCK_BYTES + 16, word(4056, 0)),
        ("first frame", BLOCK_BYTES + 16, word(52, 0)),
        ("next frame", BLOCK_BYTES + 48, word(0, 0)),
        ("start of a frame", BLOCK_BYTES + 48 + 24, word(u32::MAX, 0)),
        ("length of a frame", BLOCK_BYTES + 48 + 8, word(0, 4000)),
    ];
    for (expected, byte, value) in cases {
        let memory = memory();
        let mut ring = blocks(&memory);
        fill(&memory, 0, &[&[1; 60]]);
        ring.take().unwrap().unwrap();
        ring.release();
        fill(&memory, 1, &[&[1; 60], &[2; 60]]);
        memory[byte / 8].store(value, Relaxed);
        for _ in 0..2 {
            match ring.take() {
                Err(PeerFault::Value { name, .. }) => assert_eq!(name, expected),
                other => panic!("{expected}: {other:?}"),
            }
            ring.release();
        }
        assert!(!is_kernels(&memory, 1), "{expected}");
    }
}

#[test]
fn slots_are_filled_in_turn_and_wait_for_the_kernel() {
    let memory = memory();
    let mut ring = slots(&memory);
    let frame: Memory = (0..200u64).map(AtomicU64::new).collect();
    // The frame begins inside of a word.
    for len in [60, 1514] {
        assert!(ring.push(&Payload::new(&frame, 5, len)).unwrap());
    }
    assert!(!ring.push(&Payload::new(&frame, 5, 60)).unwrap());
    for (slot, len) in [(0, 60), (1, 1514)] {
        let start = (RECEIVE_BYTES + slot * SLOT_BYTES) / 8;
        let (bytes, status) = halves(memory[start + 2].load(Acquire));
        assert_eq!((bytes as usize, status), (len, SEND_REQUEST));
        let sent = Payload::new(&memory, start * 8 + 48, len);
        assert_eq!(bytes_of(sent), bytes_of(Payload::new(&frame, 5, len)));
        // The kernel has sent it, with a time stamp.
        memory[start + 2].store(word(0, 1 << 29), Release);
        assert!(ring.push(&Payload::new(&frame, 5, 60)).unwrap());
    }
    assert!(!ring.push(&Payload::new(&frame, 5, 60)).unwrap());
}

#[test]
fn a_status_that_no_kernel_writes_and_a_frame_without_room_are_faults() {
    let memory = memory();
    let mut ring = slots(&memory);
    let frame: Memory = (0..300u64).map(AtomicU64::new).collect();
    assert!(ring.push(&Payload::new(&frame, 0, 2001)).is_err());
    assert!(ring.push(&Payload::new(&frame, 0, 2000)).unwrap());
    memory[(RECEIVE_BYTES + SLOT_BYTES) / 8 + 2].store(word(0, 4), Relaxed);
    assert!(ring.push(&Payload::new(&frame, 0, 60)).is_err());
}

#[test]
fn memory_that_is_too_short_is_refused() {
    let memory = memory();
    assert!(ReceiveBlocks::new(memory.clone(), 4, BLOCK_BYTES).is_err());
    assert!(ReceiveBlocks::new(memory.clone(), 0, BLOCK_BYTES).is_err());
    assert!(TransmitSlots::new(memory.clone(), RECEIVE_BYTES, 3, SLOT_BYTES).is_err());
    assert!(TransmitSlots::new(memory, RECEIVE_BYTES, 2, 40).is_err());
}

proptest! {
    /// Whatever the kernel writes, each frame lies inside of its block, and nothing panics.
    #[test]
    fn no_memory_makes_a_frame_outside_of_its_block(
        words in prop::collection::vec((0..1024usize, 0..9u32, any::<u64>()), 0..60),
        frames in 1..10usize,
    ) {
        let memory = memory();
        let frame = [3; 200];
        for block in 0..2 {
            fill(&memory, block, &vec![&frame[..]; frames]);
        }
        for (place, shift, value) in words {
            // Small numbers too.
            memory[place].store(value >> (shift * 7), Relaxed);
        }
        let mut ring = blocks(&memory);
        for _ in 0..400 {
            match ring.take() {
                Ok(Some(found)) => prop_assert!(bytes_of(found.payload).len() <= BLOCK_BYTES),
                Ok(None) => {}
                Err(_) => break,
            }
            ring.release();
        }
    }
}
