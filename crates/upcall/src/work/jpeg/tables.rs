//! The quantization tables of a frame: computed from a quality, or read from a packet.
//!
//! The functions are pure: they turn numbers into tables. The standard tables are facts of ITU-T
//! T.81 Annex K. RFC 2435 Appendix A takes them from there.

/// T.81 table K.1, luminance, in zig-zag order, as DQT and in-band tables have it. RFC 2435
/// Appendix A prints the table row by row. Senders that follow libjpeg, and the fixtures of the
/// tests, send it in zig-zag order.
#[rustfmt::skip]
const LUMA_QUANTIZERS: [u8; 64] = [
     16,  11,  12,  14,  12,  10,  16,  14,  13,  14,  18,  17,  16,  19,  24,  40,
     26,  24,  22,  22,  24,  49,  35,  37,  29,  40,  58,  51,  61,  60,  57,  51,
     56,  55,  64,  72,  92,  78,  64,  68,  87,  69,  55,  56,  80, 109,  81,  87,
     95,  98, 103, 104, 103,  62,  77, 113, 121, 112, 100, 120,  92, 101, 103,  99,
];

/// T.81 table K.2, chrominance, in zig-zag order.
#[rustfmt::skip]
const CHROMA_QUANTIZERS: [u8; 64] = [
     17,  18,  18,  24,  21,  24,  47,  26,  26,  47,  99,  66,  56,  66,  99,  99,
     99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,
     99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,
     99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,
];

/// One quantization table: 64 entries of 8 bits or of 16 bits, in zig-zag order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// 64 of the bytes are used, or 128 (T.81 §B.2.4.1).
    bytes: [u8; 128],
    pub(super) wide: bool,
}

impl Table {
    fn of(bytes: &[u8], wide: bool) -> Self {
        let mut table = Table { bytes: [0; 128], wide };
        for (slot, byte) in table.bytes.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        table
    }

    pub(super) fn used(&self) -> &[u8] {
        self.bytes.get(..table_bytes(self.wide)).unwrap_or(&self.bytes)
    }
}

/// The quantization tables of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) luma: Table,
    /// `None`: chrominance uses the table of luminance. ffmpeg sends one table if the two are
    /// equal.
    pub(super) chroma: Option<Table>,
}

impl Tables {
    /// The tables of a quality from 1 to 99 (RFC 2435 Appendix A, as in libjpeg). Below 50 they are
    /// the standard tables times 50 / q, from 50 on times (100 - q) / 50. Each entry is from 1 to
    /// 255.
    pub(super) fn of_quality(q: u8) -> Self {
        let q = u32::from(q.clamp(1, 99));
        let percent = if q < 50 { 5000 / q } else { 200 - q * 2 };
        let scaled = |table: &[u8; 64]| {
            let entries = table.map(|entry| {
                let entry = (u32::from(entry) * percent + 50) / 100;
                u8::try_from(entry.max(1)).unwrap_or(u8::MAX)
            });
            Table::of(&entries, false)
        };
        Tables { luma: scaled(&LUMA_QUANTIZERS), chroma: Some(scaled(&CHROMA_QUANTIZERS)) }
    }

    /// The tables in `bytes`. Bit `i` of `precision`, from the right, is set if table `i` has
    /// 16-bit entries (RFC 2435 §3.1.8). Returns `None` if `bytes` is not exactly one or two
    /// tables.
    pub(super) fn in_band(precision: u8, bytes: &[u8]) -> Option<Self> {
        let wide = [precision & 1 != 0, precision & 2 != 0];
        let (luma, chroma) = bytes.split_at_checked(table_bytes(wide[0]))?;
        let chroma = match chroma.len() {
            0 => None,
            length if length == table_bytes(wide[1]) => Some(Table::of(chroma, wide[1])),
            _ => return None,
        };
        Some(Tables { luma: Table::of(luma, wide[0]), chroma })
    }
}

const fn table_bytes(wide: bool) -> usize {
    if wide { 128 } else { 64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luma_and_chroma(q: u8) -> (Vec<u8>, Vec<u8>) {
        let tables = Tables::of_quality(q);
        let chroma = tables.chroma.expect("a quality has both");
        (tables.luma.used().to_vec(), chroma.used().to_vec())
    }

    #[test]
    fn quality_50_is_the_standard_table() {
        let (luma, chroma) = luma_and_chroma(50);
        assert_eq!((luma, chroma), (LUMA_QUANTIZERS.to_vec(), CHROMA_QUANTIZERS.to_vec()));
    }

    #[test]
    fn the_extreme_qualities_are_clamped_to_a_byte() {
        let (luma, chroma) = luma_and_chroma(1);
        assert!(luma.iter().chain(&chroma).all(|entry| *entry == 255));
        let (luma, _) = luma_and_chroma(99);
        // 2 % of 10 to 121, rounded, at least 1.
        assert_eq!((luma[0], luma[5], luma[53], luma[56]), (1, 1, 1, 2));
        assert_eq!(luma_and_chroma(25).0[..4], [32, 22, 24, 28]);
    }

    #[test]
    fn in_band_tables_are_one_or_two_tables_of_the_announced_width() {
        let bytes: Vec<u8> = (0..=255).collect();
        for (precision, length, expected) in [
            (0, 64, Some((64, None))),
            (0, 128, Some((64, Some(64)))),
            (1, 128, Some((128, None))),
            (1, 192, Some((128, Some(64)))),
            (2, 192, Some((64, Some(128)))),
            (3, 256, Some((128, Some(128)))),
            (0, 0, None),
            (0, 63, None),
            (0, 127, None),
            (0, 192, None),
            (1, 64, None),
        ] {
            let widths = Tables::in_band(precision, &bytes[..length])
                .map(|tables| (tables.luma.used().len(), tables.chroma.map(|t| t.used().len())));
            assert_eq!(widths, expected, "precision {precision}, {length} bytes");
        }
    }
}
