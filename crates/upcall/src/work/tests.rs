//! The processors, driven as a runtime drives them: datagrams in, PDUs out.

use core::time::Duration;
use std::time::Instant;

use upcall_runtime::time::Span;

use super::*;

/// Stands in for the CPU time of the thread.
fn wall_clock() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    let since: Duration = START.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn work(kind: WorkKind, pdu_bytes: u32) -> Work {
    Work::new(kind, pdu_bytes, Span::from_micros(200), wall_clock)
}

#[test]
fn each_name_parses_to_its_kind() {
    for kind in WorkKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
        assert!(!kind.description().is_empty() && !kind.description().contains('\n'));
    }
    assert_eq!(
        "rtp-opus".parse::<WorkKind>().map_err(|error| error.to_string()),
        Err("found work \"rtp-opus\", expected one of spin, rtp-jpeg, rtp-l16, rtp-pcmu, rtp-pcma"
            .to_owned())
    );
}

#[test]
fn every_sample_is_processed_without_error() {
    let mut datagram = vec![0; 65_536];
    for kind in WorkKind::ALL {
        for pdu_bytes in [500, 1470, 20_000] {
            let mut work = work(kind, pdu_bytes);
            let per_pdu = sample_datagrams(kind, pdu_bytes);
            let mut pdus = 0;
            for sequence in 0..3 * per_pdu {
                let length = sample_payload(kind, pdu_bytes, sequence, &mut datagram);
                assert!(length > 0 && (kind == WorkKind::RtpJpeg || length <= pdu_bytes as usize));
                match work.take(&datagram[..length]) {
                    Taken::Pdu => pdus += u32::from(work.process().is_ok()),
                    taken => assert_eq!(taken, Taken::More, "{kind}"),
                }
            }
            let counters = work.counters();
            assert_eq!((pdus, counters.processed), (3, 3), "{kind} of {pdu_bytes} bytes");
            let errors = counters.rejected + counters.decode_errors + counters.lost;
            assert_eq!(errors + counters.frames_dropped + counters.duplicates, 0, "{kind}");
        }
    }
}

#[test]
fn a_sample_that_does_not_fit_is_not_written() {
    let mut out = [0; 1500];
    for (kind, pdu_bytes) in [
        (WorkKind::RtpL16, 13),
        (WorkKind::RtpPcmu, 12),
        (WorkKind::RtpPcma, 0),
        (WorkKind::RtpJpeg, 479),
        (WorkKind::Spin, 1501),
        (WorkKind::RtpL16, 1502),
    ] {
        assert_eq!(sample_payload(kind, pdu_bytes, 0, &mut out), 0, "{kind} of {pdu_bytes}");
    }
    assert_eq!(sample_payload(WorkKind::RtpJpeg, 1470, 0, &mut out[..100]), 0);
    assert_eq!(sample_datagrams(WorkKind::RtpJpeg, 479), 0);
    assert_eq!(sample_payload(WorkKind::Spin, 5, 1, &mut out), 5);
    assert_eq!(out[..5], [0x80, 96, 0, 1, 0]);
}

#[test]
fn spin_uses_its_cost_by_the_given_clock() {
    let mut spin = work(WorkKind::Spin, 1470);
    assert_eq!(spin.process(), Err(WorkError::NoPdu));
    assert_eq!(spin.take(b"anything"), Taken::Pdu);
    let start_ns = wall_clock();
    assert_eq!(spin.process(), Ok(()));
    // 98 % of 200 us, less the two reads of the clock that are part of it.
    assert!(wall_clock() - start_ns >= 190_000);
    assert_eq!(spin.process(), Err(WorkError::NoPdu));
    assert_eq!(spin.counters().processed, 1);
    assert!(Work::calibrate(WorkKind::Spin, 1470, wall_clock).is_none());
}

/// An RTP packet of `payload` with payload type 96.
fn rtp(sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, 96];
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    packet.extend(payload);
    packet
}

#[test]
fn l16_output_is_6_db_lower_in_network_order() {
    let mut work = work(WorkKind::RtpL16, 1470);
    let taken = work.take(&rtp(1, &[0x7f, 0xff, 0x80, 0x00, 0x03, 0xe8, 0xfc, 0x18]));
    assert_eq!(taken, Taken::Pdu);
    assert_eq!(work.process(), Ok(()));
    let samples: Vec<i16> =
        work.output().chunks(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect();
    assert_eq!(samples, [16_422, -16_423, 501, -501]);
    assert_eq!(work.counters().peak, 16_423);
    assert_eq!(work.process(), Err(WorkError::NoPdu));
}

#[test]
fn g711_output_is_one_segment_lower() {
    for (kind, payload, output) in [
        (WorkKind::RtpPcmu, [0x80, 0x00, 0xff], [0x90, 0x10, 0xff]),
        (WorkKind::RtpPcma, [0xaa, 0x2a, 0xba], [0xba, 0x3a, 0x8a]),
    ] {
        let mut work = work(kind, 1470);
        assert_eq!(work.take(&rtp(1, &payload)), Taken::Pdu);
        assert_eq!(work.process(), Ok(()));
        assert_eq!(work.output(), output, "{kind}");
    }
}

#[test]
fn the_output_of_a_tone_is_a_quarter_of_full_scale() {
    let mut datagram = [0; 1470];
    for (kind, step) in [(WorkKind::RtpL16, 1), (WorkKind::RtpPcmu, 512), (WorkKind::RtpPcma, 512)]
    {
        let mut work = work(kind, 1470);
        for sequence in 0..20 {
            let length = sample_payload(kind, 1470, sequence, &mut datagram);
            assert_eq!(work.take(&datagram[..length]), Taken::Pdu);
            assert_eq!(work.process(), Ok(()));
        }
        let peak = work.counters().peak;
        assert!(peak.abs_diff(8_211) <= step, "{kind}: {peak}");
    }
}

#[test]
fn invalid_audio_packets_are_rejected_with_a_reason() {
    let mut work = work(WorkKind::RtpL16, 100);
    for (datagram, reason) in [
        (vec![0x80; 5], Reject::RtpTruncated { found: 5, expected: 12 }),
        (vec![0x40; 12], Reject::RtpVersion { found: 1 }),
        (rtp(1, &[]), Reject::Empty),
        (rtp(1, &[1, 2, 3]), Reject::HalfSample { found: 3 }),
        (rtp(1, &[0; 89]), Reject::TooLong { found: 101, limit: 100 }),
    ] {
        assert_eq!(work.take(&datagram), Taken::Rejected(reason));
        let text = reason.to_string();
        assert!(text.starts_with("found") && text.contains("expect"), "{text}");
    }
    let mut padded = rtp(1, &[0, 0, 0, 9]);
    padded[0] |= 0x20;
    assert!(matches!(work.take(&padded), Taken::Rejected(Reject::RtpTruncated { .. })));
    assert_eq!(work.counters().rejected, 6);
    assert_eq!(work.process(), Err(WorkError::NoPdu));
}

#[test]
fn a_duplicate_packet_is_processed_once() {
    let mut work = work(WorkKind::RtpPcmu, 100);
    for (sequence, taken) in [
        (7, Taken::Pdu),
        (7, Taken::Rejected(Reject::Duplicate)),
        (10, Taken::Pdu),
        (9, Taken::Pdu),
    ] {
        assert_eq!(work.take(&rtp(sequence, &[0xff])), taken);
    }
    let counters = work.counters();
    assert_eq!((counters.lost, counters.reordered, counters.duplicates), (1, 1, 1));
    assert_eq!(counters.rejected, 0);
}

#[test]
fn calibration_measures_every_kind_but_spin() {
    for kind in WorkKind::ALL.into_iter().filter(|kind| *kind != WorkKind::Spin) {
        let found = Work::calibrate(kind, 1, wall_clock).expect("a sample of the smallest size");
        assert!(found.runs >= 20, "{kind}");
        assert!(found.p50 <= found.p95 && found.p95 < found.cost, "{kind}: {found:?}");
    }
}
