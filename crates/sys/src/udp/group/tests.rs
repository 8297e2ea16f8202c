//! Groups on the loopback interface, which has index 1 in every network namespace.

use super::*;
use crate::udp::ReceiveBatch;
use std::io::Write;

const LOOPBACK: u32 = 1;
const MINUTE_NS: u64 = 60_000_000_000;

/// A multicast group that only this process uses, organization-local (RFC 2365).
fn group_v4() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(239, 196, high, low)
}

/// A group that only this process uses, interface-local (RFC 4291).
fn group_v6() -> Ipv6Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0x5ca2, u16::from_be_bytes([high, low]))
}

/// A receiver on any address, and its port.
fn receiver() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("0.0.0.0:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// Sends one datagram to the group, then one to the receiver's own address, and returns those that
/// arrive. The second comes last, because both go through one queue of this thread's CPU.
fn received(receiver: &UdpSocket, group: Ipv4Addr, port: u16) -> Vec<Vec<u8>> {
    crate::schedule::pin_thread(&[crate::schedule::current_cpu()]).unwrap();
    for (target, payload) in [(group, b"group"), (Ipv4Addr::LOCALHOST, b"alone")] {
        let sender = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // Datagrams to groups stay on the loopback interface.
        sockopt::set_ip_multicast_if(&sender, &Ipv4Addr::LOCALHOST).unwrap();
        sender.connect((target, port).into()).unwrap();
        rustix::net::send(&sender, payload, rustix::net::SendFlags::empty()).unwrap();
    }
    let mut batch = ReceiveBatch::new(4, 100);
    let mut all = Vec::new();
    while all.last().map(Vec::as_slice) != Some(b"alone") {
        assert!(receiver.wait_readable(MINUTE_NS));
        batch.receive(receiver).unwrap();
        all.extend(batch.datagrams().map(|datagram| datagram.payload.to_vec()));
    }
    all
}

#[test]
fn datagrams_to_an_ipv4_group_arrive_from_join_to_leave() {
    let group = group_v4();
    for interface in [Interface::Index(LOOPBACK), Interface::Address(Ipv4Addr::LOCALHOST)] {
        let (receiver, port) = receiver();
        assert_eq!(received(&receiver, group, port), [b"alone"]);
        receiver.join_v4(group, interface).unwrap();
        assert_eq!(received(&receiver, group, port), [b"group", b"alone"]);
        let twice = receiver.join_v4(group, interface).unwrap_err();
        assert_eq!(twice.raw_os_error(), libc::EADDRINUSE);
        receiver.leave_v4(group, interface).unwrap();
        assert_eq!(received(&receiver, group, port), [b"alone"]);
        let twice = receiver.leave_v4(group, interface).unwrap_err();
        assert_eq!(twice.raw_os_error(), libc::EADDRNOTAVAIL);
    }
}

/// The test reads the kernel's list instead of sending, because the loopback interface has no route
/// to IPv6 groups.
#[test]
fn an_ipv6_group_is_listed_from_join_to_leave() {
    let group = group_v6();
    let shown: String = group.octets().iter().map(|octet| format!("{octet:02x}")).collect();
    let is_joined = || std::fs::read_to_string("/proc/net/igmp6").unwrap().contains(&shown);
    let socket = match UdpSocket::bind("[::]:0".parse().unwrap()) {
        Ok(socket) => socket,
        Err(error) => {
            // Not by a macro, because the output of a passing test is hidden.
            let _ = writeln!(std::io::stderr(), "skipped: groups of IPv6: {error}");
            return;
        }
    };
    assert!(!is_joined());
    socket.join_v6(group, LOOPBACK).unwrap();
    assert!(is_joined());
    socket.leave_v6(group, LOOPBACK).unwrap();
    assert!(!is_joined());
    let twice = socket.leave_v6(group, LOOPBACK).unwrap_err();
    assert_eq!(twice.raw_os_error(), libc::EADDRNOTAVAIL);
}

#[test]
fn wrong_groups_and_interfaces_are_errors() {
    let group = group_v4();
    let (receiver, _) = receiver();
    let error = receiver.join_v4(Ipv4Addr::LOCALHOST, Interface::Index(LOOPBACK)).unwrap_err();
    assert_eq!(error, OsError::new("setsockopt(IP_ADD_MEMBERSHIP)", libc::EINVAL));
    for index in [0x7FFF_FFFF, u32::MAX] {
        let error = receiver.join_v4(group, Interface::Index(index)).unwrap_err();
        assert_eq!(error.raw_os_error(), libc::ENODEV);
    }
}
