//! How one end waits for the other's index, and is woken: the same for both.
//!
//! ```text
//!   who waits                                 who goes on
//!   (1) wanted = index to wait for            (5) its index    -- Release
//!   (2) wait = WAITING       -- Release       (6) fence
//!   (3) fence                                 (7) wait WAITING? -- Acquire
//!   (4) the peer's index: there? wait = 0         index there? wait = 0
//!       else sleeps while WAITING                 and the caller wakes
//! ```
//!
//! Of the fences one comes first: either (4) finds what (5) stored, or (7) finds what (2) stored.
//! Who is woken finds the word 0 (Acquire) and the index. Between the two loads of (7) and its
//! exchange the peer may have begun to wait anew: it is then woken early, looks and waits again.
//!
//! Who has more to do than to sleep on one word puts `WATCHED` there in (2), and looks at it now
//! and then: (7) sets it to 0 all the same, and nobody need be woken. Before it sleeps on
//! this word and others together, it makes each `WAITING`, and `WATCHED` again after. It is one
//! word, so either (7) comes first and the exchange fails, or (7) finds `WAITING`.

use super::layout::{KIND, word};
use super::{Closed, StreamFault};
use crate::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, LayoutError};

/// What a wait word (the low half is the futex) holds while its end waits.
pub const WAITING: u32 = 1;
/// What it holds while its end waits and does not sleep.
pub const WATCHED: u32 = 2;

/// States of an end.
pub(super) const OPEN: u64 = 0;
pub(super) const ENDED: u64 = 1;
pub(super) const DIED: u64 = 2;

impl<W: AsRef<[AtomicU64]>> Words<W> {
    /// (5) to (7): stores `index` to `word`, and says whether the end of `line` must be woken.
    #[inline]
    pub(super) fn publish(&self, word: usize, index: u64, line: usize) -> bool {
        // Pairs with the Acquire in `index`.
        self.store(word, index, ordering(Edge::StreamIndexStore, Release));
        // Pairs with the fence in `begin_wait`.
        barrier(Edge::StreamPublishFence, SeqCst);
        let state = self.at(line + word::WAIT);
        // Acquire pairs with the Release in `begin_wait`: `wanted` is of this wait.
        state.load(ordering(Edge::StreamWaitLoad, Acquire)) != 0
            && index >= self.load(line + word::WANTED, Relaxed)
            && self.notify(line)
    }

    /// Rings for the end of `line`, behind a fence: whether it sleeps, or is about to.
    #[inline]
    pub(super) fn notify(&self, line: usize) -> bool {
        // Relaxed: the caller's fence makes it a release for the Acquire in `finish_wait`, of the
        // index or of that this end is gone.
        self.at(line + word::WAIT).swap(0, Relaxed) == u64::from(WAITING)
    }

    /// (1) to (3), with `state` `WAITING` or `WATCHED`.
    pub(super) fn begin_wait(&self, line: usize, wanted: u64, state: u32) {
        self.store(line + word::WANTED, wanted, Relaxed);
        // Pairs with the Acquire in `publish`.
        let release = ordering(Edge::StreamWaitStore, Release);
        self.store(line + word::WAIT, u64::from(state), release);
        // Pairs with the fences in `publish` and `leave`.
        barrier(Edge::StreamWaitFence, SeqCst);
    }

    /// Waits no more: whether it was rung.
    pub(super) fn finish_wait(&self, line: usize) -> bool {
        // Pairs with the exchange in `notify`, behind a fence.
        self.at(line + word::WAIT).swap(0, ordering(Edge::StreamWaitFinish, Acquire)) == 0
    }

    /// From `WATCHED` to `WAITING` or back: `false` if it was rung meanwhile.
    pub(super) fn change_state(&self, line: usize, from: u32, to: u32) -> bool {
        // Relaxed: nothing is handed over with it; `finish_wait` synchronises.
        let state = self.at(line + word::WAIT);
        state.compare_exchange(u64::from(from), u64::from(to), Relaxed, Relaxed).is_ok()
    }

    /// The peer's index; what was stored before it is seen.
    #[inline]
    pub(super) fn index(&self, word: usize) -> u64 {
        // Pairs with the Release in `publish`.
        self.load(word, ordering(Edge::StreamIndexLoad, Acquire))
    }

    /// Makes the caller the end of `line`.
    pub(super) fn claim(&self, line: usize, name: &'static str) -> Result<(), LayoutError> {
        // Relaxed: nothing is handed over with it.
        match self.at(line + word::CLAIMED).swap(1, Relaxed) {
            0 => Ok(()),
            found => Err(LayoutError::Value { page: KIND.page, name, found, min: 0, max: 0 }),
        }
    }

    /// Says that the end of `line` is gone, after all that it published; whether the end of
    /// `peer` must be woken. The first to say so says how.
    pub(super) fn leave(&self, line: usize, how: u64, peer: usize) -> bool {
        // Relaxed: the fence in `publish` stands between the last index and this, and makes it
        // a release for the Acquire in `gone`. A failure changes nothing.
        let _ = self.at(line + word::GONE).compare_exchange(OPEN, how, Relaxed, Relaxed);
        // Pairs with the fence in `begin_wait`.
        barrier(Edge::StreamLeaveFence, SeqCst);
        self.notify(peer)
    }

    /// Whether the end of `line` is gone. What it published last is seen by who looks at its
    /// index after this.
    #[inline]
    pub(super) fn gone(&self, line: usize) -> Option<Closed> {
        // Pairs with the store in `leave`, behind the fence in `publish`.
        match self.load(line + word::GONE, ordering(Edge::StreamGoneLoad, Acquire)) {
            OPEN => None,
            ENDED => Some(Closed::Ended),
            DIED => Some(Closed::Died),
            found => Some(Closed::Fault(StreamFault::State { found })),
        }
    }
}
