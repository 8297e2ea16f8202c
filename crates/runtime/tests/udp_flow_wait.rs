//! Programs that wait for the datagrams of their flows, over a modelled wire: by the descriptor, in
//! a call that blocks, and in a handler that the I/O event service notifies.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/flow_wire.rs"]
mod flow_wire;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use upcall_core::time::{Instant, Span};
use upcall_runtime::activity::{ActivityParams, Terms};
use upcall_runtime::clock::now;
use upcall_runtime::discipline::RMDP;
use upcall_runtime::io_events::{Interest, IoTarget, IoWatch, Urgency};
use upcall_runtime::net::{FlowError, FlowForm, UdpFlow};
use upcall_runtime::{Batch, Config};
use upcall_sys::readiness::{Direction, Readiness, Watch, is_ready};

use flow_wire::{PEER, Wire, address};

fn is_readable(flow: &UdpFlow) -> bool {
    is_ready(flow.as_fd(), Direction::Readable).unwrap()
}

/// The first byte of the oldest datagram.
fn take(flow: &mut UdpFlow) -> Option<u8> {
    let mut bytes = [0; 100];
    let (length, peer, _) = flow.receive(&mut bytes).unwrap()?;
    assert_eq!((length, peer), (10, address(PEER)));
    Some(bytes[0])
}

fn in_a_minute() -> Option<Instant> {
    Some(now() + Span::from_secs(60))
}

#[test]
fn a_flow_that_armed_is_woken_once_for_a_batch() {
    for apart in [false, true] {
        let (mut wire, mut flow) = Wire::new(apart, FlowForm::default());
        let mut at = now();
        let mut deliver = |numbers: std::ops::Range<u8>| {
            numbers.for_each(|number| wire.send(&[number; 10]));
            // Long after a wake-up that took long.
            at += Span::from_secs(60);
            wire.deliver(at);
        };
        deliver(0..3);
        assert!(!is_readable(&flow), "it did not arm");
        // What came before is found now, and by the next datagram nobody is woken.
        assert_eq!(flow.arm(), Ok(true));
        deliver(3..4);
        assert!(!is_readable(&flow));
        (0..4).for_each(|number| assert_eq!(take(&mut flow), Some(number)));
        assert_eq!((take(&mut flow), flow.arm()), (None, Ok(false)));
        assert!(!is_readable(&flow));
        deliver(4..14);
        assert!(is_readable(&flow));
        // Later ones wake nobody: one call that arms takes all that woke.
        deliver(14..20);
        (4..20).for_each(|number| assert_eq!(take(&mut flow), Some(number)));
        assert_eq!((flow.arm(), is_readable(&flow)), (Ok(false), false));
        deliver(20..21);
        assert!(is_readable(&flow));
        assert_eq!((take(&mut flow), take(&mut flow)), (Some(20), None));
        // Without a call that arms it stays readable, and nothing more is sent.
        deliver(21..22);
        assert!(is_readable(&flow));
    }
}

#[test]
fn what_a_flow_is_told_wakes_it_too() {
    let (mut wire, mut flow) = Wire::new(true, FlowForm::default());
    assert_eq!(flow.arm(), Ok(false));
    // A flow of IPv4 has no way there.
    assert!(flow.send(b"nobody", address("[fd00::1]:9")).unwrap());
    assert_eq!(flow.arm(), Ok(false), "arming shows the owner what was sent");
    wire.owner.output(now(), 1).unwrap();
    assert!(is_readable(&flow));
    assert!(flow.take().unwrap().is_some());
}

#[test]
fn a_flow_that_the_owner_closed_is_readable_and_says_so() {
    for apart in [false, true] {
        let (mut wire, mut flow) = Wire::new(apart, FlowForm::default());
        assert_eq!(flow.arm(), Ok(false));
        wire.owner.unbind(wire.slot);
        assert!(is_readable(&flow));
        assert_eq!(flow.arm(), Err(FlowError::Closed));
        assert_eq!(flow.wait(None), Err(FlowError::Closed));
        let (wire, mut flow) = Wire::new(apart, FlowForm::default());
        drop(wire);
        assert_eq!(flow.wait(None), Err(FlowError::Closed), "the owner has ended");
    }
}

#[test]
fn a_wait_ends_at_its_deadline_or_with_a_datagram() {
    let (mut wire, mut flow) = Wire::new(true, FlowForm::default());
    assert_eq!(flow.wait(Some(now())), Ok(false));
    let until = now() + Span::from_millis(2);
    assert_eq!(flow.wait(Some(until)), Ok(false));
    assert!(now() >= until);
    wire.send(&[7; 10]);
    wire.deliver(now());
    assert_eq!((flow.wait(None), take(&mut flow)), (Ok(true), Some(7)));
}

/// Two threads race: none of the datagrams is slept through.
#[test]
fn no_datagram_is_slept_through() {
    const DATAGRAMS: u32 = 20_000;
    for apart in [false, true] {
        let (mut wire, mut flow) = Wire::new(apart, FlowForm::default());
        let progress = Arc::new(AtomicU32::new(0));
        let shown = progress.clone();
        let waiting = std::thread::spawn(move || {
            let (mut taken, mut waits) = (0, 0);
            while taken < DATAGRAMS {
                while let Some(number) = take(&mut flow) {
                    assert_eq!(u32::from(number), taken % 256);
                    taken += 1;
                    shown.store(taken, Relaxed);
                }
                if taken < DATAGRAMS {
                    assert_eq!(flow.wait(in_a_minute()), Ok(true), "after {taken}");
                    waits += 1;
                }
            }
            waits
        });
        let mut sent = 0;
        while sent < DATAGRAMS {
            let counts = wire.owner.flow_counts(wire.slot).unwrap();
            assert_eq!((counts.received, counts.receive_full), (sent.into(), 0));
            let batch = (sent % 5 + 1).min(DATAGRAMS - sent);
            for number in sent..sent + batch {
                wire.send(&[u8::try_from(number % 256).unwrap(); 10]);
            }
            sent += batch;
            wire.deliver(now());
            // The queue holds 256.
            while sent - progress.load(Relaxed) > 100 {
                std::thread::yield_now();
                wire.deliver(now());
            }
        }
        // A wake-up may be late if those before took long.
        while !waiting.is_finished() {
            wire.deliver(now());
        }
        let waits = waiting.join().unwrap();
        println!("{waits} waits for {DATAGRAMS} datagrams, apart: {apart}");
        assert!(waits > 0);
    }
}

/// A hostile program watches its descriptor so often that a wake-up takes long.
#[test]
fn who_makes_wake_ups_long_gets_few_of_them() {
    let (mut wire, mut flow) = Wire::new(true, FlowForm::default());
    let readiness = Arc::new(Readiness::new().unwrap());
    let watch = |number| Watch::new(&readiness, flow.as_fd(), Direction::Readable, number).unwrap();
    let watches: Vec<Watch> = (0..900).map(watch).collect();
    let mut is_woken = |at| {
        while take(&mut flow).is_some() {}
        assert_eq!(flow.arm(), Ok(false));
        watches.iter().for_each(|watch| watch.arm().unwrap());
        wire.send(&[1; 10]);
        wire.deliver(at);
        is_readable(&flow)
    };
    let at = now();
    let woken = (0..1000).take_while(|_| is_woken(at)).count();
    println!("{woken} wake-ups at once");
    assert!(woken > 0 && woken < 1000);
    assert!(!is_woken(at + Span::from_nanos(1)));
    // Nothing is lost, also if more comes meanwhile.
    wire.send(&[2; 10]);
    wire.deliver(at + Span::from_nanos(2));
    assert!(!is_readable(&flow));
    wire.deliver(at + Span::from_secs(60));
    assert!(is_readable(&flow));
}

/// A handler without work of its own takes the datagrams when the I/O event service says so.
#[test]
fn a_handler_of_the_runtime_runs_when_datagrams_come() {
    const ROUNDS: u8 = 20;
    let config = Config { cpus: vec![support::cpu()], discipline: &RMDP, ..Config::default() };
    let (mut runtime, _alone) = support::start(config);
    let io = runtime.io_event_service().unwrap();
    let (mut wire, flow) = Wire::new(true, FlowForm::default());
    let flow = Arc::new(Mutex::new(flow));
    let (own, watch) = (flow.clone(), Arc::<OnceLock<IoWatch>>::default());
    let (armed, (sender, taken)) = (watch.clone(), mpsc::channel());
    let need = ActivityParams::new(Span::from_millis(1), Span::from_micros(100)).batch(2);
    let handler = move |batch: &mut Batch<'_>| {
        while batch.take_event().is_some() {
            let mut flow = own.lock().unwrap();
            loop {
                while let Some(number) = take(&mut flow) {
                    let _ = sender.send(number);
                }
                if !flow.arm().unwrap() {
                    break;
                }
            }
            armed.get().unwrap().arm().unwrap();
        }
        let _ = batch.proceed();
    };
    let terms = Terms { wins_ties: true, ..Terms::default() };
    let id = runtime.handler("receiver", (need, terms), handler).unwrap();
    let target = IoTarget::Post(runtime.poster(id).unwrap());
    let mut first = flow.lock().unwrap();
    assert_eq!(first.arm(), Ok(false));
    let watched = io.watch(&*first, Interest::Readable, 0, Urgency::Rank(1), target).unwrap();
    drop(first);
    assert!(watch.set(watched).is_ok());
    runtime.run_at(&[id], now()).unwrap();
    for round in 0..ROUNDS {
        (0..3).for_each(|_| wire.send(&[round; 10]));
        wire.deliver(now());
        for _ in 0..3 {
            let next = std::iter::repeat_with(|| {
                // A wake-up may be late if those before took long.
                wire.deliver(now());
                taken.recv_timeout(Duration::from_millis(10)).ok()
            });
            assert_eq!(next.take(6000).flatten().next(), Some(round), "no datagram");
        }
    }
    assert!(taken.try_recv().is_err());
    // One event for a batch, and perhaps one that found nothing.
    let sent = watch.get().unwrap().sent();
    assert!((20..=40).contains(&sent), "{sent}");
}
