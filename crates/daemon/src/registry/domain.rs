//! A domain that is attached, and what it has reserved. Plain data of the registry.

use std::collections::BTreeMap;

use upcall_core::activity::{ActivityParams, Terms};
use upcall_core::admission::ReservationId;

use crate::ranks::Admitted;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The process.
    pub pid: u32,
}

/// A domain that is attached.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Tells it from the one that had its number before.
    pub generation: u64,
    /// Whose it is.
    pub owner: Owner,
    /// For people.
    pub name: String,
    pub(super) activities: BTreeMap<u32, Activity>,
    /// What it claimed in vain and runs on, last among equals: where, and its rank.
    pub(super) unclaimed: Vec<(u32, Admitted)>,
}

#[derive(Clone, Debug)]
pub(super) struct Activity {
    pub(super) reservation: ReservationId,
    pub(super) cpu: u32,
    pub(super) name: String,
    pub(super) params: ActivityParams,
    pub(super) terms: Terms,
    /// Admission refused it.
    pub(super) unscreened: bool,
}

impl Domain {
    /// Order, name and CPU of each of its activities.
    pub fn activities(&self) -> impl Iterator<Item = (u32, &str, u32)> {
        self.activities
            .iter()
            .map(|(order, activity)| (*order, activity.name.as_str(), activity.cpu))
    }
}
