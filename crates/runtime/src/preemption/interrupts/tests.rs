//! Tests of when an interrupt is delivered. The tests make the requests themselves.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_core::discipline::RMDP;
use upcall_core::time::Span;
use upcall_core::trace::Traced;

use super::*;
use crate::clock;
use crate::notify::Notifier;
use crate::preemption::PreemptionPoint;
use crate::trace::Ring;
use crate::work::batch::{Authority, Batch, Grant};

/// What was delivered, in order.
type Seen = Arc<Mutex<Vec<Interrupt>>>;

fn interrupts() -> (Interrupts, Arc<Shared>, Seen) {
    let shared = Arc::new(Shared::new(Notifier::default(), Arc::default()));
    let mut interrupts = Interrupts::new(shared.clone(), None);
    let seen = Seen::default();
    let noted = seen.clone();
    interrupts.set_handler(Box::new(move |kind| noted.lock().unwrap().push(kind)));
    (interrupts, shared, seen)
}

#[test]
fn each_kind_is_delivered_once_however_often_it_is_raised() {
    let (mut interrupts, shared, seen) = interrupts();
    assert!(!interrupts.deliver(clock::now(), None));
    shared.interrupt(Interrupt::Resume);
    shared.interrupt(Interrupt::IoReady);
    shared.interrupt(Interrupt::IoReady);
    assert!(interrupts.deliver(clock::now(), None));
    assert!(!interrupts.deliver(clock::now(), None));
    assert_eq!(*seen.lock().unwrap(), [Interrupt::IoReady, Interrupt::Resume]);
}

#[test]
fn the_timer_elapses_at_its_time_and_once() {
    let (mut interrupts, _, seen) = interrupts();
    let at = clock::now();
    interrupts.set_timer(at + Span::from_nanos(1));
    assert!(!interrupts.deliver(at, None));
    assert!(interrupts.deliver(at + Span::from_nanos(1), None));
    assert!(!interrupts.deliver(at + Span::from_secs(1), None));
    assert_eq!(*seen.lock().unwrap(), [Interrupt::Timer]);
    assert_eq!(interrupts.timer(), Instant::FAR);
}

#[test]
fn requests_wait_for_a_handler() {
    let shared = Arc::new(Shared::new(Notifier::default(), Arc::default()));
    let mut interrupts = Interrupts::new(shared.clone(), None);
    shared.interrupt(Interrupt::IoReady);
    assert!(!interrupts.deliver(clock::now(), None));
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    interrupts.set_handler(Box::new(move |_| _ = counted.fetch_add(1, Ordering::Relaxed)));
    assert!(interrupts.deliver(clock::now(), None));
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_handler_that_panics_is_not_called_again() {
    let (mut interrupts, shared, _) = interrupts();
    interrupts.set_handler(Box::new(|_| panic!("told to")));
    shared.interrupt(Interrupt::Timer);
    shared.interrupt(Interrupt::IoReady);
    assert!(interrupts.deliver(clock::now(), None));
    shared.interrupt(Interrupt::IoReady);
    assert!(!interrupts.deliver(clock::now(), None));
}

#[test]
fn interrupts_wait_for_the_end_of_the_last_mask() {
    let (mut interrupts, shared, seen) = interrupts();
    let mut scheduler: Traced<Ring> = Traced::new(1, &RMDP);
    // Not the notifier that the requests notify. It stays idle, so the batch goes on.
    let notifier = Notifier::default();
    let (scheduler, interrupts) = (&mut scheduler, Some(&mut interrupts));
    let point =
        PreemptionPoint { interrupts, ..PreemptionPoint::on_trial(scheduler, &notifier, None) };
    let grant = Grant {
        pdus_max: 100,
        quantum: 2,
        quantum_cost: Span::MAX,
        check_at: Instant::FAR,
        start: clock::now(),
        resumed: false,
        jobs_skipped: 0,
        aborting: false,
    };
    let mut batch = Batch::new(Authority::Scheduler(point), grant);
    let delivered = || seen.lock().unwrap().len();
    assert!(batch.proceed());
    shared.interrupt(Interrupt::IoReady);
    assert!(batch.proceed());
    assert_eq!(delivered(), 0, "not inside a quantum");
    assert!(batch.proceed());
    assert_eq!(delivered(), 1, "at its boundary");
    {
        let mut outer = batch.mask_interrupts();
        shared.interrupt(Interrupt::IoReady);
        assert!((0..4).all(|_| outer.proceed()), "it is not preemption that is masked");
        {
            let mut inner = outer.mask_interrupts();
            shared.interrupt(Interrupt::Timer);
            assert!((0..4).all(|_| inner.proceed()));
        }
        assert_eq!(delivered(), 1, "one mask is left");
    }
    assert_eq!(*seen.lock().unwrap(), [Interrupt::IoReady, Interrupt::Timer, Interrupt::IoReady]);
}
