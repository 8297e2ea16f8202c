//! The daemon's copy of what a user area shows. All choices use it.
//!
//! So a choice reads no slots of other users, and a user cannot make the choices of another one
//! long. Two kinds of threads copy:
//!
//! - the KLS thread of the domain's own group, before it chooses. It copies the areas that changed,
//!   and its user pays for that ([`crate::pacing`]). A domain that publishes while its group does
//!   not have the CPU notifies this thread.
//! - the [`crate::watchdog`]: the areas that changed, of all groups at each tick, and between ticks
//!   of the group that has the CPU. The KLS thread of that group does not run.
//!
//! A domain may change its area without a new sequence number. Then the copy does not change. The
//! watchdog checks the ranks of the copy, because the daemon chooses by them.

use std::sync::{Mutex, PoisonError};

use upcall_core::time::Instant;
use upcall_shm::PeerFault;
use upcall_shm::user_area::{Peer, Summary};
use upcall_sys::memfd::SharedMapping;

/// See the module's head. A thread has the lock while it copies one area, at most.
#[derive(Debug, Default)]
pub(crate) struct AreaCopy(Mutex<Copied>);

/// A copy of an area.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Empty if the area was invalid, or if the domain was writing it: it has nothing to run.
    pub(crate) summary: Summary,
    /// Whether the area was invalid.
    pub(crate) is_invalid: bool,
    /// When the daemon made this copy. Nobody knows what the area said before.
    pub(crate) at: Instant,
}

impl Default for Copied {
    fn default() -> Self {
        Copied { summary: Summary::EMPTY, is_invalid: false, at: Instant::ZERO }
    }
}

impl Copied {
    fn of(area: &Peer<SharedMapping>, now: Instant) -> Self {
        match area.summary(now.as_nanos()) {
            Ok(summary) => Copied { summary, is_invalid: false, at: now },
            // A torn read proves nothing: the domain was writing.
            Err(PeerFault::Torn { .. }) => Copied::default(),
            Err(_) => Copied { is_invalid: true, ..Copied::default() },
        }
    }

    fn refresh(&mut self, area: &Peer<SharedMapping>, now: Instant) {
        if !area.is_current(&self.summary, now.as_nanos()) {
            *self = Copied::of(area, now);
        }
    }
}

impl AreaCopy {
    /// Copies the area if it changed. For the KLS thread of the group. May wait until the watchdog
    /// has copied the same area on another CPU. A load if nothing changed, else O(slots).
    pub(crate) fn refresh(&self, area: &Peer<SharedMapping>, now: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refresh(area, now);
    }

    /// As [`AreaCopy::refresh`], for the watchdog: does nothing while a KLS thread uses the copy.
    pub(crate) fn try_refresh(&self, area: &Peer<SharedMapping>, now: Instant) {
        if let Ok(mut copy) = self.0.try_lock() {
            copy.refresh(area, now);
        }
    }

    /// The result of `look` at the copy. O(1) and the time of `look`. If another thread uses the
    /// copy at this moment, this one reads the area instead.
    pub(crate) fn read<T>(
        &self,
        area: &Peer<SharedMapping>,
        now: Instant,
        look: impl FnOnce(&Copied) -> T,
    ) -> T {
        match self.0.try_lock() {
            Ok(copy) => look(&copy),
            Err(_) => look(&Copied::of(area, now)),
        }
    }
}
