//! The headers of an RTP/JPEG payload (RFC 2435 §3.1).
//!
//! The functions are pure: they turn bytes into one [`Fragment`] or a [`Reject`].
//!
//! ```text
//!  main header, 8 bytes (§3.1)       restart header, 4 bytes,    table header, 4 bytes, and
//!                                    types 64 to 127 (§3.1.7)    tables: Q >= 128 and
//!                                                                offset 0 only (§3.1.8)
//!  +-------------+----------------+  +-----------------------+   +-----+-----------+--------+
//!  |type-specific|fragment offset |  |interval |F|L|  count  |   | MBZ | precision | length |
//!  +------+------+-------+--------+  +-----------------------+   +-----+-----------+--------+
//!  | type |  Q   | width | height |
//!  +------+------+-------+--------+
//! ```

use super::super::outcome::Reject;
use super::tables::Tables;

/// Length of the main header (§3.1).
const MAIN_BYTES: usize = 8;
/// Length of the restart marker header (§3.1.7).
const RESTART_BYTES: usize = 4;
/// Length of the quantization table header (§3.1.8).
const TABLE_HEAD_BYTES: usize = 4;

/// How chroma is sampled (§4.1): the low bit of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Type 0: 4:2:2, an MCU has 16 x 8 pixels.
    Half,
    /// Type 1: 4:2:0, an MCU has 16 x 16 pixels.
    Quarter,
}

/// The fields that all fragments of a frame have in common (§3.1: every field of the main header
/// except the offset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// 0: a whole picture; 1, 2, 3: a field (§3.1.1). A field is processed like a frame.
    pub(super) type_specific: u8,
    pub(super) sampling: Sampling,
    /// MCUs between restart markers. `None` for a scan without them (§3.1.7).
    pub(super) restart: Option<u16>,
    pub(super) q: u8,
    /// In pixels, a multiple of 8 from 8 to 2040.
    pub(super) width: u16,
    /// In pixels, a multiple of 8 from 8 to 2040.
    pub(super) height: u16,
}

impl Head {
    /// Pixels of the picture, at most 2040 * 2040.
    pub(super) fn pixels(&self) -> u32 {
        u32::from(self.width) * u32::from(self.height)
    }

    /// Restart markers in the scan: one between every two intervals.
    pub(super) fn restart_markers(&self) -> usize {
        let mcu_height = match self.sampling {
            Sampling::Half => 8,
            Sampling::Quarter => 16,
        };
        let mcus =
            usize::from(self.width.div_ceil(16)) * usize::from(self.height.div_ceil(mcu_height));
        self.restart.map_or(0, |interval| mcus.div_ceil(usize::from(interval)) - 1)
    }
}

/// One parsed payload.
#[derive(Debug)]
pub(super) struct Fragment<'a> {
    pub(super) head: Head,
    /// The offset of `scan` in the scan of the frame.
    pub(super) offset: usize,
    /// The tables in the payload. `None` if the payload has no table header, `Some(None)` if the
    /// header has length 0.
    pub(super) tables: Option<Option<Tables>>,
    pub(super) scan: &'a [u8],
}

/// Parses `payload`, the payload of one RTP packet. O(1).
pub(super) fn parse(payload: &[u8]) -> Result<Fragment<'_>, Reject> {
    let mut rest = Rest { payload, at: 0 };
    let main = rest.array::<MAIN_BYTES>()?;
    let [type_specific, offset_high, offset_middle, offset_low, kind, q, width, height] = main;
    let offset = u32::from_be_bytes([0, offset_high, offset_middle, offset_low]) as usize;
    // §4.1: types 0 and 1, and the same plus 64 with restart markers. 2 to 5 are obsolete, 128 and
    // more are defined outside RTP.
    let sampling = match kind {
        0 | 64 => Sampling::Half,
        1 | 65 => Sampling::Quarter,
        found => return Err(Reject::JpegType { found }),
    };
    // §3.1.4, §4.2: the tables of 1 to 99 are computed, those of 128 and more are sent. The other
    // values are reserved.
    if matches!(q, 0 | 100..=127) {
        return Err(Reject::JpegQ { found: q });
    }
    // §3.1.5, §3.1.6: in units of 8 pixels.
    if width == 0 || height == 0 {
        return Err(Reject::JpegNoPixels);
    }
    let restart = if kind >= 64 { Some(restart_interval(&mut rest)?) } else { None };
    let tables = if q >= 128 && offset == 0 { Some(in_band_tables(&mut rest)?) } else { None };
    let scan = rest.rest();
    if scan.is_empty() {
        return Err(Reject::Empty);
    }
    let (width, height) = (u16::from(width) * 8, u16::from(height) * 8);
    let head = Head { type_specific, sampling, restart, q, width, height };
    Ok(Fragment { head, offset, tables, scan })
}

/// §3.1.7. The F and L bits and the count tell which intervals a fragment holds, for decoders that
/// show incomplete frames. This decoder shows only whole frames and ignores them.
fn restart_interval(rest: &mut Rest<'_>) -> Result<u16, Reject> {
    let [high, low, _, _] = rest.array::<RESTART_BYTES>()?;
    match u16::from_be_bytes([high, low]) {
        0 => Err(Reject::JpegRestart),
        interval => Ok(interval),
    }
}

/// §3.1.8. A length of 0 means that the tables of this Q came earlier.
fn in_band_tables(rest: &mut Rest<'_>) -> Result<Option<Tables>, Reject> {
    let [_, precision, high, low] = rest.array::<TABLE_HEAD_BYTES>()?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let bytes = rest.slice(length)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    match Tables::in_band(precision, bytes) {
        Some(tables) => Ok(Some(tables)),
        None => Err(Reject::JpegTables { found: length }),
    }
}

/// A payload, and how much of it is parsed.
struct Rest<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8], Reject> {
        // No overflow: a payload and a length are below 64 KiB each.
        let expected = self.at + length;
        let truncated = Reject::JpegTruncated { found: self.payload.len(), expected };
        let slice = self.payload.get(self.at..expected).ok_or(truncated)?;
        self.at = expected;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reject> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(N)?);
        Ok(array)
    }

    fn rest(&self) -> &'a [u8] {
        self.payload.get(self.at..).unwrap_or(&[])
    }
}
