//! Threads that leave the CPU of their domain (`super::super::left_cpu`).

use super::lock_waits::Pinned;
use super::*;

/// Asks the watchdog for the absences. Returns the measures.
fn end_absences(watch: &mut CpuWatch) -> Vec<Measure> {
    let mut reported = Vec::new();
    let report = &mut |report: Report| {
        let Report::Offence(offence) = report else { panic!("{report:?}") };
        reported.push(offence.measure);
    };
    let rules = Rules { band: Some(Band::WHOLE), grace: GRACE, kill: false };
    let (stalled, kernel_tick) = (Span::ZERO, KERNEL_TICK);
    let mut tick = Tick { now: now(), stalled, kernel_tick, rules: &rules, report };
    watch.end_absences(&mut tick);
    reported
}

/// The CPU of [`watch_of`], and another one.
fn two_cpus(test: &str, allowed: &[u32]) -> Option<(u32, u32)> {
    if let &[0, .., elsewhere] = allowed {
        return Some((0, elsewhere));
    }
    let _ = writeln!(std::io::stderr(), "skipped: {test}: needs CPU 0 and another one");
    None
}

#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn a_thread_that_leaves_its_cpu_is_pinned_again_and_offends() {
    let test = "a_thread_that_leaves_its_cpu_is_pinned_again_and_offends";
    let allowed = schedule::allowed_cpus().unwrap();
    let Some((cpu, elsewhere)) = two_cpus(test, &allowed) else { return };
    let _pinned = Pinned { allowed };
    schedule::pin_thread(&[elsewhere]).unwrap();
    let group = Arc::new(DomainGroup::new(cpu, 1).unwrap());
    let busy = Busy::start(&group, 1);
    let tid = busy.member.thread.tid();
    let mut watch = watch_of(&group, &busy.member);
    assert_eq!(step(&mut watch, now(), true), []);
    schedule::pin_thread_of(tid, &[cpu]).unwrap();
    assert_eq!(end_absences(&mut watch), []);

    for (offences, cpus) in [(1, vec![elsewhere]), (2, vec![elsewhere, cpu])] {
        schedule::pin_thread_of(tid, &cpus).unwrap();
        assert_eq!(end_absences(&mut watch), [Measure::LeftCpu]);
        assert_eq!(schedule::allowed_cpus_of(tid), Ok(vec![cpu]));
        assert_eq!(busy.member.offences(), offences);
        assert!(busy.member.is(State::Demoted));
        assert_eq!(end_absences(&mut watch), []);
    }
}

/// An ordinary thread competes with ordinary programs only.
#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn a_thread_in_the_ordinary_class_may_leave() {
    let test = "a_thread_in_the_ordinary_class_may_leave";
    let allowed = schedule::allowed_cpus().unwrap();
    let Some((cpu, elsewhere)) = two_cpus(test, &allowed) else { return };
    let group = Arc::new(DomainGroup::new(cpu, 1).unwrap());
    let busy = Busy::start(&group, 1);
    let tid = busy.member.thread.tid();
    let mut watch = watch_of(&group, &busy.member);
    assert_eq!(step(&mut watch, now(), true), []);
    group.set_state(&busy.member, State::Demoted);
    schedule::pin_thread_of(tid, &[elsewhere]).unwrap();
    assert_eq!(end_absences(&mut watch), []);
    assert_eq!(schedule::allowed_cpus_of(tid), Ok(vec![elsewhere]));
}
