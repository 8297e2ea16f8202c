//! One type for the processors of all kinds.

use upcall_runtime::time::Span;

use super::audio::{Audio, Coding};
use super::clock::CpuClock;
use super::counters::WorkCounters;
use super::jpeg::Jpeg;
use super::kind::WorkKind;
use super::outcome::{Taken, WorkError};
use super::spin::Spin;

/// The processor of one stream.
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
    /// Allocates all memory that the processor will need, and touches it, so that the stream causes
    /// no page fault. `pdu_bytes` is the largest PDU: for [`WorkKind::RtpJpeg`] the compressed
    /// frame, for the others the datagram. `cost` is the CPU time that [`WorkKind::Spin`] uses. The
    /// other kinds ignore it.
    ///
    /// Blocks until this is done. `Spin` also computes for some milliseconds, to learn the speed of
    /// this CPU. `RtpJpeg` takes `pdu_bytes`, plus 192 bytes of output for each byte of these, at
    /// most 12.5 MB.
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

    /// The kind of this processor.
    pub fn kind(&self) -> WorkKind {
        self.kind
    }

    /// Takes one datagram, as it came from the socket, and copies the bytes that it needs. A
    /// complete PDU that was not processed is overwritten.
    ///
    /// Never blocks, never allocates; O(bytes of the datagram).
    pub fn take(&mut self, datagram: &[u8]) -> Taken {
        match &mut self.stage {
            Stage::Spin(spin) => spin.take(),
            Stage::Audio(audio) => audio.take(datagram),
            Stage::Jpeg(jpeg) => jpeg.take(datagram),
        }
    }

    /// Processes the complete PDU. Never blocks. Allocates only what [`WorkKind::RtpJpeg`]
    /// documents.
    ///
    /// # Errors
    ///
    /// [`WorkError::NoPdu`] if [`Work::take`] has announced no PDU since the last call. Otherwise
    /// the error of the PDU, which is dropped.
    pub fn process(&mut self) -> Result<(), WorkError> {
        match &mut self.stage {
            Stage::Spin(spin) => spin.process(),
            Stage::Audio(audio) => audio.process(),
            Stage::Jpeg(jpeg) => jpeg.process(),
        }
    }

    /// The output of the last successful [`Work::process`]: an audio payload in its original
    /// coding, or the RGB rows of a picture without gaps. Empty for `Spin`.
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
