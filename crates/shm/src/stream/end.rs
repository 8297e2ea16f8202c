//! The two ends of a stream, and the actions that their calls require from the caller.

use super::layout::word;
use super::wake::{DIED, ENDED};
use crate::AtomicU64;
use crate::Ordering::{Acquire, Relaxed};
use crate::words::Words;

/// One end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that writes.
    Writer,
    /// The end that reads.
    Reader,
}

impl End {
    pub(super) const fn line(self) -> usize {
        match self {
            End::Writer => word::WRITER,
            End::Reader => word::READER,
        }
    }

    /// The other end.
    pub const fn other(self) -> End {
        match self {
            End::Writer => End::Reader,
            End::Reader => End::Writer,
        }
    }
}

/// How an end leaves the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The end ends the stream in order. The other end finds
    /// [`Closed::Ended`](super::Closed::Ended).
    Ended,
    /// The end failed before its work was done. The other end finds
    /// [`Closed::Died`](super::Closed::Died).
    Died,
}

impl Leaving {
    pub(super) const fn state(self) -> u64 {
        match self {
            Leaving::Ended => ENDED,
            Leaving::Died => DIED,
        }
    }
}

/// What the caller must do now, outside the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the other end must be woken, or a resting source started"]
pub struct Due {
    /// The other end waits, and its level is reached: make its activity eligible, or wake its
    /// futex.
    pub wake: bool,
    /// The source rests and must be started. Only a reader returns this.
    pub start: bool,
}

/// The result of a request to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What the caller must do first.
    pub due: Due,
    /// Whether to sleep while the end's wait word is [`WAITING`](super::WAITING), and to call
    /// `finish_wait` afterwards. If `false`, the level is reached or the stream is closed, so look
    /// again.
    pub sleep: bool,
}

/// Claims the start of the resting source. `true` for one caller only.
pub(super) fn claim_start<W: AsRef<[AtomicU64]>>(words: &Words<W>) -> bool {
    // Acquire pairs with the fence in `begin_wait`, which `Writer::rest_with` calls before it
    // rests. So the caller finds the writer's wait word. Nothing else is handed over here: the
    // SeqCst fences ensure that one side sees the other's store.
    words.at(word::ACTIVE).compare_exchange(0, 1, Acquire, Relaxed).is_ok()
}
