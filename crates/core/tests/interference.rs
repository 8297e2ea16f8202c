//! What one activity may cost the others: `C` in each period and one quantum, whatever it does
//! (docs/decisions/0016). In virtual time, under every policy.
//!
//! One CPU runs three activities that are admitted together (under PS: by their weights, without a
//! deadline that admission promises). The first is the offender. The others
//! keep their declarations, and must miss no deadline.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use upcall_core::activity::{ActivityId, ActivityParams, Backlog, Terms, Window};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::{DISCIPLINES, DWCS, DWS, Discipline, PS, RM, RMDP};
use upcall_core::scheduler::{Command, Counters, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

const OFFENDER: ActivityId = ActivityId(0);

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// 6 of 30 ms, 12 of 40 ms and 18 of 60 ms: 80 % of the CPU, in quanta of 1 ms.
fn set() -> [ActivityParams; 3] {
    let of = |period, pdus| ActivityParams::new(ms(period), ms(1)).batch(pdus).quantum(1);
    [of(30, 6), of(40, 12), of(60, 18)]
}

fn terms(discipline: &Discipline) -> [Terms; 3] {
    set().map(|params| {
        let share_ppm = params.compute().as_nanos() * 1_250_000 / params.period.as_nanos();
        let is_ps = discipline.is_named("ps");
        let share = Share::from_ppm(u32::try_from(share_ppm).unwrap()).filter(|_| is_ps);
        Terms { share, window: Some(Window { misses: 0, periods: 1 }), ..Terms::default() }
    })
}

/// Whether all of `set` is admitted.
fn admit(discipline: &Discipline) -> bool {
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let mut reservations = Reservations::new(platform, discipline);
    let mut all = set().into_iter().zip(terms(discipline));
    all.all(|(params, terms)| reservations.reserve("", params, &terms).is_ok())
}

/// Runs the three for 6 s. Each PDU of the offender takes `factor` times its declared cost.
fn run(discipline: &Discipline, factor: u32, backlog: Backlog) -> Vec<Counters> {
    let mut scheduler = Scheduler::new(3, &discipline.checked());
    let mut now = at(0);
    let ids = [0, 1, 2].map(ActivityId);
    for ((id, params), terms) in ids.into_iter().zip(set()).zip(terms(discipline)) {
        let backlog = if id == OFFENDER { backlog } else { Backlog::CatchUp };
        let terms = Terms { backlog, ..terms };
        scheduler.handle(now, Input::Create { id, params, terms }).unwrap();
        scheduler.handle(now, Input::Run { id, at: now }).unwrap();
    }
    while now < at(6_000) {
        match scheduler.poll_command(now) {
            Some(Command::Upcall { id, pdus_max, check_at, .. }) => {
                now = upcall(&mut scheduler, now, factor, (id, pdus_max, check_at));
            }
            Some(_) => {}
            None => {
                if scheduler.awaits_idle() {
                    scheduler.handle(now, Input::Idle).unwrap();
                }
                now = now.max(scheduler.next_deadline().unwrap());
                scheduler.handle(now, Input::Tick).unwrap();
            }
        }
    }
    ids.map(|id| scheduler.counters_at(now, id).unwrap()).into()
}

fn upcall(
    scheduler: &mut Scheduler,
    mut now: Instant,
    factor: u32,
    (id, pdus_max, mut check_at): (ActivityId, u32, Instant),
) -> Instant {
    let factor = if id == OFFENDER { factor } else { 1 };
    for pdus in 1..=pdus_max {
        now += set()[id.0 as usize].pdu_cost * factor;
        if pdus == pdus_max {
            let returned = Input::Returned { pdus, outcome: Outcome::Done };
            scheduler.handle(now, returned).unwrap();
        } else if now >= check_at {
            scheduler.handle(now, Input::Boundary).unwrap();
            match scheduler.poll_notice() {
                Some(Command::Proceed { check_at: next }) => check_at = next,
                answer => {
                    assert_eq!(answer, Some(Command::Yield));
                    let returned = Input::Returned { pdus, outcome: Outcome::Yielded };
                    scheduler.handle(now, returned).unwrap();
                    break;
                }
            }
        }
    }
    now
}

#[test]
fn the_set_is_admitted_under_each_policy_and_misses_nothing() {
    for discipline in DISCIPLINES {
        assert!(admit(discipline) || discipline.is_named("ps"), "{discipline:?}");
        for counters in run(discipline, 1, Backlog::CatchUp) {
            assert_eq!((counters.misses, counters.skipped), (0, 0), "{discipline:?}");
        }
    }
}

/// A quantum of the offender is then 5 ms instead of 1, which blocks the others. This set has room
/// for that.
#[test]
fn an_activity_that_takes_five_times_its_cost_costs_the_others_nothing() {
    for discipline in [&RMDP, &RM, &DWS, &PS, &DWCS] {
        for backlog in [Backlog::CatchUp, Backlog::Skip, Backlog::Latest] {
            let counters = run(discipline, 5, backlog);
            assert!(counters[0].misses > 50, "{discipline:?}: {:?}", counters[0]);
            let others = [counters[1].misses, counters[2].misses];
            assert_eq!(others, [0, 0], "{discipline:?} {backlog:?}");
        }
    }
}
