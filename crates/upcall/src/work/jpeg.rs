//! Motion JPEG in RTP (RFC 2435): fragments in, RGB pictures out.
//!
//! [`super::Work`] calls this module. [`payload`] parses a packet, and [`frame`] finds its place in
//! the frame. [`headers`] makes the headers that the sender left out, with [`tables`] and
//! [`huffman`]. The crate zune-jpeg decodes.
//!
//! ```text
//!        a fragment of a frame             the last hole is filled
//! 1 idle ---------------------> 2 filling ------------------------> 3 complete
//!   ^                            |  ^                                 |  |
//!   |                            +--+ a fragment of another frame     |  |
//!   |                                 drops this frame and begins     |  |
//!   |                                 the other; also from 3 <--------+  |
//!   +---------------------------------------------------- process -------+
//! ```
//!
//! A frame with a missing part is dropped when the next frame begins: a picture has no value after
//! its successor.

mod frame;
mod headers;
mod huffman;
mod payload;
mod tables;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::buffer;
use super::counters::WorkCounters;
use super::outcome::{Reject, Taken, WorkError};
use super::rtp::{self, Arrival, Arrivals};
use frame::{Frame, FrameKey};
use headers::{HEADER_BYTES_MAX, Headers};
use payload::{Fragment, Head};
use tables::Tables;

/// The longest scan that the 24-bit fragment offset and a datagram allow.
const SCAN_BYTES_MAX: u32 = (1 << 24) + (1 << 16);

/// The largest side that the 8-bit width and height can express (§3.1.5, §3.1.6).
const SIDE_PIXELS_MAX: u16 = 255 * 8;

/// The most pixels that one byte of scan describes. With the standard Huffman tables, a block of
/// luminance takes at least 6 bits and a block of chrominance 4 (DC difference 0, end of block;
/// T.81 tables K.3 to K.6). So a 4:2:0 MCU of 256 pixels takes 4 bytes, and a 4:2:2 MCU of 128
/// pixels takes 2.5.
const PIXELS_PER_BYTE_MAX: usize = 64;

/// Bytes of a pixel.
const RGB_BYTES: usize = 3;

/// The bytes after a scan: eight bytes of ones, stuffed (T.81 §B.1.1.5), and the end-of-image
/// marker. No code of the standard tables is all ones. So a decoder that has not all its MCUs at
/// the end of the scan finds an error here. After the marker alone, zune-jpeg would continue with
/// zeros.
const TAIL: [u8; 18] =
    [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0xd9];

/// The Qs whose tables a sender may send once for all frames (§4.2).
const CACHED_Q: core::ops::RangeInclusive<u8> = 128..=254;

pub(super) struct Jpeg {
    /// The longest scan, in bytes.
    limit: usize,
    /// The most pixels of a picture. `rgb` has the size for that many.
    pixels_max: usize,
    /// Headers, right-aligned to [`HEADER_BYTES_MAX`], then the scan, then [`TAIL`]. So the buffer
    /// holds a whole JPEG file, and the scan is never moved.
    file: Vec<u8>,
    rgb: Vec<u8>,
    rgb_used: usize,
    /// Tables of the Qs in [`CACHED_Q`], of one source.
    cache: Vec<Option<Tables>>,
    frame: Option<Frame>,
    arrivals: Arrivals,
    counters: WorkCounters,
}

impl fmt::Debug for Jpeg {
    /// Shows all fields except the buffers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jpeg")
            .field("limit", &self.limit)
            .field("pixels_max", &self.pixels_max)
            .field("frame", &self.frame)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl Jpeg {
    pub(super) fn new(pdu_bytes: u32) -> Self {
        let limit = pdu_bytes.min(SCAN_BYTES_MAX) as usize;
        let side = usize::from(SIDE_PIXELS_MAX);
        let pixels_max = (limit * PIXELS_PER_BYTE_MAX).min(side * side);
        Jpeg {
            limit,
            pixels_max,
            file: buffer::touched(HEADER_BYTES_MAX + limit + TAIL.len()),
            rgb: buffer::touched(pixels_max * RGB_BYTES),
            rgb_used: 0,
            cache: vec![None; CACHED_Q.count()],
            frame: None,
            arrivals: Arrivals::default(),
            counters: WorkCounters::default(),
        }
    }

    pub(super) fn take(&mut self, datagram: &[u8]) -> Taken {
        match self.keep(datagram) {
            Ok(true) => Taken::Pdu,
            Ok(false) => Taken::More,
            Err(reason) => {
                let for_its_content = !matches!(reason, Reject::Duplicate | Reject::Late);
                self.counters.rejected += u64::from(for_its_content);
                Taken::Rejected(reason)
            }
        }
    }

    /// Returns whether the frame is complete with this datagram.
    fn keep(&mut self, datagram: &[u8]) -> Result<bool, Reject> {
        let packet = rtp::parse(datagram)?;
        let fragment = payload::parse(packet.payload())?;
        let arrival = self.arrivals.note(packet.ssrc(), packet.sequence_number());
        match arrival {
            Arrival::Duplicate => return Err(Reject::Duplicate),
            // A Q names the same tables for one sender only.
            Arrival::Start => self.cache.fill(None),
            Arrival::Newest | Arrival::Late => {}
        }
        let end = fragment.offset + fragment.scan.len();
        if end > self.limit {
            return Err(Reject::JpegTooLong { found: end, limit: self.limit });
        }
        if fragment.head.pixels() as usize > self.pixels_max {
            let limit = u32::try_from(self.pixels_max).unwrap_or(u32::MAX);
            return Err(Reject::JpegPicture { found: fragment.head.pixels(), limit });
        }
        let key = FrameKey {
            ssrc: packet.ssrc(),
            timestamp: packet.timestamp(),
            type_specific: fragment.head.type_specific,
        };
        self.enter(&fragment, key, arrival, packet.marker_bit())
    }

    fn enter(
        &mut self,
        fragment: &Fragment<'_>,
        key: FrameKey,
        arrival: Arrival,
        last: bool,
    ) -> Result<bool, Reject> {
        let cached = cached_tables(&mut self.cache, fragment);
        let frame = frame_of(&mut self.frame, &mut self.counters, fragment.head, key, arrival)?;
        if frame.head != fragment.head {
            return Err(Reject::JpegMismatch); // §3.1
        }
        if fragment.tables.is_some() && cached.is_none() {
            return Err(Reject::JpegNoTables { q: fragment.head.q }); // §4.2
        }
        let end = fragment.offset + fragment.scan.len();
        frame.enter(fragment.offset, end, last)?; // §3: the marker bit ends the frame
        frame.tables = frame.tables.or(cached);
        let scan = HEADER_BYTES_MAX + fragment.offset..HEADER_BYTES_MAX + end;
        if let Some(place) = self.file.get_mut(scan) {
            place.copy_from_slice(fragment.scan);
        }
        Ok(frame.complete().is_some())
    }

    pub(super) fn process(&mut self) -> Result<(), WorkError> {
        let complete = |frame: &Frame| frame.complete();
        let length = self.frame.as_ref().and_then(complete).ok_or(WorkError::NoPdu)?;
        let frame = self.frame.take().ok_or(WorkError::NoPdu)?;
        self.rgb_used = 0;
        match self.decode(&frame, length) {
            Ok(bytes) => {
                self.rgb_used = bytes;
                self.counters.processed += 1;
                self.counters.width = frame.head.width;
                self.counters.height = frame.head.height;
                Ok(())
            }
            Err(reason) => {
                self.counters.decode_errors += 1;
                Err(WorkError::Jpeg { reason })
            }
        }
    }

    /// Decodes the scan of `length` bytes; returns the bytes of the picture.
    fn decode(&mut self, frame: &Frame, length: usize) -> Result<usize, String> {
        let tables = frame.tables.unwrap_or_else(|| Tables::of_quality(frame.head.q));
        let headers = Headers::of(&frame.head, &tables);
        let scan = self.file.get(HEADER_BYTES_MAX..HEADER_BYTES_MAX + length).unwrap_or(&[]);
        let Extent { bytes, restart_markers } = Extent::of(scan);
        let pixels = frame.head.pixels() as usize;
        if pixels > bytes * PIXELS_PER_BYTE_MAX {
            return Err(format!("found {bytes} bytes, too few for {pixels} pixels"));
        }
        let expected = frame.head.restart_markers();
        if restart_markers < expected {
            return Err(format!("found {restart_markers} restart markers, expected {expected}"));
        }
        let start = HEADER_BYTES_MAX - headers.bytes().len();
        let end = HEADER_BYTES_MAX + bytes + TAIL.len();
        let (Some(file), Some(rgb)) =
            (self.file.get_mut(start..end), self.rgb.get_mut(..pixels * RGB_BYTES))
        else {
            return Err("found a frame longer than its buffer".to_owned());
        };
        let (front, back) = (headers.bytes().len(), file.len() - TAIL.len());
        file[..front].copy_from_slice(headers.bytes());
        file[back..].copy_from_slice(&TAIL);
        decode_file(file, rgb)?;
        Ok(rgb.len())
    }

    pub(super) fn output(&self) -> &[u8] {
        self.rgb.get(..self.rgb_used).unwrap_or(&[])
    }

    pub(super) fn counters(&self) -> WorkCounters {
        let mut counters = self.counters;
        self.arrivals.count_into(&mut counters);
        counters
    }
}

/// The tables of the frame that `fragment` begins (§4.2). Tables that came with the fragment are
/// kept for later frames of the same Q. If none came, those kept are returned. `None` for every
/// other fragment, for a Q below 128, and if no tables are known.
fn cached_tables(cache: &mut [Option<Tables>], fragment: &Fragment<'_>) -> Option<Tables> {
    let in_band = fragment.tables?;
    let Some(slot) = fragment.head.q.checked_sub(*CACHED_Q.start()) else { return in_band };
    // Q 255 has no slot: its tables are for this frame alone.
    match cache.get_mut(usize::from(slot)) {
        Some(kept) => {
            *kept = in_band.or(*kept);
            *kept
        }
        None => in_band,
    }
}

/// The frame to which a fragment with `key` belongs. A new frame replaces the frame in progress,
/// unless the fragment comes late from an older frame.
fn frame_of<'a>(
    place: &'a mut Option<Frame>,
    counters: &mut WorkCounters,
    head: Head,
    key: FrameKey,
    arrival: Arrival,
) -> Result<&'a mut Frame, Reject> {
    let same = place.as_ref().is_some_and(|frame| frame.key == key);
    if !same {
        if arrival == Arrival::Late {
            return Err(Reject::Late);
        }
        counters.frames_dropped += u64::from(place.is_some());
        *place = None;
    }
    Ok(place.get_or_insert_with(|| Frame::new(key, head)))
}

/// The part of a scan that is the entropy-coded segment.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    bytes: usize,
    restart_markers: usize,
}

impl Extent {
    /// The segment ends at the first marker that is not a restart marker. After the segment may
    /// come the end-of-image marker and padding of any content (§3.1.9). A marker segment in the
    /// padding must not reach the decoder. O(bytes).
    fn of(scan: &[u8]) -> Self {
        let (mut at, mut restart_markers) = (0, 0);
        let next_ones = |at: usize| scan.get(at..)?.iter().position(|byte| *byte == 0xff);
        while let Some(ahead) = next_ones(at) {
            at += ahead;
            match scan.get(at + 1) {
                Some(0x00) => at += 2, // stuffed, T.81 §B.1.1.5
                Some(0xd0..=0xd7) => {
                    restart_markers += 1; // T.81 table B.1
                    at += 2;
                }
                Some(0xff) => at += 1, // fill before a marker, T.81 §B.1.1.2
                Some(_) | None => return Extent { bytes: at, restart_markers },
            }
        }
        Extent { bytes: scan.len(), restart_markers }
    }
}

/// Decodes a whole JPEG file into `rgb`, which has the size of its picture.
fn decode_file(file: &[u8], rgb: &mut [u8]) -> Result<(), String> {
    // zune-jpeg multiplies values of the scan without an overflow check (`decode_mcu_block`). Where
    // arithmetic is checked, as in debug builds, a forged scan panics there. Such a scan is an
    // error of the frame and must not end the domain.
    let decode = || {
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), decoder_options());
        decoder.decode_into(rgb).map_err(|error| format!("{error:?}"))
    };
    // Safe to unwind: the decoder is dropped, and `rgb` is not shown after an error.
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("the decoder gave up on a value out of range".to_owned()))
}

/// The options are strict: a scan that ends too early is an error, and not a picture with a grey
/// part.
fn decoder_options() -> DecoderOptions {
    DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(SIDE_PIXELS_MAX))
        .set_max_height(usize::from(SIDE_PIXELS_MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_ends_at_the_first_marker_other_than_a_restart_marker() {
        for (scan, bytes, restart_markers) in [
            (&[][..], 0, 0),
            (&[1, 2, 3], 3, 0),
            (&[1, 0xff, 0x00, 2, 0xff, 0xd7, 3, 0xff, 0xd9, 9, 0xff, 0xd0], 7, 1),
            (&[1, 0xff, 0xc4, 2], 1, 0),
            (&[1, 0xff, 0xff, 0xd0, 2, 0xff, 0xff, 0xd9], 6, 1),
            (&[1, 2, 0xff], 2, 0),
        ] {
            assert_eq!(Extent::of(scan), Extent { bytes, restart_markers }, "{scan:?}");
        }
    }
}
