//! Named processors: what is done with a PDU.
//!
//! A spec says `work = "..."` with one of the names of [`WorkKind`]. The
//! runtime makes one [`Work`] per stream before the stream starts, gives it
//! each datagram it receives and calls it once per complete PDU, inside the
//! stream's quantum. Nothing here waits, reads a socket or a wall clock, or
//! takes memory after [`Work::new`] (one exception, named at [`WorkKind::RtpJpeg`]).
//!
//! ```text
//!            datagram                 PDU
//!   socket ----------> Work::take ---------> Work::process --> Work::output
//!                        |  More: wait for the next datagram
//!                        |  Rejected: typed, counted, forgotten
//! ```
//!
//! What arrives is not trusted: every length is checked, no bytes make a
//! processor panic, and none make it hold more than it took at the start.
//!
//! RTP payload types are **not** enforced. Most are dynamic (RFC 3551 §3) and
//! the spec names the processor already, so a stream of L16 may come as 96 or
//! as 11. Contributing sources, header extensions and padding are skipped.
//!
//! # Sending to a stream
//!
//! [`sample_payload`] makes what an embedded load generator sends. From
//! outside, with ffmpeg 5.1 (all tried on this code):
//!
//! ```sh
//! # rtp-jpeg. RFC 2435 sends no Huffman tables, so they must be the default ones: ffmpeg refuses to send
//! # others. 4:2:0 is a must too: what ffmpeg's encoder makes of 4:2:2 its own RTP sender refuses.
//! ffmpeg -re -f lavfi -i testsrc=size=320x240:rate=25 -c:v mjpeg -huffman default \
//!     -force_duplicated_matrix 1 -pix_fmt yuvj420p -f rtp rtp://127.0.0.1:5004
//! # rtp-l16, 8.3 ms of stereo a packet
//! ffmpeg -re -f lavfi -i sine=frequency=440:sample_rate=44100 -ac 2 -c:a pcm_s16be \
//!     -f rtp rtp://127.0.0.1:5004
//! # rtp-pcmu, 128 ms a packet; rtp-pcma with pcm_alaw
//! ffmpeg -re -f lavfi -i sine=frequency=440:sample_rate=8000 -ac 1 -c:a pcm_mulaw \
//!     -f rtp rtp://127.0.0.1:5004
//! ```
//!
//! Without `-force_duplicated_matrix 1` ffmpeg sends one quantization table
//! where RFC 2435 wants two, and says so; both are understood here.

mod audio;
mod calibration;
mod jpeg;
mod rtp;
mod sample;
mod spin;

use core::fmt;
use core::str::FromStr;

use upcall_runtime::time::Span;

pub use calibration::Calibration;
pub use sample::{sample_datagrams, sample_payload};

use audio::{Audio, Coding};
use jpeg::Jpeg;
use spin::Spin;

/// Reads the CPU time the calling thread has used, in nanoseconds. It must
/// advance while the thread runs and must not while it does not.
pub type CpuClock = fn() -> u64;

/// The processors there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkKind {
    /// Uses up the declared cost. Takes any datagram, one PDU each.
    Spin,
    /// Puts the fragments of a frame together, builds the JPEG file they stand
    /// for and decodes it to RGB (RFC 2435). A PDU is a frame; its size is the
    /// size of the compressed scan, without headers.
    ///
    /// The output, the frame and the tables live in memory taken by
    /// [`Work::new`]. The decoder (zune-jpeg 0.5.15) still allocates per
    /// frame: rows of MCUs for each component, before and after upsampling, in
    /// 17 pieces (54 KiB for a picture 320 pixels wide, 316 KiB for 1920,
    /// counted), and on a broken frame the text of the error.
    RtpJpeg,
    /// Takes 6 dB off 16-bit big-endian samples, any rate and number of
    /// channels (RFC 3551 §4.5.11). One PDU per datagram.
    RtpL16,
    /// Decodes G.711 mu-law, takes 6 dB off, encodes (RFC 3551 §4.5.14). One
    /// PDU per datagram.
    RtpPcmu,
    /// Decodes G.711 A-law, takes 6 dB off, encodes (RFC 3551 §4.5.14). One
    /// PDU per datagram.
    RtpPcma,
}

impl WorkKind {
    /// Every kind, in the order help texts show them.
    pub const ALL: [WorkKind; 5] =
        [WorkKind::Spin, WorkKind::RtpJpeg, WorkKind::RtpL16, WorkKind::RtpPcmu, WorkKind::RtpPcma];

    /// The name in a spec file.
    pub const fn name(self) -> &'static str {
        match self {
            WorkKind::Spin => "spin",
            WorkKind::RtpJpeg => "rtp-jpeg",
            WorkKind::RtpL16 => "rtp-l16",
            WorkKind::RtpPcmu => "rtp-pcmu",
            WorkKind::RtpPcma => "rtp-pcma",
        }
    }

    /// One line for help texts.
    pub const fn description(self) -> &'static str {
        match self {
            WorkKind::Spin => "burns the declared cost in CPU time for each datagram",
            WorkKind::RtpJpeg => "reassembles RTP/M-JPEG frames (RFC 2435) and decodes them to RGB",
            WorkKind::RtpL16 => "takes 6 dB off 16-bit linear audio in RTP (RFC 3551)",
            WorkKind::RtpPcmu => "takes 6 dB off G.711 mu-law audio in RTP (RFC 3551)",
            WorkKind::RtpPcma => "takes 6 dB off G.711 A-law audio in RTP (RFC 3551)",
        }
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for WorkKind {
    type Err = UnknownWork;

    fn from_str(name: &str) -> Result<Self, UnknownWork> {
        let known = WorkKind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownWork { found: name.to_owned() })
    }
}

/// A name that is not in [`WorkKind::ALL`].
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownWork {
    /// What was found.
    pub found: String,
}

impl fmt::Display for UnknownWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found work \"{}\", expected one of", self.found)?;
        for (place, kind) in WorkKind::ALL.into_iter().enumerate() {
            write!(f, "{} {kind}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

upcall_runtime::debug_as_display!(UnknownWork);

impl core::error::Error for UnknownWork {}

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

/// What a processor has seen since it was made; all zero where it does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkCounters {
    /// PDUs processed.
    pub processed: u64,
    /// Datagrams refused for what they hold; not duplicates and late ones.
    pub rejected: u64,
    /// PDUs complete, but not what they should be.
    pub decode_errors: u64,
    /// RTP packets missing from the sequence and not come yet (RFC 3550
    /// §6.4.1, without duplicates). One that came and was refused for its
    /// payload has not come in this sense.
    pub lost: u64,
    /// RTP packets that came after a later one.
    pub reordered: u64,
    /// RTP packets that came twice.
    pub duplicates: u64,
    /// Frames given up because a part was missing when the next one began, or
    /// because nobody processed them.
    pub frames_dropped: u64,
    /// The largest absolute sample that went out; 32768 is full scale.
    pub peak: u16,
    /// Width of the last frame decoded, in pixels.
    pub width: u16,
    /// Height of the last frame decoded, in pixels.
    pub height: u16,
}

/// One stream's processor.
#[derive(Debug)]
pub struct Work {
    kind: WorkKind,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Spin(Spin),
    Audio(Audio),
    Jpeg(Box<Jpeg>),
}

impl Work {
    /// Takes all the memory the processor will need and touches it, so that no
    /// page fault is left for the stream. `pdu_bytes` is the largest PDU: for
    /// [`WorkKind::RtpJpeg`] the compressed frame, else the datagram. `cost`
    /// is what [`WorkKind::Spin`] uses up and means nothing to the others.
    ///
    /// Blocks for as long as that takes; `Spin` also computes for some
    /// milliseconds to learn the speed of this CPU. `RtpJpeg` takes
    /// `pdu_bytes` plus 192 bytes of output for each of them, 12.5 MB at most.
    pub fn new(kind: WorkKind, pdu_bytes: u32, cost: Span, cpu_clock: CpuClock) -> Self {
        let stage = match kind {
            WorkKind::Spin => Stage::Spin(Spin::new(cost, cpu_clock)),
            WorkKind::RtpJpeg => Stage::Jpeg(Box::new(Jpeg::new(pdu_bytes))),
            WorkKind::RtpL16 => Stage::Audio(Audio::new(Coding::L16, pdu_bytes)),
            WorkKind::RtpPcmu => Stage::Audio(Audio::new(Coding::Pcmu, pdu_bytes)),
            WorkKind::RtpPcma => Stage::Audio(Audio::new(Coding::Pcma, pdu_bytes)),
        };
        Work { kind, stage }
    }

    /// Which processor this is.
    pub fn kind(&self) -> WorkKind {
        self.kind
    }

    /// Takes in one datagram, as it came from the socket, and copies what it
    /// needs. A PDU that was complete and not processed is overwritten.
    ///
    /// Never blocks, never allocates; O(bytes of the datagram).
    pub fn take(&mut self, datagram: &[u8]) -> Taken {
        match &mut self.stage {
            Stage::Spin(spin) => spin.take(),
            Stage::Audio(audio) => audio.take(datagram),
            Stage::Jpeg(jpeg) => jpeg.take(datagram),
        }
    }

    /// Processes the complete PDU. Never blocks; allocates only as said at
    /// [`WorkKind::RtpJpeg`].
    ///
    /// # Errors
    ///
    /// [`WorkError::NoPdu`] where [`Work::take`] announced none since the last
    /// call, else what was wrong with the PDU, which is then gone.
    pub fn process(&mut self) -> Result<(), WorkError> {
        match &mut self.stage {
            Stage::Spin(spin) => spin.process(),
            Stage::Audio(audio) => audio.process(),
            Stage::Jpeg(jpeg) => jpeg.process(),
        }
    }

    /// What the last successful [`Work::process`] made: audio payload in the
    /// coding it came in, a picture's RGB rows without gaps; empty for spin.
    pub fn output(&self) -> &[u8] {
        match &self.stage {
            Stage::Spin(_) => &[],
            Stage::Audio(audio) => audio.output(),
            Stage::Jpeg(jpeg) => jpeg.output(),
        }
    }

    /// The counts so far, for a report line.
    pub fn counters(&self) -> WorkCounters {
        match &self.stage {
            Stage::Spin(spin) => spin.counters(),
            Stage::Audio(audio) => audio.counters(),
            Stage::Jpeg(jpeg) => jpeg.counters(),
        }
    }

    /// Measures what a PDU of `pdu_bytes` costs on this CPU, for admission of
    /// a stream whose cost nobody declared: runs the built-in sample of
    /// [`sample_payload`] at the caller's priority, through [`Work::take`] and
    /// [`Work::process`]. `None` for [`WorkKind::Spin`], whose cost is what is
    /// declared.
    ///
    /// Computes for up to half a second, longer where 20 runs take longer.
    /// The sample of `RtpJpeg` has about 11 pixels per byte; a stream that is
    /// compressed harder costs more per byte, one compressed less costs less.
    pub fn calibrate(kind: WorkKind, pdu_bytes: u32, cpu_clock: CpuClock) -> Option<Calibration> {
        calibration::calibrate(kind, pdu_bytes, cpu_clock)
    }
}

/// A buffer of `bytes` whose pages are all there: written, not merely reserved.
fn touched(bytes: usize) -> Vec<u8> {
    // A fill with zero would be left to the kernel, page by page, on first use.
    vec![0xa5; bytes]
}

#[cfg(test)]
mod tests;
