//! Ethernet frames of any bytes, and steps of the packet schedule.

use core::fmt::Debug;
use upcall_core::time::{Instant, Span};
use upcall_proto::packet::build::{echo_reply, port_unreachable};
use upcall_proto::packet::{Frame, check, neighbor, parse};
use upcall_proto::quota::Quota;
use upcall_proto::schedule::{PacketSchedule, Service};

use crate::bytes::Bytes;

/// Most steps of an input.
const STEPS_MAX: usize = 400;
/// The slots that steps name. One more has no slot.
const SLOTS: u32 = 3;

/// Reads `data` as a frame, checks it and answers it. Panics if a part lies outside of the frame,
/// or if an answer is not valid.
pub fn packet(data: &[u8]) {
    let Ok(Frame::Ip(headers)) = parse(data) else { return };
    let parts = [&headers.packet, &headers.transport, &headers.payload];
    assert!(parts.iter().all(|part| data.get((*part).clone()).is_some()), "{headers:?}");
    assert!(headers.packet.start <= headers.transport.start, "{headers:?}");
    assert!(headers.transport.start <= headers.payload.start, "{headers:?}");
    let _ = (check(data, &headers), neighbor(data, &headers));
    for answer in [echo_reply, port_unreachable] {
        let mut out = [0; 2_048];
        let Ok(length) = answer(&mut out, data, &headers) else { continue };
        let Ok(Frame::Ip(headers)) = parse(&out[..length]) else { panic!("{:?}", &out[..length]) };
        assert_eq!(check(&out[..length], &headers), Ok(()));
    }
}

#[derive(Debug)]
enum Step {
    Bind { slot: u32, interval_ns: u64, depth: u32 },
    Unbind { slot: u32 },
    Push { slot: u32 },
    Activate { batch: u32 },
    Wait { ns: u64 },
}

/// Drives a packet schedule as the bytes say. Panics if a packet is neither waiting, nor taken, nor
/// counted as dropped, or if the schedule says that it has work and has none.
pub fn packet_schedule(data: &[u8]) {
    let mut bytes = Bytes(data);
    let services = [Service::OneQueue { entries: 4 }, Service::Exhaustion, Service::Eligible];
    let service = services[bytes.small(3) as usize];
    let mut schedule = PacketSchedule::new(service, SLOTS);
    let (mut now, mut offered, mut taken) = (Instant::ZERO, 0u64, 0u64);
    for step in &bytes.all(STEPS_MAX, step).0 {
        match *step {
            Step::Bind { slot, interval_ns, depth } => {
                schedule.bind(slot, Quota { step_ns: 0, interval_ns, depth, at_once: 1 });
            }
            Step::Unbind { slot } => drop(schedule.unbind(slot)),
            Step::Push { slot } => {
                offered += 1;
                let _ = schedule.push(slot, (), now);
            }
            Step::Activate { batch } => {
                let has_work = schedule.next_at().is_some_and(|at| at <= now);
                schedule.begin(batch);
                let mut took = 0;
                while schedule.next(now).is_some() {
                    took += 1;
                }
                assert!(took <= batch && (took > 0) == (has_work && batch > 0), "{took}");
                taken += u64::from(took);
            }
            Step::Wait { ns } => now += Span::from_nanos(ns),
        }
    }
    (0..SLOTS).for_each(|slot| drop(schedule.unbind(slot)));
    let counts = (0..=SLOTS).map(|slot| schedule.counts(slot));
    let (passed, dropped) =
        counts.fold((0, 0), |sums, it| (sums.0 + it.passed, sums.1 + it.dropped_in_all()));
    assert_eq!((passed, passed + dropped), (taken, offered));
}

fn step(bytes: &mut Bytes<'_>) -> Step {
    let slot = bytes.small(SLOTS + 1);
    match bytes.small(8) {
        0 => Step::Bind {
            slot,
            interval_ns: [0, 1, 1_000, u64::MAX][bytes.small(4) as usize],
            depth: bytes.small(5),
        },
        1 => Step::Unbind { slot },
        2 => Step::Wait { ns: [1, 700, 1 << 62][bytes.small(3) as usize] },
        3 | 4 => Step::Activate { batch: bytes.small(5) },
        _ => Step::Push { slot },
    }
}
