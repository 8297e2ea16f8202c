//! One CPU: the groups of all users on it, and a thread's view of them.
//!
//! The server changes the groups. The KLS threads and the watchdog read them and never wait for the
//! server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use upcall_core::time::Instant;
use upcall_shm::DomainId;
use upcall_shm::kernel_area::State;
use upcall_sys::schedule::Band;

use crate::departed::{Departed, Departure, Lost};
use crate::enforcement::{OFFENCES_MAX, SHARE_GRACE_PPM, TICK};
use crate::group::{DomainGroup, Member, Members, Shown};

#[cfg(test)]
mod tests;

/// The domain groups of one CPU.
#[derive(Debug)]
pub(crate) struct CpuState {
    pub(crate) cpu: u32,
    groups: Mutex<Groups>,
    choice: Mutex<()>,
    /// The number of the group that has the CPU; 0 if none has. Domains can write their turn pages
    /// but not this word. The word holds the group's number and not the user's: a new group of the
    /// same user does not inherit the CPU from a closed one.
    granted: AtomicU64,
    /// How often a KLS thread has given the CPU to a group. Relaxed everywhere: a count.
    grants: AtomicU64,
    pub(crate) departed: Departed,
}

type Groups = Arc<[Arc<DomainGroup>]>;

impl CpuState {
    pub(crate) fn new(cpu: u32) -> Self {
        CpuState {
            cpu,
            groups: Mutex::default(),
            choice: Mutex::new(()),
            granted: AtomicU64::new(0),
            grants: AtomicU64::new(0),
            departed: Departed::default(),
        }
    }

    /// The current groups. For the server.
    pub(crate) fn groups(&self) -> Groups {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the list of groups. For the server.
    pub(crate) fn set_groups(&self, change: impl FnOnce(&mut Vec<Arc<DomainGroup>>)) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = groups.to_vec();
        change(&mut list);
        *groups = list.into();
    }

    /// Closes `group`: removes it from this CPU for good. The server calls this when the last
    /// member of the group has gone.
    ///
    /// Wakes the KLS threads of the other groups. `group` may have had the CPU, or its thread may
    /// have slept until the next release on behalf of all groups. A sleeping thread also keeps
    /// `group` in its view until it wakes.
    pub(crate) fn close(&self, group: &Arc<DomainGroup>) {
        // The group leaves the list first. So a thread that refreshes its view later does not find
        // it again.
        self.set_groups(|groups| groups.retain(|other| !Arc::ptr_eq(other, group)));
        group.quit();
        self.groups().iter().for_each(|other| other.wake_kls());
    }

    /// Adds what a member that leaves owes. For the server.
    ///
    /// What it used since the watchdog's last sample counts in full. If its thread has ended, the
    /// kernel has no count. Then the time since the last sample counts, up to [`TICK`].
    pub(crate) fn note_departure(&self, group: &DomainGroup, member: &Member, now: Instant) {
        let sample = &member.last_sample;
        let since = now.since(Instant::from_nanos(sample.at_ns.load(Ordering::Relaxed)));
        let count = member.thread.by_server().and_then(|thread| thread.cpu_time().ok());
        let used_ns = match count {
            Some(count_ns) => count_ns
                .saturating_sub(sample.count_ns.load(Ordering::Relaxed))
                .min(since.as_nanos()),
            None => since.min(TICK).as_nanos(),
        };
        let share_ppm = member.limits.share_ppm.load(Ordering::Relaxed);
        let offences = member.offences();
        let penalty = member.is(State::Demoted).then_some(match offences {
            OFFENCES_MAX.. => Lost::ForGood,
            _ => Lost::ForNow,
        });
        self.departed.add(Departure {
            uid: group.uid,
            now,
            owed_ns: sample.owed_ns.load(Ordering::Relaxed).saturating_add(used_ns),
            ppm: share_ppm.saturating_add(SHARE_GRACE_PPM),
            offences,
            penalty,
        });
    }

    /// Puts a thread that was just raised below the others if former threads of its user owe, and
    /// other users have domains here. The group does not know the member yet. The watchdog ends
    /// that. For the server.
    pub(crate) fn hold_newcomer(
        &self,
        group: &DomainGroup,
        member: &Member,
        (band, now): (Option<Band>, Instant),
    ) {
        let groups = self.groups();
        let mut others = groups.iter().filter(|other| other.uid != group.uid);
        let Some(band) = band.filter(|_| others.any(|other| !other.members().is_empty())) else {
            return;
        };
        if self.departed.holds(group.uid, now) {
            group.set_state(member, State::Demoted);
            // Fails only if the thread has ended.
            let _ = member.thread.by_kls().set_fifo_not_inherited(band.offender());
        }
    }

    /// Locks the choice of the next domain: one KLS thread chooses at a time. All KLS threads of a
    /// CPU have the same priority, so none waits for a thread that cannot run.
    pub(crate) fn lock_choice(&self) -> MutexGuard<'_, ()> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the CPU to `group`. The caller holds the lock of [`CpuState::lock_choice`], and then
    /// passes the turn to a domain of the group.
    pub(crate) fn grant(&self, group: &DomainGroup) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        // Release pairs with the Acquire in `is_granted`. A thread that sees the turn which is
        // passed after this store, in `TurnPage::turn`, also sees this store.
        self.granted.store(group.number, Ordering::Release);
    }

    /// Takes the CPU from all groups: no domain has work. The caller holds the lock of
    /// [`CpuState::lock_choice`].
    pub(crate) fn grant_none(&self) {
        // Relaxed: the store publishes no other data.
        self.granted.store(0, Ordering::Relaxed);
    }

    /// A number that changes when a KLS thread chooses a domain. Domains can change the number of a
    /// turn, and not this one.
    pub(crate) fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    /// Whether `group` was the last to get the CPU.
    pub(crate) fn is_granted(&self, group: &DomainGroup) -> bool {
        self.granted.load(Ordering::Acquire) == group.number
    }

    /// Whether a domain of `group` has the CPU. The turn page alone is no proof: domains of a group
    /// without the CPU can write anything there. A closed group never has the CPU, even if a KLS
    /// thread with an older view has granted it since.
    pub(crate) fn is_held(&self, group: &DomainGroup) -> bool {
        let has_holder = group.turn.holder().is_ok_and(|of| of != DomainId::DAEMON);
        has_holder && self.is_granted(group) && !group.is_over()
    }
}

/// The groups of a CPU and their members, as a thread saw them last.
#[derive(Debug, Default)]
pub(crate) struct CpuView(Vec<(Arc<DomainGroup>, Members)>);

impl CpuView {
    /// Updates the view without waiting. A list that the server is changing at this moment stays as
    /// it was. Closed groups are always removed. Allocates and frees memory if something changed.
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
    pub(crate) fn groups(&self) -> impl Iterator<Item = &(Arc<DomainGroup>, Members)> + Clone {
        self.0.iter()
    }

    /// The groups beside `group` whose domains may get the turn: those whose slowed KLS thread
    /// sleeps are left out.
    pub(crate) fn choosable_beside(
        &self,
        group: &Arc<DomainGroup>,
    ) -> impl Iterator<Item = &(Arc<DomainGroup>, Members)> {
        let may_be_chosen =
            |of: &Arc<DomainGroup>| !Arc::ptr_eq(of, group) && !of.pacing.is_resting();
        self.groups().filter(move |(other, _)| may_be_chosen(other))
    }

    /// The members of one group.
    pub(crate) fn members_of(&self, group: &Arc<DomainGroup>) -> Option<&Members> {
        self.0.iter().find(|(other, _)| Arc::ptr_eq(group, other)).map(|(_, members)| members)
    }

    /// Publishes to `shown`, the group that has or gets the CPU, the work of other users' domains
    /// at `now`, by the copies of their areas ([`DomainGroup::publish_others`]).
    pub(crate) fn publish_others(&self, shown: &Arc<DomainGroup>, now: Instant) -> Shown {
        let mut others = self.0.iter().filter(|(group, _)| !Arc::ptr_eq(group, shown)).peekable();
        let any = others.peek().is_some() || shown.shows_others();
        if any { shown.publish_others(others, now) } else { Shown::Same }
    }
}
