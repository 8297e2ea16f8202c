//! One CPU: the halls of all users there, and what a thread knows of them.
//!
//! Changed by the server, looked at by the KLS threads and the watchdog, which never
//! wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use upcall_core::time::Instant;
use upcall_shm::DomainId;

use crate::hall::{Hall, Members};

#[cfg(test)]
mod tests;

/// The halls of one CPU.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) cpu: u32,
    halls: Mutex<Halls>,
    choosing: Mutex<()>,
    /// Which hall has the CPU, by its number; 0: none. Turn pages can be written by domains,
    /// this cannot. Not the user's number: a hall that is over leaves nothing to the next.
    granted: AtomicU64,
}

type Halls = Arc<[Arc<Hall>]>;

impl Site {
    pub(crate) fn new(cpu: u32) -> Self {
        Site { cpu, halls: Mutex::default(), choosing: Mutex::new(()), granted: AtomicU64::new(0) }
    }

    /// The halls there are. For the server.
    pub(crate) fn halls(&self) -> Halls {
        self.halls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the list of halls. By the server.
    pub(crate) fn set_halls(&self, change: impl FnOnce(&mut Vec<Arc<Hall>>)) {
        let mut halls = self.halls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = halls.to_vec();
        change(&mut list);
        *halls = list.into();
    }

    /// `hall` is over: it is none of this CPU any more. The other halls look again, for it
    /// may have had the CPU, or its thread slept for them until the next release; and nobody
    /// keeps it who slept. By the server, when its last member has gone.
    pub(crate) fn close(&self, hall: &Arc<Hall>) {
        // First: who forgets what is over must not find it here once more.
        self.set_halls(|halls| halls.retain(|other| !Arc::ptr_eq(other, hall)));
        hall.quit();
        self.halls().iter().for_each(|other| other.rouse());
    }

    /// One KLS thread at a time chooses. They have one priority and one CPU, so none
    /// waits for one that cannot run.
    pub(crate) fn choosing(&self) -> MutexGuard<'_, ()> {
        self.choosing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `hall` has the CPU, and then one of its domains the turn. By who chooses.
    pub(crate) fn grant(&self, hall: &Hall) {
        // Release pairs with the Acquire in `is_granted`. Who sees the turn that is passed
        // after this, in `TurnPage::turn`, sees this.
        self.granted.store(hall.number, Ordering::Release);
    }

    /// No domain has anything to do. By who chooses.
    pub(crate) fn grant_nobody(&self) {
        // Relaxed: nothing is handed over with it.
        self.granted.store(0, Ordering::Relaxed);
    }

    /// Whether `hall` was the last to get the CPU.
    pub(crate) fn is_granted(&self, hall: &Hall) -> bool {
        self.granted.load(Ordering::Acquire) == hall.number
    }

    /// Whether a domain of `hall` has the CPU. Whatever its domains write into the turn
    /// page of a hall that was not given the CPU, it does not have it. Nor has a hall that
    /// is over: who chose by an older list may have given it the CPU since.
    pub(crate) fn is_held(&self, hall: &Hall) -> bool {
        let has_holder = hall.turn.holder().is_ok_and(|of| of != DomainId::DAEMON);
        has_holder && self.is_granted(hall) && !hall.is_over()
    }
}

/// The halls of a CPU and their members, as a thread last saw them.
#[derive(Debug, Default)]
pub(crate) struct Known(Vec<(Arc<Hall>, Members)>);

impl Known {
    /// Looks again, but waits for nobody: what is just being changed stays as it was.
    /// But halls that are over are forgotten. Allocates and frees when something changed.
    pub(crate) fn refresh(&mut self, site: &Site) {
        self.0.retain(|(hall, _)| !hall.is_over());
        match site.halls.try_lock() {
            Ok(halls) => self.take_up(&halls),
            Err(TryLockError::Poisoned(halls)) => self.take_up(&halls.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        for (hall, members) in &mut self.0 {
            hall.look_at_members(members);
        }
    }

    fn take_up(&mut self, halls: &Halls) {
        self.0.retain(|(hall, _)| halls.iter().any(|other| Arc::ptr_eq(hall, other)));
        for hall in halls.iter() {
            if self.members_of(hall).is_none() {
                self.0.push((hall.clone(), Members::default()));
            }
        }
    }

    /// All halls, each with its members.
    pub(crate) fn halls(&self) -> impl Iterator<Item = &(Arc<Hall>, Members)> {
        self.0.iter()
    }

    /// Those of one hall.
    pub(crate) fn members_of(&self, hall: &Arc<Hall>) -> Option<&Members> {
        self.0.iter().find(|(other, _)| Arc::ptr_eq(hall, other)).map(|(_, members)| members)
    }

    /// Shows the hall that has or gets the CPU what the other users have at `now`. `true`
    /// if that is something else than before. Allocates.
    pub(crate) fn show_others(&self, shown: &Arc<Hall>, now: Instant) -> bool {
        let others = self.0.iter().filter(|(hall, _)| !Arc::ptr_eq(hall, shown));
        let mut others = others
            .flat_map(|(hall, members)| members.iter().filter(|member| hall.is_present(member)))
            .peekable();
        let any = others.peek().is_some() || shown.shows_others();
        any && shown.publish_others(others, now)
    }
}
