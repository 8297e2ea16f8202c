//! Handlers in other processes, without a daemon.
//!
//! In the modes in which the kernel decides, the handlers of one set may run in several processes.
//! Each process reserves for the whole set, so all of them compute the same CPUs and priorities.
//! The processes do not communicate.

use upcall_core::time::Span;

use super::{Remote, Runtime};
use crate::id::HandlerId;
use crate::need::{CreateError, Need};

impl Runtime {
    /// Reserves for a handler that runs in another process, without a daemon.
    ///
    /// If all processes of a set name its handlers in the same order, each process places the set
    /// on the CPUs in the same way. In mode `fifo` the threads of all processes then have
    /// priorities by period. The reservation lasts as long as the runtime. Call this before the
    /// handlers are run: a thread that runs keeps its priority. Reserves nothing under a daemon,
    /// which knows all handlers. Allocates; O(n) analyses.
    ///
    /// The needs of further remote handlers may name the result ([`Need::same_cpu_as`]). To all
    /// other calls it is a closed handler.
    ///
    /// # Errors
    /// [`CreateError::Params`], [`CreateError::Refused`] and [`CreateError::NoSuchHandler`], as
    /// [`Runtime::handler`] with this need. A cost must be declared.
    pub fn reserve_remote(
        &mut self,
        name: &str,
        need: impl Into<Need>,
    ) -> Result<HandlerId, CreateError> {
        let handler = HandlerId(self.activities.len());
        if self.domain.is_none() {
            let need = need.into();
            let params = need.params(self.config.switch_cost.unwrap_or_default())?;
            let same_cpu = self.same_cpu(&need)?;
            let reservation = self.reserve_local(name, params, &need.terms(), same_cpu.as_ref())?;
            let (name, period) = (name.to_owned(), params.period);
            self.remotes.push(Remote { handler, name, period, reservation });
        }
        self.activities.push(None);
        Ok(handler)
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
            .chain(self.remotes.iter().map(|remote| remote.period))
            .filter(|&period| period < own.params.period)
            .collect();
        shorter.sort_unstable();
        shorter.dedup();
        let below = u8::try_from(shorter.len()).unwrap_or(u8::MAX);
        highest.saturating_sub(below).max(1)
    }
}
