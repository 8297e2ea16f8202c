//! What a user should know of a file that was read.

use core::fmt;
use upcall::time::Span;

/// Something to be said of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// So many came earlier than one before them, by at most `back`; they were sorted.
    Sorted {
        /// How many.
        count: u64,
        /// The longest way back.
        back: Span,
    },
    /// The capture ends inside a packet or a block; what stands before it was taken.
    Truncated {
        /// Whole packets, selected or not.
        packets: u64,
    },
    /// Packets in which no port can be found.
    UnknownLink {
        /// The link type, as <https://www.tcpdump.org/linktypes.html> numbers them.
        link: u32,
        /// How many there were of all such link types.
        packets: u64,
    },
    /// The trace has gaps.
    Lost {
        /// Records that are not in it.
        records: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Sorted { count, back } => {
                write!(f, "{count} arrivals were out of order, by up to {back}; sorted")
            }
            Note::Truncated { packets } => {
                write!(f, "the capture is cut off; the {packets} whole packets of it were read")
            }
            Note::UnknownLink { link, packets } => {
                write!(f, "{packets} packets have no port that is found: link type {link}")
            }
            Note::Lost { records } => {
                write!(f, "{records} records were lost when the trace was written")
            }
        }
    }
}
