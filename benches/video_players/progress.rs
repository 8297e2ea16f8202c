//! How far the bench is, and how many tries the rest of its time allows.

use std::time::{Duration, Instant};

use upcall_benches::calm::Calm;

/// The most time for all steps, apart from the last one.
const BUDGET: Duration = Duration::from_secs(29 * 60);
/// One try of a step, without waiting for a calm host.
const TRY: Duration = Duration::from_secs(7);

/// The steps that are done, and the time since the first one.
pub struct Progress {
    begun: Instant,
    done: usize,
    all: usize,
}

impl Progress {
    /// Begins now, with so many steps.
    pub fn of(all: usize) -> Self {
        Progress { begun: Instant::now(), done: 0, all }
    }

    /// The budget in words, for the head of the tables.
    pub fn describe(&self) -> String {
        let minutes = BUDGET.as_secs() / 60;
        format!(
            "all {} steps get {minutes} min: a step has one try, without waiting, while only single tries of\n\
             the rest fit",
            self.all
        )
    }

    /// The rule for the next step: `calm`, or a single try if the others would have no time else.
    /// `None`: the time is used up.
    pub fn rule(&self, calm: Calm) -> Option<Calm> {
        rule_after(self.begun.elapsed(), self.all - self.done, calm)
    }

    /// Says on stderr which step begins, and counts it.
    pub fn say(&mut self, players: usize, variant: &str) {
        self.done += 1;
        eprintln!(
            "step {} of {}, after {} s: {players} players, {variant}",
            self.done,
            self.all,
            self.begun.elapsed().as_secs()
        );
    }
}

fn rule_after(elapsed: Duration, left: usize, calm: Calm) -> Option<Calm> {
    let rest = TRY * u32::try_from(left).unwrap_or(u32::MAX);
    match () {
        () if elapsed > BUDGET => None,
        () if elapsed + rest > BUDGET => Some(Calm { tries_max: 1, wait_s_max: 0, ..calm }),
        () => Some(calm),
    }
}
