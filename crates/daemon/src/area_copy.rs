//! The daemon's copy of what a user area shows. All choices use it.
//!
//! So a choice reads no slots of other users, and a user cannot make the choices of another one
//! long. Two kinds of threads copy:
//!
//! - the KLS thread of the domain's own group, before it chooses. It copies the areas that changed,
//!   and its user pays for that ([`crate::pacing`]). A domain that publishes while its group does
//!   not have the CPU notifies this thread.
//! - the [`crate::watchdog`]: all areas at each tick, and between ticks those of the group that has
//!   the CPU. The KLS thread of that group does not run.
//!
//! A domain may change its area without a new sequence number. The copy of the next tick has it.

use std::sync::{Mutex, PoisonError};

use upcall_core::time::Instant;
use upcall_shm::user_area::{Peer, Summary};
use upcall_sys::memfd::SharedMapping;

/// See the module's head. A thread has the lock while it copies one area, at most.
#[derive(Debug)]
pub(crate) struct AreaCopy(Mutex<Summary>);

impl Default for AreaCopy {
    fn default() -> Self {
        AreaCopy(Mutex::new(Summary::EMPTY))
    }
}

impl AreaCopy {
    /// Copies the area if it changed. For the KLS thread of the group. May wait until the watchdog
    /// has copied the same area on another CPU. A load if nothing changed, else O(slots).
    pub(crate) fn refresh(&self, area: &Peer<SharedMapping>, now: Instant) {
        let mut copy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !area.is_current(&copy, now.as_nanos()) {
            *copy = summary(area, now);
        }
    }

    /// As [`AreaCopy::refresh`], for the watchdog: does nothing while a KLS thread uses the copy.
    pub(crate) fn try_refresh(&self, area: &Peer<SharedMapping>, now: Instant) {
        if let Ok(mut copy) = self.0.try_lock()
            && !area.is_current(&copy, now.as_nanos())
        {
            *copy = summary(area, now);
        }
    }

    /// Copies the area, also if it has the same sequence number. For the watchdog: does nothing
    /// while a KLS thread uses the copy.
    pub(crate) fn try_replace(&self, area: &Peer<SharedMapping>, now: Instant) {
        if let Ok(mut copy) = self.0.try_lock() {
            *copy = summary(area, now);
        }
    }

    /// The result of `look` at the copy. O(1) and the time of `look`. If another thread uses the
    /// copy at this moment, this one reads the area instead.
    pub(crate) fn read<T>(
        &self,
        area: &Peer<SharedMapping>,
        now: Instant,
        look: impl FnOnce(&Summary) -> T,
    ) -> T {
        match self.0.try_lock() {
            Ok(copy) => look(&copy),
            Err(_) => look(&summary(area, now)),
        }
    }
}

/// A domain with an invalid area, or in the middle of a publication, has nothing to run.
fn summary(area: &Peer<SharedMapping>, now: Instant) -> Summary {
    area.summary(now.as_nanos()).unwrap_or(Summary::EMPTY)
}
