//! Notes to the user about a file.

use core::fmt;
use upcall::time::Span;

/// A note to the user about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Arrivals that came out of order were sorted.
    Sorted {
        /// How many came earlier than one before them.
        count: u64,
        /// How far they went back at most.
        back: Span,
    },
    /// The capture ends inside a packet or a block; the packets before it were used.
    Truncated {
        /// Whole packets, selected or not.
        packets: u64,
    },
    /// No port can be found in some packets.
    UnknownLink {
        /// The first such link type, as in <https://www.tcpdump.org/linktypes.html>.
        link: u32,
        /// The number of packets of all such link types.
        packets: u64,
    },
    /// The trace has gaps.
    Lost {
        /// Records missing in the trace.
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
                write!(f, "the capture is cut off; the {packets} whole packets were read")
            }
            Note::UnknownLink { link, packets } => {
                write!(f, "{packets} packets have no known port: link type {link}")
            }
            Note::Lost { records } => {
                write!(f, "{records} records were lost when the trace was written")
            }
        }
    }
}
