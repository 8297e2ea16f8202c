//! The results of a datagram and of a PDU: taken, rejected, processed or failed.

use core::fmt;

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// A PDU is complete; [`Work::process`] may be called.
    Pdu,
    /// Kept; the PDU needs more datagrams.
    More,
    /// Not used, and why.
    Rejected(Reject),
}

/// Why a datagram was not used. Sizes are bytes unless named otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reject {
    /// Shorter than its RTP header says (RFC 3550 §5.1).
    RtpTruncated {
        /// Bytes in the datagram.
        found: usize,
        /// Bytes the header asks for.
        expected: usize,
    },
    /// An RTP version other than 2.
    RtpVersion {
        /// The version.
        found: u8,
    },
    /// The padding count is 0 or reaches into the header.
    RtpPadding {
        /// The count.
        found: u8,
    },
    /// The datagram is longer than the PDUs announced.
    TooLong {
        /// Bytes in the datagram.
        found: usize,
        /// Most bytes a PDU has.
        limit: usize,
    },
    /// An RTP packet with nothing in it.
    Empty,
    /// L16 with half a sample at the end.
    HalfSample {
        /// Bytes of payload.
        found: usize,
    },
    /// A sequence number seen before.
    Duplicate,
    /// A fragment of a frame that is done or was given up.
    Late,
    /// An RFC 2435 header goes past the end of the payload.
    JpegTruncated {
        /// Bytes of payload.
        found: usize,
        /// Bytes the headers ask for.
        expected: usize,
    },
    /// A type other than 0, 1, 64 and 65 (RFC 2435 §4.1).
    JpegType {
        /// The type.
        found: u8,
    },
    /// The reserved Q 0 or 100 to 127 (RFC 2435 §4.2).
    JpegQ {
        /// The Q.
        found: u8,
    },
    /// A picture with no width or no height.
    JpegNoPixels,
    /// More pixels than the bytes of the largest PDU can describe.
    JpegPicture {
        /// Pixels.
        found: u32,
        /// Most pixels.
        limit: u32,
    },
    /// A restart interval of 0 (RFC 2435 §3.1.7).
    JpegRestart,
    /// In-band quantization tables that are not one or two whole tables.
    JpegTables {
        /// Bytes of tables.
        found: usize,
    },
    /// No quantization tables came with this Q, nor earlier.
    JpegNoTables {
        /// The Q.
        q: u8,
    },
    /// The fragment contradicts the rest of its frame: another size, type or
    /// Q, or an end beyond the last fragment.
    JpegMismatch,
    /// The fragment covers bytes that another one brought.
    JpegOverlap,
    /// The fragments of the frame arrive in more pieces than are kept track of.
    JpegScattered,
    /// The frame is larger than the PDUs announced.
    JpegTooLong {
        /// The end of this fragment in the frame.
        found: usize,
        /// Most bytes a frame has.
        limit: usize,
    },
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reject::RtpTruncated { found, expected } => {
                write!(f, "found an rtp packet of {found} bytes, its header expects {expected}")
            }
            Reject::RtpVersion { found } => write!(f, "found rtp version {found}, expected 2"),
            Reject::RtpPadding { found } => {
                write!(f, "found rtp padding of {found} bytes, expected 1 to the payload's length")
            }
            Reject::TooLong { found, limit } => {
                write!(f, "found a datagram of {found} bytes, expected at most {limit}")
            }
            Reject::Empty => f.write_str("found an rtp packet without payload, expected some"),
            Reject::HalfSample { found } => {
                write!(f, "found {found} bytes of 16-bit samples, expected an even number")
            }
            Reject::Duplicate => f.write_str("found a sequence number seen before"),
            Reject::Late => f.write_str("found a fragment of a frame already finished or given up"),
            Reject::JpegTruncated { found, expected } => {
                write!(f, "found {found} bytes of jpeg payload, its headers expect {expected}")
            }
            Reject::JpegType { found } => {
                write!(f, "found jpeg type {found}, expected 0, 1, 64 or 65")
            }
            Reject::JpegQ { found } => {
                write!(f, "found jpeg q {found}, expected 1 to 99 or 128 to 255")
            }
            Reject::JpegNoPixels => {
                f.write_str("found a picture of width or height 0, expected 8 to 2040 pixels")
            }
            Reject::JpegPicture { found, limit } => {
                write!(f, "found a picture of {found} pixels, expected at most {limit}")
            }
            Reject::JpegRestart => f.write_str("found restart interval 0, expected 1 or more"),
            Reject::JpegTables { found } => {
                write!(f, "found {found} bytes of quantization tables, expected one or two tables")
            }
            Reject::JpegNoTables { q } => {
                write!(f, "found q {q} without quantization tables, expected them in or before it")
            }
            Reject::JpegMismatch => f.write_str("found a fragment that contradicts its frame"),
            Reject::JpegOverlap => f.write_str("found a fragment that overlaps another"),
            Reject::JpegScattered => f.write_str("found a frame in too many pieces"),
            Reject::JpegTooLong { found, limit } => {
                write!(f, "found a frame of {found} bytes or more, expected at most {limit}")
            }
        }
    }
}

upcall_runtime::debug_as_display!(Reject);

impl core::error::Error for Reject {}

/// Why a PDU was not processed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkError {
    /// No PDU is complete.
    NoPdu,
    /// The frame is complete but its content is not a picture.
    Jpeg {
        /// What the decoder found, in its words.
        reason: String,
    },
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkError::NoPdu => f.write_str("found no complete pdu, expected one"),
            WorkError::Jpeg { reason } => write!(f, "the frame cannot be decoded: {reason}"),
        }
    }
}

upcall_runtime::debug_as_display!(WorkError);

impl core::error::Error for WorkError {}
