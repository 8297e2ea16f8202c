//! Recordings of every form, built byte by byte, and files that are no recordings.

use super::*;
use build::{ORDERS, Order, block, enhanced, ethernet, interface, ipv4, ipv6, pcap, section, udp};
use proptest::prelude::*;
use upcall::time::Span;
use upcall::work::WorkKind;

#[expect(clippy::cast_possible_truncation, reason = "halves of a number")]
mod build;
mod links;

fn ns(at: &[Instant]) -> Vec<u64> {
    at.iter().map(|at| at.as_nanos()).collect()
}

fn read_ns(bytes: &[u8], port: Option<u16>) -> Vec<u64> {
    ns(&read(bytes, "", port).unwrap().at)
}

/// The error in words.
fn fault(bytes: &[u8], port: Option<u16>) -> String {
    read(bytes, "", port).unwrap_err().to_string()
}

/// A datagram to `port`, on Ethernet.
fn datagram(port: u16) -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4(17, &[], 0, &udp(port)))
}

#[test]
fn a_pcap_is_read_in_both_orders_and_both_resolutions() {
    let packet = datagram(5004);
    for order in ORDERS {
        let frames = [(9, 999_999, &*packet), (10, 1, &packet), (12, 0, &packet)];
        assert_eq!(
            read_ns(&pcap(order, false, 1, &frames), None),
            [0, 2_000, 2_000_001_000],
            "{order:?}"
        );
        let frames = [(9, 999_999_999, &*packet), (10, 1, &packet)];
        assert_eq!(read_ns(&pcap(order, true, 1, &frames), None), [0, 2], "{order:?}");
    }
}

#[test]
fn a_port_selects_datagrams_and_time_counts_from_the_first_of_them() {
    let (wanted, other) = (datagram(5004), datagram(5005));
    let frames = [(1, 0, &*other), (2, 0, &wanted), (3, 0, &other), (4, 0, &wanted)];
    let file = pcap(Order::Little, false, 1, &frames);
    assert_eq!(read_ns(&file, Some(5004)), [0, 2_000_000_000]);
    assert_eq!(read_ns(&file, None).len(), 4);
    assert_eq!(
        fault(&file, Some(40_000)),
        "found none of 4 packets sent to UDP port 40000, expected at least one"
    );
}

#[test]
fn each_interface_of_a_pcapng_has_its_own_clock() {
    let packet = datagram(5004);
    for order in ORDERS {
        let file = [
            section(order),
            // Microseconds, by default.
            interface(order, 1, &[]),
            // Nanoseconds since 5 s after 1970.
            interface(order, 1, &[(2, b"eth1"), (9, &[9]), (14, &order.eight(5))]),
            // 1024ths of a second since 1 s before 1970.
            interface(order, 1, &[(9, &[0x8a]), (14, &order.eight(u64::MAX))]),
            // The reader skips a statistics block and one of unknown type.
            block(order, 5, &[0; 12]),
            block(order, 0x7777_7777, &[1; 100]),
            enhanced(order, 0, 6_000_000, &packet),
            enhanced(order, 1, 1_000_000_700, &packet),
            enhanced(order, 2, 7 * 1024 + 512, &packet),
            // A second section begins without interfaces.
            section(Order::Big),
            interface(Order::Big, 1, &[]),
            enhanced(Order::Big, 0, 7_000_000, &packet),
        ];
        let expected = [0, 700, 500_000_000, 1_000_000_000];
        assert_eq!(read_ns(&file.concat(), Some(5004)), expected, "{order:?}");
    }
}

#[test]
fn arrivals_out_of_order_are_sorted_and_reported() {
    let packet = datagram(5004);
    let frames = [(5, 0, &*packet), (5, 30, &packet), (4, 999_990, &packet), (5, 10, &packet)];
    let arrived = read(&*pcap(Order::Little, false, 1, &frames), "", None).unwrap();
    assert_eq!(ns(&arrived.at), [0, 10_000, 20_000, 40_000]);
    let back = Span::from_micros(40);
    assert_eq!(arrived.notes, [Note::Sorted { count: 2, back }]);
    assert_eq!(
        arrived.notes[0].to_string(),
        "2 arrivals were out of order, by up to 40 us; sorted"
    );
}

#[test]
fn a_truncated_capture_is_used_up_to_its_end() {
    let packet = datagram(5004);
    let old = pcap(Order::Big, false, 1, &[(5, 0, &packet), (6, 0, &packet)]);
    let new = [
        section(Order::Little),
        interface(Order::Little, 1, &[]),
        enhanced(Order::Little, 0, 5, &packet),
        enhanced(Order::Little, 0, 6, &packet),
    ]
    .concat();
    for (file, second) in [(&old, 16 + packet.len()), (&new, 32 + packet.len().next_multiple_of(4))]
    {
        for cut in 1..second {
            let arrived = read(&file[..file.len() - cut], "", Some(5004)).unwrap();
            assert_eq!(ns(&arrived.at), [0], "cut by {cut}");
            assert_eq!(arrived.notes, [Note::Truncated { packets: 1 }], "cut by {cut}");
        }
        let arrived = read(&file[..file.len() - second], "", Some(5004)).unwrap();
        assert_eq!((arrived.at.len(), arrived.notes.len()), (1, 0));
        // A capture without a whole packet is an error.
        assert!(read(&file[..file.len() - 2 * second], "", None).is_err());
    }
    assert_eq!(
        fault(&old[..20], None),
        "the file ends inside the capture's header, after 0 packets"
    );
}

#[test]
fn an_inconsistent_capture_is_refused_with_its_packet_count() {
    let packet = datagram(5004);
    let order = Order::Little;
    let good = [section(order), interface(order, 1, &[]), enhanced(order, 0, 5, &packet)].concat();
    let then = |more: &[u8]| fault(&[&good, more].concat(), None);
    let mut lying = enhanced(order, 0, 5, &packet);
    // The packet claims to be longer than its block.
    lying[20..24].copy_from_slice(&order.four(1000));
    for (more, expected) in [
        (lying, "found a block of type 6 that contradicts itself"),
        (block(order, 3, &[0; 20]), "found a packet block of the simple kind"),
        (block(order, 2, &[0; 40]), "found a packet block of the obsolete kind"),
        (enhanced(order, 1, 5, &packet), "found a packet of interface 1, which is not described"),
        (interface(order, 1, &[(9, &[20])]), "found if_tsresol 0x14"),
        (interface(order, 1, &[(9, &[0xff])]), "found if_tsresol 0xff"),
        ([6_u32, 13].map(u32::to_le_bytes).concat(), "found a packet or block of 13 bytes"),
        ([6_u32, 1 << 31].map(u32::to_le_bytes).concat(), "found a packet or block of 2147483648"),
        (section(order)[..8].iter().chain(&[9; 4]).copied().collect(), "found a section without"),
    ] {
        let found = then(&more);
        assert!(found.starts_with(expected), "{found}");
        assert!(found.ends_with(", after 1 packets"), "{found}");
    }
    let mut old = pcap(order, false, 1, &[(5, 0, &packet)]);
    old.extend([5, 0, u32::MAX, 0].map(u32::to_le_bytes).concat());
    assert!(fault(&old, None).starts_with("found a packet or block of 4294967295 bytes"));
    old[4] = 3;
    assert!(fault(&old, None).starts_with("found version 3"));
}

#[test]
fn an_unknown_link_type_is_reported() {
    // 802.11. Without a port the reader does not parse packets.
    let file = pcap(Order::Little, false, 105, &[(1, 0, &[8; 40]), (2, 0, &[8; 40])]);
    assert_eq!(read_ns(&file, None).len(), 2);
    assert!(fault(&file, Some(5004)).ends_with("(no port is found in packets of link type 105)"));
    let order = Order::Little;
    let file = [
        section(order),
        interface(order, 105, &[]),
        interface(order, 1, &[]),
        enhanced(order, 0, 5, &[8; 40]),
        enhanced(order, 1, 6, &datagram(5004)),
    ];
    let arrived = read(&*file.concat(), "", Some(5004)).unwrap();
    assert_eq!(arrived.notes, [Note::UnknownLink { link: 105, packets: 1 }]);
}

#[test]
fn extreme_clock_values_do_not_overflow() {
    let order = Order::Little;
    let tick = |offset: i64, ticks| {
        let option = order.eight(offset.cast_unsigned());
        let interface = interface(order, 1, &[(9, &[0]), (14, &option)]);
        let (first, second) = (enhanced(order, 0, 0, &[]), enhanced(order, 0, ticks, &[]));
        [section(order), interface, first, second].concat()
    };
    assert_eq!(read_ns(&tick(i64::MIN, 9), None), [0, 9_000_000_000]);
    assert_eq!(read_ns(&tick(i64::MAX, 9), None), [0, 9_000_000_000]);
    for (offset, ticks) in [(0, u64::MAX), (i64::MIN, u64::MAX), (0, 9_223_372_037)] {
        assert!(matches!(read(&*tick(offset, ticks), "", None), Err(ArrivalsError::TooFar)));
    }
}

#[test]
fn a_text_has_one_time_per_line() {
    let text = "# from the lab\n\n0.02\n  1.5ms # early\n40 us\r\n\t1\n0\n7 ns";
    let arrived = read(text.as_bytes(), "", None).unwrap();
    assert_eq!(ns(&arrived.at), [0, 7, 40_000, 1_500_000, 20_000_000, 1_000_000_000]);
    assert!(matches!(arrived.notes[..], [Note::Sorted { count: 4, .. }]));
    // Text times are absolute, and a byte order mark is skipped.
    assert_eq!(read_ns("\u{feff}3\n4".as_bytes(), None), [3_000_000_000, 4_000_000_000]);
    assert_eq!(read_ns(b"\n\n\n5", None), [5_000_000_000]);
    for (text, expected) in [
        ("0.1\n1e-3\n", "line 2: found \"1e-3\", expected seconds such as 0.02, or a duration"),
        ("-1\n", "line 1: found \"-1\", expected seconds such as 0.02, or a duration"),
        ("1.0000000001", "line 1: found \"1.0000000001\", expected seconds"),
        ("1 parsec", "line 1: found \"1 parsec\", expected seconds"),
        ("99999999999999999999", "line 1: found \"99999999999999999999\", expected seconds"),
        ("0\n18000000000", "found an arrival more than 292 years away"),
        ("# nothing\n", "found no lines with a time, expected at least one"),
        ("", "found no lines with a time, expected at least one"),
    ] {
        let found = fault(text.as_bytes(), None);
        assert!(found.starts_with(expected), "{found}");
    }
    let long = "0".repeat(LINE_BYTES_MAX + 1);
    assert!(fault(long.as_bytes(), None).starts_with("line 1: found more than 4096 bytes"));
    assert!(fault(b"1\n\xff\n", None).starts_with("line 2: found bytes that are no text"));
    assert!(fault(b"1\n", Some(9)).starts_with("found a text, expected a capture"));
}

/// A simulated trace: audio arrives at the given times, at most four PDUs a job each 10 ms, beside
/// video.
fn trace(audio: &[u64]) -> Vec<u8> {
    use upcall::activity::ActivityParams;
    use upcall_sim::trace::{Header, Writer};
    use upcall_sim::{Arrivals, SimActivity, SimSpec, Simulation};
    let params = ActivityParams::new(Span::from_millis(10), Span::from_micros(100)).batch(4);
    let mut activities = ["video", "audio"].map(|name| SimActivity::new(name, params)).to_vec();
    let recorded = audio.iter().map(|&ms| Instant::ZERO + Span::from_millis(ms));
    activities[1].arrivals = Arrivals::Recorded(recorded.collect());
    let spec = SimSpec::new(upcall::discipline::DISCIPLINES[0], activities);
    let mut writer = Writer::new(Vec::new(), &Header::of(&spec)).unwrap();
    let simulation = Simulation::new(spec).unwrap();
    simulation.run_traced(Span::from_millis(100), &mut |_| {}, &mut |_, cpu, record| {
        writer.record(cpu, record).unwrap();
    });
    writer.finish().unwrap()
}

#[test]
fn a_trace_has_the_pdus_of_each_job_at_its_release() {
    // The first job has no PDU, and times count from the first PDU.
    let trace = trace(&[3, 7, 10, 25, 26, 27, 27, 28, 29]);
    let arrived = read(&*trace, "audio", None).unwrap();
    let ms: Vec<_> = ns(&arrived.at).iter().map(|ns| ns / 1_000_000).collect();
    // At most four PDUs a job: two of the six wait for the next job.
    assert_eq!(ms, [0, 0, 0, 20, 20, 20, 20, 30, 30]);
    assert_eq!(arrived.notes, []);
    assert_eq!(read(&*trace, "video", None).unwrap().at.len(), 40);
    let error = read(&*trace, "nobody", None).unwrap_err().to_string();
    assert!(error.ends_with("in the trace, expected one of \"video\", \"audio\""), "{error}");
    assert!(fault(&trace, Some(5004)).starts_with("found a trace, expected a capture"));
    let cut = read(&trace[..trace.len() - 1], "audio", None).unwrap_err().to_string();
    assert!(cut.contains("the file ends inside a packet"), "{cut}");
    let silent = read(&*self::trace(&[]), "audio", None).unwrap_err().to_string();
    assert_eq!(silent, "found no jobs with PDUs, expected at least one");
}

#[test]
fn a_file_of_another_kind_is_refused_at_its_first_bytes() {
    // The reader stops after the first bytes of this file, which has no end.
    let error = read(io::repeat(0), "", None).unwrap_err();
    assert!(error.to_string().starts_with("found another kind of file, expected a capture"));
    assert!(matches!(read(&b"\x1f\x8b\x08\x00"[..], "", None), Err(ArrivalsError::Kind)));
    let endless = read(io::repeat(b'1'), "", None).unwrap_err();
    assert!(matches!(endless, ArrivalsError::Line { line: 1, fault: LineFault::TooLong }));
    let many = read(io::repeat(b'\n').take(1 << 20), "", None).unwrap_err();
    assert!(matches!(many, ArrivalsError::Nothing { seen: 0, .. }));
}

#[test]
fn the_number_of_arrivals_is_limited() {
    let mut times = Timeline::default();
    for number in 0..ARRIVALS_MAX {
        times.push(number as i128).unwrap();
    }
    assert!(matches!(times.push(0), Err(ArrivalsError::TooMany)));
    assert_eq!(times.finish(true, &mut Vec::new()).0.len(), ARRIVALS_MAX);
}

#[test]
fn a_recording_has_a_name_a_path_and_optionally_a_port() {
    let parse = |text: &str| Recording::parse(OsStr::new(text));
    let good = |text: &str| {
        let Recording { name, path, port } = parse(text).unwrap();
        (name, path.to_str().unwrap().to_owned(), port)
    };
    for (text, path, port) in [
        ("c=call.pcap", "call.pcap", None),
        ("c=call.pcap:5004", "call.pcap", Some(5004)),
        ("c=a:b/call.pcap", "a:b/call.pcap", None),
        ("c=10:30.pcap:1", "10:30.pcap", Some(1)),
        ("c=x=1.pcap", "x=1.pcap", None),
        ("c=call:5004:", "call:5004", None),
        ("c=call:5004:6", "call:5004", Some(6)),
        ("c=call:::", "call::", None),
    ] {
        assert_eq!(good(text), ("c".to_owned(), path.to_owned(), port), "{text}");
    }
    for (text, error) in [
        ("camera", RecordingError::Form),
        ("=call.pcap", RecordingError::Form),
        ("c=", RecordingError::Form),
        ("c=:5004", RecordingError::Form),
        ("c=call:0", RecordingError::Port),
        ("c=call:65536", RecordingError::Port),
    ] {
        assert_eq!(parse(text), Err(error), "{text}");
    }
    assert_eq!(Recording::parse(OsStr::from_bytes(b"\xff=a")), Err(RecordingError::Name));
    let odd = Recording::parse(OsStr::from_bytes(b"c=\xff:7")).unwrap();
    assert_eq!((odd.path.as_os_str().as_bytes(), odd.port), (&b"\xff"[..], Some(7)));
}

static GOOD_FILES: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(good_files);

/// Valid files, one of each kind and byte order.
fn good_files() -> Vec<Vec<u8>> {
    let packet = datagram(5004);
    let six = ethernet(&[0x8100], 0x86dd, &ipv6(17, &udp(5004)));
    let mut files = vec![b"0.1\n20 ms\n".to_vec(), trace(&[3, 25])];
    for order in ORDERS {
        files.push(pcap(order, true, 1, &[(1, 0, &packet), (1, 9, &six)]));
        files.push(
            [
                section(order),
                interface(order, 1, &[(9, &[0x8a])]),
                enhanced(order, 0, 5, &packet),
                enhanced(order, 0, 4, &six),
            ]
            .concat(),
        );
    }
    files
}

/// Checks that the arrivals are in order, not empty, and count from 0 where the kind says so.
fn check(bytes: &[u8], port: Option<u16>) {
    match read(bytes, "audio", port) {
        Ok(arrived) => {
            assert!(!arrived.at.is_empty() && arrived.at.is_sorted());
            assert!(arrived.notes.iter().all(|note| !note.to_string().contains('\n')));
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), port: u16) {
        check(&bytes, None);
        check(&bytes, Some(port));
        for file in GOOD_FILES.iter() {
            // Random bytes after a valid beginning.
            let begun = [&file[..file.len().min(24)], &bytes].concat();
            check(&begun, Some(port));
        }
    }

    #[test]
    fn no_change_of_a_good_file_makes_it_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut file = which.get(&GOOD_FILES).clone();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        check(&file, None);
        check(&file, Some(5004));
        file.truncate(cut.index(file.len()));
        check(&file, Some(5004));
    }
}

/// Three packets of RTP that come together, out of order, with timestamps of 8 kHz.
#[test]
fn packets_of_rtp_have_logical_arrivals() {
    let frame = |ticks: u32| {
        let header = [&[0x80, 0, 0, 1][..], &ticks.to_be_bytes(), &[0, 0, 0, 7]].concat();
        let datagram = [&udp(5004)[..8], &header].concat();
        ethernet(&[], 0x0800, &ipv4(17, &[], 0, &datagram))
    };
    let packets = [(0, 0), (2_000, 800), (1_000, 400)].map(|(us, ticks)| (us, frame(ticks)));
    let frames: Vec<_> = packets.iter().map(|(us, packet)| (1, *us, &**packet)).collect();
    let file = pcap(Order::Little, false, 1, &frames);
    for port in [None, Some(5004)] {
        let arrived = read_media(&*file, "", port, MediaClock::of(WorkKind::RtpPcmu)).unwrap();
        assert_eq!(ns(&arrived.at), [0, 1_000_000, 2_000_000]);
        let logical = arrived.logical.unwrap();
        assert_eq!(ns(&logical), [0, 50_000_000, 100_000_000]);
    }
    assert_eq!(read(&*file, "", None).unwrap().logical, None);
    // Only captures have timestamps.
    let text = read_media(&b"0\n1\n"[..], "", None, MediaClock::of(WorkKind::RtpPcmu)).unwrap();
    assert_eq!(text.logical, None);
}
