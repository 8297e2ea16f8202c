//! Embedded senders spread the packets of a burst over its interval, by the kernel's arrival times.

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

#[test]
fn the_packets_of_a_frame_are_spread_over_its_interval() {
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
    std::thread::sleep(Duration::from_millis(900));
    let counts = senders.stop().unwrap();
    let mut arrivals = Vec::new();
    while receiver.ready() {
        arrivals.push(receiver.take().unwrap().arrival.unwrap());
    }
    assert_eq!(arrivals.len() as u64, counts[0].offered);
    // At most one in ten intervals is lost to the start and to slips.
    assert!(arrivals.len() > 40, "{}", arrivals.len());
    let gaps: Vec<Span> = arrivals.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let spread = gaps.iter().filter(|&&gap| gap > INTERVAL / BURST / 2).count();
    assert!(spread * 2 > gaps.len(), "{spread} of {} gaps are long: {gaps:?}", gaps.len());
}
