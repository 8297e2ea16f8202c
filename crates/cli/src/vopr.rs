//! `upcall sim --vopr N`: random machines, sets and faults under every checker.

use indicatif::{ProgressBar, ProgressStyle};
use upcall::discipline::{DISCIPLINES, Discipline};
use upcall_sim::vopr::{Counts, vopr};

use crate::output;

/// Seeds between two updates of the progress bar.
const STRIDE: u64 = 16;

/// Checks `count` seeds from `first` on under each policy, or under the named one. Ends at the
/// first seed that fails.
pub fn check(count: u64, first: u64, policy: Option<&'static Discipline>) -> output::Vopr {
    let disciplines = policy.map_or_else(|| DISCIPLINES.to_vec(), |policy| vec![policy]);
    let bar = ProgressBar::new(count.saturating_mul(disciplines.len() as u64));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds, {eta} left {msg}")
    {
        bar.set_style(style);
    }
    let mut vopr = output::Vopr { mode: "vopr", policies: Vec::new(), failed: None };
    for discipline in disciplines {
        bar.set_message(discipline.name);
        let (counts, failed) = check_policy(discipline, first, count, &bar);
        vopr.policies.push(output::Checked {
            policy: discipline.name,
            seeds: counts.seeds,
            jobs: counts.jobs,
            events: counts.events,
        });
        vopr.failed = failed;
        if vopr.failed.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    vopr
}

fn check_policy(
    discipline: &'static Discipline,
    first: u64,
    count: u64,
    bar: &ProgressBar,
) -> (Counts, Option<output::FailedSeed>) {
    let mut counts = Counts::default();
    let until = first.saturating_add(count);
    let mut from = first;
    while from < until {
        let next = from.saturating_add(STRIDE).min(until);
        match vopr(discipline, from..next) {
            Ok(more) => {
                counts.seeds += more.seeds;
                counts.jobs += more.jobs;
                counts.events += more.events;
            }
            Err(failed) => {
                let what = failed.violation.to_string();
                let (seed, policy) = (failed.seed, failed.policy);
                return (counts, Some(output::FailedSeed { seed, policy, what }));
            }
        }
        bar.inc(next - from);
        from = next;
    }
    (counts, None)
}
