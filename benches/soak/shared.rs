//! What sender, receiver and supervisor share: the words in which an end records its progress, and
//! the wait of an end.

use std::sync::atomic::AtomicU64;

use upcall_shm::stream::{Stream, WAITING, Wait};
use upcall_sys::futex;

/// Words of the memory in which each end says, apart from the stream, how far it is in units of
/// the stream's indexes: before it commits (releases), and after.
pub mod progress {
    /// Writer: what it is about to commit.
    pub const COMMITTING: usize = 0;
    /// Writer: what the stream said is committed.
    pub const COMMITTED: usize = 8;
    /// Reader: what it is about to release.
    pub const RELEASING: usize = 16;
    /// Reader: what the stream said is released.
    pub const RELEASED: usize = 24;
    /// Reader: how often it started a source that rested.
    pub const STARTS: usize = 25;
    /// All words.
    pub const WORDS: usize = 32;
}

/// A stream in a child.
pub type Shared<'a> = Stream<&'a [AtomicU64]>;

/// Does what is due, and sleeps if that was wished for.
pub fn sleep(wait: Wait, own: &AtomicU64, peer: &AtomicU64) {
    if wait.due.wake {
        futex::wake_shared(peer, 1);
    }
    if wait.sleep {
        futex::wait_shared_until(own, WAITING, None);
    }
}
