//! Valid frames decode to the picture of another decoder.

use upcall::work::{Reject, Taken, WorkKind, sample_datagrams, sample_payload};

use super::senders::{
    LIBJPEG_420, LIBJPEG_422, ONE_TABLE, Picture, TWO_TABLES, datagrams, decoded,
    takes_and_decodes, work,
};

const REFERENCE: &[u8] = include_bytes!("../fixtures/ffmpeg-420.ppm");

/// The mean absolute difference between `rgb`, 320 x 240 pixels averaged over 4 x 4, and the
/// fixture that ffmpeg's decoder made.
fn difference_to_ffmpeg(rgb: &[u8]) -> f64 {
    let reference = REFERENCE.strip_prefix(b"P6\n80 60\n255\n").expect("a portable pixmap");
    assert_eq!((rgb.len(), reference.len()), (320 * 240 * 3, 80 * 60 * 3));
    let mean = |at: usize| {
        let (x, y, colour) = (at / 3 % 80 * 4, at / 240 * 4, at % 3);
        let pixels = (0..16).map(|place| (y + place / 4) * 320 + x + place % 4);
        pixels.map(|pixel| f64::from(rgb[pixel * 3 + colour])).sum::<f64>() / 16.0
    };
    let differences =
        reference.iter().enumerate().map(|(at, value)| (f64::from(*value) - mean(at)).abs());
    differences.sum::<f64>() / reference.len() as f64
}

#[test]
fn ffmpeg_frames_decode_to_the_picture_ffmpeg_decodes() {
    for (fixture, frames) in [(TWO_TABLES, 2), (ONE_TABLE, 1)] {
        let mut work = work(20_000);
        let mut pdus = 0;
        for datagram in datagrams(fixture) {
            match work.take(&datagram) {
                Taken::More => continue,
                taken => assert_eq!(taken, Taken::Pdu),
            }
            assert_eq!(work.process(), Ok(()));
            let difference = difference_to_ffmpeg(work.output());
            // The second frame of the pattern differs little from the first.
            assert!(difference < if pdus == 0 { 1.0 } else { 3.0 }, "{difference}");
            pdus += 1;
        }
        assert_eq!(pdus, frames);
        let counters = work.counters();
        assert_eq!((counters.width, counters.height), (320, 240));
        assert_eq!((counters.processed, counters.lost, counters.frames_dropped), (frames, 0, 0));
    }
}

#[test]
fn a_quality_gives_the_tables_of_libjpeg() {
    for (file, q, kind) in [(LIBJPEG_420, 30, 1), (LIBJPEG_422, 80, 0)] {
        let picture = Picture::of(file);
        assert_eq!(picture.kind, kind);
        let mut work = work(10_000);
        takes_and_decodes(&mut work, &picture.packets(q, 1, 0, &[]));
        assert_eq!(work.output(), decoded(file), "q {q}");
        takes_and_decodes(&mut work, &picture.packets(q - 1, 2, 100, &[]));
        assert_ne!(work.output(), decoded(file), "q {}", q - 1);
    }
}

#[test]
fn tables_of_q_128_to_254_are_kept_and_those_of_255_are_not() {
    let picture = Picture::of(LIBJPEG_420);
    let none = [0, 0, 0, 0];
    for (q, kept) in [(128, true), (254, true), (255, false)] {
        let mut work = work(10_000);
        let first = picture.packets(q, 0, 0, &none).swap_remove(0);
        assert_eq!(work.take(&first), Taken::Rejected(Reject::JpegNoTables { q }));
        takes_and_decodes(&mut work, &picture.packets(q, 1, 100, &picture.table_header()));
        assert_eq!(work.output(), decoded(LIBJPEG_420));
        let later = picture.packets(q, 2, 200, &none);
        if kept {
            takes_and_decodes(&mut work, &later);
            assert_eq!(work.output(), decoded(LIBJPEG_420));
        } else {
            assert_eq!(work.take(&later[0]), Taken::Rejected(Reject::JpegNoTables { q }));
        }
        // Another Q has no tables, and neither has the same Q of another sender.
        let other_q = picture.packets(129, 3, 300, &none).swap_remove(0);
        assert_eq!(work.take(&other_q), Taken::Rejected(Reject::JpegNoTables { q: 129 }));
        let mut other_sender = picture.packets(q, 4, 301, &none).swap_remove(0);
        other_sender[11] ^= 1;
        assert_eq!(work.take(&other_sender), Taken::Rejected(Reject::JpegNoTables { q }));
    }
}

#[test]
fn fragments_may_come_in_any_order_within_a_frame() {
    let picture = Picture::of(LIBJPEG_422);
    let mut packets = picture.packets(80, 1, 65_533, &[]);
    packets.swap(1, 2);
    let last = packets.len() - 1;
    packets.swap(last - 1, last);
    let mut work = work(10_000);
    takes_and_decodes(&mut work, &packets);
    assert_eq!(work.output(), decoded(LIBJPEG_422));
    assert_eq!((work.counters().reordered, work.counters().lost), (2, 0));
}

#[test]
fn padding_after_the_end_of_the_image_is_ignored() {
    let mut picture = Picture::of(LIBJPEG_420);
    // §3.1.9: an end-of-image marker, then undefined bytes. Here these are a forged frame header.
    picture.scan.extend([0xff, 0xd9, 0xff, 0xc0, 0, 17, 8, 255, 255, 255, 255, 3]);
    let mut work = work(10_000);
    takes_and_decodes(&mut work, &picture.packets(30, 1, 0, &[]));
    assert_eq!(work.output(), decoded(LIBJPEG_420));
}

#[test]
fn the_sample_is_a_picture_of_the_requested_size() {
    let mut datagram = [0; 1500];
    for (pdu_bytes, size) in [(480, (320, 16)), (7_304, (320, 240)), (31_000, (640, 512))] {
        let mut work = work(pdu_bytes);
        let packets: Vec<Vec<u8>> = (0..sample_datagrams(WorkKind::RtpJpeg, pdu_bytes))
            .map(|sequence| {
                let length = sample_payload(WorkKind::RtpJpeg, pdu_bytes, sequence, &mut datagram);
                datagram[..length].to_vec()
            })
            .collect();
        takes_and_decodes(&mut work, &packets);
        assert_eq!((work.counters().width, work.counters().height), size);
        if size == (320, 240) {
            assert_eq!(work.output(), decoded(include_bytes!("../../src/work/sample.jpg")));
        }
    }
}
