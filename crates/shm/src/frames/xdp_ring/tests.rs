use super::super::FrameSize;
use super::*;

type Memory = Vec<AtomicU32>;

const FORM: FrameForm = FrameForm { frames: 8, size: FrameSize::Half };

/// As Linux 6.18 has them on x86-64.
const PLACES: RingPlaces = RingPlaces { producer: 0, consumer: 64, flags: 128, entries: 192 };

const HOLDS: (Entries, u32) = (Entries::Descriptors, 4);

fn blank() -> Memory {
    (0..192 / 4 + 16).map(|_| AtomicU32::new(0)).collect()
}

fn part(frame: u32) -> Descriptor {
    Descriptor { frame, offset: 256, length: 60 }
}

#[test]
fn entries_are_where_the_kernel_has_them() {
    let memory = blank();
    let mut producer = Producer::new(&memory, PLACES, HOLDS, FORM).unwrap();
    assert!(producer.push(part(3)).unwrap());
    producer.publish();
    let found: Vec<u32> = memory.iter().map(|word| word.load(Relaxed)).collect();
    assert_eq!((found[0], &found[48..52]), (1, &[3 * 2048 + 256, 0, 60, 0][..]));
    assert!(!producer.needs_wakeup());
    memory[32].store(1, Relaxed);
    assert!(producer.needs_wakeup());
}

#[test]
fn indexes_wrap_around_and_a_full_ring_takes_nothing() {
    let memory = blank();
    memory[0].store(u32::MAX - 1, Relaxed);
    memory[16].store(u32::MAX - 1, Relaxed);
    let mut producer = Producer::new(&memory, PLACES, HOLDS, FORM).unwrap();
    let mut consumer = Consumer::new(&memory, PLACES, HOLDS, FORM).unwrap();
    for _ in 0..3 {
        for frame in 0..4 {
            assert!(producer.push(part(frame)).unwrap());
        }
        assert!(!producer.push(part(4)).unwrap());
        producer.publish();
        for frame in 0..4 {
            assert_eq!(consumer.take(), Ok(Some(part(frame))));
        }
        assert_eq!(consumer.take(), Ok(None));
        consumer.release();
    }
}

#[test]
fn a_broken_ring_is_a_fault_and_no_panic() {
    let memory = blank();
    let mut producer = Producer::new(&memory, PLACES, HOLDS, FORM).unwrap();
    let mut consumer = Consumer::new(&memory, PLACES, HOLDS, FORM).unwrap();
    memory[0].store(5, Relaxed);
    assert!(matches!(consumer.take(), Err(PeerFault::Value { name: "pending", .. })));
    memory[0].store(1, Relaxed);
    for (address, length, name) in [
        ([8 * 2048, 0], 60, "frame"),
        ([0, 1 << 31], 60, "frame"),
        ([2000, 0], 49, "length"),
        ([0, 0], 1 << 16, "length"),
    ] {
        memory[48].store(address[0], Relaxed);
        memory[49].store(address[1], Relaxed);
        memory[50].store(length, Relaxed);
        match consumer.take() {
            Err(PeerFault::Value { name: found, .. }) => assert_eq!(found, name),
            other => panic!("{other:?}"),
        }
    }
    while producer.push(part(1)).unwrap() {}
    memory[16].store(9, Relaxed);
    assert!(producer.push(part(1)).is_err());
    assert!(Producer::new(&memory, PLACES, (Entries::Descriptors, 8), FORM).is_err());
}
