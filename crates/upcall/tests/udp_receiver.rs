//! The example `udp_receiver`, with datagrams from itself and from others.

#[path = "../examples/udp_receiver.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;

use std::net::UdpSocket;
use std::sync::Mutex;
use std::time::Duration;

use example::{Request, receive};

/// Held while a runtime exists: two runtimes would share a CPU without a common admission.
static ALONE: Mutex<()> = Mutex::new(());

fn parse(arguments: &[&str]) -> Option<Request> {
    Request::parse(arguments.iter().map(ToString::to_string)).ok()
}

#[test]
fn it_receives_the_datagrams_that_it_sends_to_itself() {
    let _alone = ALONE.lock();
    let received = receive(&Request { address: None, seconds: 1 }).unwrap();
    assert!(received.datagrams > 0 && received.datagrams <= received.sent, "{received:?}");
    assert_eq!(received.bytes, 100 * received.datagrams, "{received:?}");
    assert!(received.jobs > 0 && received.jobs <= received.datagrams + 1, "{received:?}");
    assert_eq!(received.too_long, 0, "{received:?}");
}

#[test]
fn it_receives_from_others_and_counts_longer_datagrams() {
    let _alone = ALONE.lock();
    // The port was free a moment ago.
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let request = Request { address: Some(address), seconds: 1 };
    let receiver = std::thread::spawn(move || receive(&request).map_err(|error| error.to_string()));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    while !receiver.is_finished() {
        for len in [100, 0, 3_000] {
            sender.send_to(&vec![1; len], address).unwrap();
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    let received = receiver.join().unwrap().unwrap();
    assert!(received.bytes > 0 && received.bytes.is_multiple_of(100), "{received:?}");
    // The number of datagrams of 100 bytes and of empty ones differs by at most one.
    let whole = received.bytes / 100;
    assert!((2 * whole - 1..=2 * whole + 1).contains(&received.datagrams), "{received:?}");
    assert!(received.too_long > 0 && received.sent == 0, "{received:?}");
}

#[test]
fn the_command_line_is_an_address_and_a_time_in_any_order() {
    let address = Some("0.0.0.0:5004".parse().unwrap());
    let both = Some(Request { address, seconds: 2 });
    assert_eq!(parse(&["0.0.0.0:5004", "--seconds", "2"]), both);
    assert_eq!(parse(&["--seconds", "2", "0.0.0.0:5004"]), both);
    assert_eq!(parse(&[]), Some(Request { address: None, seconds: 5 }));
    for wrong in [&["--second", "2"][..], &["--seconds"], &["here"], &["[::]:1", "[::]:2"]] {
        assert_eq!(parse(wrong), None, "{wrong:?}");
    }
}
