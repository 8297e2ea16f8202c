//! A stream's processor: one of the kinds, behind one type.

use upcall_runtime::time::Span;

use super::audio::{Audio, Coding};
use super::clock::CpuClock;
use super::counters::WorkCounters;
use super::jpeg::Jpeg;
use super::kind::WorkKind;
use super::outcome::{Taken, WorkError};
use super::spin::Spin;

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
}
