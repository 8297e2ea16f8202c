//! Random machines, sets and faults under every policy; and seeds that once
//! failed, by name.

use upcall_core::policy::DISCIPLINES;
use upcall_sim::vopr::vopr;

/// A few seconds in a debug build.
const SEEDS: u64 = 300;

/// An adaptive activity under PS was expected to have a job done every three
/// releases, though nobody had promised it anything.
#[test]
fn seed_2_who_was_promised_nothing_may_fall_behind() {
    let ps = upcall_core::policy::discipline("ps").expect("it is listed");
    vopr(ps, [2]).expect("no promise is broken");
}

#[test]
fn no_seed_breaks_a_promise_under_any_policy() {
    for discipline in DISCIPLINES {
        match vopr(discipline, 0..SEEDS) {
            Ok(tally) => {
                println!("{}: {tally:?}", discipline.name);
                // The scenarios are not empty.
                assert_eq!(tally.seeds, SEEDS);
                assert!(tally.jobs > 100 * SEEDS, "{tally:?}");
            }
            Err(failed) => panic!("{failed}"),
        }
    }
}
