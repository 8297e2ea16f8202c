//! The two priorities of a KLS thread with the real-time class.
//!
//! ```text
//!   60, with the domains    another group has the CPU, or none has: sleeps, and chooses
//!   59, below the domains   the own group has the CPU: is ready, and does not run
//! ```
//!
//! A domain that is woken during the turn of another user runs for a moment when the holder yields,
//! and wakes the KLS thread of its group. At priority 59 that thread would not run before the
//! holder sleeps. At 60 it runs when the holder yields again (docs/decisions/0017). It never
//! interrupts a quantum of the holder.
//!
//! Only the KLS thread of the group that had the CPU last is at 59, and it goes to 60 before it
//! chooses. So it is asleep at 60 before a domain of another group runs. The thread of a user who
//! is alone on the CPU stays at 59, and saves two system calls each time the CPU becomes idle.

use upcall_sys::schedule::{self, Band};

/// See the module's head.
pub(super) struct Level {
    /// `None`: without the real-time class, and with one priority.
    band: Option<Band>,
    is_raised: bool,
}

impl Level {
    /// The level of a thread that has the priority of its creator still.
    pub(super) fn new(band: Option<Band>) -> Self {
        Level { band, is_raised: false }
    }

    /// Gives the calling thread the priority of the domains. So the thread of a new group starts
    /// while another group has the CPU.
    pub(super) fn start(&mut self) {
        self.change(true);
    }

    /// Whether the thread has the priority of the domains.
    pub(super) fn is_raised(&self) -> bool {
        self.is_raised
    }

    /// Gives the thread the priority of the domains, or the one below. Returns whether that was a
    /// change: meanwhile other threads may have run. A system call if it was.
    pub(super) fn change(&mut self, is_raised: bool) -> bool {
        let Some(band) = self.band.filter(|_| self.is_raised != is_raised) else { return false };
        let priority = if is_raised { band.handlers() } else { band.kernel_level() };
        // A failure is ignored: if a right has gone, the thread still runs, but late.
        let _ = schedule::set_fifo(priority);
        self.is_raised = is_raised;
        true
    }
}
