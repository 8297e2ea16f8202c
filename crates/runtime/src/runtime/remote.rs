//! What runs in other processes that no daemon knows of either: in the modes in which the
//! kernel decides, one set may lie in several. Each reserves for all of it, and so
//! all have the same CPUs and priorities in mind. Nothing here speaks with them.

use upcall_core::time::Span;

use super::Runtime;
use crate::need::{CreateError, Need};

impl Runtime {
    /// Reserves for what runs in another process, which no daemon knows either: one set
    /// is placed on the CPUs alike in each of its processes if all of them name it in
    /// the same order, and in mode `fifo` its threads have priorities by period among
    /// all. The reservation is held as long as the runtime is. Does nothing under a
    /// daemon, which knows of all. Must come before the handlers are run: a thread that
    /// runs keeps its priority. Allocates; O(n) analyses.
    ///
    /// # Errors
    /// [`CreateError::Params`] and [`CreateError::Refused`], as [`Runtime::handler`] of
    /// this need. A cost must be declared.
    pub fn reserve_elsewhere(
        &mut self,
        name: &str,
        need: impl Into<Need>,
    ) -> Result<(), CreateError> {
        if self.domain.is_some() {
            return Ok(());
        }
        let need = need.into();
        let params = need.params(self.config.switch_cost.unwrap_or_default())?;
        self.reserve_here(name, params, &need.terms())?;
        self.elsewhere.push(params.period);
        Ok(())
    }

    /// Priority of a handler's own thread: one below the next shorter period, `highest`
    /// for the shortest, and 1 for all that come later than that reaches.
    pub(super) fn rate_monotonic_priority(&self, index: usize, highest: u8) -> u8 {
        let live = || self.activities.iter().flatten();
        let Some(own) = live().find(|activity| activity.executor == index) else {
            return highest;
        };
        let mut shorter: Vec<Span> = live()
            .map(|other| other.params.period)
            .chain(self.elsewhere.iter().copied())
            .filter(|&period| period < own.params.period)
            .collect();
        shorter.sort_unstable();
        shorter.dedup();
        let below = u8::try_from(shorter.len()).unwrap_or(u8::MAX);
        highest.saturating_sub(below).max(1)
    }
}
