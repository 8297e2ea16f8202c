//! Incomplete, invalid and random packets give the documented results, and later frames decode.

use proptest::prelude::*;
use upcall::time::Span;
use upcall::work::{Reject, Taken, Work, WorkError, WorkKind};

use super::senders::{
    LIBJPEG_420, LIBJPEG_422, Picture, TWO_TABLES, datagrams, decoded, stream, takes_and_decodes,
    work,
};

#[test]
fn a_frame_with_a_hole_is_dropped_when_the_next_begins() {
    let picture = Picture::of(LIBJPEG_420);
    let mut work = work(10_000);
    let mut first = picture.packets(30, 1, 0, &[]);
    let missing = first.remove(2);
    for packet in &first {
        assert_eq!(work.take(packet), Taken::More);
    }
    assert_eq!(work.process(), Err(WorkError::NoPdu));
    takes_and_decodes(&mut work, &picture.packets(30, 2, 5, &[]));
    assert_eq!(work.take(&missing), Taken::Rejected(Reject::Late));
    let counters = work.counters();
    assert_eq!((counters.frames_dropped, counters.processed, counters.rejected), (1, 1, 0));
}

#[test]
fn a_packet_lost_for_good_is_counted() {
    let mut work = work(20_000);
    for (place, datagram) in datagrams(TWO_TABLES).iter().enumerate() {
        if place != 3 && work.take(datagram) == Taken::Pdu {
            assert_eq!(work.process(), Ok(()));
        }
    }
    let counters = work.counters();
    assert_eq!((counters.processed, counters.lost, counters.frames_dropped), (1, 1, 1));
}

#[test]
fn a_frame_may_have_the_announced_size_and_no_more() {
    let picture = Picture::of(LIBJPEG_420);
    let scan_bytes = picture.scan.len() as u32;
    let packets = picture.packets(30, 1, 0, &[]);
    takes_and_decodes(&mut work(scan_bytes), &packets);
    let mut smaller = work(scan_bytes - 1);
    let (last, others) = packets.split_last().expect("packets");
    for packet in others {
        assert_eq!(smaller.take(packet), Taken::More);
    }
    let limit = picture.scan.len() - 1;
    let too_long = Reject::JpegTooLong { found: limit + 1, limit };
    assert_eq!(smaller.take(last), Taken::Rejected(too_long));
    assert_eq!(smaller.process(), Err(WorkError::NoPdu));
    let pixels = work(100).take(&packets[packets.len() - 1][..40]);
    assert!(matches!(pixels, Taken::Rejected(Reject::JpegTooLong { .. })));
    let limit = 64 * 100;
    let too_large = Reject::JpegPicture { found: 160 * 120, limit };
    assert_eq!(work(100).take(&packets[0][..40]), Taken::Rejected(too_large));
}

#[test]
fn headers_that_break_the_rfc_are_refused_with_a_reason() {
    let picture = Picture::of(LIBJPEG_420);
    let first = picture.packets(30, 1, 0, &[]).swap_remove(0);
    let changed = |at: usize, value: u8| {
        let mut packet = first.clone();
        packet[at] = value;
        packet
    };
    let tables = |header: &[u8]| picture.packets(255, 1, 0, header).swap_remove(0);
    for (packet, reason) in [
        (first[..15].to_vec(), Reject::JpegTruncated { found: 3, expected: 8 }),
        (first[..20].to_vec(), Reject::Empty),
        (changed(16, 2), Reject::JpegType { found: 2 }),
        (changed(16, 128), Reject::JpegType { found: 128 }),
        (changed(17, 0), Reject::JpegQ { found: 0 }),
        (changed(17, 100), Reject::JpegQ { found: 100 }),
        (changed(17, 127), Reject::JpegQ { found: 127 }),
        (changed(18, 0), Reject::JpegNoPixels),
        (changed(19, 0), Reject::JpegNoPixels),
        (tables(&[0, 0, 0, 65]), Reject::JpegTables { found: 65 }),
        (tables(&[0, 0, 0xff, 0xff]), Reject::JpegTruncated { found: 712, expected: 65_547 }),
        (changed(16, 65)[..23].to_vec(), Reject::JpegTruncated { found: 11, expected: 12 }),
    ] {
        assert_eq!(work(10_000).take(&packet), Taken::Rejected(reason));
    }
    let mut restart = changed(16, 65);
    restart.splice(20..20, [0, 0, 0xff, 0xff]);
    assert_eq!(work(10_000).take(&restart), Taken::Rejected(Reject::JpegRestart));
}

#[test]
fn a_fragment_that_contradicts_its_frame_does_not_harm_it() {
    let picture = Picture::of(LIBJPEG_420);
    let mut packets = picture.packets(30, 1, 0, &[]);
    let last = packets.pop().expect("packets");
    let mut work = work(10_000);
    for packet in &packets {
        assert_eq!(work.take(packet), Taken::More);
    }
    let mut forged = last.clone();
    forged[3] += 50;
    forged[18] -= 1;
    assert_eq!(work.take(&forged), Taken::Rejected(Reject::JpegMismatch));
    let mut overlapping = packets[1].clone();
    overlapping[3] += 51;
    assert_eq!(work.take(&overlapping), Taken::Rejected(Reject::JpegOverlap));
    assert_eq!(work.take(&last), Taken::Pdu);
    assert_eq!(work.process(), Ok(()));
    assert_eq!(work.output(), decoded(LIBJPEG_420));
}

#[test]
fn a_scan_that_ends_too_early_is_an_error_and_not_a_picture() {
    for file in [LIBJPEG_420, LIBJPEG_422] {
        let whole = Picture::of(file);
        let bytes = whole.scan.len();
        for missing in (4..20).chain((20..bytes).step_by(67)) {
            let mut picture = Picture::of(file);
            picture.scan.truncate(bytes - missing);
            let mut work = work(10_000);
            for packet in picture.packets(30, 1, 0, &[]) {
                let _ = work.take(&packet);
            }
            let result = work.process();
            assert!(matches!(result, Err(WorkError::Jpeg { .. })), "without the last {missing}");
            assert_eq!(work.output(), []);
            assert_eq!((work.counters().decode_errors, work.counters().processed), (1, 0));
            takes_and_decodes(&mut work, &whole.packets(30, 2, 100, &[]));
        }
    }
}

#[test]
fn a_scan_without_its_last_restart_interval_is_an_error() {
    let mut packets = stream(4);
    let last = packets.last_mut().expect("packets");
    let marker = last.windows(2).rposition(|pair| pair[0] == 0xff && pair[1] >= 0xd0);
    last.truncate(marker.expect("the last datagram has a restart marker"));
    let mut work = work(10_000);
    for packet in &packets {
        let _ = work.take(packet);
    }
    assert!(matches!(work.process(), Err(WorkError::Jpeg { .. })));
}

/// Bits, the highest of a byte first, with the stuffing of T.81 §B.1.1.5.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    left: String,
}

impl Bits {
    fn push(&mut self, bits: &str) {
        self.left.push_str(bits);
        while self.left.len() >= 8 {
            let rest = self.left.split_off(8);
            let byte = u8::from_str_radix(&self.left, 2).expect("eight bits");
            self.bytes.push(byte);
            self.bytes.extend((byte == 0xff).then_some(0));
            self.left = rest;
        }
    }
}

/// Every block of luminance is brighter than the one before by the largest difference, with the
/// largest quantizers: the sum does not fit 32 bits.
#[test]
fn a_picture_that_overflows_the_decoder_does_no_harm() {
    let mut bits = Bits::default();
    for _ in 0..127 * 127 {
        for _ in 0..4 {
            bits.push("111111110"); // DC difference of 11 bits
            bits.push("11111111111"); // +2047
            bits.push("1010"); // end of block
        }
        bits.push("00000000"); // two chrominance blocks: no difference, end of block
    }
    bits.push("1111111");
    let picture =
        Picture { width: 2032, height: 2032, kind: 1, quantizers: Vec::new(), scan: bits.bytes };
    let mut table_header = vec![0, 3, 1, 0];
    table_header.extend([0xff; 256]);
    let mut work = work(1_000_000);
    let packets = picture.packets(255, 1, 0, &table_header);
    let (last, others) = packets.split_last().expect("packets");
    for packet in others {
        assert_eq!(work.take(packet), Taken::More);
    }
    assert_eq!(work.take(last), Taken::Pdu);
    // A decoder that checks its sums gives an error. One that does not gives a meaningless picture.
    let result = work.process();
    assert_eq!(result.is_ok(), work.counters().processed == 1);
    assert_eq!(result.is_err(), work.counters().decode_errors == 1);
    takes_and_decodes(&mut work, &Picture::of(LIBJPEG_420).packets(30, 2, 40_000, &[]));
}

/// Takes `packets` and processes each complete frame. Each result must be one of the documented
/// ones, and a picture must have its announced size.
fn assert_documented_results(work: &mut Work, packets: &[Vec<u8>]) {
    for packet in packets {
        let before = work.counters();
        match work.take(packet) {
            Taken::More => {}
            Taken::Pdu => match work.process() {
                Ok(()) => {
                    let counters = work.counters();
                    let pixels = usize::from(counters.width) * usize::from(counters.height);
                    assert_eq!(work.output().len(), pixels * if pixels == 0 { 0 } else { 3 });
                    assert_eq!(counters.processed, before.processed + 1);
                }
                Err(error) => {
                    assert!(matches!(error, WorkError::Jpeg { .. }));
                    assert_eq!(work.counters().decode_errors, before.decode_errors + 1);
                }
            },
            Taken::Rejected(Reject::Duplicate | Reject::Late) => {}
            Taken::Rejected(_) => assert_eq!(work.counters().rejected, before.rejected + 1),
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20),
        rtp in any::<bool>(),
    ) {
        for kind in WorkKind::ALL.into_iter().filter(|kind| *kind != WorkKind::Spin) {
            let mut work = Work::new(kind, 4_000, Span::ZERO, || 0);
            for mut packet in packets.clone() {
                if let (true, Some(first)) = (rtp, packet.first_mut()) {
                    *first = 0x80;
                }
                if work.take(&packet) == Taken::Pdu {
                    let _ = work.process();
                }
            }
        }
    }

    /// Changes bytes anywhere, and cuts, drops, doubles and swaps packets.
    #[test]
    fn broken_streams_give_documented_results(
        which in 0_usize..5,
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..1400, any::<u8>()),
            0..12,
        ),
        cut in proptest::option::weighted(0.2, (any::<prop::sample::Index>(), 0_usize..1400)),
        swap in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        drop in proptest::option::weighted(0.2, any::<prop::sample::Index>()),
        double in any::<prop::sample::Index>(),
        in_headers in any::<bool>(),
    ) {
        let mut packets = stream(which);
        for (packet, at, value) in changes {
            let packet = packet.get_mut(&mut packets);
            let at = if in_headers { at % 30 } else { at };
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        if let Some((packet, length)) = cut {
            packet.get_mut(&mut packets).truncate(length);
        }
        let (from, to) = (swap.0.index(packets.len()), swap.1.index(packets.len()));
        packets.swap(from, to);
        packets.push(double.get(&packets).clone());
        if let Some(packet) = drop {
            packets.remove(packet.index(packets.len()));
        }
        let mut work = work(20_000);
        assert_documented_results(&mut work, &packets);
        // After any broken packets, a good frame of another sender decodes.
        let mut good = stream(2);
        good.iter_mut().for_each(|packet| packet[4..12].fill(0x77));
        takes_and_decodes(&mut work, &good);
        prop_assert_eq!(work.output(), &decoded(LIBJPEG_422)[..]);
    }
}
