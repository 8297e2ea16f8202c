//! Handlers in other processes, without a daemon.
//!
//! In the modes in which the kernel decides, the handlers of one set may run in several processes.
//! Each process reserves for the whole set, so all of them compute the same CPUs and priorities.
//! The processes do not communicate.

use upcall_core::time::Span;

use super::Runtime;
use crate::need::{CreateError, Need};

impl Runtime {
    /// Reserves for a handler that runs in another process, without a daemon.
    ///
    /// If all processes of a set name its handlers in the same order, each process places the set
    /// on the CPUs in the same way. In mode `fifo` the threads of all processes then have
    /// priorities by period. The reservation lasts as long as the runtime. Call this before the
    /// handlers are run: a thread that runs keeps its priority. Does nothing under a daemon, which
    /// knows all handlers. Allocates; O(n) analyses.
    ///
    /// # Errors
    /// [`CreateError::Params`] and [`CreateError::Refused`], as [`Runtime::handler`] with
    /// this need. A cost must be declared.
    pub fn reserve_remote(&mut self, name: &str, need: impl Into<Need>) -> Result<(), CreateError> {
        if self.domain.is_some() {
            return Ok(());
        }
        let need = need.into();
        let params = need.params(self.config.switch_cost.unwrap_or_default())?;
        self.reserve_local(name, params, &need.terms())?;
        self.remote_periods.push(params.period);
        Ok(())
    }

    /// Priority of a handler's own thread: `highest` for the shortest period, one less for each
    /// longer one, and at least 1.
    pub(super) fn rate_monotonic_priority(&self, index: usize, highest: u8) -> u8 {
        let live = || self.activities.iter().flatten();
        let Some(own) = live().find(|activity| activity.executor == index) else {
            return highest;
        };
        let mut shorter: Vec<Span> = live()
            .map(|other| other.params.period)
            .chain(self.remote_periods.iter().copied())
            .filter(|&period| period < own.params.period)
            .collect();
        shorter.sort_unstable();
        shorter.dedup();
        let below = u8::try_from(shorter.len()).unwrap_or(u8::MAX);
        highest.saturating_sub(below).max(1)
    }
}
