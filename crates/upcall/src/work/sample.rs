//! Sample streams for embedded load generators: real payloads of any size, made without state.
//!
//! Load generators and [`super::calibration`] call this module. Datagram `n` of a stream depends on
//! `n` alone. So a generator keeps one number, and may drop or swap datagrams on purpose.
//!
//! The picture is one built-in frame of 320 x 240. libjpeg cut it into one restart interval for
//! each row of MCUs: 15 strips of 320 x 16, each decodable by itself. Any number of strips, one
//! after another with their restart markers renumbered, is a frame again. That gives a sample its
//! requested size.

use rtp_types::RtpPacketBuilder;

use super::kind::WorkKind;

/// Length of an RTP header without contributing sources.
const RTP_BYTES: usize = 12;

/// The longest payload of UDP over IPv4.
const DATAGRAM_BYTES_MAX: u32 = 65_507;

/// The source identifier in each sample.
const SSRC: u32 = 0x7570_636c;

/// Half of full scale: the input has -6 dB, the output -12 dB.
const TONE_PEAK: f64 = 16_384.0;
const TONE_HZ: u32 = 440;

/// Bytes of the main and the restart header of RFC 2435.
const JPEG_HEAD_BYTES: usize = 8 + 4;
/// Scan bytes per datagram. With them a datagram is smaller than an Ethernet frame.
const JPEG_SCAN_BYTES: usize = 1376;
/// Ticks of the 90 kHz clock between two frames, at 25 frames a second.
const JPEG_FRAME_TICKS: u32 = 3600;

/// Writes datagram `sequence` of the sample stream for `kind` into `out`. Returns its length in
/// bytes. Returns 0 if `out` is too small for it, or if `pdu_bytes` is too small for any payload of
/// that kind (13 for G.711, 14 for L16, 480 for `RtpJpeg`).
///
/// - [`WorkKind::Spin`]: an RTP header (payload type 96) and filler, `pdu_bytes` long.
/// - Audio: a tone of 440 Hz, mono, 44.1 kHz for L16 and 8 kHz for G.711, `pdu_bytes` long.
/// - [`WorkKind::RtpJpeg`]: one datagram of up to 1400 bytes. [`sample_datagrams`] of these make a
///   frame with the largest scan that fits `pdu_bytes` (up to about 360 KB), of quality 75 and type
///   65.
///
/// Never blocks, never allocates; O(`pdu_bytes`), for `RtpJpeg` O(1).
pub fn sample_payload(kind: WorkKind, pdu_bytes: u32, sequence: u32, out: &mut [u8]) -> usize {
    let pdu_bytes =
        pdu_bytes.min(if kind == WorkKind::RtpJpeg { u32::MAX } else { DATAGRAM_BYTES_MAX })
            as usize;
    let datagram = match kind {
        WorkKind::Spin => filler(pdu_bytes, sequence, out),
        WorkKind::RtpL16 => tone(&Audio::L16, pdu_bytes, sequence, out),
        WorkKind::RtpPcmu => tone(&Audio::PCMU, pdu_bytes, sequence, out),
        WorkKind::RtpPcma => tone(&Audio::PCMA, pdu_bytes, sequence, out),
        WorkKind::RtpJpeg => fragment(pdu_bytes, sequence, out),
    };
    datagram.unwrap_or(0)
}

/// The number of datagrams of [`sample_payload`] that make one PDU of up to `pdu_bytes`. This is 1,
/// or for [`WorkKind::RtpJpeg`] the number of fragments of a frame. It is 0 if the smallest frame
/// does not fit. O(1).
pub fn sample_datagrams(kind: WorkKind, pdu_bytes: u32) -> u32 {
    match (kind, Picture::within(pdu_bytes as usize)) {
        (WorkKind::RtpJpeg, Some(picture)) => picture.datagrams(),
        (WorkKind::RtpJpeg, None) => 0,
        _ => 1,
    }
}

/// The smallest PDU that [`sample_payload`] has for `kind`.
pub(super) fn sample_bytes_min(kind: WorkKind) -> u32 {
    match kind {
        WorkKind::Spin => 0,
        WorkKind::RtpL16 => 14,
        WorkKind::RtpPcmu | WorkKind::RtpPcma => 13,
        // Checked against STRIPS by a test.
        WorkKind::RtpJpeg => 480,
    }
}

/// Writes an RTP header. The rest of `out` is the payload. Returns `None` if `out` is too short.
fn header(
    payload_type: u8,
    marker: bool,
    sequence: u32,
    timestamp: u32,
    out: &mut [u8],
) -> Option<()> {
    RtpPacketBuilder::<&[u8], &[u8]>::new()
        .payload_type(payload_type)
        .marker_bit(marker)
        .sequence_number((sequence & 0xffff) as u16)
        .timestamp(timestamp)
        .ssrc(SSRC)
        .write_into(out)
        .ok()
        .map(|_| ())
}

fn filler(pdu_bytes: usize, sequence: u32, out: &mut [u8]) -> Option<usize> {
    let mut head = [0; RTP_BYTES];
    header(96, false, sequence, sequence, &mut head)?;
    let out = out.get_mut(..pdu_bytes)?;
    out.fill(0x55);
    for (slot, byte) in out.iter_mut().zip(head) {
        *slot = byte;
    }
    Some(pdu_bytes)
}

/// A format of audio, with its static payload type (RFC 3551 §6, table 4).
struct Audio {
    payload_type: u8,
    rate_hz: u32,
    write: fn(i16, &mut [u8]),
    sample_bytes: usize,
}

impl Audio {
    const L16: Audio = Audio {
        payload_type: 11,
        rate_hz: 44_100,
        write: |sample, bytes| bytes.copy_from_slice(&sample.to_be_bytes()),
        sample_bytes: 2,
    };
    const PCMU: Audio = Audio {
        payload_type: 0,
        rate_hz: 8_000,
        write: |sample, bytes| bytes.fill(audio_codec_algorithms::encode_ulaw(sample)),
        sample_bytes: 1,
    };
    const PCMA: Audio = Audio {
        payload_type: 8,
        rate_hz: 8_000,
        write: |sample, bytes| bytes.fill(audio_codec_algorithms::encode_alaw(sample)),
        sample_bytes: 1,
    };
}

fn tone(audio: &Audio, pdu_bytes: usize, sequence: u32, out: &mut [u8]) -> Option<usize> {
    let samples = pdu_bytes.checked_sub(RTP_BYTES)? / audio.sample_bytes;
    let length = RTP_BYTES + samples * audio.sample_bytes;
    let out = out.get_mut(..length).filter(|_| samples > 0)?;
    let (head, payload) = out.split_at_mut_checked(RTP_BYTES)?;
    // The conversion succeeds: a datagram has at most 65,507 samples.
    let timestamp = sequence.wrapping_mul(u32::try_from(samples).ok()?);
    header(audio.payload_type, false, sequence, timestamp, head)?;
    // The tone has a whole number of hertz, so it repeats every second, and the place in the second
    // is the phase.
    let start = u64::from(sequence) * samples as u64 % u64::from(audio.rate_hz);
    for (place, bytes) in payload.chunks_exact_mut(audio.sample_bytes).enumerate() {
        let turns = (start as f64 + place as f64) * f64::from(TONE_HZ) / f64::from(audio.rate_hz);
        let sample = (turns * core::f64::consts::TAU).sin() * TONE_PEAK;
        #[expect(clippy::cast_possible_truncation, reason = "half of full scale at most")]
        (audio.write)(sample.round() as i16, bytes);
    }
    Some(length)
}

/// The built-in frame. `tests/fixtures/README.md` says how it was made.
const FILE: &[u8] = include_bytes!("sample.jpg");
const FILE_QUALITY: u8 = 75;
const STRIP_COUNT: usize = 15;
/// The strips of [`FILE`], as ranges of its bytes, without restart markers.
const STRIPS: [(usize, usize); STRIP_COUNT] = strips();
const STRIP_WIDTH: usize = 320;
const STRIP_HEIGHT: usize = 16;
/// MCUs in a strip, which is the restart interval.
const STRIP_MCUS: u16 = 20;
/// The restart markers, in the order of their use (T.81 table B.1).
const RESTART_MARKERS: [[u8; MARKER_BYTES]; 8] = [
    [0xff, 0xd0],
    [0xff, 0xd1],
    [0xff, 0xd2],
    [0xff, 0xd3],
    [0xff, 0xd4],
    [0xff, 0xd5],
    [0xff, 0xd6],
    [0xff, 0xd7],
];
const MARKER_BYTES: usize = 2;
/// Scan bytes of the 15 strips, each with a marker after it.
const ROUND_BYTES: usize = strips_bytes(STRIP_COUNT);

/// Finds the strips: after the SOS segment, between restart markers, up to EOI.
const fn strips() -> [(usize, usize); STRIP_COUNT] {
    let mut at = 2;
    while FILE[at + 1] != 0xda {
        at += 2 + segment_bytes(at);
    }
    at += 2 + segment_bytes(at);
    let mut strips = [(0, 0); STRIP_COUNT];
    let mut strip = 0;
    let mut start = at;
    while strip < STRIP_COUNT {
        if FILE[at] == 0xff && FILE[at + 1] != 0x00 {
            strips[strip] = (start, at);
            strip += 1;
            start = at + 2;
            at += 1;
        }
        at += 1;
    }
    strips
}

/// The length field of the marker segment at `at`.
const fn segment_bytes(at: usize) -> usize {
    FILE[at + 2] as usize * 256 + FILE[at + 3] as usize
}

/// Scan bytes of the first `count` strips, at most all 15, each with a marker after it.
const fn strips_bytes(count: usize) -> usize {
    let mut bytes = 0;
    let mut strip = 0;
    while strip < count {
        bytes += STRIPS[strip].1 - STRIPS[strip].0 + MARKER_BYTES;
        strip += 1;
    }
    bytes
}

/// A frame made of strips: `columns` side by side, `rows` on top of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Picture {
    columns: usize,
    rows: usize,
}

impl Picture {
    /// A side has at most 2040 pixels (RFC 2435 §3.1.5, §3.1.6).
    const COLUMNS_MAX: usize = 2040 / STRIP_WIDTH;
    const ROWS_MAX: usize = 2040 / STRIP_HEIGHT;

    /// The picture with the largest scan that fits `scan_bytes`, with a ratio as near to 4:3 as
    /// whole strips allow.
    fn within(scan_bytes: usize) -> Option<Self> {
        let strips = most_strips(scan_bytes);
        if strips == 0 {
            return None;
        }
        let columns = (strips / STRIP_COUNT).isqrt().clamp(1, Self::COLUMNS_MAX);
        Some(Picture { columns, rows: (strips / columns).min(Self::ROWS_MAX) })
    }

    fn strips(self) -> usize {
        self.columns * self.rows
    }

    /// The last strip has no marker after it.
    fn scan_bytes(self) -> usize {
        bytes_before(self.strips()) - MARKER_BYTES
    }

    fn datagrams(self) -> u32 {
        // The conversion succeeds: there are at most 762 strips of 1200 bytes.
        u32::try_from(self.scan_bytes().div_ceil(JPEG_SCAN_BYTES)).unwrap_or(u32::MAX)
    }

    /// Writes the scan from `offset` on, until `out` is full.
    fn copy_scan(self, offset: usize, out: &mut [u8]) {
        let mut strip = offset / ROUND_BYTES * STRIP_COUNT;
        while bytes_before(strip + 1) <= offset {
            strip += 1;
        }
        let mut skip = offset - bytes_before(strip);
        let mut out = out.iter_mut();
        while out.len() > 0 && strip < self.strips() {
            let (start, end) = STRIPS[strip % STRIP_COUNT];
            let marker = RESTART_MARKERS[strip % RESTART_MARKERS.len()];
            let bytes = FILE[start..end].iter().chain(&marker).skip(skip);
            // `zip` takes from `bytes` first. In the other order it would skip a slot at the end of
            // `bytes`.
            bytes.zip(&mut out).for_each(|(byte, slot)| *slot = *byte);
            (skip, strip) = (0, strip + 1);
        }
    }
}

/// Scan bytes of the first `strips` strips, repeated after 15, with markers.
fn bytes_before(strips: usize) -> usize {
    strips / STRIP_COUNT * ROUND_BYTES + strips_bytes(strips % STRIP_COUNT)
}

/// The most strips that make a scan of up to `scan_bytes`.
fn most_strips(scan_bytes: usize) -> usize {
    let room = scan_bytes.saturating_add(MARKER_BYTES);
    let rounds = (room / ROUND_BYTES).min(Picture::COLUMNS_MAX * Picture::ROWS_MAX / STRIP_COUNT);
    let rest = room - rounds * ROUND_BYTES;
    let more = (0..STRIP_COUNT).take_while(|strip| strips_bytes(strip + 1) <= rest).count();
    rounds * STRIP_COUNT + more
}

fn fragment(pdu_bytes: usize, sequence: u32, out: &mut [u8]) -> Option<usize> {
    let picture = Picture::within(pdu_bytes)?;
    let (frame, place) = (sequence / picture.datagrams(), sequence % picture.datagrams());
    let last = place + 1 == picture.datagrams();
    let offset = place as usize * JPEG_SCAN_BYTES;
    let scan_bytes = (picture.scan_bytes() - offset).min(JPEG_SCAN_BYTES);
    let length = RTP_BYTES + JPEG_HEAD_BYTES + scan_bytes;
    let (head, payload) = out.get_mut(..length)?.split_at_mut_checked(RTP_BYTES)?;
    let timestamp = frame.wrapping_mul(JPEG_FRAME_TICKS);
    header(26, last, sequence, timestamp, head)?;
    let (head, scan) = payload.split_at_mut_checked(JPEG_HEAD_BYTES)?;
    let [_, offset_high, offset_middle, offset_low] = u32::try_from(offset).ok()?.to_be_bytes();
    let width = u8::try_from(picture.columns * STRIP_WIDTH / 8).ok()?;
    let height = u8::try_from(picture.rows * STRIP_HEIGHT / 8).ok()?;
    let [interval_high, interval_low] = STRIP_MCUS.to_be_bytes();
    head.copy_from_slice(&[
        0, // a whole picture, not a field
        offset_high,
        offset_middle,
        offset_low,
        65, // 4:2:0 with restart markers
        FILE_QUALITY,
        width,
        height,
        interval_high,
        interval_low,
        0xff, // F, L and count all ones: reassemble the whole frame (§3.1.7)
        0xff,
    ]);
    picture.copy_scan(offset, scan);
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strips_are_those_of_the_file() {
        assert_eq!(STRIPS[STRIP_COUNT - 1].1 + 2, FILE.len());
        assert_eq!(FILE[STRIPS[14].1..], [0xff, 0xd9]);
        for (place, pair) in STRIPS.windows(2).enumerate() {
            assert_eq!(pair[0].1 + 2, pair[1].0);
            assert_eq!(FILE[pair[0].1..pair[1].0], RESTART_MARKERS[place % 8]);
        }
        assert_eq!(STRIPS[0].1 - STRIPS[0].0, sample_bytes_min(WorkKind::RtpJpeg) as usize);
    }

    #[test]
    fn a_picture_has_the_largest_scan_that_fits() {
        for scan_bytes in (480..400_000).step_by(97) {
            let picture = Picture::within(scan_bytes).expect("480 is one strip");
            assert!(picture.scan_bytes() <= scan_bytes, "{picture:?} for {scan_bytes}");
            assert!(picture.columns <= 6 && picture.rows <= 127, "{picture:?}");
            let one_row_more = Picture { rows: picture.rows + 1, ..picture };
            let full = picture.rows == Picture::ROWS_MAX;
            assert!(full || one_row_more.scan_bytes() > scan_bytes, "{picture:?}");
        }
        assert_eq!(Picture::within(479), None);
        assert_eq!(Picture::within(7304), Some(Picture { columns: 1, rows: 15 }));
        assert_eq!(Picture::within(usize::MAX), Some(Picture { columns: 6, rows: 127 }));
    }

    #[test]
    fn a_scan_is_the_same_however_it_is_cut() {
        let picture = Picture { columns: 2, rows: 20 };
        let mut whole = vec![0; picture.scan_bytes()];
        picture.copy_scan(0, &mut whole);
        for step in [1, 7, 480, 481, 482, 1376, 7306] {
            let mut pieces = vec![0; whole.len()];
            for (place, piece) in pieces.chunks_mut(step).enumerate() {
                picture.copy_scan(place * step, piece);
            }
            assert_eq!(pieces, whole, "cut every {step} bytes");
        }
        let file_scan = &FILE[STRIPS[0].0..STRIPS[14].1];
        assert_eq!(whole[..file_scan.len()], *file_scan);
    }
}
