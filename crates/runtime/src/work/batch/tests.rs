//! Tests of the masks of a batch. The tests make the requests themselves.

use std::sync::atomic::AtomicBool;

use super::*;

fn grant(pdus_max: u32, quantum: u32) -> Grant {
    Grant {
        pdus_max,
        quantum,
        quantum_cost: Span::MAX,
        check_at: Instant::FAR,
        start: crate::clock::now(),
        resumed: false,
        jobs_skipped: 0,
        aborting: false,
    }
}

fn proceed_times(batch: &mut Batch<'_>, times: u32) {
    for done in 0..times {
        assert!(batch.proceed(), "after {done}");
    }
}

#[test]
fn a_request_under_the_mask_is_seen_at_the_first_proceed_after_it() {
    let request = AtomicBool::new(false);
    let mut batch = Batch::new(Authority::VirtualTime(&request), grant(100, 4));
    proceed_times(&mut batch, 3);
    {
        let mut masked = batch.mask_preemption();
        request.store(true, Ordering::Relaxed);
        // Passes the boundaries at 4 and 8.
        proceed_times(&mut masked, 7);
    }
    assert!(!batch.proceed());
    assert!(!batch.proceed(), "told once, told for good");
    let used = batch.close(crate::clock::now());
    assert_eq!((used.pdus, used.outcome), (10, Outcome::Yielded));
}

#[test]
fn without_a_request_a_new_quantum_begins_after_the_mask() {
    let request = AtomicBool::new(false);
    let mut batch = Batch::new(Authority::VirtualTime(&request), grant(100, 4));
    proceed_times(&mut batch.mask_preemption(), 6);
    assert!(batch.proceed());
    // Inside the new quantum the request is not seen.
    request.store(true, Ordering::Relaxed);
    proceed_times(&mut batch, 3);
    assert!(!batch.proceed());
    assert_eq!(batch.close(crate::clock::now()).pdus, 10);
}

#[test]
fn a_mask_inside_a_quantum_does_not_shorten_it() {
    let request = AtomicBool::new(true);
    let mut batch = Batch::new(Authority::VirtualTime(&request), grant(100, 4));
    assert!(batch.proceed());
    proceed_times(&mut batch.mask_preemption(), 2);
    assert!(batch.proceed(), "the fourth of four");
    assert!(!batch.proceed());
}

#[test]
fn masks_nest_and_only_the_last_one_counts() {
    let request = AtomicBool::new(true);
    let mut batch = Batch::new(Authority::VirtualTime(&request), grant(100, 1));
    {
        let mut outer = batch.mask_preemption();
        proceed_times(&mut outer, 2);
        {
            let mut inner = outer.mask_preemption();
            proceed_times(&mut inner, 2);
        }
        proceed_times(&mut outer, 2);
    }
    assert!(!batch.proceed());
    assert_eq!(batch.close(crate::clock::now()).pdus, 6);
}

#[test]
fn a_mask_does_not_make_the_batch_larger() {
    let request = AtomicBool::new(true);
    let mut batch = Batch::new(Authority::VirtualTime(&request), grant(5, 2));
    let mut masked = batch.mask_preemption();
    proceed_times(&mut masked, 5);
    assert!(!masked.proceed());
    assert_eq!(masked.remaining(), 0);
    drop(masked);
    assert_eq!(batch.close(crate::clock::now()).outcome, Outcome::Done);
}

#[test]
fn a_masked_stretch_beyond_its_cost_is_one_overrun() {
    let request = AtomicBool::new(false);
    let grant = Grant { quantum_cost: Span::ZERO, ..grant(100, 2) };
    let mut batch = Batch::new(Authority::VirtualTime(&request), grant);
    proceed_times(&mut batch.mask_preemption(), 50);
    let begin = crate::clock::now();
    while crate::clock::now() == begin {}
    assert!(batch.proceed());
    assert_eq!(batch.quantum_overruns, 1);
}
