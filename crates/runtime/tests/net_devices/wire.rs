//! The model of a wire.

use super::frames::{areas, collect, ends, port, receive, send};
use super::suite::{End, Pair, conform};
use upcall_core::time::{Instant, Span};
use upcall_runtime::net::{Descriptor, DeviceDrops, DeviceError, LinkSpec, MemoryDevice};

pub fn pair() -> Pair {
    let areas = areas();
    let spec = LinkSpec::new(0, Span::ZERO);
    let [a, b] = MemoryDevice::pair([&areas[0], &areas[1]], spec, 1, 256);
    let [one, two] = areas;
    Pair::new([port(one, a), port(two, b)], End::Other)
}

#[test]
fn a_wire_in_memory_conforms() {
    conform(pair, |_| {});
}

#[test]
fn a_bad_wire_loses_doubles_and_reorders_the_same_frames_for_the_same_seed() {
    let run = |seed| {
        let areas = areas();
        let spec = LinkSpec {
            loss_ppm: 100_000,
            duplication_ppm: 100_000,
            reordering_ppm: 200_000,
            lateness: Span::from_micros(50),
            ..LinkSpec::new(0, Span::from_micros(10))
        };
        let [a, b] = MemoryDevice::pair([&areas[0], &areas[1]], spec, seed, 256);
        let [one, two] = areas;
        let [mut a, mut b] = [port(one, a), port(two, b)];
        let route = (ends()[0], ends()[1]);
        let mut received = Vec::new();
        for step in 0..100 {
            let now = Instant::ZERO + Span::from_micros(u64::from(step) * 10);
            assert_eq!(send(&mut a, now, route, step * 4..step * 4 + 4), 4);
            collect(&mut a);
            received.extend(receive(&mut b, now, route, 64).unwrap());
        }
        assert_eq!(b.drops(), Ok(Some(DeviceDrops::default())));
        assert!(a.close().all_free() && b.close().all_free());
        received
    };
    let received = run(7);
    assert_eq!(received, run(7));
    assert_ne!(received, run(8));
    let mut distinct = received.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() < received.len(), "none was doubled");
    assert!(distinct.len() < 390, "none was lost");
    assert!(!received.is_sorted(), "none was late");
}

#[test]
fn a_frame_that_the_owner_does_not_have_is_not_sent() {
    let [mut a, mut b] = pair().ports;
    let frame = a.take().unwrap();
    let part = Descriptor { frame, offset: 0, length: 60 };
    // Twice in one batch: the first is sent.
    assert_eq!(a.transmit(Instant::ZERO, None, &[part, part]), Ok(1));
    assert!(matches!(a.transmit(Instant::ZERO, None, &[part]), Err(DeviceError::Account(_))));
    let free = Descriptor { frame: 77, ..part };
    assert!(matches!(a.transmit(Instant::ZERO, Some(1), &[free]), Err(DeviceError::Account(_))));
    collect(&mut a);
    let outside = Descriptor { frame: a.take().unwrap(), offset: 2000, length: 60 };
    assert!(matches!(a.transmit(Instant::ZERO, None, &[outside]), Err(DeviceError::Fault(_))));
    a.release(outside.frame).unwrap();
    let mut parts = Vec::with_capacity(4);
    b.receive(Instant::ZERO, &mut parts).unwrap();
    assert_eq!(parts.len(), 1);
    b.release(parts[0].frame).unwrap();
    assert!(b.release(parts[0].frame).is_err());
    assert!(a.close().all_free() && b.close().all_free());
}
