//! An attached domain and its reservations. Plain data of the registry.

use std::collections::BTreeMap;

use upcall_core::activity::{ActivityParams, Terms};
use upcall_core::admission::{ReservationId, Share};
use upcall_core::time::Instant;

use super::group::DefinedGroup;

/// The user and the process of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub uid: u32,
    /// The process's number.
    pub pid: u32,
}

/// An attached domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Distinguishes it from former domains of the same number.
    pub generation: u64,
    /// Its user and process.
    pub owner: Owner,
    /// Its name, for people.
    pub name: String,
    pub(super) activities: BTreeMap<u32, Activity>,
    /// DWCS: the shares of its event servers, by CPU.
    pub(super) events: BTreeMap<u32, Share>,
    /// The CPUs where its thread has ended. It gets no places there.
    pub(super) left: Vec<u32>,
    /// PS: its groups, in its order.
    pub(super) groups: Vec<DefinedGroup>,
}

#[derive(Clone, Debug)]
pub(super) struct Activity {
    /// Its place in admission. Without a reservation: the place that counts one quantum of it, and
    /// `None` if even that does not fit.
    pub(super) place: Option<ReservationId>,
    pub(super) cpu: u32,
    pub(super) name: String,
    pub(super) params: ActivityParams,
    /// With its group as the registry numbers it.
    pub(super) terms: Terms,
    /// Whether the activity runs although admission refused it. It has no reservation then, and a
    /// rank below all others.
    pub(super) unscreened: bool,
}

impl Activity {
    /// DWCS: when the window that it is in at `now` is over at the latest.
    pub(super) fn window_end(&self, now: Instant) -> Instant {
        let periods = self.terms.window.filter(|window| window.misses > 0).map_or(1, |w| w.periods);
        now + self.params.period.saturating_mul(periods.into())
    }
}

impl Domain {
    /// The place in the order of admission, the name and the CPU of each activity.
    pub fn activities(&self) -> impl Iterator<Item = (u32, &str, u32)> {
        self.activities
            .iter()
            .map(|(order, activity)| (*order, activity.name.as_str(), activity.cpu))
    }
}
