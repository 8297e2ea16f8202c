//! What the threads that left a CPU still owe, by user.
//!
//! The watchdog accounts for each member of a group. A thread that attaches, runs and leaves again
//! between two ticks would have no account, and one that leaves takes its debt and its offences
//! with it. So the server adds up here what the threads of a user owed when they left. It asks here
//! before it gives a new thread its priority, and the watchdog asks before it raises that thread.
//!
//! A new thread of a user that owes starts below the domains of others, without turns. It gets both
//! when the user owes nothing more. That is no offence, and is not reported. It does not happen on
//! a CPU without domains of other users.
//!
//! A debt shrinks by the grace that each user has in share, and by the reservation of the thread
//! that left. So a user gains nothing by leaving, and a domain that keeps its reservation and is
//! started again is delayed as long as it would have been in debt.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use upcall_core::time::{Instant, Span};

#[cfg(test)]
mod tests;

/// A debt up to this one is none. It is more than a thread uses to attach.
const OWED_MAX_NS: u64 = 1_000_000;
/// The largest debt that is kept: a user is delayed for a second at most.
const KEPT_NS_MAX: u64 = 50_000_000;
/// The most users that are kept. A user without a debt leaves the list at the next departure.
const USERS_MAX: usize = 64;
/// How long offences are kept. For as long, no new thread of the user gets turns after a thread
/// that had lost them for good.
const OFFENCES_FOR: Span = Span::from_secs(10);
/// How long no new thread gets turns after one that left below the others.
const PENALTY_FOR: Span = Span::from_millis(50);

/// A thread that leaves a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) uid: u32,
    pub(crate) now: Instant,
    /// CPU time beyond its reservation, in ns.
    pub(crate) owed_ns: u64,
    /// Its reservation and the grace in share, in millionths of the CPU.
    pub(crate) ppm: u64,
    pub(crate) offences: u64,
    /// Whether it had no turns, for a while or for good.
    pub(crate) penalty: Option<Lost>,
}

/// For how long a thread had lost its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    ForNow,
    ForGood,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Departed(Mutex<Vec<User>>);

/// What the threads of a user left behind.
#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    /// The last departure, and the debt then.
    at: Instant,
    owed_ns: u64,
    ppm: u64,
    offences: u64,
    no_turns_until: Instant,
}

impl User {
    fn owed_ns(&self, now: Instant) -> u64 {
        let paid = u128::from(now.since(self.at).as_nanos()) * u128::from(self.ppm) / 1_000_000;
        self.owed_ns.saturating_sub(u64::try_from(paid).unwrap_or(u64::MAX))
    }

    fn is_held(&self, now: Instant) -> bool {
        self.owed_ns(now) > OWED_MAX_NS || now < self.no_turns_until
    }

    fn is_over(&self, now: Instant) -> bool {
        !self.is_held(now) && (self.offences == 0 || now.since(self.at) >= OFFENCES_FOR)
    }
}

impl Departed {
    /// Adds a thread that leaves. For the server.
    pub(crate) fn add(&self, departure: Departure) {
        let Departure { uid, now, owed_ns, ppm, offences, penalty } = departure;
        let mut users = self.users();
        users.retain(|user| user.uid == uid || !user.is_over(now));
        let at = users.iter().position(|user| user.uid == uid).unwrap_or(users.len());
        if at == users.len() {
            if at == USERS_MAX {
                let least = (0..at).min_by_key(|&of| users[of].owed_ns(now));
                least.map(|of| users.swap_remove(of));
            }
            let (offences, no_turns_until) = (0, Instant::ZERO);
            users.push(User { uid, at: now, owed_ns: 0, ppm, offences, no_turns_until });
        }
        let Some(user) = users.iter_mut().find(|user| user.uid == uid) else { return };
        let before_ns = user.owed_ns(now);
        // Two debts shrink by the smaller of both shares.
        user.ppm = if before_ns == 0 { ppm } else { user.ppm.min(ppm) };
        user.owed_ns = before_ns.saturating_add(owed_ns).min(KEPT_NS_MAX);
        let are_old = now.since(user.at) >= OFFENCES_FOR;
        user.offences = if are_old { offences } else { user.offences.max(offences) };
        user.at = now;
        let no_turns_for = match penalty {
            None => Span::ZERO,
            Some(Lost::ForNow) => PENALTY_FOR,
            Some(Lost::ForGood) => OFFENCES_FOR,
        };
        user.no_turns_until = user.no_turns_until.max(now + no_turns_for);
    }

    /// Whether a new thread of the user starts below the others. For the server.
    pub(crate) fn holds(&self, uid: u32, now: Instant) -> bool {
        self.users().iter().any(|user| user.uid == uid && user.is_held(now))
    }

    /// As [`Self::holds`], without waiting for the server. If the server is changing the list now,
    /// the answer is `true`. For the watchdog.
    pub(crate) fn may_hold(&self, uid: u32, now: Instant) -> bool {
        self.try_users()
            .is_none_or(|users| users.iter().any(|user| user.uid == uid && user.is_held(now)))
    }

    /// The offences of the user's former threads. None if the server is changing the list now. For
    /// the watchdog.
    pub(crate) fn offences(&self, uid: u32, now: Instant) -> u64 {
        let Some(users) = self.try_users() else { return 0 };
        let user = users.iter().find(|user| user.uid == uid);
        user.filter(|user| now.since(user.at) < OFFENCES_FOR).map_or(0, |user| user.offences)
    }

    fn users(&self) -> MutexGuard<'_, Vec<User>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_users(&self) -> Option<MutexGuard<'_, Vec<User>>> {
        match self.0.try_lock() {
            Ok(users) => Some(users),
            Err(TryLockError::Poisoned(users)) => Some(users.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
