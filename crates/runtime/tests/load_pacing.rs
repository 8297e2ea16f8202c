//! Embedded senders spread the packets of a burst over its interval, by the kernel's arrival times.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::time::Duration;

use upcall_core::time::Span;
use upcall_runtime::load::{SenderPlan, Senders, serve};
use upcall_runtime::udp::{Receiver, ReceiverOptions};
use upcall_runtime::{allowed_cpus, clock};

/// Packets of a burst, and its interval: one every 10 ms.
const BURST: u32 = 8;
const INTERVAL: Span = Span::from_millis(80);

/// The senders' process. Its plans are arguments, which match no test.
#[test]
#[ignore = "not a test: the test below starts it"]
fn as_the_senders() {
    let plans: Vec<SenderPlan> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    if plans.is_empty() {
        return;
    }
    serve(&plans, |_, sequence, payload| {
        payload[..4].copy_from_slice(&sequence.to_be_bytes());
        4
    })
    .unwrap();
}

/// The gaps between packets that arrived from a sender, some bursts of them.
fn gaps() -> Vec<Span> {
    let options = ReceiverOptions { buffered: 1024, ..ReceiverOptions::default() };
    let mut receiver = Receiver::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let plan = SenderPlan {
        target: receiver.local_address().unwrap(),
        interval: INTERVAL,
        burst: BURST,
        pdu_bytes: 4,
        datagram_bytes: 4,
        work: "spin".to_owned(),
    };
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let command = [&*program, "--ignored", "--exact", "as_the_senders"].map(str::to_owned);
    let senders = Senders::spawn(&command, &allowed_cpus().unwrap(), &[plan]).unwrap();
    senders.start(clock::now());
    let give_up = clock::now() + Span::from_secs(60);
    let mut arrivals = Vec::new();
    let mut receive_until = |count: u64| {
        while (arrivals.len() as u64) < count {
            assert!(clock::now() < give_up, "{} packets in a minute", arrivals.len());
            std::thread::sleep(Duration::from_millis(20));
            while receiver.ready() {
                arrivals.push(receiver.take().unwrap().arrival.unwrap());
            }
        }
    };
    receive_until(u64::from(8 * BURST));
    let offered = senders.stop().unwrap()[0].offered;
    receive_until(offered);
    assert_eq!(arrivals.len() as u64, offered);
    arrivals.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

/// On a busy machine the sender may wake late for most packets, so a few attempts may fail.
#[test]
fn the_packets_of_a_frame_are_spread_over_its_interval() {
    support::in_most_attempts(|| {
        let gaps = gaps();
        let spread = gaps.iter().filter(|&&gap| gap > INTERVAL / BURST / 2).count();
        if spread * 2 > gaps.len() { Ok(()) } else { Err(gaps) }
    });
}
