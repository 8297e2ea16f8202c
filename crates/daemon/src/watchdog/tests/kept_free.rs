//! Work without a reservation while the domains leave too little of the CPU
//! (`super::super::kept_free`).

use upcall_shm::kernel_area::{self, Reader};
use upcall_sys::memfd::ReadOnlyMapping;

use super::*;

/// A domain that uses the whole CPU, and has no reservation. It declared jobs of this length.
fn greedy(group: &Arc<DomainGroup>, job: Span) -> Busy {
    let busy = Busy::start(group, 1);
    let limits = &busy.member.limits;
    limits.quantum_ns_max.store(Span::from_secs(100).as_nanos(), Relaxed);
    limits.share_ppm.store(1_000_000, Relaxed);
    limits.compute_ns.store(job.as_nanos(), Relaxed);
    busy
}

/// Ticks while the thread uses the whole CPU: its CPU time is the time. Returns from when on work
/// without a reservation may run after each tick, 0 for at once.
fn ticks(watch: &mut CpuWatch, busy: &Busy, count: u32) -> Vec<u64> {
    let group = watch.cpu_state.groups()[0].clone();
    let fd = group.kernel_fd.try_clone().unwrap();
    let reader = Reader::attach(ReadOnlyMapping::from_fd(fd, kernel_area::AREA_BYTES).unwrap());
    let reader = reader.unwrap();
    let all = (0..count).map(|_| {
        busy.run_for(TICK);
        let used_ns = busy.member.thread.by_server().unwrap().cpu_time().unwrap();
        assert_eq!(step(watch, THEN + Span::from_nanos(used_ns), true), []);
        reader.unreserved_from_ns()
    });
    all.collect()
}

#[test]
fn a_domain_that_runs_on_while_refused_work_waits_is_put_into_the_ordinary_class() {
    runs_on(Span::from_millis(1), 3);
    // The domain declares its jobs itself: 10 ms of them count, and the grace.
    runs_on(Span::from_secs(3), 5);
}

/// The domain is in the ordinary class so many ticks after it should wait.
fn runs_on(job: Span, ticks_max: u32) {
    let group = Arc::new(DomainGroup::new(0, 1).unwrap());
    let busy = greedy(&group, job);
    let mut watch = watch_of(&group, &busy.member);
    let _ = group.turn.take_need_resched();
    let mut from_ns = ticks(&mut watch, &busy, 4);
    assert_eq!(from_ns, [0; 4], "it owes some tenths of a millisecond a tick");
    while from_ns.last() == Some(&0) && from_ns.len() < 100 {
        from_ns.extend(ticks(&mut watch, &busy, 1));
    }
    // Relaxed: see `LastSample`.
    let ticked_at = Instant::from_nanos(busy.member.last_sample.at_ns.load(Relaxed));
    assert!(Instant::from_nanos(*from_ns.last().unwrap()) > ticked_at + TICK);
    assert!(group.turn.take_need_resched(), "the holder looks at its next boundary");
    assert!(busy.member.is(State::Attached), "it may end its quantum");
    ticks(&mut watch, &busy, ticks_max);
    assert!(busy.member.is(State::Demoted));
    assert_eq!(group.turn_of(&busy.member), None);
    let penalty = watch.records[0].penalty.unwrap();
    assert!(penalty.is_ordinary && !penalty.is_offence);
}

#[test]
fn a_domain_with_a_reservation_does_not_wait() {
    let group = Arc::new(DomainGroup::new(0, 1).unwrap());
    let busy = greedy(&group, Span::from_millis(1));
    busy.member.limits.reserves.store(true, Relaxed);
    let mut watch = watch_of(&group, &busy.member);
    let from_ns = ticks(&mut watch, &busy, 30);
    assert!(from_ns.iter().any(|&from_ns| from_ns > 0));
    assert!(busy.member.is(State::Attached));
}
