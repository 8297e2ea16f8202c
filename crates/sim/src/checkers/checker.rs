//! The interface of a checker, its input and its result.

use crate::event::SimEvent;
use core::fmt;
use upcall_core::time::{Instant, Span};

/// A check of one promise over the events of one run.
pub trait Checker {
    /// The name of the checker, the same as its file's.
    fn name(&self) -> &'static str;

    /// Handles the next event. Amortized O(1), O(CPUs) or O(activities of a CPU).
    ///
    /// # Errors
    /// The promise was broken. The text describes the violation in one line.
    fn event(&mut self, event: &SimEvent) -> Result<(), String>;

    /// Handles the end of the run at `end`.
    ///
    /// # Errors
    /// The promise was broken because something did not happen in time.
    fn finish(&mut self, end: Instant) -> Result<(), String>;
}

/// The promises for a run.
#[derive(Clone, Debug)]
pub struct Promises {
    /// For each activity, the longest response that admission allows; `None` if it gave no bound.
    pub response_max: Vec<Option<Span>>,
    /// How late a CPU may wake.
    pub wakeup_latency: Span,
    /// The largest absolute lag; `None` if there is no promise.
    pub lag_max: Option<Span>,
    /// Whether window-constraints are promised.
    pub windows: bool,
    /// The time after the last fault by which every activity makes progress.
    pub settled_after: Span,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the checker.
    pub checker: &'static str,
    /// Time of the violation.
    pub at: Instant,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ns: {}", self.checker, self.at.as_nanos(), self.what)
    }
}

impl core::error::Error for Violation {}
