//! What every checker is, what it is told, and what it reports.

use crate::event::SimEvent;
use core::fmt;
use upcall_core::time::{Instant, Span};

/// One promise, watched over the events of one run.
pub trait Checker {
    /// Its name, as its file's.
    fn name(&self) -> &'static str;

    /// Takes in the next event. Amortized O(1), O(CPUs) or O(activities of a CPU).
    ///
    /// # Errors
    /// The promise was broken: how, in a line.
    fn event(&mut self, event: &SimEvent) -> Result<(), String>;

    /// The run ended at `end`.
    ///
    /// # Errors
    /// The promise was broken by what did not happen.
    fn finish(&mut self, end: Instant) -> Result<(), String>;
}

/// What was promised for a run.
#[derive(Clone, Debug)]
pub struct Promises {
    /// Of each activity, the longest response admission allows; `None` where it
    /// gave no bound.
    pub response_max: Vec<Option<Span>>,
    /// How late a CPU may wake.
    pub wakeup_latency: Span,
    /// The most a lag may be, either way; `None` where nothing was said.
    pub lag_max: Option<Span>,
    /// Whether window-constraints are kept.
    pub windows: bool,
    /// By how long after the last fault everyone gets on.
    pub settled_after: Span,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// By the checker of that name.
    pub checker: &'static str,
    /// When.
    pub at: Instant,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ns: {}", self.checker, self.at.as_nanos(), self.what)
    }
}

impl core::error::Error for Violation {}
