//! `upcall sim --arrivals`, as a whole program. Recorded packets arrive, the same in each
//! simulation. A file that is not a recording is refused before the simulation starts.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

#[path = "../crates/cli/src/arrivals/tests/build.rs"]
#[expect(dead_code, clippy::cast_possible_truncation, reason = "it needs the half of it")]
mod build;

use std::fs;

use build::{Order, enhanced, ethernet, interface, ipv4, ipv6, section, udp};
use serde_json::Value;
use support::{Done, SpecFile, named, number, upcall};

/// Two streams of a call, and a task. Video has at most 50 packets a second.
const CALL: &str = r#"
switch_cost = "5 us"
[[stream]]
name = "camera"
class = "continuous-media"
rate = "50/s"
pdu = "1470 B"
delay = "50 ms"
cost = "1 ms"
receive = "udp://127.0.0.1:5004"
[[stream]]
name = "audio"
class = "continuous-media"
rate = "50/s"
pdu = "172 B"
delay = "50 ms"
cost = "100 us"
receive = "udp://127.0.0.1:5006"
[[task]]
name = "mixer"
period = "20 ms"
cost = "200 us"
batch = 4
"#;

/// A call of 2 s, captured at two interfaces: the camera with 30 packets a second, and audio with
/// 50 a second over IPv6. The last packet of each comes 20 ms before the one before it.
fn call() -> Vec<u8> {
    let order = Order::Little;
    let camera = ethernet(&[0x8100], 0x0800, &ipv4(17, &[], 0, &udp(5004)));
    let audio = ethernet(&[], 0x86dd, &ipv6(17, &udp(5006)));
    let mut packets: Vec<(u64, bool)> = (0..60).map(|n| (n * 1_000_000 / 30, true)).collect();
    packets.extend((0..100).map(|n| (n * 20_000 + 500, false)));
    packets.sort();
    let mut file =
        [section(order), interface(order, 1, &[]), interface(order, 1, &[(9, &[9])])].concat();
    for (at_us, is_camera) in packets {
        // Each stream has an interface, one of microseconds and one of nanoseconds. The day is
        // 2026-11-21.
        let at_us = 1_795_219_200_000_000 + at_us;
        file.extend(match is_camera {
            true => enhanced(order, 0, at_us, &camera),
            false => enhanced(order, 1, at_us * 1_000, &audio),
        });
    }
    file
}

/// The spec, with the captured call beside it.
fn place() -> SpecFile {
    let spec = SpecFile::new(support::on_a_cpu(CALL));
    fs::write(spec.beside("call.pcapng"), call()).expect("space on the disk");
    spec
}

fn sim(spec: &SpecFile, more: &[&str]) -> Done {
    upcall(&[&["sim", spec.path(), "--duration", "3s", "--json"], more].concat())
}

/// The counts offered, received, processed and unread of a stream.
fn counts(outcome: &Value, name: &str) -> [u64; 4] {
    let stream = named(outcome, "streams", name);
    ["offered", "received", "processed", "unread"].map(|field| number(stream, field))
}

#[test]
fn captured_packets_arrive() {
    let spec = place();
    let (camera, audio) = (spec.beside("call.pcapng:5004"), spec.beside("call.pcapng:5006"));
    let (camera, audio) = (format!("camera={camera}"), format!("audio={audio}"));
    let arguments = ["--arrivals", &camera, "--arrivals", &audio];
    let done = sim(&spec, &arguments);
    done.assert_code(&[0]);
    assert_eq!(done.stderr, "");
    assert_eq!(counts(&done.json(), "camera"), [60, 60, 60, 0]);
    assert_eq!(counts(&done.json(), "audio"), [100, 100, 100, 0]);
    assert_eq!(sim(&spec, &arguments).stdout, done.stdout);
    // Without a port all packets belong to the camera. Audio arrives as declared.
    let all = format!("camera={}", spec.beside("call.pcapng"));
    let done = sim(&spec, &["--arrivals", &all]);
    assert_eq!(counts(&done.json(), "camera")[..2], [160, 160]);
    assert_eq!(counts(&done.json(), "audio")[..2], [150, 150]);
}

#[test]
fn packets_beyond_the_declared_rate_wait_and_are_counted() {
    let spec = place();
    // 400 packets at once. Each job takes its batch, so most packets still wait a second later.
    fs::write(spec.beside("burst.txt"), "1\n".repeat(400)).expect("space on the disk");
    let burst = format!("camera={}", spec.beside("burst.txt"));
    let outcome = sim(&spec, &["--arrivals", &burst]).json();
    let [offered, received, processed, unread] = counts(&outcome, "camera");
    assert_eq!((offered, received, processed + unread), (400, 400, 400));
    assert!(processed > 50 && unread > 200, "{processed} processed, {unread} unread");
}

#[test]
fn a_task_repeats_the_jobs_of_its_trace() {
    let spec = place();
    fs::write(spec.beside("times.txt"), "# two bursts\n0\n0\n0\n0.5\n510 ms\n2.999\n9\n")
        .expect("space on the disk");
    let (times, trace) = (spec.beside("times.txt"), spec.beside("call.pftrace"));
    let done = sim(&spec, &["--arrivals", &format!("mixer={times}"), "--trace", &trace]);
    done.assert_code(&[0]);
    assert_eq!(done.stderr, "upcall: mixer: 1 of 7 arrivals come after 3000 ms, the end\n");
    // The packet 1 ms before the end belongs to no job.
    let pdus = |done: &Done| number(named(&done.json(), "activities", "mixer"), "pdus");
    assert_eq!(pdus(&done), 5);
    let again = sim(&spec, &["--arrivals", &format!("mixer={trace}")]);
    assert_eq!((again.code(), pdus(&again)), (0, 5));
}

#[test]
fn a_cut_capture_and_a_wrong_order_are_reported() {
    let spec = place();
    let call = call();
    fs::write(spec.beside("cut.pcapng"), &call[..call.len() - 3]).expect("space on the disk");
    let cut = spec.beside("cut.pcapng");
    let done = sim(&spec, &["--arrivals", &format!("audio={cut}:5006")]);
    assert_eq!(counts(&done.json(), "audio")[0], 99);
    let said = format!("upcall: {cut}: the capture is cut off; the 159 whole packets were read\n");
    assert_eq!(done.stderr, said);
    fs::write(spec.beside("back.txt"), "0.3\n0.1\n0.2\n").expect("space on the disk");
    let back = spec.beside("back.txt");
    let done = sim(&spec, &["--arrivals", &format!("audio={back}")]);
    assert_eq!(counts(&done.json(), "audio")[0], 3);
    assert!(done.stderr.contains("2 arrivals were out of order, by up to 200 ms; sorted"));
}

#[test]
fn an_invalid_recording_is_refused_in_one_line() {
    let spec = place();
    let call = spec.beside("call.pcapng");
    fs::write(spec.beside("call:5004"), "0\n").expect("space on the disk");
    fs::write(spec.beside("packed.gz"), b"\x1f\x8b\x08\0").expect("space on the disk");
    let odd = spec.beside("call:5004");
    assert_eq!(
        counts(&sim(&spec, &["--arrivals", &format!("camera={odd}:")]).json(), "camera")[0],
        1
    );
    let packed = spec.beside("packed.gz");
    let line = |arrivals: &[&str]| {
        let arrivals: Vec<_> = arrivals.iter().flat_map(|one| ["--arrivals", one]).collect();
        let done = sim(&spec, &arrivals);
        done.assert_code(&[2]);
        assert_eq!((&*done.stdout, done.stderr.lines().count()), ("", 1), "{done:#?}");
        done.stderr.trim_end().to_owned()
    };
    assert_eq!(
        line(&[&format!("screen={call}")]),
        "--arrivals: found \"screen\", expected one of \"camera\", \"audio\", \"mixer\""
    );
    assert_eq!(
        line(&[&format!("audio={call}"), &format!("audio={call}")]),
        "--arrivals: found \"audio\" again, expected each once"
    );
    assert_eq!(
        line(&[&format!("audio={call}:9")]),
        format!("{call}: found none of 160 packets sent to UDP port 9, expected at least one")
    );
    assert!(
        line(&[&format!("audio={packed}")])
            .starts_with(&format!("{packed}: found another kind of file"))
    );
    assert!(line(&["audio=/nowhere"]).starts_with("/nowhere: No such file"));
    for arguments in [
        &["--arrivals", "audio"][..],
        &["--arrivals", "a=b:99999"],
        &["--vopr", "1", "--arrivals", "a=b"],
    ] {
        let done = sim(&spec, arguments);
        done.assert_code(&[2]);
        assert_eq!(done.stdout, "");
    }
}

/// A stream of a packet each 20 ms. Its capture has bursts of four packets, whose timestamps of
/// 8 kHz say that they are due 60 ms apart.
const EARLY: &str = r#"
policy = "dws"
[[stream]]
name = "audio"
class = "continuous-media"
rate = "50/s"
pdu = "172 B"
delay = "40 ms"
cost = "100 us"
work = "WORK"
workahead = AHEAD
receive = "udp://127.0.0.1:5006"
"#;

fn bursts() -> Vec<u8> {
    let order = Order::Little;
    let mut file = [section(order), interface(order, 1, &[])].concat();
    for number in 0..40_u8 {
        let ticks = (u32::from(number) * 480).to_be_bytes();
        let rtp = [&[0x80, 0, 0, number][..], &ticks, &[0, 0, 0, 7], &[0xff; 10]].concat();
        let datagram = [&udp(5006)[..8], &rtp].concat();
        let packet = ethernet(&[], 0x0800, &ipv4(17, &[], 0, &datagram));
        file.extend(enhanced(order, 0, u64::from(number / 4) * 240_000, &packet));
    }
    file
}

/// Jobs and processed packets. Until a packet comes, each period has a job.
fn of_bursts(work: &str, ahead: u32) -> [u64; 2] {
    let text = EARLY.replace("WORK", work).replace("AHEAD", &ahead.to_string());
    let spec = SpecFile::new(support::on_a_cpu(&text));
    fs::write(spec.beside("call.pcapng"), bursts()).expect("space on the disk");
    let outcome = sim(&spec, &["--arrivals", &format!("audio={}", spec.beside("call.pcapng"))]);
    let outcome = outcome.assert_code(&[0]).json();
    let processed = number(named(&outcome, "streams", "audio"), "processed");
    [number(named(&outcome, "activities", "audio"), "jobs"), processed]
}

/// 3 s have 150 periods. A stream that works ahead knows when the packets of a burst are due: the
/// 30 gaps of 60 ms between them have one job, and not three.
#[test]
fn the_timestamps_of_a_capture_say_when_packets_are_due() {
    assert_eq!(of_bursts("rtp-pcmu", 3), [150 - 60, 40]);
    // Without work ahead, or without timestamps, nothing is early.
    assert_eq!(of_bursts("rtp-pcmu", 0), [150, 40]);
    assert_eq!(of_bursts("spin", 3), [150, 40]);
}
