//! Gain on audio in RTP: L16 and G.711, one PDU per packet.
//!
//! [`super::Work`] calls this module. Each sample is converted to linear 16-bit. The crate
//! `audio-codec-algorithms` has the two laws of G.711 (ITU-T G.711, tables of G.191).

use audio_codec_algorithms::{decode_alaw, decode_ulaw, encode_alaw, encode_ulaw};

use super::buffer;
use super::counters::WorkCounters;
use super::outcome::{Reject, Taken, WorkError};
use super::rtp::{self, Arrival, Arrivals};

/// -6 dB as a factor in 1/32768: 10^(-6/20) * 32768, rounded.
const GAIN_Q15: i32 = 16_423;

/// The longest UDP datagram. No buffer has to be larger.
const DATAGRAM_BYTES_MAX: u32 = 65_535;

/// How samples are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// 16-bit two's complement in network byte order (RFC 3551 §4.5.11).
    L16,
    /// G.711 mu-law, one byte a sample (RFC 3551 §4.5.14).
    Pcmu,
    /// G.711 A-law, one byte a sample (RFC 3551 §4.5.14).
    Pcma,
}

#[derive(Debug)]
pub(super) struct Audio {
    coding: Coding,
    /// The longest datagram, in bytes. Both buffers hold that many.
    limit: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    pending: bool,
    arrivals: Arrivals,
    processed: u64,
    rejected: u64,
    peak: u16,
}

impl Audio {
    pub(super) fn new(coding: Coding, pdu_bytes: u32) -> Self {
        let limit = pdu_bytes.min(DATAGRAM_BYTES_MAX) as usize;
        let empty_buffer = || {
            let mut buffer = buffer::touched(limit);
            buffer.clear();
            buffer
        };
        Audio {
            coding,
            limit,
            input: empty_buffer(),
            output: empty_buffer(),
            pending: false,
            arrivals: Arrivals::default(),
            processed: 0,
            rejected: 0,
            peak: 0,
        }
    }

    /// A late packet is processed like any other, because no sample depends on another.
    pub(super) fn take(&mut self, datagram: &[u8]) -> Taken {
        match self.keep(datagram) {
            Ok(()) => Taken::Pdu,
            Err(reason) => {
                self.rejected += u64::from(reason != Reject::Duplicate);
                Taken::Rejected(reason)
            }
        }
    }

    fn keep(&mut self, datagram: &[u8]) -> Result<(), Reject> {
        if datagram.len() > self.limit {
            return Err(Reject::TooLong { found: datagram.len(), limit: self.limit });
        }
        let packet = rtp::parse(datagram)?;
        let payload = packet.payload();
        if self.coding == Coding::L16 && payload.len() % 2 != 0 {
            return Err(Reject::HalfSample { found: payload.len() });
        }
        if self.arrivals.note(packet.ssrc(), packet.sequence_number()) == Arrival::Duplicate {
            return Err(Reject::Duplicate);
        }
        // No allocation: a payload is shorter than its datagram, and the capacity holds a datagram.
        self.input.clear();
        self.input.extend_from_slice(payload);
        self.pending = true;
        Ok(())
    }

    pub(super) fn process(&mut self) -> Result<(), WorkError> {
        if !core::mem::take(&mut self.pending) {
            return Err(WorkError::NoPdu);
        }
        self.output.clear();
        let peak = match self.coding {
            Coding::L16 => scale_l16(&self.input, &mut self.output),
            Coding::Pcmu => scale_law(&self.input, &mut self.output, decode_ulaw, encode_ulaw),
            Coding::Pcma => scale_law(&self.input, &mut self.output, decode_alaw, encode_alaw),
        };
        self.peak = self.peak.max(peak);
        self.processed += 1;
        Ok(())
    }

    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    pub(super) fn counters(&self) -> WorkCounters {
        let mut counters = WorkCounters {
            processed: self.processed,
            rejected: self.rejected,
            peak: self.peak,
            ..WorkCounters::default()
        };
        self.arrivals.count_into(&mut counters);
        counters
    }
}

/// `sample` times `gain_q15 / 32768`, rounded to the nearest (halves up) and clamped to full scale.
fn scale(sample: i16, gain_q15: i32) -> i16 {
    let scaled = (i64::from(sample) * i64::from(gain_q15) + (1 << 14)) >> 15;
    #[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i16 before")]
    let held = scaled.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16;
    held
}

/// Scales all of `input` into `output`, which is empty and has the capacity. Returns the largest
/// absolute sample of the output.
fn scale_l16(input: &[u8], output: &mut Vec<u8>) -> u16 {
    let mut peak = 0;
    for sample in input.as_chunks::<2>().0 {
        let scaled = scale(i16::from_be_bytes(*sample), GAIN_Q15);
        peak = peak.max(scaled.unsigned_abs());
        output.extend_from_slice(&scaled.to_be_bytes());
    }
    peak
}

/// As [`scale_l16`], for one byte per sample. The peak is that of the scaled samples before they
/// are encoded again.
fn scale_law(
    input: &[u8],
    output: &mut Vec<u8>,
    decode: impl Fn(u8) -> i16,
    encode: impl Fn(i16) -> u8,
) -> u16 {
    let mut peak = 0;
    output.extend(input.iter().map(|code| {
        let scaled = scale(decode(*code), GAIN_Q15);
        peak = peak.max(scaled.unsigned_abs());
        encode(scaled)
    }));
    peak
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_is_minus_6_db_rounded_to_the_nearest_sample() {
        for (sample, scaled) in [
            (0, 0),
            (1, 1),
            (-1, -1),
            (100, 50),
            (-100, -50),
            (1000, 501),
            (i16::MAX, 16_422),
            (i16::MIN, -16_423),
        ] {
            assert_eq!(scale(sample, GAIN_Q15), scaled, "{sample}");
        }
    }

    #[test]
    fn a_gain_above_one_is_clamped_to_full_scale() {
        assert_eq!(scale(i16::MAX, 4 << 15), i16::MAX);
        assert_eq!(scale(i16::MIN, 4 << 15), i16::MIN);
        assert_eq!(scale(i16::MIN, -(1 << 15)), i16::MAX);
        assert_eq!(scale(8_000, 4 << 15), 32_000);
    }

    /// A segment of G.711 is an octave. So -6 dB gives the same step one segment lower, which is 16
    /// codes.
    #[test]
    fn six_db_is_one_segment_of_g711() {
        let mut output = Vec::new();
        scale_law(&[0x80, 0x00, 0x9f, 0xff], &mut output, decode_ulaw, encode_ulaw);
        assert_eq!(output, [0x90, 0x10, 0xaf, 0xff]);
        output.clear();
        let peak = scale_law(&[0xaa, 0x2a, 0xba], &mut output, decode_alaw, encode_alaw);
        assert_eq!(output, [0xba, 0x3a, 0x8a]);
        assert_eq!(peak, 16_166);
    }

    #[test]
    fn a_byte_of_g711_comes_out_within_a_step_of_the_exact_value() {
        for code in 0..=255_u8 {
            let mut output = Vec::new();
            scale_law(&[code], &mut output, decode_ulaw, encode_ulaw);
            let exact = f64::from(decode_ulaw(code)) * 0.501_187_2;
            // The largest error of a mu-law quantizer: half of 1/16 of the octave, and the bias.
            let bound = exact.abs() / 30.0 + 8.0;
            assert!((f64::from(decode_ulaw(output[0])) - exact).abs() <= bound, "mu-law {code}");
            output.clear();
            scale_law(&[code], &mut output, decode_alaw, encode_alaw);
            let exact = f64::from(decode_alaw(code)) * 0.501_187_2;
            let bound = exact.abs() / 30.0 + 8.0;
            assert!((f64::from(decode_alaw(output[0])) - exact).abs() <= bound, "A-law {code}");
        }
    }
}
