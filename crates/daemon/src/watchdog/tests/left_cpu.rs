//! Threads that leave the CPU of their domain (`super::super::left_cpu`).

use super::super::left_cpu::moment_within;
use super::super::standstill::Ask;
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
    watch.answer(Ask::CheckCpus, &mut tick);
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
    busy.member.thread.by_watchdog().set_fifo_not_inherited(Band::WHOLE.offender()).unwrap();
    assert_eq!(end_absences(&mut watch), []);

    let rounds = [
        (vec![elsewhere], &[][..]),
        (vec![elsewhere, cpu], &[]),
        (vec![elsewhere], &[Measure::LeftCpu]),
    ];
    let is_ordinary = || busy.member.thread.by_watchdog().class() == Ok(schedule::Class::Ordinary);
    for (cpus, measures) in rounds {
        // As if the penalty were over.
        watch.record_of(&busy.member).unwrap().penalty = None;
        group.set_state(&busy.member, State::Attached);
        busy.member.thread.by_watchdog().set_fifo_not_inherited(Band::WHOLE.offender()).unwrap();
        schedule::pin_thread_of(tid, &cpus).unwrap();
        assert_eq!(end_absences(&mut watch), measures);
        assert_eq!(schedule::allowed_cpus_of(tid), Ok(vec![cpu]));
        assert_eq!(busy.member.offences(), measures.len() as u64);
        assert!(busy.member.is(State::Demoted), "it takes no turns");
        assert_eq!(is_ordinary(), measures.is_empty(), "an offender goes below the others");
        assert_eq!(end_absences(&mut watch), []);
    }
}

/// A thread of another CPU may be the cause of a standstill.
#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn the_question_of_a_look_is_passed_on_to_the_threads_of_the_other_cpus() {
    let test = "the_question_of_a_look_is_passed_on_to_the_threads_of_the_other_cpus";
    let allowed = schedule::allowed_cpus().unwrap();
    let Some((cpu, elsewhere)) = two_cpus(test, &allowed) else { return };
    let _pinned = Pinned { allowed: allowed.clone() };
    schedule::pin_thread(&[elsewhere]).unwrap();
    let group = Arc::new(DomainGroup::new(cpu, 1).unwrap());
    let busy = Busy::start(&group, 1);
    let tid = busy.member.thread.tid();
    let mut watch = watch_of(&group, &busy.member);
    assert_eq!(step(&mut watch, now(), true), []);
    schedule::pin_thread_of(tid, &[elsewhere]).unwrap();
    // It has the class of a domain.
    busy.member.thread.by_watchdog().set_fifo_not_inherited(Band::WHOLE.offender()).unwrap();

    let rules = Rules { band: Some(Band::WHOLE), grace: GRACE, kill: false };
    let quit = Arc::new(AtomicBool::new(false));
    let mut watchdog = Watchdog::new((&[], &allowed), rules, quit, |report| panic!("{report:?}"));
    let mut still = CpuWatch::new(Arc::new(CpuState::new(elsewhere)));
    still.asks.push(Ask::CheckCpus);
    watchdog.cpu_states = vec![still, watch];
    watchdog.pass_on(false, Span::ZERO, KERNEL_TICK);
    assert_eq!(schedule::allowed_cpus_of(tid), Ok(vec![cpu]));
}

/// Through the loop of the thread itself.
#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn the_watchdog_pins_a_thread_that_left_within_some_ticks() {
    let test = "the_watchdog_pins_a_thread_that_left_within_some_ticks";
    let allowed = schedule::allowed_cpus().unwrap();
    let Some((cpu, elsewhere)) = two_cpus(test, &allowed) else { return };
    let group = Arc::new(DomainGroup::new(cpu, 1).unwrap());
    let sleeps = Arc::new(AtomicBool::new(true));
    let (go_on, (tell, told)) = (sleeps.clone(), mpsc::channel());
    let sleeper = std::thread::spawn(move || {
        tell.send(thread_id()).unwrap();
        while go_on.load(Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let tid = told.recv().unwrap();
    let (domain, _area) = member(&group, 1, (std::process::id(), tid));
    admit(&group, &domain, 0);
    schedule::pin_thread_of(tid, &[elsewhere]).unwrap();
    domain.thread.by_watchdog().set_fifo_not_inherited(Band::WHOLE.offender()).unwrap();

    let cpu_state = Arc::new(CpuState::new(cpu));
    cpu_state.set_groups(|groups| groups.push(group.clone()));
    let rules = Rules { band: Some(Band::WHOLE), grace: GRACE, kill: false };
    let quit = Arc::new(AtomicBool::new(false));
    let watchdog = Watchdog::new((&[cpu_state], &allowed), rules, quit.clone(), |_| ());
    let watchdog = watchdog.spawn().unwrap();
    let is_pinned = || schedule::allowed_cpus_of(tid) == Ok(vec![cpu]);
    let found = (0..5_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        is_pinned()
    });
    quit.store(true, Relaxed);
    sleeps.store(false, Relaxed);
    watchdog.join().unwrap();
    sleeper.join().unwrap();
    assert!(found, "nobody pinned it in ten seconds");
}

#[test]
fn the_moment_of_the_check_lies_within_the_tick_and_differs() {
    let begin = Instant::from_nanos(7);
    let moments: BTreeSet<Instant> = (0..100).map(|_| moment_within(begin)).collect();
    assert!(moments.iter().all(|&at| at >= begin && at < begin + TICK));
    let halves = moments.iter().partition::<Vec<Instant>, _>(|&&at| at < begin + TICK / 2);
    // All of a hundred in one half: once in 10^30.
    assert!(!halves.0.is_empty() && !halves.1.is_empty());
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
    schedule::pin_thread_of(tid, &[elsewhere]).unwrap();
    assert_eq!(end_absences(&mut watch), []);
    assert_eq!(schedule::allowed_cpus_of(tid), Ok(vec![elsewhere]));
}
