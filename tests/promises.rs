//! Checks on a real machine that promises are kept: the conference beside a hog, and a stream
//! beside a flood.
//!
//! These tests need the right to `SCHED_FIFO` and a CPU that the host does not take away. Each is
//! tried a few times, see [`support::assert_kept`].

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::cell::Cell;
use std::net::UdpSocket;

use serde_json::Value;
use support::{
    SpecFile, a_cpu, assert_kept, example, list, machine, most_kept, named, number, on_a_cpu,
    start, text, upcall, wait_until_bound, with_ports,
};

/// The sums of misses, late PDUs and losses of a run, without those of the guest.
fn faults(run: &Value) -> [u64; 3] {
    let of = |path| list(run, path).iter().filter(|each| text(each, "name") != "guest");
    let misses = of("activities").map(|activity| number(activity, "misses")).sum();
    let late = of("streams").map(|stream| number(stream, "late")).sum();
    let dropped = of("streams")
        .flat_map(|s| {
            ["interface", "queue", "socket"].map(|at| number(s, &format!("dropped.{at}")))
        })
        .sum();
    [misses, late, dropped]
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn the_conference_keeps_every_promise_and_threads_with_the_guest_do_not() {
    let _machine = machine();
    let conference = std::fs::read_to_string(example("conference.toml")).expect("the example");
    let conference = ["5004", "5006", "5008", "5010"]
        .iter()
        .fold(conference, |text, port| text.replace(&format!(":{port}\""), ":{}\""));
    // On one CPU, which it shares with the hog.
    let conference = on_a_cpu(&conference);
    assert_kept(a_cpu(), || {
        let spec = SpecFile::new(with_ports(&conference).0);
        let done = upcall(&["run", spec.path(), "--compare", "--duration", "3s", "--json"]);
        let comparison = done.assert_code(&[0, 4]).json();
        let runs = list(&comparison, "runs");
        let [upcall, threads, fifo] = [0, 1, 2].map(|at| faults(&runs[at]));
        let refused: Vec<_> =
            list(&runs[0], "refusals").iter().map(|refusal| text(refusal, "name")).collect();
        assert_eq!(refused, ["guest"], "admission does not depend on the machine's load");
        for run in runs {
            for stream in list(run, "streams") {
                // A third of the packets of the slowest stream: its sender may have been stopped.
                let enough = number(stream, "offered") > 50;
                if !enough {
                    return Err(format!("{}: hardly anything was sent", text(stream, "name")));
                }
            }
        }
        if upcall != [0, 0, 0] || done.code() != 0 {
            return Err(format!("upcall: [misses, late, drops] {upcall:?}, exit {}", done.code()));
        }
        // 120 % of a CPU: a mode that accepts the guest has no time for all others.
        for (mode, faults) in [("threads", threads), ("fifo", fifo)] {
            if faults[0] == 0 || faults[2] == 0 {
                return Err(format!("{mode}: [misses, late, drops] {faults:?} with the guest"));
            }
        }
        Ok(())
    });
}

/// A task and a stream that the flood must not affect, and the stream that it hits.
const FLOODED: &str = r#"
[[task]]
name = "control"
period = "10 ms"
cost = "500 us"
[[stream]]
name = "steady"
class = "continuous-media"
rate = "50/s"
pdu = "100 B"
delay = "100 ms"
cost = "500 us"
receive = "udp://127.0.0.1:{}"
source = "embedded"
[[stream]]
name = "flooded"
class = "continuous-media"
rate = "100/s"
pdu = "200 B"
delay = "100 ms"
cost = "1 ms"
receive = "udp://127.0.0.1:{}"
"#;

/// Two thousand times the buffers of the flooded stream.
const FLOOD: u64 = 20_000;

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn a_flood_costs_its_own_stream_and_no_other() {
    let _machine = machine();
    assert_kept(a_cpu(), || {
        let (text, ports) = with_ports(&on_a_cpu(FLOODED));
        let spec = SpecFile::new(text);
        let mut running = start(&["run", spec.path(), "--duration", "3s", "--json"]);
        wait_until_bound(&mut running, ports[1]);
        let sent = flood(ports[1]);
        let run = running.finish().assert_code(&[0, 4]).json();
        let flooded = named(&run, "streams", "flooded");
        // Every datagram is accounted for: the kernel counted those it dropped. This holds on any
        // machine, so a failure is not retried.
        let of = |field| number(flooded, field);
        assert_eq!(sent, of("received") + of("dropped.socket"), "{flooded:#}");
        assert_eq!(of("offered"), sent, "{flooded:#}");
        assert_eq!(of("received"), of("processed") + of("dropped.queue") + of("unread"));
        assert!(of("dropped.socket") > 0, "{flooded:#}");
        if of("processed") == 0 {
            return Err(format!("the flooded stream was never served: {run:#}"));
        }
        let steady = named(&run, "streams", "steady");
        let lost = number(steady, "dropped.socket") + number(steady, "dropped.interface");
        let late = number(steady, "late");
        let misses: Vec<u64> =
            list(&run, "activities").iter().map(|activity| number(activity, "misses")).collect();
        match (misses.iter().sum::<u64>(), lost, late) {
            (0, 0, 0) if number(steady, "processed") > 30 => Ok(()),
            _ => Err(format!("misses {misses:?}, steady: {lost} lost, {late} late: {run:#}")),
        }
    });
}

/// Datagrams on their way at once. They are far fewer than the backlog of the kernel, which drops
/// without counting at a socket (`net.core.netdev_max_backlog`). They are far more than the stream
/// holds.
const ON_THE_WAY_MAX: u64 = 64;

/// Sends as fast as the kernel delivers, and returns the number of datagrams that it took. Under
/// load a thread delivers them (ksoftirqd), in the order sent. So when a marker comes back, all
/// datagrams before it have been delivered.
fn flood(port: u16) -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(("127.0.0.1", port)).expect("the loopback interface");
    let marker = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    marker.connect(marker.local_addr().expect("it is bound")).expect("the loopback interface");
    let mut sent = 0;
    for number in 1..=FLOOD {
        sent += u64::from(socket.send(&[0x5A; 200]).is_ok());
        if number % ON_THE_WAY_MAX == 0 {
            marker.send(&[0]).expect("the marker is sent");
            marker.recv(&mut [0]).expect("the marker arrives");
        }
    }
    sent
}

/// Runs attempts with these outcomes, and steals time in each failed one if `steals`.
fn decided(outcomes: &[bool], steals: bool) -> Result<(), String> {
    let (stolen_ms, mut outcomes) = (Cell::new(0), outcomes.iter().cycle());
    most_kept(
        || stolen_ms.get(),
        || {
            let kept = *outcomes.next().expect("a cycle");
            stolen_ms.set(stolen_ms.get() + if steals && !kept { 10 } else { 0 });
            if kept { Ok(()) } else { Err("a miss".to_owned()) }
        },
    )
}

#[test]
fn a_promise_is_kept_if_most_attempts_without_steal_time_keep_it() {
    assert_eq!(decided(&[true], false), Ok(()));
    assert_eq!(decided(&[false, true, true], false), Ok(()));
    assert_eq!(decided(&[false, true], true), Ok(()), "the first attempt does not count");
}

#[test]
#[should_panic(expected = "broken 2 times")]
fn one_success_after_two_failures_is_a_broken_promise() {
    let _ = decided(&[false, false, true], false);
}

#[test]
#[should_panic(expected = "broken 2 times")]
fn one_success_among_failures_is_a_broken_promise() {
    let _ = decided(&[false, true, false], false);
}

#[test]
fn a_promise_that_was_not_seen_kept_is_skipped_with_the_number_of_attempts() {
    let why = decided(&[false], true).expect_err("nothing is decided");
    assert_eq!(why, "not decided in 8 attempts (0 kept, 0 broken), the host took 80 ms of them");
}
