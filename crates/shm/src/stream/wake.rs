//! How an end of a stream waits for the other's index, and is woken. Both ends use the same
//! functions.
//!
//! ```text
//!   the end that waits                        the end that goes on
//!   (1) wanted = index to wait for            (5) its index    -- Release
//!   (2) wait = WAITING       -- Release       (6) fence
//!   (3) fence                                 (7) wait WAITING? -- Acquire
//!   (4) the peer's index: there? wait = 0         index there? wait = 0
//!       else sleeps while WAITING                 and the caller wakes
//! ```
//!
//! One of the two fences comes first: either (4) finds what (5) stored, or (7) finds what (2)
//! stored. A woken end finds 0 in the word (Acquire) and so the index. The waiting end may end its
//! wait and begin another one between the two loads and the exchange of (7). That end is then woken
//! early, looks and waits again.
//!
//! An end that waits for several things stores `WATCHED` in (2), and loads the word from time to
//! time. (7) then also sets the word to 0, and the caller of (7) wakes no thread. Before such an
//! end sleeps on several words, it changes each from `WATCHED` to `WAITING` (`prepare_wait`), and
//! back afterwards (`cancel_wait`). These changes and (7) are exchanges of one word. Either (7)
//! comes first and the change fails, or (7) finds `WAITING`.
//!
//! A wait word has other states than a [`crate::wake_word`]. An end is notified only once the index
//! that it waits for is reached. So 0 means both "does not wait" and "notified". There is no state
//! like `NOTIFIED` of a wake word, which is set even without a waiter. So a commit without a
//! waiting reader costs one load and no exchange.

use super::fault::{Closed, StreamFault};
use super::layout::{KIND, word};
use crate::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, LayoutError};

/// The value of a wait word while its end sleeps or is about to. The low half of the word is the
/// futex.
pub const WAITING: u32 = 1;
/// The value of a wait word while its end waits without sleeping.
pub const WATCHED: u32 = 2;

/// The states of an end: open, ended in order, or died.
pub(super) const OPEN: u64 = 0;
pub(super) const ENDED: u64 = 1;
pub(super) const DIED: u64 = 2;

impl<W: AsRef<[AtomicU64]>> Words<W> {
    /// (5) to (7): stores `index` to `word`. Returns `true` if the end of `line` must be woken.
    #[inline]
    pub(super) fn publish(&self, word: usize, index: u64, line: usize) -> bool {
        // Release pairs with the Acquire in `index`.
        self.store(word, index, ordering(Edge::StreamIndexStore, Release));
        // Pairs with the fence in `begin_wait`.
        barrier(Edge::StreamPublishFence, SeqCst);
        let state = self.at(line + word::WAIT);
        // Acquire pairs with the Release in `begin_wait`: `wanted` belongs to this wait.
        state.load(ordering(Edge::StreamWaitLoad, Acquire)) != 0
            && index >= self.load(line + word::WANTED, Relaxed)
            && self.notify(line)
    }

    /// Notifies the end of `line`. The caller has made a fence before. Returns `true` if it sleeps
    /// or is about to.
    #[inline]
    pub(super) fn notify(&self, line: usize) -> bool {
        // Relaxed: the caller's fence makes the exchange a release for the Acquire in
        // `finish_wait`. It hands over the index, or the fact that this end is gone.
        self.at(line + word::WAIT).swap(0, Relaxed) == u64::from(WAITING)
    }

    /// (1) to (3). `state` is `WAITING` or `WATCHED`.
    pub(super) fn begin_wait(&self, line: usize, wanted: u64, state: u32) {
        self.store(line + word::WANTED, wanted, Relaxed);
        // Release pairs with the Acquire in `publish`.
        let release = ordering(Edge::StreamWaitStore, Release);
        self.store(line + word::WAIT, u64::from(state), release);
        // Pairs with the fences in `publish` and `leave`.
        barrier(Edge::StreamWaitFence, SeqCst);
    }

    /// Ends the wait. Returns `true` if the end was notified.
    pub(super) fn finish_wait(&self, line: usize) -> bool {
        // Acquire pairs with the exchange in `notify`, which follows a fence.
        self.at(line + word::WAIT).swap(0, ordering(Edge::StreamWaitFinish, Acquire)) == 0
    }

    /// Changes the word from `WATCHED` to `WAITING` or back. `false` if the end was notified
    /// meanwhile.
    pub(super) fn change_state(&self, line: usize, from: u32, to: u32) -> bool {
        // Relaxed: this access hands nothing over. `finish_wait` synchronises.
        let state = self.at(line + word::WAIT);
        state.compare_exchange(u64::from(from), u64::from(to), Relaxed, Relaxed).is_ok()
    }

    /// The peer's index. The caller sees what the peer stored before it.
    #[inline]
    pub(super) fn index(&self, word: usize) -> u64 {
        // Acquire pairs with the Release in `publish`.
        self.load(word, ordering(Edge::StreamIndexLoad, Acquire))
    }

    /// Makes the caller the end of `line`.
    pub(super) fn claim(&self, line: usize, name: &'static str) -> Result<(), LayoutError> {
        // Relaxed: this access hands nothing over.
        match self.at(line + word::CLAIMED).swap(1, Relaxed) {
            0 => Ok(()),
            found => Err(LayoutError::Value { page: KIND.page, name, found, min: 0, max: 0 }),
        }
    }

    /// Reports that the end of `line` is gone, after all that it published. Returns `true` if the
    /// end of `peer` must be woken. The first report decides how the end is gone.
    pub(super) fn leave(&self, line: usize, how: u64, peer: usize) -> bool {
        // Relaxed: the fence in `publish` stands between the last index and this exchange. It makes
        // the exchange a release for the Acquire in `gone`. A failed exchange changes nothing.
        let _ = self.at(line + word::GONE).compare_exchange(OPEN, how, Relaxed, Relaxed);
        // Pairs with the fence in `begin_wait`.
        barrier(Edge::StreamLeaveFence, SeqCst);
        self.notify(peer)
    }

    /// Whether the end of `line` is gone. A caller that loads the index of that end after this sees
    /// its last value.
    #[inline]
    pub(super) fn gone(&self, line: usize) -> Option<Closed> {
        // Acquire pairs with the exchange in `leave`, which follows the fence in `publish`.
        match self.load(line + word::GONE, ordering(Edge::StreamGoneLoad, Acquire)) {
            OPEN => None,
            ENDED => Some(Closed::Ended),
            DIED => Some(Closed::Died),
            found => Some(Closed::Fault(StreamFault::State { found })),
        }
    }
}
