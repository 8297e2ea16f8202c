//! An activity that takes five times its declared cost, under each policy: the others keep their
//! declarations and miss no deadline (docs/decisions/0016). In one process, and among processes.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use upcall_core::activity::{ActivityParams, Backlog, Terms, Window};
use upcall_core::admission::Share;
use upcall_core::discipline::{DWCS, DWS, Discipline, PS, RM, RMDP};
use upcall_core::time::Span;
use upcall_sim::{Execution, SimActivity, SimSpec, Simulation, SplitLevel};

/// 6 of 30 ms, 12 of 40 ms and 18 of 60 ms, in quanta of 1 ms. Each PDU of the first takes
/// `factor` ms. Returns the misses of each.
fn misses(discipline: &'static Discipline, factor: u64, is_split: bool) -> Vec<u64> {
    let ms = Span::from_millis;
    let activities = (0..).zip([(30, 6), (40, 12), (60, 18)]).map(|(domain, (period, pdus))| {
        let params = ActivityParams::new(ms(period), ms(1)).batch(pdus).quantum(1);
        let share = u64::from(pdus) * 1_250_000 / period;
        let share = Share::from_ppm(u32::try_from(share).unwrap());
        let terms = Terms {
            share: share.filter(|_| discipline.is_named("ps")),
            window: Some(Window { misses: 0, periods: 1 }),
            backlog: Backlog::CatchUp,
            ..Terms::default()
        };
        let execution = Execution::Fixed(ms(if domain == 0 { factor } else { 1 }));
        SimActivity { domain, execution, terms, ..SimActivity::new(format!("{domain}"), params) }
    });
    let split_level = is_split.then(SplitLevel::default);
    let spec =
        SimSpec { checked: true, split_level, ..SimSpec::new(discipline, activities.collect()) };
    let outcome = Simulation::new(spec).unwrap().run(Span::from_secs(6), &mut |_| {});
    outcome.activities.iter().map(|activity| activity.counters.misses).collect()
}

#[test]
fn an_activity_that_takes_five_times_its_cost_costs_the_others_nothing() {
    for discipline in [&RMDP, &RM, &DWS, &PS, &DWCS] {
        for is_split in [false, true] {
            let found = misses(discipline, 1, is_split);
            assert_eq!(found, [0, 0, 0], "{discipline:?}, as declared");
            let found = misses(discipline, 5, is_split);
            assert!(found[0] > 50, "{discipline:?} {found:?}");
            assert_eq!(found[1..], [0, 0], "{discipline:?}, processes: {is_split}");
        }
    }
}
