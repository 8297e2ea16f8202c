//! One CPU: the groups of all users there, and what a thread knows of them.
//!
//! Changed by the server, looked at by the KLS threads and the watchdog, which never
//! wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use upcall_core::time::Instant;
use upcall_shm::DomainId;

use crate::group::{DomainGroup, Members};

#[cfg(test)]
mod tests;

/// The groups of one CPU.
#[derive(Debug)]
pub(crate) struct CpuState {
    pub(crate) cpu: u32,
    groups: Mutex<Groups>,
    choice: Mutex<()>,
    /// Which group has the CPU, by its number; 0: none. Turn pages can be written by domains,
    /// this cannot. Not the user's number: a group that is over leaves nothing to the next.
    granted: AtomicU64,
}

type Groups = Arc<[Arc<DomainGroup>]>;

impl CpuState {
    pub(crate) fn new(cpu: u32) -> Self {
        CpuState {
            cpu,
            groups: Mutex::default(),
            choice: Mutex::new(()),
            granted: AtomicU64::new(0),
        }
    }

    /// The groups there are. For the server.
    pub(crate) fn groups(&self) -> Groups {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the list of groups. By the server.
    pub(crate) fn set_groups(&self, change: impl FnOnce(&mut Vec<Arc<DomainGroup>>)) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = groups.to_vec();
        change(&mut list);
        *groups = list.into();
    }

    /// `group` is over: it is none of this CPU any more. The other groups look again, for it
    /// may have had the CPU, or its thread slept for them until the next release; and nobody
    /// keeps it who slept. By the server, when its last member has gone.
    pub(crate) fn close(&self, group: &Arc<DomainGroup>) {
        // First: who forgets what is over must not find it here once more.
        self.set_groups(|groups| groups.retain(|other| !Arc::ptr_eq(other, group)));
        group.quit();
        self.groups().iter().for_each(|other| other.wake_kls());
    }

    /// One KLS thread at a time chooses. They have one priority and one CPU, so none
    /// waits for one that cannot run.
    pub(crate) fn lock_choice(&self) -> MutexGuard<'_, ()> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `group` has the CPU, and then one of its domains the turn. By who chooses.
    pub(crate) fn grant(&self, group: &DomainGroup) {
        // Release pairs with the Acquire in `is_granted`. Who sees the turn that is passed
        // after this, in `TurnPage::turn`, sees this.
        self.granted.store(group.number, Ordering::Release);
    }

    /// No domain has anything to do. By who chooses.
    pub(crate) fn grant_none(&self) {
        // Relaxed: nothing is handed over with it.
        self.granted.store(0, Ordering::Relaxed);
    }

    /// Whether `group` was the last to get the CPU.
    pub(crate) fn is_granted(&self, group: &DomainGroup) -> bool {
        self.granted.load(Ordering::Acquire) == group.number
    }

    /// Whether a domain of `group` has the CPU. Whatever its domains write into the turn
    /// page of a group that was not given the CPU, it does not have it. Nor has a group that
    /// is over: who chose by an older list may have given it the CPU since.
    pub(crate) fn is_held(&self, group: &DomainGroup) -> bool {
        let has_holder = group.turn.holder().is_ok_and(|of| of != DomainId::DAEMON);
        has_holder && self.is_granted(group) && !group.is_over()
    }
}

/// The groups of a CPU and their members, as a thread last saw them.
#[derive(Debug, Default)]
pub(crate) struct CpuView(Vec<(Arc<DomainGroup>, Members)>);

impl CpuView {
    /// Looks again, but waits for nobody: what is just being changed stays as it was.
    /// But groups that are over are forgotten. Allocates and frees when something changed.
    pub(crate) fn refresh(&mut self, cpu_state: &CpuState) {
        self.0.retain(|(group, _)| !group.is_over());
        match cpu_state.groups.try_lock() {
            Ok(groups) => self.update_groups(&groups),
            Err(TryLockError::Poisoned(groups)) => self.update_groups(&groups.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        for (group, members) in &mut self.0 {
            group.refresh_members(members);
        }
    }

    fn update_groups(&mut self, groups: &Groups) {
        self.0.retain(|(group, _)| groups.iter().any(|other| Arc::ptr_eq(group, other)));
        for group in groups.iter() {
            if self.members_of(group).is_none() {
                self.0.push((group.clone(), Members::default()));
            }
        }
    }

    /// All groups, each with its members.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &(Arc<DomainGroup>, Members)> {
        self.0.iter()
    }

    /// Those of one group.
    pub(crate) fn members_of(&self, group: &Arc<DomainGroup>) -> Option<&Members> {
        self.0.iter().find(|(other, _)| Arc::ptr_eq(group, other)).map(|(_, members)| members)
    }

    /// Shows the group that has or gets the CPU what the other users have at `now`. `true`
    /// if that is something else than before. Allocates.
    pub(crate) fn publish_others(&self, shown: &Arc<DomainGroup>, now: Instant) -> bool {
        let others = self.0.iter().filter(|(group, _)| !Arc::ptr_eq(group, shown));
        let mut others = others
            .flat_map(|(group, members)| members.iter().filter(|member| group.is_present(member)))
            .peekable();
        let any = others.peek().is_some() || shown.shows_others();
        any && shown.publish_others(others, now)
    }
}
