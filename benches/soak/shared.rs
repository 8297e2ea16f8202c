//! The words in which an end records its progress, and the wait of an end. Sender, receiver and
//! supervisor share them.

use std::sync::atomic::AtomicU64;

use upcall_shm::stream::{Stream, WAITING, Wait};
use upcall_sys::futex;

/// Words of the memory in which each end records its progress apart from the stream, in units of
/// the stream's indexes. It does so before it commits or releases, and after.
pub mod progress {
    /// Writer: the index that it is about to commit.
    pub const COMMITTING: usize = 0;
    /// Writer: the index that the stream reported as committed.
    pub const COMMITTED: usize = 8;
    /// Reader: the index that it is about to release.
    pub const RELEASING: usize = 16;
    /// Reader: the index that the stream reported as released.
    pub const RELEASED: usize = 24;
    /// Reader: the number of times it started a source that rested.
    pub const STARTS: usize = 25;
    /// Number of all words.
    pub const WORDS: usize = 32;
}

/// A stream in a child process.
pub type Shared<'a> = Stream<&'a [AtomicU64]>;

/// Wakes the peer if that is due, and sleeps if the caller wished to.
pub fn sleep(wait: Wait, own: &AtomicU64, peer: &AtomicU64) {
    if wait.due.wake {
        futex::wake_shared(peer, 1);
    }
    if wait.sleep {
        futex::wait_shared_until(own, WAITING, None);
    }
}
