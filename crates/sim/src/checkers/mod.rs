//! Whether what was promised was kept: one file a promise, each over events
//! alone.
//!
//! A checker believes neither the scheduler nor its counters: it has the
//! releases, which the simulator works out by itself, and what the CPU did.
//! Checkers read the events of one run in order, and stop at the first promise
//! that was broken.
//!
//! | checker | what must hold |
//! |---|---|
//! | [`deadlines`] | no job for which admission gave a bound ends after it |
//! | [`work_conserved`] | no awake CPU idles, or lets time pass, while a job is ready |
//! | [`no_lost_wakeup`] | no CPU sleeps on while a job or a message waits |
//! | [`lag_bound`] | the lag of an activity stays within a bound |
//! | [`ties`] | of equals, nobody goes before one with a more urgent event |
//! | [`windows`] | at most `x` of the `y` periods of a window are missed |
//! | [`progress`] | once faults have healed, everyone gets on |
//!
//! What a fault breaks is excused, from its beginning until the CPU has nothing
//! left to do after it healed ([`excuse`]).

use crate::event::SimEvent;
use crate::spec::SimSpec;
pub use checker::{Checker, Promises, Violation};
use deadlines::Deadlines;
use lag_bound::LagBound;
use no_lost_wakeup::NoLostWakeup;
use progress::Progress;
use ties::Ties;
use upcall_core::time::Instant;
use windows::Windows;
use work_conserved::WorkConserved;

mod checker;
pub mod deadlines;
pub mod excuse;
pub mod lag_bound;
pub mod no_lost_wakeup;
pub(crate) mod pending;
pub mod progress;
#[cfg(test)]
mod tests;
pub mod ties;
pub mod windows;
pub mod work_conserved;

/// Every checker that applies, side by side.
pub struct Checkers {
    checkers: Vec<Box<dyn Checker>>,
    violation: Option<Violation>,
}

impl Checkers {
    /// All of them, for a run of `spec` with `promises`.
    pub fn all(spec: &SimSpec, promises: &Promises) -> Self {
        let mut checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(Deadlines::new(spec, promises)),
            Box::new(WorkConserved::new(spec)),
            Box::new(NoLostWakeup::new(spec, promises.wakeup_latency)),
            Box::new(Progress::new(spec, promises)),
        ];
        if let Some(lag_max) = promises.lag_max {
            checkers.push(Box::new(LagBound::new(spec, promises, lag_max)));
        }
        if let Some(ties) = Ties::new(spec, promises) {
            checkers.push(Box::new(ties));
        }
        if promises.windows {
            checkers.push(Box::new(Windows::new(spec, promises)));
        }
        Checkers { checkers, violation: None }
    }

    /// Hands the event to each, until one has found something.
    pub fn event(&mut self, event: &SimEvent) {
        if self.violation.is_some() {
            return;
        }
        for checker in &mut self.checkers {
            if let Err(what) = checker.event(event) {
                self.violation = Some(Violation { checker: checker.name(), at: event.at, what });
                return;
            }
        }
    }

    /// What was found first, the end of the run included.
    ///
    /// # Errors
    /// A promise was broken.
    pub fn finish(mut self, end: Instant) -> Result<(), Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        for checker in &mut self.checkers {
            let name = checker.name();
            let broken = |what| Violation { checker: name, at: end, what };
            checker.finish(end).map_err(broken)?;
        }
        Ok(())
    }
}
