//! The descriptors of an I/O event service, and those that are ready and wait to be reported.
//!
//! Only the service's thread has the table. Watches hand it their entries by [`Changes`], which are
//! behind a lock. The thread does not wait for that lock: the thread that has it may be an ordinary
//! one that a handler preempted, and the events of all other watches would wait, too. A target is
//! owned by its watch, so it is gone as soon as the watch is dropped.
//!
//! ```text
//!   armed --(1) report--> waits --(2) due--> sent --(4) arm--> armed
//!                         ^  ^                |
//!                         |  +--(3) full------+
//!                         +--(2) a later urgency was stated
//! ```
//!
//! 1. The descriptor is ready. A report of one that waits already replaces the earlier report.
//! 2. At the moment when the urgency says. An urgency that was stated meanwhile counts.
//! 3. The target has no room, so the event is sent again a moment later. The moment is longer if
//!    many targets have no room.
//! 4. By the watch, outside of this module.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use upcall_core::time::{Instant, Span};

use super::target::{IoTarget, Sent};
use super::urgency::{Urgency, UrgencyTaker};
use crate::channel::Words;

/// How long an event for a target without room waits at least.
const RETRY: Span = Span::from_millis(1);
/// And at least so many times as long as the sending took that found no room. So targets without
/// room cost a tenth of a CPU, however many there are.
const RETRY_RATIO: u64 = 9;
/// But no longer than this: the thread may have been preempted meanwhile.
const RETRY_MAX: Span = Span::from_millis(100);

/// One watched descriptor.
pub(super) struct Entry {
    target: Weak<IoTarget>,
    key: u64,
    urgency: Urgency,
    stated: UrgencyTaker,
    /// When the readiness is reported, if the descriptor is ready.
    due: Option<Instant>,
    sent: Arc<AtomicU64>,
}

impl Entry {
    pub(super) fn new(
        target: &Arc<IoTarget>,
        key: u64,
        urgency: Urgency,
        stated: UrgencyTaker,
        sent: Arc<AtomicU64>,
    ) -> Self {
        Entry { target: Arc::downgrade(target), key, urgency, stated, due: None, sent }
    }

    fn latest(&mut self) -> Urgency {
        self.urgency = self.stated.take().unwrap_or(self.urgency);
        self.urgency
    }
}

/// An event that is to be sent now.
pub(super) struct DueEvent {
    number: u64,
    target: Weak<IoTarget>,
    words: Words,
    sent: Arc<AtomicU64>,
}

impl DueEvent {
    /// Sends the event, unless its watch was dropped.
    pub(super) fn send(&self) -> Sent {
        let Some(target) = self.target.upgrade() else { return Sent::Gone };
        let sent = target.send(self.words);
        if sent == Sent::Done {
            // Release pairs with the Acquire in `IoWatch::sent`: the count says that the target has
            // the event.
            self.sent.fetch_add(1, Ordering::Release);
        }
        sent
    }
}

/// What watches have changed since the thread looked last.
#[derive(Default)]
pub(super) struct Changes {
    /// By number: a new entry, or `None` if a watch that the thread knows was dropped.
    changes: BTreeMap<u64, Option<Entry>>,
    /// The number of the newest entry. Numbers are not used again.
    last: u64,
}

impl Changes {
    /// Adds an entry, and returns its number. Allocates.
    pub(super) fn add(&mut self, entry: Entry) -> u64 {
        self.last += 1;
        self.changes.insert(self.last, Some(entry));
        self.last
    }

    /// Removes an entry. Returns it if the thread does not know it yet; the caller drops it after
    /// the lock is released.
    pub(super) fn remove(&mut self, number: u64) -> Option<Entry> {
        let new = self.changes.remove(&number).flatten();
        if new.is_none() {
            self.changes.insert(number, None);
        }
        new
    }
}

/// See the module's head.
#[derive(Default)]
pub(super) struct ReadyTable {
    entries: HashMap<u64, Entry>,
    /// The entries that have a due time, by that.
    waiting: BTreeSet<(Instant, u64)>,
    /// The entries whose events found no room just now.
    full: Vec<u64>,
    /// The descriptors that are ready and that are not known, while changes are missing.
    unknown: Vec<u64>,
    /// When the thread looks for the changes again that it could not take over.
    look_again: Option<Instant>,
}

impl ReadyTable {
    /// Takes over what watches have changed, except while another thread has the lock.
    pub(super) fn take_over(&mut self, changes: &Mutex<Changes>, now: Instant) {
        let changes = match changes.try_lock() {
            Ok(mut changes) => std::mem::take(&mut changes.changes),
            Err(TryLockError::Poisoned(poisoned)) => {
                std::mem::take(&mut poisoned.into_inner().changes)
            }
            Err(TryLockError::WouldBlock) => {
                self.look_again = Some(now + RETRY);
                return;
            }
        };
        self.look_again = None;
        for (number, change) in changes {
            match change {
                Some(entry) => drop(self.entries.insert(number, entry)),
                None => self.remove(number),
            }
        }
        for number in std::mem::take(&mut self.unknown) {
            self.report(number, now);
        }
    }

    fn remove(&mut self, number: u64) {
        self.set_due(number, None);
        self.entries.remove(&number);
    }

    /// The descriptor is ready. O(log n).
    pub(super) fn report(&mut self, number: u64, now: Instant) {
        match self.entries.get_mut(&number) {
            Some(entry) => {
                let due = entry.latest().due().max(now);
                self.set_due(number, Some(due));
            }
            None if self.look_again.is_some() => self.unknown.push(number),
            None => {} // the watch was dropped
        }
    }

    /// When the next event is due, or the table looks for changes again. O(log n).
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.waiting.first().map(|(due, _)| *due);
        due.into_iter().chain(self.look_again).min()
    }

    /// Takes the events that are due by `now`, the most urgent first. O(log n) for each. Allocates.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<DueEvent> {
        let mut events = Vec::new();
        while let Some((_, number)) = self.waiting.first().copied().filter(|(due, _)| *due <= now) {
            self.waiting.pop_first();
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            entry.due = None;
            let urgency = entry.latest();
            if urgency.due() > now {
                self.set_due(number, Some(urgency.due()));
                continue;
            }
            let words = [urgency.rank(), entry.key, urgency.counter(), 0, 0];
            let (target, sent) = (entry.target.clone(), entry.sent.clone());
            events.push(DueEvent { number, target, words, sent });
        }
        events.sort_by_key(|event| event.words[0]);
        events
    }

    /// Enters what became of an event.
    pub(super) fn conclude(&mut self, event: &DueEvent, sent: Sent) {
        match sent {
            Sent::Done => {}
            Sent::Full => self.full.push(event.number),
            Sent::Gone => self.remove(event.number),
        }
    }

    /// Enters when the events are sent again that found no room, if the sending `took` so long.
    pub(super) fn retry(&mut self, now: Instant, took: Span) {
        let pause = took.saturating_mul(RETRY_RATIO).min(RETRY_MAX).max(RETRY);
        while let Some(number) = self.full.pop() {
            self.set_due(number, Some(now + pause));
        }
    }

    fn set_due(&mut self, number: u64, due: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut entry.due, due) {
            self.waiting.remove(&(before, number));
        }
        self.waiting.extend(due.map(|due| (due, number)));
    }
}

/// Locks the changes, which stay valid across panics. Not for the service's thread.
pub(super) fn lock(changes: &Mutex<Changes>) -> MutexGuard<'_, Changes> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::urgency::hand_over;
    use super::*;

    #[test]
    fn readiness_of_an_entry_that_is_not_known_yet_waits_for_it() {
        let (changes, mut table) = (Mutex::<Changes>::default(), ReadyTable::default());
        let (target, sent) = (Weak::new(), Arc::default());
        let (urgency, stated) = (Urgency::Rank(7), hand_over().1);
        let number = lock(&changes).add(Entry { target, key: 1, urgency, stated, due: None, sent });
        let now = Instant::from_nanos(5);
        let held = lock(&changes);
        table.take_over(&changes, now);
        table.report(number, now);
        drop(held);
        assert!(table.take_due(now).is_empty());
        assert_eq!(table.next_due(), Some(now + RETRY));
        table.take_over(&changes, now + RETRY);
        assert_eq!(table.take_due(now + RETRY).len(), 1);
        assert_eq!(table.next_due(), None);
        // A watch that is dropped takes its readiness with it.
        table.report(number, now);
        assert!(lock(&changes).remove(number).is_none());
        table.take_over(&changes, now);
        table.report(number, now);
        assert_eq!((table.next_due(), table.entries.len(), table.unknown.len()), (None, 0, 0));
        // One that is dropped at once leaves nothing behind.
        let (target, sent) = (Weak::new(), Arc::default());
        let (urgency, stated) = (Urgency::Rank(7), hand_over().1);
        let number = lock(&changes).add(Entry { target, key: 1, urgency, stated, due: None, sent });
        assert!(lock(&changes).remove(number).is_some());
        assert!(lock(&changes).changes.is_empty());
    }
}
