//! Tests of UDP receivers: sender and arrival time of a datagram, sockets that the program created,
//! and multicast groups.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use upcall_runtime::clock;
use upcall_runtime::time::{Instant, Span};
use upcall_runtime::udp::{Interface, Receiver, ReceiverOptions};

/// A datagram that was taken.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    payload: Vec<u8>,
    sender: SocketAddr,
    arrival: Option<Instant>,
}

/// The loopback addresses that this machine has: a container may lack IPv6.
fn loopbacks() -> Vec<SocketAddr> {
    let mut all = vec!["127.0.0.1:0".parse().unwrap()];
    match UdpSocket::bind("[::1]:0") {
        Ok(_) => all.push("[::1]:0".parse().unwrap()),
        Err(error) => {
            // Written directly: the test harness hides the output of macros if a test
            // passes.
            let _ = writeln!(std::io::stderr(), "skipped: the IPv6 part of a test: {error}");
        }
    }
    all
}

/// Takes datagrams until `count` were taken, or dropped as too long.
fn take(receiver: &mut Receiver, count: usize) -> Vec<Taken> {
    let mut all = Vec::new();
    let mut seen = 0;
    while seen < count {
        if !receiver.ready() {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        seen += 1;
        if let Some(datagram) = receiver.take() {
            let payload = datagram.payload.to_vec();
            all.push(Taken { payload, sender: datagram.sender, arrival: datagram.arrival });
            receiver.processed();
        }
    }
    all
}

#[test]
fn a_datagram_comes_with_its_sender() {
    for address in loopbacks() {
        let mut receiver = Receiver::bind(address, &ReceiverOptions::default()).unwrap();
        let target = receiver.local_address().unwrap();
        for payload in [&b"one"[..], b"", b"three"] {
            let sender = UdpSocket::bind(address).unwrap();
            sender.send_to(payload, target).unwrap();
            let taken = take(&mut receiver, 1);
            assert_eq!(taken[0].payload, payload);
            assert_eq!(taken[0].sender, sender.local_addr().unwrap());
        }
        assert_eq!(receiver.counters().processed.value(), 3);
        assert_eq!(receiver.counters().late.value(), 0);
    }
}

/// The datagram is sent between two moments, and fetched after a third, each a while apart. The
/// kernel begins to record arrival times a while after the first socket asked for them. Until then
/// the arrival is the time of the fetch.
#[test]
fn an_arrival_is_a_moment_between_sending_and_fetching() {
    let address = loopbacks()[0];
    let mut receiver = Receiver::bind(address, &ReceiverOptions::default()).unwrap();
    let target = receiver.local_address().unwrap();
    let sender = UdpSocket::bind(address).unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(5));
    let is_noted = || {
        let before = clock::now();
        pause();
        sender.send_to(b"x", target).unwrap();
        pause();
        let sent = clock::now();
        pause();
        let arrival = take(&mut receiver, 1)[0].arrival.unwrap();
        assert!(before <= arrival && arrival <= clock::now());
        arrival <= sent
    };
    assert!(std::iter::repeat_with(is_noted).take(4_000).any(|noted| noted));
}

#[test]
fn a_pdu_that_takes_longer_than_its_limit_is_late() {
    let address = loopbacks()[0];
    let options = ReceiverOptions { delay_max: Span::ZERO, ..ReceiverOptions::default() };
    let mut receiver = Receiver::bind(address, &options).unwrap();
    let sender = UdpSocket::bind(address).unwrap();
    sender.send_to(b"x", receiver.local_address().unwrap()).unwrap();
    take(&mut receiver, 1);
    assert_eq!(receiver.counters().late.value(), 1);
}

#[test]
fn an_adopted_socket_gives_waiting_and_later_datagrams() {
    for address in loopbacks() {
        let socket = UdpSocket::bind(address).unwrap();
        let target = socket.local_addr().unwrap();
        let sender = UdpSocket::bind(address).unwrap();
        sender.send_to(b"before", target).unwrap();
        let mut receiver = Receiver::from_socket(socket, &ReceiverOptions::default()).unwrap();
        assert_eq!(receiver.local_address().unwrap(), target);
        sender.send_to(b"after", target).unwrap();
        let taken = take(&mut receiver, 2);
        let payloads: Vec<&[u8]> = taken.iter().map(|one| &one.payload[..]).collect();
        assert_eq!(payloads, [&b"before"[..], b"after"]);
        assert!(taken.iter().all(|one| one.sender == sender.local_addr().unwrap()));
        assert!(taken.iter().all(|one| one.arrival.is_some()));
    }
}

/// Fills the buffer of a socket before and after its adoption. Only later drops count.
#[test]
fn drops_before_the_adoption_do_not_count() {
    let address = loopbacks()[0];
    let socket = UdpSocket::bind(address).unwrap();
    let target = socket.local_addr().unwrap();
    let sender = UdpSocket::bind(address).unwrap();
    let flood = || {
        for _ in 0..5_000 {
            sender.send_to(&[0; 1_000], target).unwrap();
        }
    };
    flood();
    let receiver = Receiver::from_socket(socket, &ReceiverOptions::default()).unwrap();
    let counters = receiver.counters();
    drop(receiver); // settles the account
    let (unread, dropped) = (counters.unread.value(), counters.dropped_socket.value());
    assert!(unread > 0 && unread < 5_000, "{unread}");
    assert_eq!(dropped, 0);
}

#[test]
fn a_datagram_too_long_is_dropped_and_counted() {
    for address in loopbacks() {
        let options = ReceiverOptions { datagram_bytes_max: 10, ..ReceiverOptions::default() };
        let mut receiver = Receiver::bind(address, &options).unwrap();
        let target = receiver.local_address().unwrap();
        let sender = UdpSocket::bind(address).unwrap();
        for bytes in [11, 10] {
            sender.send_to(&vec![7; bytes], target).unwrap();
        }
        let taken = take(&mut receiver, 2);
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].payload, [7; 10]);
        assert_eq!(receiver.counters().dropped_queue.value(), 1);
    }
}

/// A `std::net::UdpSocket` cannot choose the interface for sending. So this test checks membership
/// only by the errors of joining and leaving. `upcall-sys` tests sending through the loopback
/// interface.
#[test]
fn groups_are_joined_once_and_left_once() {
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = Ipv4Addr::new(239, 197, high, low);
    let loopback = Interface::Address(Ipv4Addr::LOCALHOST);
    let any = "0.0.0.0:0".parse().unwrap();
    let receiver = Receiver::bind(any, &ReceiverOptions::default()).unwrap();
    receiver.join_v4(group, loopback).unwrap();
    assert!(receiver.join_v4(group, loopback).is_err());
    receiver.leave_v4(group, loopback).unwrap();
    assert!(receiver.leave_v4(group, loopback).is_err());
    if loopbacks().len() < 2 {
        return; // said to be skipped
    }
    let any = "[::]:0".parse().unwrap();
    let receiver = Receiver::bind(any, &ReceiverOptions::default()).unwrap();
    let group = std::net::Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0x5ca3, u16::from(low));
    receiver.join_v6(group, 1).unwrap();
    receiver.leave_v6(group, 1).unwrap();
    assert!(receiver.leave_v6(group, 1).is_err());
}

#[test]
fn a_socket_that_is_no_datagram_socket_is_refused() {
    let stream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = Receiver::from_socket(stream, &ReceiverOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("receive datagrams"), "{refused}");
}
