//! Domains that are ready and get no CPU time, because others than domains have the CPU, or because
//! they are below the others.

use super::*;

/// Found by `video_players`: for 50 ms of each second the kernel ran ordinary programs before the
/// real-time threads (sched(7)). The holder was ready all the time, and lost its turn again and
/// again.
#[test]
fn a_silent_holder_that_gets_no_cpu_time_keeps_its_turn() {
    if kept_turn::lacks_right("a_silent_holder_that_gets_no_cpu_time_keeps_its_turn") {
        return;
    }
    // Threads inherit the CPU, so the two wait for each other.
    schedule::pin_thread(&schedule::allowed_cpus().unwrap()[..1]).unwrap();
    let group = Arc::new(DomainGroup::new(0, 1).unwrap());
    let holder = Busy::start(&group, 1);
    let (other, mut waits) = member(&group, 2, sleeping_thread());
    admit(&group, &other, 0);
    // Its own looks come later than those for the holder.
    other.limits.quantum_ns_max.store(QUANTUM.as_nanos() * 10, Relaxed);
    waits.publish(Some(Rank::new(7, 0).into()));
    let mut watch = watch_of(&group, &holder.member);
    holder.owner.set_running(Some(0), THEN.as_nanos());
    // Before all threads that the looks raise.
    schedule::set_fifo(Band::WHOLE.watchdog()).unwrap();
    assert_eq!(step(&mut watch, THEN, true), []);
    let mut at = THEN;
    for _ in 0..50 {
        at = watch.next_look().unwrap();
        assert_eq!(step(&mut watch, at, false), []);
        assert_eq!(group.turn.holder(), Ok(holder.member.domain));
    }
    // 50 looks, of which two came within one limit.
    assert!(at >= THEN + QUANTUM * 48);
    // Its limit in CPU time has not passed. This thread sleeps meanwhile.
    holder.run_for(Span::from_micros(10));
    let used_ns = watch.records[0].account.cpu_ns;
    at = watch.next_look().unwrap();
    assert_eq!(step(&mut watch, at, false), []);
    let ran_ns = watch.records[0].account.cpu_ns - used_ns;
    let is_within = ran_ns < QUANTUM.as_nanos();
    assert!(ran_ns > 0 && (!is_within || holder.member.is(State::Attached)), "{ran_ns} ns");
    let mut looks = 0;
    while holder.member.is(State::Attached) {
        holder.run_for(Span::from_micros(10));
        at = watch.next_look().unwrap();
        assert_eq!(step(&mut watch, at, false), []);
        looks += 1;
        assert!(looks < 20, "it ran on without a response");
    }
    assert_eq!(holder.member.offences(), 0);
}

/// Found by `video_players`: beside players that used the whole CPU, one that had used too much
/// once showed hardly a frame more. It was below them, so it could not respond.
#[test]
fn an_offender_that_gets_no_cpu_time_finishes_its_quantum_when_it_owes_nothing() {
    if kept_turn::lacks_right(
        "an_offender_that_gets_no_cpu_time_finishes_its_quantum_when_it_owes_nothing",
    ) {
        return;
    }
    // A preempted domain waits for so long only beside another user.
    for (is_offence, has_other_user) in [(true, false), (false, true), (false, false)] {
        // Threads inherit the CPU, so the two wait for each other.
        schedule::pin_thread(&schedule::allowed_cpus().unwrap()[..1]).unwrap();
        schedule::set_ordinary().unwrap();
        let group = Arc::new(DomainGroup::new(0, 1).unwrap());
        let busy = Busy::start(&group, 1);
        let mut watch = watch_of(&group, &busy.member);
        if has_other_user {
            let other = Arc::new(DomainGroup::new(1, 1).unwrap());
            let _ = member(&other, 1, sleeping_thread());
            watch.cpu_state.set_groups(|groups| groups.push(other));
        }
        group.turn.reset(DomainId::DAEMON);
        busy.owner.set_running(Some(0), THEN.as_nanos());
        // Before all threads that the looks raise.
        schedule::set_fifo(Band::WHOLE.watchdog()).unwrap();
        step(&mut watch, THEN, true);
        busy.member.limits.share_ppm.store(500_000, Relaxed);
        // More than its limit, so its silence is no proof that the host had the CPU.
        busy.run_for(QUANTUM * 3);
        let at = THEN + TICK;
        step(&mut watch, at, true);
        let rules = Rules { band: Some(Band::WHOLE), grace: GRACE, kill: false };
        let (stalled, kernel_tick, report) = (Span::ZERO, KERNEL_TICK, &mut |_: Report| {});
        let mut tick = Tick { now: at, stalled, kernel_tick, rules: &rules, report };
        match is_offence {
            true => {
                let measure = (Measure::OutPrioritised, 0);
                watch.act_against(&group, &busy.member, measure, &mut tick);
            }
            false => watch.preempt(&group, &busy.member, None, &mut tick),
        }
        let state_after = |watch: &mut CpuWatch, ticks: u32| {
            step(watch, at + TICK * ticks, true);
            [State::Demoted, State::Blocked].into_iter().find(|&state| busy.member.is(state))
        };
        if is_offence || has_other_user {
            assert_eq!(state_after(&mut watch, 1), Some(State::Demoted), "{is_offence}");
            assert_eq!(state_after(&mut watch, 9), Some(State::Demoted), "{is_offence}");
            assert_eq!(state_after(&mut watch, 10), Some(State::Blocked), "{is_offence}");
        } else {
            assert_eq!(state_after(&mut watch, 0), Some(State::Demoted));
            assert_eq!(state_after(&mut watch, 1), Some(State::Blocked));
        }
        assert_eq!(busy.member.offences(), u64::from(is_offence));
    }
}
