//! The spec key `workahead`, as a whole program: a sender sends five packets before the first is
//! due, and the job log shows which jobs ended before their logical arrivals.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::net::UdpSocket;

use serde_json::Value;
use support::{
    SpecFile, a_cpu, assert_kept, machine, named, number, on_a_cpu, start, wait_until_bound,
    with_ports,
};

/// One packet every 100 ms, its own batch, with a deadline of 100 ms after its logical arrival.
const SPEC: &str = r#"
policy = "POLICY"
[[stream]]
name = "early"
class = "continuous-media"
rate = "10/s"
pdu = "172 B"
delay = "200 ms"
cost = "100 us"
work = "WORK"
workahead = AHEAD
receive = "udp://127.0.0.1:{}"
"#;

/// Packets of a burst, and the ticks of 8 kHz between them: 300 ms.
const BURST: u16 = 5;
const TICKS: u32 = 2_400;

fn packet(number: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(number.to_be_bytes());
    bytes.extend((u32::from(number) * TICKS).to_be_bytes());
    bytes.extend(7_u32.to_be_bytes());
    bytes.resize(172, 0xff);
    bytes
}

/// Runs the stream and sends the burst as soon as its port is open. Returns the outcome, and the
/// jobs that ended more than a deadline before their deadline: before their logical arrivals. A
/// host that takes the CPU away for longer than that changes their number.
/// An error if the burst came too late for the end of the run.
fn run(policy: &str, work: &str, workahead: u32, duration: &str) -> Result<(Value, usize), String> {
    let text = SPEC.replace("POLICY", policy).replace("WORK", work);
    let (text, ports) = with_ports(&text.replace("AHEAD", &workahead.to_string()));
    let spec = SpecFile::new(on_a_cpu(&text));
    let log = spec.beside("jobs.csv");
    let arguments = ["run", spec.path(), "--duration", duration, "--json", "--csv", &log];
    let mut running = start(&arguments);
    wait_until_bound(&mut running, ports[0]);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    for number in 0..BURST {
        sender.send_to(&packet(number), ("127.0.0.1", ports[0])).expect("the port is bound");
    }
    let outcome = running.finish().assert_code(&[0, 4]).json();
    // Without work ahead the socket has no room for packets that come early.
    let processed = number(named(&outcome, "streams", "early"), "processed");
    let most = u64::from(BURST);
    if processed != most && (workahead > 0 || processed == 0) {
        return Err(format!("{policy}: {processed} of {most} packets processed: {outcome:#}"));
    }
    let log = fs::read_to_string(log).expect("the log was written");
    let slacks_us = log.lines().skip(1).map(|line| {
        line.rsplit(',').next().and_then(|slack| slack.parse::<i64>().ok()).expect("a slack")
    });
    Ok((outcome, slacks_us.filter(|&slack_us| slack_us > 100_000).count()))
}

#[test]
fn a_stream_works_ahead_of_its_logical_arrivals_up_to_its_limit() {
    let _machine = machine();
    // With a limit of 2: two at once, and one with the fourth packet, critical after 300 ms.
    for (policy, workahead, expected) in
        [("dws", 4, 4), ("dws", 2, 3), ("dws", 0, 0), ("rmdp", 4, 0)]
    {
        assert_kept(a_cpu(), || match run(policy, "spin", workahead, "700ms")?.1 {
            ahead if ahead == expected => Ok(()),
            ahead => Err(format!("{policy}, {workahead}: {ahead} ahead, expected {expected}")),
        });
    }
}

/// The timestamps of the packets are 300 ms apart, so at most one is within 400 ms.
#[test]
fn the_timestamps_of_rtp_say_when_packets_are_due() {
    let _machine = machine();
    let jobs = |outcome: &Value| number(named(outcome, "activities", "early"), "jobs");
    assert_kept(a_cpu(), || {
        let (stamped, ahead) = run("dws", "rtp-pcmu", 4, "1500ms")?;
        let (by_position, _) = run("dws", "spin", 4, "1500ms")?;
        // Without timestamps there is a job every 100 ms, with them every 300 ms at the start.
        match ahead == 2 && jobs(&stamped) + 3 <= jobs(&by_position) {
            true => Ok(()),
            false => Err(format!("{ahead} ahead: {stamped:#} {by_position:#}")),
        }
    });
}
