//! The results of [`Work::take`](super::Work::take) and [`Work::process`](super::Work::process).

use core::fmt;

/// The result of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// A PDU is complete: [`Work::process`](super::Work::process) may be called.
    Pdu,
    /// The datagram is kept. Its PDU needs more datagrams.
    More,
    /// The datagram was not used, for this reason.
    Rejected(Reject),
}

/// Why a datagram was not used. Sizes are in bytes unless a field says otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reject {
    /// The datagram is shorter than its RTP header says (RFC 3550 §5.1).
    RtpTruncated {
        /// Bytes in the datagram.
        found: usize,
        /// Bytes that the header announces.
        expected: usize,
    },
    /// The RTP version is not 2.
    RtpVersion {
        /// The version.
        found: u8,
    },
    /// The padding count is 0 or reaches into the header.
    RtpPadding {
        /// The count.
        found: u8,
    },
    /// The datagram is longer than the announced PDUs.
    TooLong {
        /// Bytes in the datagram.
        found: usize,
        /// The largest PDU, in bytes.
        limit: usize,
    },
    /// The RTP packet has no payload.
    Empty,
    /// The payload of L16 ends with half a sample.
    HalfSample {
        /// Bytes of payload.
        found: usize,
    },
    /// The sequence number was seen before.
    Duplicate,
    /// The fragment belongs to a frame that is finished or was dropped.
    Late,
    /// The RFC 2435 headers are longer than the payload.
    JpegTruncated {
        /// Bytes of payload.
        found: usize,
        /// Bytes that the headers announce.
        expected: usize,
    },
    /// The type is not 0, 1, 64 or 65 (RFC 2435 §4.1).
    JpegType {
        /// The type.
        found: u8,
    },
    /// The Q is reserved: 0, or 100 to 127 (RFC 2435 §4.2).
    JpegQ {
        /// The Q.
        found: u8,
    },
    /// The width or the height is 0.
    JpegNoPixels,
    /// The picture has more pixels than the bytes of the largest PDU can describe.
    JpegPicture {
        /// Pixels.
        found: u32,
        /// The largest number of pixels.
        limit: u32,
    },
    /// The restart interval is 0 (RFC 2435 §3.1.7).
    JpegRestart,
    /// The in-band quantization tables are not exactly one or two tables.
    JpegTables {
        /// Bytes of tables.
        found: usize,
    },
    /// Neither this frame nor an earlier one brought quantization tables for this Q.
    JpegNoTables {
        /// The Q.
        q: u8,
    },
    /// The fragment contradicts the rest of its frame: it has another size, type or Q, or it ends
    /// beyond the last fragment.
    JpegMismatch,
    /// The fragment covers bytes that another one brought.
    JpegOverlap,
    /// The fragments that arrived form more separate pieces than the processor tracks.
    JpegScattered,
    /// The frame is larger than the announced PDUs.
    JpegTooLong {
        /// The end of this fragment in the frame.
        found: usize,
        /// The largest frame, in bytes.
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
    /// The frame is complete, but its content is not a picture.
    Jpeg {
        /// The error of the decoder, in its words.
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
