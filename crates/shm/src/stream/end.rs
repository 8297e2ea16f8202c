//! The ends of a stream, and what a call of one tells its caller to do.

use super::layout::word;
use super::wake::{DIED, ENDED};
use crate::AtomicU64;
use crate::Ordering::{Acquire, Relaxed};
use crate::words::Words;

/// One end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Which writes.
    Writer,
    /// Which reads.
    Reader,
}

impl End {
    pub(super) const fn line(self) -> usize {
        match self {
            End::Writer => word::WRITER,
            End::Reader => word::READER,
        }
    }

    /// The one at the other side.
    pub const fn other(self) -> End {
        match self {
            End::Writer => End::Reader,
            End::Reader => End::Writer,
        }
    }
}

/// How an end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// In order: [`Closed::Ended`].
    Ended,
    /// It failed, and what it was to do is not all done: [`Closed::Died`].
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

/// What the caller is to do now, outside the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "who waits must be woken, and a source at rest started"]
pub struct Due {
    /// The other end waits and has what it waits for: make it eligible, or wake its futex.
    pub wake: bool,
    /// The source rests and is to go on: tell it. Of a reader only.
    pub start: bool,
}

/// What became of a wish to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What is due first.
    pub due: Due,
    /// Whether to sleep while the end's wait word is [`WAITING`]; then `finish_wait`. Otherwise what was
    /// waited for is there, or the stream is closed: look.
    pub sleep: bool,
}

/// Takes the resting source for its start: `true` for one caller only.
pub(super) fn claim_start<W: AsRef<[AtomicU64]>>(words: &Words<W>) -> bool {
    // Acquire pairs with the fence in `Writer::rest_until_started`: its wait word is found. Apart from
    // that nothing is handed over; the fences decide who sees what.
    words.at(word::ACTIVE).compare_exchange(0, 1, Acquire, Relaxed).is_ok()
}
