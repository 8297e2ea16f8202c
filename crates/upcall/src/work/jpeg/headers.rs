//! The JPEG headers that RFC 2435 leaves out of its packets, made of a frame's fields and tables.
//!
//! The functions are pure: they turn fields and tables into bytes (RFC 2435 Appendix B).

use super::huffman::{CHROMA_AC, CHROMA_DC, LUMA_AC, LUMA_DC};
use super::payload::{Head, Sampling};
use super::tables::{Table, Tables};

/// The longest [`Headers`], in bytes: SOI, DRI, two 16-bit DQT, SOF0, four DHT, SOS.
pub(super) const HEADER_BYTES_MAX: usize = 2 + 6 + 2 * 133 + 19 + 2 * (33 + 183) + 14;

/// The bytes of a JPEG file up to its scan.
pub(super) struct Headers {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

impl Headers {
    /// The headers for `head` and `tables` (RFC 2435 Appendix B).
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
        // SOS, T.81 §B.2.3: components and their Huffman tables; all 64 coefficients in one scan.
        headers.segment(0xda, &[&[3, 1, 0x00, 2, 0x11, 3, 0x11, 0, 63, 0]]);
        headers
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// DQT, T.81 §B.2.4.1. Baseline JPEG has 8-bit entries. 16-bit entries of a sender are passed
    /// on, because decoders understand them.
    fn quantization(&mut self, place: u8, table: &Table) {
        self.segment(0xdb, &[&[u8::from(table.wide) << 4 | place], table.used()]);
    }

    /// SOF0, T.81 §B.2.2: 8-bit samples; luminance sampled by the type, chrominance 1 x 1 (RFC 2435
    /// §4.1).
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

    /// A marker segment: the marker, the length including its own two bytes, and the content.
    fn segment(&mut self, marker: u8, parts: &[&[u8]]) {
        let length = 2 + parts.iter().map(|part| part.len()).sum::<usize>();
        self.push(&[0xff, marker]);
        // The conversion succeeds: the longest segment has 183 bytes.
        self.push(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        for part in parts {
            self.push(part);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        // The bytes fit: HEADER_BYTES_MAX is the sum of all segments at their longest.
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
