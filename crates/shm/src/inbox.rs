//! Events on their way to an activity, from any thread of a process to the thread that upcalls it
//! (ecalls-2001 §2.4).
//!
//! The runtime uses the inbox. Any thread may be a *poster*. The *taker* is the executor of the
//! activity. Processes do not share this memory. The module is in this crate because loom checks
//! its orderings as it checks those of the shared pages. Neither side waits, allocates or makes a
//! system call.
//!
//! ```text
//!   poster                                      taker
//!   (1) holds an entry      <-- Release/Acq --    (6) gives it back: the event was taken
//!   (2) writes it
//!   (3) its bit: written    --- Release/Acq -->   (5) finds it; reads
//!
//!   (4) marks the inbox; must notify?           takes marks, looks into those inboxes
//!           fence                               prepare_wait: fence; no mark: may sleep
//! ```
//!
//! 1. The poster holds one of [`EVENTS_MAX`] entries until the handler *takes* the event. So the
//!    inbox bounds the number of waiting events. A handler that never takes its events harms only
//!    itself. A poster that is stopped during (2) delays only its own event.
//! 4. All inboxes of an executor share one [`Marks`]. Either a taker that goes to sleep finds the
//!    mark, or the poster finds that the taker sleeps and notifies it. A poster does not notify a
//!    taker that is awake.

use crate::edge::{Edge, barrier, ordering};
use crate::{AtomicU64, Ordering};
use Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::array::from_fn;
use core::fmt;
use std::sync::Arc;

#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// The greatest number of events that may wait for one activity.
pub const EVENTS_MAX: usize = 64;

/// The greatest number of inboxes of one taker. Inboxes are numbered below it.
pub const INBOXES_MAX: u32 = 256;

/// An event for a handler, as a `Poster` posts it and `Batch::take_event` takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedEvent {
    /// The urgency of the event: a priority, or an instant by which to handle it. The smallest rank
    /// comes first. Events of equal rank are taken in the order in which they were posted.
    pub rank: u64,
    /// The content, as the poster wrote it.
    pub words: [u64; 5],
}

/// Why an event was not posted. The poster gets this error.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// [`EVENTS_MAX`] events wait already.
    Full,
    /// The activity is closed.
    Closed,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostError::Full => write!(f, "{EVENTS_MAX} events wait already, expected fewer"),
            PostError::Closed => f.write_str("the handler is closed"),
        }
    }
}

crate::fault::debug_as_display!(PostError);

impl core::error::Error for PostError {}

#[derive(Debug)]
struct Entry {
    rank: AtomicU64,
    /// How many events were posted before.
    number: AtomicU64,
    words: [AtomicU64; 5],
}

/// The events of one activity: the posters' end.
#[derive(Debug)]
pub struct Inbox {
    /// A bit for each entry: set from the moment a poster holds it until its event is taken.
    held: AtomicU64,
    /// A bit for each entry: the poster has written it, and the taker has not found it yet.
    written: AtomicU64,
    posted: AtomicU64,
    /// 1 once the inbox is closed.
    closed: AtomicU64,
    entries: [Entry; EVENTS_MAX],
}

impl Inbox {
    /// Makes an empty inbox, and the end that takes. Allocates.
    pub fn new() -> (Arc<Self>, Taker) {
        let zero = || AtomicU64::new(0);
        let entry = |_| Entry { rank: zero(), number: zero(), words: from_fn(|_| zero()) };
        let (held, written, posted, closed) = (zero(), zero(), zero(), zero());
        let inbox = Inbox { held, written, posted, closed, entries: from_fn(entry) };
        let inbox = Arc::new(inbox);
        (inbox.clone(), Taker { inbox, found: 0 })
    }

    /// Posts an event. The caller then marks the inbox ([`Marks::set`]). For any thread. Costs
    /// three atomic read-modify-writes and seven stores.
    ///
    /// # Errors
    /// The inbox is full or closed.
    pub fn post(&self, event: &PostedEvent) -> Result<(), PostError> {
        // Relaxed: a post during the close counts as one before it.
        if self.closed.load(Relaxed) != 0 {
            return Err(PostError::Closed);
        }
        let entry = self.hold().ok_or(PostError::Full)?;
        // All accesses are Relaxed: if one post happens before another, their numbers are in that
        // order.
        let at = &self.entries[entry as usize];
        at.number.store(self.posted.fetch_add(1, Relaxed), Relaxed);
        at.rank.store(event.rank, Relaxed);
        at.words.iter().zip(event.words).for_each(|(at, word)| at.store(word, Relaxed));
        // Release pairs with the Acquire in `Taker::find`.
        self.written.fetch_or(1 << entry, ordering(Edge::InboxWritten, Release));
        Ok(())
    }

    /// Refuses all later posts. An event that was posted before can be found until the taker is
    /// dropped.
    pub fn close(&self) {
        // Relaxed: see `post`.
        self.closed.store(1, Relaxed);
    }

    /// Claims a free entry. Lock-free.
    fn hold(&self) -> Option<u32> {
        let mut held = self.held.load(Relaxed);
        loop {
            let entry = (!held).trailing_zeros();
            if entry == u64::BITS {
                return None;
            }
            // Acquire pairs with the Release in `Taker::take`: the entry is written again only
            // after it was read.
            let acquire = ordering(Edge::InboxHold, Acquire);
            match self.held.compare_exchange_weak(held, held | 1 << entry, acquire, Relaxed) {
                Ok(_) => return Some(entry),
                Err(seen) => held = seen,
            }
        }
    }
}

/// The end of an inbox that takes. For one thread.
#[derive(Debug)]
pub struct Taker {
    inbox: Arc<Inbox>,
    /// A bit for each entry: the taker has found it and not taken it yet.
    found: u64,
}

impl Taker {
    /// Finds the events posted since the last call, and passes each rank to `each`. Costs one load
    /// if there are none.
    pub fn find(&mut self, mut each: impl FnMut(u64)) {
        // Relaxed: this load only saves the exchange. A poster sets the bit before it marks the
        // inbox, and `Marks::take` acquires the mark. Acquire pairs with the Release in
        // `Inbox::post`.
        if self.inbox.written.load(Relaxed) == 0 {
            return;
        }
        let new = self.inbox.written.swap(0, ordering(Edge::InboxFind, Acquire));
        self.found |= new;
        bits(new).for_each(|entry| each(self.inbox.entries[entry as usize].rank.load(Relaxed)));
    }

    /// Takes the most urgent of the found events: the smallest rank, and among equals the one that
    /// was posted first. O(k) for k waiting events, about 1 ns each.
    pub fn take(&mut self) -> Option<PostedEvent> {
        // All accesses are Relaxed: a found entry belongs to the taker until the taker gives it
        // back.
        let place = |entry: &u32| {
            let Entry { rank, number, .. } = &self.inbox.entries[*entry as usize];
            (rank.load(Relaxed), number.load(Relaxed))
        };
        let entry = bits(self.found).min_by_key(place)?;
        let Entry { rank, words, .. } = &self.inbox.entries[entry as usize];
        let words = from_fn(|at| words[at].load(Relaxed));
        let event = PostedEvent { rank: rank.load(Relaxed), words };
        self.found &= !(1 << entry);
        // Release pairs with the Acquire in `Inbox::hold`.
        self.inbox.held.fetch_and(!(1 << entry), ordering(Edge::InboxGiveBack, Release));
        Some(event)
    }
}

/// Which inboxes of one taker have events, and whether the taker must be notified of them.
#[derive(Debug)]
pub struct Marks {
    words: [AtomicU64; INBOXES_MAX as usize / 64],
    /// 1 while the taker sleeps, or is about to.
    asleep: AtomicU64,
}

impl Default for Marks {
    fn default() -> Self {
        Marks { words: from_fn(|_| AtomicU64::new(0)), asleep: AtomicU64::new(0) }
    }
}

impl Marks {
    /// Marks inbox `number` after an event was posted there. Returns `true` if the taker must be
    /// notified. For any thread. Costs a read-modify-write, a fence and a load. Without effect if
    /// there is no such inbox.
    #[must_use = "a sleeping taker must be notified"]
    pub fn set(&self, number: u32) -> bool {
        let Some(word) = self.words.get(number as usize / 64) else { return false };
        // Release pairs with the Acquire in `take`: a taker that takes the mark finds the event.
        word.fetch_or(1 << (number % 64), ordering(Edge::MarkSet, Release));
        // Pairs with the fence in `prepare_wait`.
        barrier(Edge::MarkFence, SeqCst);
        self.asleep.load(Relaxed) != 0
    }

    /// Takes all marks. For the taker. Costs four loads if no inbox is marked.
    #[inline]
    pub fn take(&self) -> impl Iterator<Item = u32> {
        self.words.iter().zip(0u32..).flat_map(|(word, place)| {
            // Relaxed: this load only saves the exchange. Acquire pairs with the Release in `set`.
            let any = word.load(Relaxed) != 0;
            let acquire = ordering(Edge::MarkTake, Acquire);
            let found = if any { word.swap(0, acquire) } else { 0 };
            bits(found).map(move |bit| place * 64 + bit)
        })
    }

    /// Whether the taker may sleep now. If so, posters notify it from now on, and it calls
    /// [`Self::cancel_wait`] after the sleep. After `false` it does not sleep and need not call
    /// that.
    #[must_use = "the taker must not sleep while an inbox is marked"]
    pub fn prepare_wait(&self) -> bool {
        self.asleep.store(1, Relaxed);
        // Pairs with the fence in `set`. One of the two fences comes first, and what was stored
        // before it is seen after the other.
        barrier(Edge::PrepareWaitFence, SeqCst);
        let is_quiet = self.words.iter().all(|word| word.load(Relaxed) == 0);
        if !is_quiet {
            self.cancel_wait();
        }
        is_quiet
    }

    /// Ends a wait: the taker is awake and looks for marks without a notification.
    pub fn cancel_wait(&self) {
        // Relaxed: a poster that still finds 1 sends one notification too many.
        self.asleep.store(0, Relaxed);
    }
}

/// The numbers of the bits that are set, lowest first.
fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}
