//! Tests of user interrupts on real threads (split-level-1991 §3.2.1): each is delivered once, at
//! the right place. The tests do not check delays, which depend on the machine.
#![expect(clippy::unwrap_used, reason = "what fails here is the test")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, MutexGuard};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::time::{Instant, Span};
use upcall_runtime::{Config, Interrupt, InterruptError, Mode, Runtime, clock};

/// A runtime on one CPU, that CPU, and its interrupts with kind and time.
fn start() -> (Runtime, u32, Receiver<(Interrupt, Instant)>, MutexGuard<'static, ()>) {
    let (mut runtime, alone) = support::start(Config::default());
    let cpu = runtime.config().cpus[0];
    let (noted, seen) = mpsc::channel();
    runtime.on_interrupt(cpu, move |kind| noted.send((kind, clock::now())).unwrap()).unwrap();
    (runtime, cpu, seen, alone)
}

#[test]
fn a_timer_interrupts_an_idle_processor_once_and_not_too_early() {
    let (mut runtime, cpu, seen, _alone) = start();
    for ahead_ms in [0, 1, 10] {
        let at = clock::now() + Span::from_millis(ahead_ms);
        runtime.interrupt_at(cpu, at).unwrap();
        let (kind, came) = seen.recv().unwrap();
        assert_eq!(kind, Interrupt::Timer);
        assert!(came >= at);
    }
    // A later request replaces the earlier one.
    runtime.interrupt_at(cpu, clock::now() + Span::from_secs(3_600)).unwrap();
    runtime.interrupt_at(cpu, clock::now()).unwrap();
    assert_eq!(seen.recv().unwrap().0, Interrupt::Timer);
    runtime.stop(|_, _| {});
    assert_eq!(seen.iter().count(), 0);
}

#[test]
fn a_ready_descriptor_interrupts_once_until_it_is_armed_again() {
    let (mut runtime, cpu, seen, _alone) = start();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let io = runtime.interrupt_on_ready(cpu, &near).unwrap();
    for _ in 0..3 {
        assert!(seen.try_recv().is_err());
        far.write_all(b"x").unwrap();
        assert_eq!(seen.recv().unwrap().0, Interrupt::IoReady);
        // The descriptor is still ready, and not armed.
        far.write_all(b"x").unwrap();
        near.read_exact(&mut [0; 2]).unwrap();
        io.arm().unwrap();
    }
    runtime.stop(|_, _| {});
    assert_eq!(seen.iter().count(), 0);
}

#[test]
fn a_running_handler_is_interrupted_at_a_boundary_and_never_inside_a_quantum() {
    const QUANTUM: u32 = 4;
    let _alone = support::alone();
    let config = Config { switch_cost: Some(Span::from_micros(1)), ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let cpu = runtime.config().cpus[0];
    let inside = Arc::new(AtomicBool::new(false));
    let (interrupts, intruders) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (within, count, wrong) = (inside.clone(), interrupts.clone(), intruders.clone());
    runtime
        .on_interrupt(cpu, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            wrong.fetch_add(u32::from(within.load(Ordering::SeqCst)), Ordering::SeqCst);
        })
        .unwrap();
    let params = ActivityParams::new(Span::from_millis(5), Span::from_micros(20))
        .batch(100)
        .quantum(QUANTUM);
    let mut begun = 0;
    let id = runtime
        .handler("h", params, move |batch| {
            while batch.proceed() {
                begun += 1;
                inside.store(begun % QUANTUM != 0, Ordering::SeqCst);
                let begin = clock::now();
                while clock::now().since(begin) < Span::from_micros(15) {}
            }
        })
        .unwrap();
    runtime.run(id).unwrap();
    while interrupts.load(Ordering::SeqCst) < 50 {
        let seen = interrupts.load(Ordering::SeqCst);
        runtime.interrupt_at(cpu, clock::now() + Span::from_micros(100)).unwrap();
        while interrupts.load(Ordering::SeqCst) == seen {
            std::thread::yield_now();
        }
    }
    runtime.stop(|_, _| {});
    assert_eq!(intruders.load(Ordering::SeqCst), 0);
}

/// Each PDU is a quantum, so each has a boundary at which an interrupt could come.
#[test]
fn a_handler_that_masks_interrupts_is_interrupted_only_after_the_mask() {
    let _alone = support::alone();
    let config = Config { switch_cost: Some(Span::from_micros(1)), ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let cpu = runtime.config().cpus[0];
    let inside = Arc::new(AtomicBool::new(false));
    let (interrupts, intruders) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (within, count, wrong) = (inside.clone(), interrupts.clone(), intruders.clone());
    runtime
        .on_interrupt(cpu, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            wrong.fetch_add(u32::from(within.load(Ordering::SeqCst)), Ordering::SeqCst);
        })
        .unwrap();
    let params = ActivityParams::new(Span::from_millis(5), Span::from_micros(20)).batch(100);
    let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
        let mut masked = batch.mask_interrupts();
        inside.store(true, Ordering::SeqCst);
        while masked.proceed() {
            let begin = clock::now();
            while clock::now().since(begin) < Span::from_micros(15) {}
        }
        inside.store(false, Ordering::SeqCst);
    };
    let id = runtime.handler("h", params, handler).unwrap();
    runtime.run(id).unwrap();
    while interrupts.load(Ordering::SeqCst) < 20 {
        let seen = interrupts.load(Ordering::SeqCst);
        runtime.interrupt_at(cpu, clock::now() + Span::from_micros(100)).unwrap();
        while interrupts.load(Ordering::SeqCst) == seen {
            std::thread::yield_now();
        }
    }
    runtime.stop(|_, _| {});
    assert_eq!(intruders.load(Ordering::SeqCst), 0);
}

#[test]
fn interrupts_without_an_executor_are_refused() {
    let (mut runtime, cpu, _seen, _alone) = start();
    let taken = runtime.on_interrupt(cpu, |_| {});
    assert!(matches!(taken, Err(InterruptError::Taken { cpu: there }) if there == cpu));
    let nowhere = runtime.interrupt_at(u32::MAX, clock::now());
    assert!(matches!(nowhere, Err(InterruptError::NoSuchCpu { cpu: u32::MAX })));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let always_ready = runtime.interrupt_on_ready(cpu, &file);
    assert!(matches!(always_ready, Err(InterruptError::Watch(_))), "{always_ready:?}");
    drop(runtime);
    let config = Config {
        mode: Mode::Threads,
        switch_cost: Some(Span::from_micros(1)),
        ..Config::default()
    };
    let mut threads = Runtime::start(config).unwrap();
    let mode = threads.interrupt_at(cpu, clock::now());
    assert!(matches!(mode, Err(InterruptError::NotInMode(Mode::Threads))));
}
