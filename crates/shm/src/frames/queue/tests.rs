use super::super::FrameSize;
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

type Memory = Vec<AtomicU64>;

const FORM: FrameForm = FrameForm { frames: 16, size: FrameSize::Half };

fn blank(slots: u32) -> Memory {
    (0..words(slots)).map(|_| AtomicU64::new(0)).collect()
}

fn ends(memory: &Memory, slots: u32) -> (Writer<&Memory>, Reader<&Memory>) {
    let writer = Queue::create(memory, slots, FORM, 9).unwrap().writer().unwrap();
    (writer, Queue::attach(memory, FORM, 9).unwrap().reader().unwrap())
}

fn part(frame: u32) -> Descriptor {
    Descriptor { frame, offset: 64, length: 60 }
}

#[test]
fn every_byte_is_where_version_1_has_it() {
    let memory = blank(2);
    let (mut writer, mut reader) = ends(&memory, 2);
    assert!(writer.push(Descriptor { frame: 3, offset: 0x102, length: 0x304 }).unwrap());
    assert!(writer.push(part(4)).unwrap() && !writer.push(part(5)).unwrap());
    writer.publish();
    reader.take().unwrap().unwrap();
    reader.release();
    let bytes: Vec<u8> = memory.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0u8; 192 + 16];
    for (offset, expected) in [
        (0, &b"upcfram\0"[..]),
        (8, &[1]),     // version
        (16, &[9]),    // generation
        (24, &[2]),    // slots
        (32, &[16]),   // frames
        (40, &[0, 8]), // bytes of a frame
        (64, &[2]),    // written
        (128, &[1]),   // read
        (192, &[3, 0, 0, 0, 2, 1, 4, 3]),
        (200, &[4, 0, 0, 0, 64, 0, 60]),
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert_eq!((LAYOUT_VERSION, bytes), (1, golden));
}

#[test]
fn memory_of_another_kind_version_generation_or_area_is_refused() {
    let memory = blank(4);
    Queue::create(&memory, 4, FORM, 9).unwrap();
    assert!(Queue::create(&memory, 4, FORM, 9).is_err(), "already used");
    assert!(Queue::attach(&memory, FORM, 8).is_err());
    assert!(Queue::attach(&memory, FrameForm { frames: 15, ..FORM }, 9).is_err());
    assert!(Queue::attach(&memory, FrameForm { size: FrameSize::Page, ..FORM }, 9).is_err());
    for word in [0, 1, 3, 6, 65 / 8 + 1, 17] {
        let before = memory[word].swap(77, Relaxed);
        assert!(Queue::attach(&memory, FORM, 9).is_err(), "{word}");
        memory[word].store(before, Relaxed);
    }
    assert!(Queue::create(&blank(3), 3, FORM, 0).is_err(), "no power of two");
    assert!(
        Queue::attach(&memory[..3].iter().map(|_| AtomicU64::new(0)).collect::<Memory>(), FORM, 9)
            .is_err()
    );
    let (mut writer, _) = (Queue::attach(&memory, FORM, 9).unwrap().writer().unwrap(), ());
    writer.push(part(0)).unwrap();
    writer.publish();
    assert!(Queue::attach(&memory, FORM, 9).unwrap().writer().is_err(), "a second writer");
}

#[test]
fn a_hostile_peer_is_a_fault_and_no_panic() {
    let memory = blank(4);
    let (mut writer, mut reader) = ends(&memory, 4);
    memory[WRITTEN].store(5, Relaxed);
    assert!(matches!(reader.take(), Err(PeerFault::Value { name: "pending", found: 5, .. })));
    memory[WRITTEN].store(u64::MAX, Relaxed);
    assert!(reader.take().is_err(), "an index that went back");
    for (word, name) in [
        (16, "frame"),
        (u64::from(u32::MAX), "frame"),
        (2049 << 32, "offset"),
        (2000 << 32 | 49 << 48, "length"),
        (u64::MAX, "frame"),
    ] {
        memory[DATA].store(word, Relaxed);
        memory[WRITTEN].store(1, Relaxed);
        match reader.take() {
            Err(PeerFault::Value { name: found, .. }) => assert_eq!(found, name),
            other => panic!("{other:?}"),
        }
    }
    while writer.push(part(1)).unwrap() {}
    memory[READ].store(9, Relaxed);
    assert!(writer.push(part(1)).is_err());
}

#[test]
fn headers_and_data_are_parts_of_one_frame() {
    let whole = Descriptor { frame: 2, offset: 10, length: 100 };
    let (header, data) = whole.split(42);
    assert_eq!(header, Descriptor { length: 42, ..whole });
    assert_eq!(data, Descriptor { frame: 2, offset: 52, length: 58 });
    assert_eq!(whole.split(200).1.length, 0);
}

proptest! {
    #[test]
    fn descriptors_arrive_once_and_in_order(steps in prop::collection::vec(0u8..4, 0..300)) {
        let memory = blank(4);
        let (mut writer, mut reader) = ends(&memory, 4);
        let (mut staged, mut published, mut taken) = (VecDeque::new(), VecDeque::new(), 0);
        for (step, frame) in steps.into_iter().zip((0..16).cycle()) {
            match step {
                0 => if writer.push(part(frame)).unwrap() {
                    staged.push_back(part(frame));
                } else {
                    prop_assert_eq!(staged.len() + published.len() + taken, 4);
                },
                1 => { writer.publish(); published.append(&mut staged); }
                2 => {
                    // The reader looks for more only after all that it knows of.
                    let found = reader.take().unwrap();
                    prop_assert_eq!(found, published.pop_front());
                    taken += usize::from(found.is_some());
                }
                _ => { reader.release(); taken = 0; }
            }
        }
    }
}
