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
fn every_byte_is_where_version_2_has_it() {
    let memory = blank(2);
    let (mut writer, mut reader) = ends(&memory, 2);
    assert!(writer.push(Descriptor { frame: 3, offset: 0x102, length: 0x304 }).unwrap());
    assert!(writer.push(part(4)).unwrap() && !writer.push(part(5)).unwrap());
    writer.publish();
    reader.take().unwrap().unwrap();
    reader.release();
    assert_eq!(reader.arm(), Ok(true));
    let bytes: Vec<u8> = memory.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0u8; 256 + 16];
    for (offset, expected) in [
        (0, &b"upcfram\0"[..]),
        (8, &[2]),     // version
        (16, &[9]),    // generation
        (24, &[2]),    // slots
        (32, &[16]),   // frames
        (40, &[0, 8]), // bytes of a frame
        (64, &[2]),    // written
        (128, &[1]),   // read
        (192, &[2]),   // wanted
        (256, &[3, 0, 0, 0, 2, 1, 4, 3]),
        (264, &[4, 0, 0, 0, 64, 0, 60]),
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert_eq!((LAYOUT_VERSION, bytes), (2, golden));
}

#[test]
fn memory_of_another_kind_version_generation_or_area_is_refused() {
    let memory = blank(4);
    Queue::create(&memory, 4, FORM, 9).unwrap();
    assert!(Queue::create(&memory, 4, FORM, 9).is_err(), "already used");
    assert!(Queue::attach(&memory, FORM, 8).is_err());
    assert!(Queue::attach(&memory, FrameForm { frames: 15, ..FORM }, 9).is_err());
    assert!(Queue::attach(&memory, FrameForm { size: FrameSize::Page, ..FORM }, 9).is_err());
    for word in [0, 1, 3, 6, 65 / 8 + 1, 17, 25] {
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
    memory[WANTED].store(1, Relaxed);
    assert!(Queue::attach(&memory, FORM, 9).unwrap().reader().is_err(), "a second reader");
}

#[test]
fn a_reader_that_armed_is_notified_once() {
    let memory = blank(4);
    let (mut writer, mut reader) = ends(&memory, 4);
    let mut publish = |frames: &[u32]| {
        for &frame in frames {
            assert!(writer.push(part(frame)).unwrap());
        }
        writer.publish();
        writer.must_notify()
    };
    assert!(!publish(&[1]), "not armed");
    // Armed too late: it is there, and the next publication is not waited for.
    assert_eq!(reader.arm(), Ok(true));
    assert!(!publish(&[2]));
    (0..2).for_each(|_| assert!(reader.take().unwrap().is_some()));
    assert_eq!(reader.take(), Ok(None));
    reader.release();
    assert_eq!(reader.arm(), Ok(false));
    assert!(!publish(&[]), "nothing was published");
    assert!(publish(&[3, 4]), "once for both");
    assert!(!publish(&[5]), "it knows");
    while reader.take().unwrap().is_some() {}
    reader.release();
    // Arming again is the same wish.
    (0..2).for_each(|_| assert_eq!(reader.arm(), Ok(false)));
    assert!(publish(&[6]) && !publish(&[7]));
    // A hostile reader costs its own writer one notification a publication at most.
    for (wanted, expected) in [(0, false), (u64::MAX, false), (8, true), (9, false)] {
        memory[WANTED].store(wanted, Relaxed);
        memory[READ].store(7, Relaxed);
        let mut writer = writer_at(&memory, 7);
        assert!(writer.push(part(8)).unwrap());
        writer.publish();
        assert_eq!(writer.must_notify(), expected, "{wanted}");
        assert!(!writer.must_notify());
    }
}

/// A writer that wrote so many before.
fn writer_at(memory: &Memory, written: u64) -> Writer<&Memory> {
    let queue = Queue::attach(memory, FORM, 9).unwrap();
    Writer { queue, written, read: written, looked: written }
}

#[test]
fn indexes_may_wrap_around() {
    let memory = blank(4);
    let _ = ends(&memory, 4);
    for index in [READ, WRITTEN] {
        memory[index].store(u64::MAX, Relaxed);
    }
    let queue = Queue::attach(&memory, FORM, 9).unwrap();
    let mut reader = Reader { queue, written: u64::MAX, read: u64::MAX };
    let mut writer = writer_at(&memory, u64::MAX);
    for _ in 0..3 {
        assert_eq!(reader.arm(), Ok(false));
        assert!(writer.push(part(1)).unwrap());
        writer.publish();
        assert!(writer.must_notify());
        assert_eq!(reader.take(), Ok(Some(part(1))));
        reader.release();
    }
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
