//! Checkers of the promises, one file each, which read only the events.
//!
//! A checker trusts neither the scheduler nor its counters. It uses the releases, which the
//! simulator computes by itself, and the work of the CPU. Checkers read the events of one run in
//! order, and stop at the first broken promise.
//!
//! | checker | what must hold |
//! |---|---|
//! | [`deadlines`] | no job with an admitted bound ends after it |
//! | [`work_conserved`] | no awake CPU idles, or lets time pass, while a job is ready |
//! | [`no_lost_wakeup`] | no CPU stays asleep while a job or a message waits |
//! | [`lag_bound`] | the lag of an activity stays within a bound |
//! | [`ties`] | among activities of equal rank, the one with the most urgent event runs first |
//! | [`interference`] | while a job waits, another activity uses no more than its reservation |
//! | [`windows`] | at most `x` of the `y` periods of a window are missed |
//! | [`progress`] | after faults have healed, every activity makes progress |
//!
//! Faults excuse the promises that they break. The excuse lasts from the fault's beginning until
//! the CPU has nothing left to do after it healed ([`excuse`]). If domains are processes, a fault
//! that takes one of them away excuses that domain alone.

use crate::event::SimEvent;
use crate::spec::SimSpec;
pub use checker::{Checker, Promises, Violation};
use deadlines::Deadlines;
use interference::Interference;
use lag_bound::LagBound;
use no_lost_wakeup::NoLostWakeup;
use progress::Progress;
use ties::Ties;
use upcall_core::time::Instant;
use windows::Windows;
use work_conserved::WorkConserved;

mod away;
mod checker;
pub mod deadlines;
pub mod excuse;
pub mod interference;
pub mod lag_bound;
pub mod no_lost_wakeup;
pub(crate) mod over_budget;
pub(crate) mod pending;
pub mod progress;
#[cfg(test)]
mod tests;
pub mod ties;
pub mod windows;
pub mod work_conserved;

/// All checkers that apply to a run.
pub struct Checkers {
    checkers: Vec<Box<dyn Checker>>,
    violation: Option<Violation>,
}

impl Checkers {
    /// The checkers for a run of `spec` with `promises`.
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
        if let Some(interference) = Interference::new(spec, promises) {
            checkers.push(Box::new(interference));
        }
        if promises.windows {
            checkers.push(Box::new(Windows::new(spec, promises)));
        }
        Checkers { checkers, violation: None }
    }

    /// Gives the event to each checker, until one has found a violation.
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

    /// The first violation, including those at the end of the run.
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
