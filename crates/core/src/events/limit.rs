//! Whether a handler has run away: more invocations in a span than it declared.

use crate::time::{Instant, Span};

/// The times of the last invocations of a handler, as many as are permitted in a span. The limit
/// takes its memory once, at creation. Each call is O(1).
#[derive(Debug)]
pub(super) struct Limit {
    span: Span,
    /// The times of the last invocations: a ring. Once the ring is full, `next` is the oldest
    /// entry.
    times: Box<[Instant]>,
    next: usize,
    /// The latest entry.
    last: Instant,
    invocations: u64,
}

impl Limit {
    /// Permits at most `invocations_max` (at least 1) invocations in any `span`. A span includes
    /// its start and excludes its end.
    pub fn new(invocations_max: u32, span: Span) -> Self {
        let times = vec![Instant::ZERO; invocations_max.max(1) as usize].into();
        Limit { span, times, next: 0, last: Instant::ZERO, invocations: 0 }
    }

    /// Counts an invocation at `now`, or returns when the next one is permitted. A clock that goes
    /// back counts as standing still.
    #[inline]
    pub fn invoke(&mut self, now: Instant) -> Result<(), Instant> {
        // No remainder: a division takes longer than everything else here.
        let count = self.times.len();
        let oldest = &mut self.times[self.next];
        let from = *oldest + self.span;
        if self.invocations >= count as u64 && now < from {
            return Err(from);
        }
        self.last = now.max(self.last);
        *oldest = self.last;
        self.next = if self.next + 1 < count { self.next + 1 } else { 0 };
        self.invocations += 1;
        Ok(())
    }

    /// The number of counted invocations.
    pub fn invocations(&self) -> u64 {
        self.invocations
    }
}
