//! Random machines, sets and faults under every policy; and seeds that once
//! failed, by name.

use upcall_core::policy::DISCIPLINES;
use upcall_sim::vopr::vopr;

/// A few seconds in a debug build.
const SEEDS: u64 = 300;

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
