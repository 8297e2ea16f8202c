//! The kinds of processors, and their names in a spec.

use core::fmt;
use core::str::FromStr;

/// The kinds of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkKind {
    /// Uses CPU time up to the declared cost. Any datagram is one PDU.
    Spin,
    /// Reassembles the fragments of a frame, adds the JPEG headers that RFC 2435 leaves out, and
    /// decodes the picture to RGB. A PDU is a frame. Its size is the size of the compressed scan,
    /// without headers.
    ///
    /// [`Work::new`](super::Work::new) allocates the memory of the output, the frame and the
    /// tables. The decoder (zune-jpeg 0.5.15) still allocates for each frame. It allocates 17
    /// buffers for rows of MCUs of each component, before and after upsampling: 54 KiB for a
    /// picture 320 pixels wide, 316 KiB for 1920 (both counted). For a broken frame it also
    /// allocates the text of the error.
    RtpJpeg,
    /// Lowers 16-bit big-endian samples by 6 dB, at any rate and number of channels (RFC 3551
    /// §4.5.11). One PDU per datagram.
    RtpL16,
    /// Decodes G.711 mu-law, lowers the samples by 6 dB and encodes them (RFC 3551 §4.5.14). One
    /// PDU per datagram.
    RtpPcmu,
    /// Decodes G.711 A-law, lowers the samples by 6 dB and encodes them (RFC 3551 §4.5.14). One PDU
    /// per datagram.
    RtpPcma,
}

impl WorkKind {
    /// Every kind, in the order of the help texts.
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
    /// The name that was found.
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
