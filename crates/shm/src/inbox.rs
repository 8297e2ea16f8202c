//! Events on their way to an activity: from any thread of a process to the one that upcalls it
//! (ecalls-2001 §2.4).
//!
//! Used by the runtime: posters are whoever tells a handler of an event, the *taker* is its executor. The
//! one memory here that is not shared between processes; it is here because what hands it over is
//! checked in the same way. Neither side waits, allocates or makes a system call.
//!
//! ```text
//!   poster                                      taker
//!   (1) holds an entry      <-- Release/Acq --    (6) gives it back: the event was taken
//!   (2) writes it
//!   (3) its bit: written    --- Release/Acq -->   (5) finds it; reads
//!
//!   (4) marks the inbox; must notify?             takes marks, looks into those inboxes
//!           fence                                 prepare_wait: fence, then no mark is there, or no sleep
//! ```
//!
//! 1. Of [`EVENTS_MAX`] entries; held until the event is *taken* by the handler. So what waits is bounded by
//!    the inbox alone, and who never takes its events harms itself. A poster that is stopped amid
//!    (2) holds up nobody but its own event.
//! 4. [`Marks`], one for all inboxes of an executor. Either the taker that goes to sleep finds the mark, or who
//!    marks finds that it dozes and rings. A taker that is awake, or need not know, costs no ring.

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

/// Most events that may wait for one activity.
pub const EVENTS_MAX: usize = 64;

/// Most inboxes that one taker has: their numbers are below.
pub const INBOXES_MAX: u32 = 256;

/// An event for a handler, as a `Poster` posts it and `Batch::take_event` takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedEvent {
    /// How urgent: the smaller first, and equal ones in the order in which they were posted. A priority, or an
    /// instant by which it should be dealt with.
    pub rank: u64,
    /// What it carries, as its poster says.
    pub words: [u64; 5],
}

/// Why an event was not posted. It is not lost unnoticed: whoever posts knows.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// [`EVENTS_MAX`] wait already.
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
    /// How many were posted before.
    number: AtomicU64,
    words: [AtomicU64; 5],
}

/// The events of one activity. The posters' end.
#[derive(Debug)]
pub struct Inbox {
    /// A bit an entry: a poster's, until its event was taken.
    held: AtomicU64,
    /// A bit an entry: written, and not found yet.
    written: AtomicU64,
    posted: AtomicU64,
    /// 1 once nobody takes any more.
    closed: AtomicU64,
    entries: [Entry; EVENTS_MAX],
}

impl Inbox {
    /// An empty one, and the end that takes. Allocates.
    pub fn new() -> (Arc<Self>, Taker) {
        let zero = || AtomicU64::new(0);
        let entry = |_| Entry { rank: zero(), number: zero(), words: from_fn(|_| zero()) };
        let (held, written, posted, closed) = (zero(), zero(), zero(), zero());
        let inbox = Inbox { held, written, posted, closed, entries: from_fn(entry) };
        let inbox = Arc::new(inbox);
        (inbox.clone(), Taker { inbox, found: 0 })
    }

    /// Leaves an event. Then the inbox is to be marked ([`Marks::set`]). From any thread; three atomic
    /// read-modify-writes and seven stores.
    ///
    /// # Errors
    /// There is no room, or the inbox is closed.
    pub fn post(&self, event: &PostedEvent) -> Result<(), PostError> {
        // Relaxed: one that comes as it is closed is as if it had come before.
        if self.closed.load(Relaxed) != 0 {
            return Err(PostError::Closed);
        }
        let entry = self.hold().ok_or(PostError::Full)?;
        // Relaxed, all of it: of two posts of which one happens before the other, the numbers are in that order.
        let at = &self.entries[entry as usize];
        at.number.store(self.posted.fetch_add(1, Relaxed), Relaxed);
        at.rank.store(event.rank, Relaxed);
        at.words.iter().zip(event.words).for_each(|(at, word)| at.store(word, Relaxed));
        // Release pairs with the Acquire in `Taker::find`.
        self.written.fetch_or(1 << entry, ordering(Edge::InboxWritten, Release));
        Ok(())
    }

    /// From now on nothing can be posted. What was is not found any more once the taker is dropped.
    pub fn close(&self) {
        // Relaxed: see `post`.
        self.closed.store(1, Relaxed);
    }

    /// An entry that is nobody's; lock-free.
    fn hold(&self) -> Option<u32> {
        let mut held = self.held.load(Relaxed);
        loop {
            let entry = (!held).trailing_zeros();
            if entry == u64::BITS {
                return None;
            }
            // Acquire pairs with the Release in `Taker::take`: it is written again only after it was read.
            let acquire = ordering(Edge::InboxHold, Acquire);
            match self.held.compare_exchange_weak(held, held | 1 << entry, acquire, Relaxed) {
                Ok(_) => return Some(entry),
                Err(seen) => held = seen,
            }
        }
    }
}

/// The end of an inbox that takes: one thread's.
#[derive(Debug)]
pub struct Taker {
    inbox: Arc<Inbox>,
    /// A bit an entry: found, and not taken yet.
    found: u64,
}

impl Taker {
    /// Finds what was posted since, and shows `each` its rank. A load, if there is nothing.
    pub fn find(&mut self, mut each: impl FnMut(u64)) {
        // Relaxed: only spares the swap; who marks the inbox has written before, and `Marks::take`
        // sees that. Acquire pairs with the Release in `Inbox::post`.
        if self.inbox.written.load(Relaxed) == 0 {
            return;
        }
        let new = self.inbox.written.swap(0, ordering(Edge::InboxFind, Acquire));
        self.found |= new;
        bits(new).for_each(|entry| each(self.inbox.entries[entry as usize].rank.load(Relaxed)));
    }

    /// Takes the most urgent event of those found: the one of the smallest rank, of equals the one that was posted
    /// first. O(k) for k that wait, about 1 ns each.
    pub fn take(&mut self) -> Option<PostedEvent> {
        // Relaxed, all of it: what was found is the taker's until it is given back.
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

/// Which inboxes of one taker have something, and whether it must be rung for that.
#[derive(Debug)]
pub struct Marks {
    words: [AtomicU64; INBOXES_MAX as usize / 64],
    /// 1 while the taker sleeps, or is about to, and wants to be rung.
    asleep: AtomicU64,
}

impl Default for Marks {
    fn default() -> Self {
        Marks { words: from_fn(|_| AtomicU64::new(0)), asleep: AtomicU64::new(0) }
    }
}

impl Marks {
    /// Marks inbox `number` after something was posted there; `true`: the taker must be rung. From any thread; a
    /// read-modify-write, a fence and a load. No effect if there is no such inbox.
    #[must_use = "who sleeps must be woken"]
    pub fn set(&self, number: u32) -> bool {
        let Some(word) = self.words.get(number as usize / 64) else { return false };
        // Release pairs with the Acquire in `take`: who takes the mark finds what was posted.
        word.fetch_or(1 << (number % 64), ordering(Edge::MarkSet, Release));
        // Pairs with the fence in `prepare_wait`.
        barrier(Edge::MarkFence, SeqCst);
        self.asleep.load(Relaxed) != 0
    }

    /// Takes all marks. By the taker; four loads, if there is none.
    #[inline]
    pub fn take(&self) -> impl Iterator<Item = u32> {
        self.words.iter().zip(0u32..).flat_map(|(word, place)| {
            // Relaxed: only spares the swap. Acquire pairs with the Release in `set`.
            let any = word.load(Relaxed) != 0;
            let acquire = ordering(Edge::MarkTake, Acquire);
            let found = if any { word.swap(0, acquire) } else { 0 };
            bits(found).map(move |bit| place * 64 + bit)
        })
    }

    /// Whether the taker may sleep now: whoever posts from now on rings. After the sleep comes [`Self::cancel_wait`]; not
    /// if this says `false`.
    #[must_use = "what is marked is not to be slept on"]
    pub fn prepare_wait(&self) -> bool {
        self.asleep.store(1, Relaxed);
        // Pairs with the fence in `set`: of two fences one comes first, and what was stored before it is
        // seen after the other.
        barrier(Edge::PrepareWaitFence, SeqCst);
        let is_quiet = self.words.iter().all(|word| word.load(Relaxed) == 0);
        if !is_quiet {
            self.cancel_wait();
        }
        is_quiet
    }

    /// The taker is awake, and looks by itself.
    pub fn cancel_wait(&self) {
        // Relaxed: who still finds it asleep rings for nothing.
        self.asleep.store(0, Relaxed);
    }
}

/// The numbers of the bits that are set, the lowest first.
fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}
