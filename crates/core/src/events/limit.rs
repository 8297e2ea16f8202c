//! Whether a handler has run away: more invocations in a span than it declared.

use crate::time::{Instant, Span};

/// The last invocations of a handler, as many as there may be in a span.
/// Memory is taken once, at creation; each call is O(1).
#[derive(Debug)]
pub(super) struct Limit {
    span: Span,
    /// A ring once it is full: then `next` is the oldest.
    times: Box<[Instant]>,
    invocations: u64,
}

impl Limit {
    /// At most `invocations_max` (at least 1) in any `span`, which includes its
    /// begin and not its end.
    pub fn new(invocations_max: u32, span: Span) -> Self {
        let times = vec![Instant::ZERO; invocations_max.max(1) as usize].into();
        Limit { span, times, invocations: 0 }
    }

    /// Counts an invocation at `now`, or says from when on there may be one. A clock
    /// that goes back stands still.
    pub fn invoke(&mut self, now: Instant) -> Result<(), Instant> {
        let count = self.times.len() as u64;
        let at = usize::try_from(self.invocations % count).unwrap_or(0); // less than a length
        let from = self.times[at] + self.span;
        if self.invocations >= count && now < from {
            return Err(from);
        }
        let before = self.times[(at + self.times.len() - 1) % self.times.len()];
        self.times[at] = now.max(before);
        self.invocations += 1;
        Ok(())
    }

    /// How many were counted.
    pub fn invocations(&self) -> u64 {
        self.invocations
    }
}
