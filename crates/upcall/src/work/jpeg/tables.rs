//! The tables RFC 2435 leaves out of a packet, and the JPEG headers made of them.
//!
//! Pure: numbers in, bytes out. The tables are facts of ITU-T T.81 Annex K;
//! RFC 2435 Appendix A and B take them from there.

use super::payload::{Head, Sampling};

/// Most bytes [`Headers`] can have: SOI, DRI, two 16-bit DQT, SOF0, four DHT, SOS.
pub(super) const HEADER_BYTES_MAX: usize = 2 + 6 + 2 * 133 + 19 + 2 * (33 + 183) + 14;

/// T.81 table K.1, luminance, in zig-zag order, as DQT wants it and in-band
/// tables come (RFC 2435 Appendix A prints it row by row; senders that follow
/// libjpeg, and the test's fixtures, have it in zig-zag order on the wire).
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

/// T.81 table K.3, luminance DC: how many codes of 1 to 16 bits, then their values.
#[rustfmt::skip]
const LUMA_DC: [u8; 28] = [
    0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0,
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
];

/// T.81 table K.5, luminance AC, likewise.
#[rustfmt::skip]
const LUMA_AC: [u8; 178] = [
    0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125,
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07,
    0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0,
    0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25, 0x26, 0x27, 0x28,
    0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49,
    0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69,
    0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89,
    0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
    0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5,
    0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2,
    0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
    0xf9, 0xfa,
];

/// T.81 table K.4, chrominance DC, likewise.
#[rustfmt::skip]
const CHROMA_DC: [u8; 28] = [
    0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0,
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
];

/// T.81 table K.6, chrominance AC, likewise.
#[rustfmt::skip]
const CHROMA_AC: [u8; 178] = [
    0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119,
    0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71,
    0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0,
    0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26,
    0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
    0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
    0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87,
    0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5,
    0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3,
    0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda,
    0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
    0xf9, 0xfa,
];

/// One quantization table: 64 entries of 8 bits or of 16 bits, in zig-zag order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Table {
    /// 64 bytes used, or 128 (T.81 §B.2.4.1).
    bytes: [u8; 128],
    wide: bool,
}

impl Table {
    fn of(bytes: &[u8], wide: bool) -> Self {
        let mut table = Table { bytes: [0; 128], wide };
        for (slot, byte) in table.bytes.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        table
    }

    fn used(&self) -> &[u8] {
        self.bytes.get(..table_bytes(self.wide)).unwrap_or(&self.bytes)
    }
}

/// The quantization tables of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tables {
    luma: Table,
    /// `None`: chroma uses luminance's (what ffmpeg sends when they are equal).
    chroma: Option<Table>,
}

impl Tables {
    /// The tables of a quality from 1 to 99 (RFC 2435 Appendix A, which is
    /// what libjpeg does): below 50 the standard tables times 50 / q, above
    /// times (100 - q) / 50, each entry from 1 to 255.
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

    /// The tables in `bytes`; bit `i` of `precision`, from the right, says that
    /// table `i` has 16-bit entries (RFC 2435 §3.1.8). `None` where `bytes` is
    /// not exactly one or two tables.
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

/// The bytes of a JPEG file up to its scan.
pub(super) struct Headers {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

impl Headers {
    /// The headers that `head` and `tables` stand for (RFC 2435 Appendix B).
    pub(super) fn of(head: &Head, tables: &Tables) -> Self {
        let mut headers = Headers { bytes: [0; HEADER_BYTES_MAX], length: 0 };
        headers.push(&[0xff, 0xd8]); // SOI
        if let Some(interval) = head.restart {
            headers.segment(0xdd, &[&interval.to_be_bytes()]); // DRI, T.81 §B.2.4.4
        }
        headers.quantization(0, &tables.luma);
        if let Some(chroma) = &tables.chroma {
            headers.quantization(1, chroma);
        }
        headers.frame(head, u8::from(tables.chroma.is_some()));
        for (class_and_place, table) in
            [(0x00, &LUMA_DC[..]), (0x10, &LUMA_AC), (0x01, &CHROMA_DC), (0x11, &CHROMA_AC)]
        {
            headers.segment(0xc4, &[&[class_and_place], table]); // DHT, T.81 §B.2.4.2
        }
        // SOS, T.81 §B.2.3: components and their Huffman tables; all 64 coefficients, once.
        headers.segment(0xda, &[&[3, 1, 0x00, 2, 0x11, 3, 0x11, 0, 63, 0]]);
        headers
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// DQT, T.81 §B.2.4.1. Baseline JPEG has 8-bit entries; a sender that
    /// chose 16 bits gets them passed on, decoders understand them.
    fn quantization(&mut self, place: u8, table: &Table) {
        self.segment(0xdb, &[&[u8::from(table.wide) << 4 | place], table.used()]);
    }

    /// SOF0, T.81 §B.2.2: 8-bit samples; luminance sampled as the type says,
    /// chrominance 1 x 1 (RFC 2435 §4.1).
    fn frame(&mut self, head: &Head, chroma_table: u8) {
        let luma_sampling = match head.sampling {
            Sampling::Half => 0x21,
            Sampling::Quarter => 0x22,
        };
        self.segment(
            0xc0,
            &[
                &[8],
                &head.height.to_be_bytes(),
                &head.width.to_be_bytes(),
                &[3, 1, luma_sampling, 0, 2, 0x11, chroma_table, 3, 0x11, chroma_table],
            ],
        );
    }

    /// A marker segment: marker, length with itself, content.
    fn segment(&mut self, marker: u8, parts: &[&[u8]]) {
        let length = 2 + parts.iter().map(|part| part.len()).sum::<usize>();
        self.push(&[0xff, marker]);
        // The longest segment here has 183 bytes.
        self.push(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        for part in parts {
            self.push(part);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        // HEADER_BYTES_MAX is the sum of all segments at their longest.
        for byte in bytes {
            if let Some(slot) = self.bytes.get_mut(self.length) {
                *slot = *byte;
                self.length += 1;
            }
        }
    }
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
    fn the_ends_of_quality_are_held_to_a_byte() {
        let (luma, chroma) = luma_and_chroma(1);
        assert!(luma.iter().chain(&chroma).all(|entry| *entry == 255));
        let (luma, _) = luma_and_chroma(99);
        // 2 % of 10 to 121, rounded, at least 1.
        assert_eq!((luma[0], luma[5], luma[53], luma[56]), (1, 1, 1, 2));
        assert_eq!(luma_and_chroma(25).0[..4], [32, 22, 24, 28]);
    }

    #[test]
    fn in_band_tables_are_one_or_two_of_the_announced_width() {
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

    #[test]
    fn the_longest_headers_fit_exactly() {
        let tables = Tables::in_band(3, &[1; 256]).expect("two wide tables");
        let head = Head {
            type_specific: 0,
            sampling: Sampling::Quarter,
            restart: Some(40),
            q: 255,
            width: 2040,
            height: 2040,
        };
        assert_eq!(Headers::of(&head, &tables).bytes().len(), HEADER_BYTES_MAX);
    }
}
