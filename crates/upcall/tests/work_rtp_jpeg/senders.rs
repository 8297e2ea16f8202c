//! The senders of the tests: captured packets, and pictures that are cut into packets.

use upcall::time::Span;
use upcall::work::{Taken, Work, WorkKind, sample_datagrams, sample_payload};
use zune_core::bytestream::ZCursor;
use zune_jpeg::JpegDecoder;

pub(crate) const TWO_TABLES: &[u8] = include_bytes!("../fixtures/ffmpeg-420-two-tables.rtp");
pub(crate) const ONE_TABLE: &[u8] = include_bytes!("../fixtures/ffmpeg-420-one-table.rtp");
pub(crate) const LIBJPEG_420: &[u8] = include_bytes!("../fixtures/cjpeg-420-q30.jpg");
pub(crate) const LIBJPEG_422: &[u8] = include_bytes!("../fixtures/cjpeg-422-q80.jpg");

/// Scan bytes of a fragment.
pub(crate) const CUT_BYTES: usize = 700;

pub(crate) fn work(pdu_bytes: u32) -> Work {
    Work::new(WorkKind::RtpJpeg, pdu_bytes, Span::ZERO, || 0)
}

pub(crate) fn datagrams(mut fixture: &[u8]) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    while let Some((length, rest)) = fixture.split_first_chunk::<2>() {
        let (datagram, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        datagrams.push(datagram.to_vec());
        fixture = rest;
    }
    datagrams
}

/// The parts of a JPEG file that RFC 2435 sends.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) kind: u8,
    pub(crate) quantizers: Vec<u8>,
    pub(crate) scan: Vec<u8>,
}

impl Picture {
    pub(crate) fn of(file: &[u8]) -> Picture {
        let mut picture =
            Picture { width: 0, height: 0, kind: 0, quantizers: Vec::new(), scan: Vec::new() };
        let mut at = 2;
        loop {
            let length = usize::from(file[at + 2]) * 256 + usize::from(file[at + 3]);
            let segment = &file[at + 4..at + 2 + length];
            match file[at + 1] {
                0xdb => picture.quantizers.extend(&segment[1..]),
                0xc0 => {
                    picture.height = usize::from(segment[1]) * 256 + usize::from(segment[2]);
                    picture.width = usize::from(segment[3]) * 256 + usize::from(segment[4]);
                    picture.kind = u8::from(segment[7] == 0x22);
                }
                0xda => {
                    picture.scan = file[at + 2 + length..file.len() - 2].to_vec();
                    return picture;
                }
                _ => {}
            }
            at += 2 + length;
        }
    }

    /// The RTP packets of one frame with the timestamp `frame`. `table_header` follows the main
    /// header of the first packet.
    pub(crate) fn packets(
        &self,
        q: u8,
        frame: u32,
        sequence: u16,
        table_header: &[u8],
    ) -> Vec<Vec<u8>> {
        let count = self.scan.len().div_ceil(CUT_BYTES);
        let packet = |(place, scan): (usize, &[u8])| {
            let marker = if place + 1 == count { 0x80 } else { 0 };
            let mut packet = vec![0x80, marker | 26];
            packet.extend(sequence.wrapping_add(place as u16).to_be_bytes());
            packet.extend(frame.to_be_bytes());
            packet.extend([0, 0, 0, 9]);
            packet.extend(((place * CUT_BYTES) as u32).to_be_bytes());
            packet.extend([self.kind, q, (self.width / 8) as u8, (self.height / 8) as u8]);
            if place == 0 {
                packet.extend(table_header);
            }
            packet.extend(scan);
            packet
        };
        self.scan.chunks(CUT_BYTES).enumerate().map(packet).collect()
    }

    /// A table header with the file's own tables.
    pub(crate) fn table_header(&self) -> Vec<u8> {
        let mut header = vec![0, 0];
        header.extend((self.quantizers.len() as u16).to_be_bytes());
        header.extend(&self.quantizers);
        header
    }
}

pub(crate) fn decoded(file: &[u8]) -> Vec<u8> {
    JpegDecoder::new(ZCursor::new(file)).decode().expect("a fixture is a picture")
}

/// All packets but the last give `More`, the last gives `Pdu`, and the frame decodes.
pub(crate) fn takes_and_decodes(work: &mut Work, packets: &[Vec<u8>]) {
    let (last, others) = packets.split_last().expect("a frame has a packet");
    for packet in others {
        assert_eq!(work.take(packet), Taken::More);
    }
    assert_eq!(work.take(last), Taken::Pdu);
    assert_eq!(work.process(), Ok(()));
}

/// The packets of one of the fixtures, or of the sample.
pub(crate) fn stream(which: usize) -> Vec<Vec<u8>> {
    match which {
        0 => datagrams(TWO_TABLES),
        1 => datagrams(ONE_TABLE),
        2 => Picture::of(LIBJPEG_422).packets(80, 1, 0, &[]),
        3 => {
            let picture = Picture::of(LIBJPEG_420);
            picture.packets(200, 1, 0, &picture.table_header())
        }
        _ => (0..sample_datagrams(WorkKind::RtpJpeg, 8_000))
            .map(|sequence| {
                let mut datagram = vec![0; 1500];
                let length = sample_payload(WorkKind::RtpJpeg, 8_000, sequence, &mut datagram);
                datagram.truncate(length);
                datagram
            })
            .collect(),
    }
}
