//! Datagrams that the kernel joins, and takes apart again.

use super::*;
use crate::clock::monotonic_ns;
use core::net::SocketAddr;

/// The datagrams that arrived so far, one by one.
fn separate(batch: &mut ReceiveBatch, receiver: &UdpSocket) -> Vec<Vec<u8>> {
    batch.receive(receiver).unwrap();
    let pieces = |datagram: Datagram<'_>| {
        let bytes = datagram.joined_bytes.unwrap_or(usize::MAX);
        match datagram.payload {
            [] => vec![Vec::new()],
            payload => payload.chunks(bytes).map(<[u8]>::to_vec).collect(),
        }
    };
    batch.datagrams().flat_map(pieces).collect()
}

/// A socket, its address, and a buffer that is large enough for whatever it gets.
fn receiver(address: &str) -> (UdpSocket, SocketAddr, ReceiveBatch) {
    let socket = UdpSocket::bind(address.parse().unwrap()).unwrap();
    let own = socket.local_addr().unwrap();
    (socket, own, ReceiveBatch::new(8, PAYLOAD_BYTES_MAX))
}

#[test]
fn joined_datagrams_arrive_one_by_one_and_in_order() {
    for address in loopbacks() {
        pin_thread(&[current_cpu()]).unwrap(); // for `settle`
        let mut receivers = [receiver(address), receiver(address)];
        receivers[1].0.join_datagrams().unwrap();
        let sender = UdpSocket::bind(address.parse().unwrap()).unwrap();
        let mut batch = SendBatch::new(40, 2000);
        batch.join_runs();
        // The ring of slots is not at its start.
        for round in 0..5u8 {
            let mut expected = [Vec::new(), Vec::new()];
            for (index, bytes) in [9, 9, 9, 5, 9, 0, 0, 1472, 1472, 1472, 7].into_iter().enumerate()
            {
                for to in [0, 1] {
                    let payload = vec![round + u8::try_from(index).unwrap(); bytes];
                    batch.push_to(&payload, receivers[to].1).unwrap();
                    expected[to].push(payload);
                }
                if index > 6 {
                    let payload = vec![7; bytes];
                    batch.push_to(&payload, receivers[1].1).unwrap();
                    expected[1].push(payload);
                }
            }
            let queued = batch.len();
            assert_eq!(batch.flush(&sender), Ok(queued));
            settle(&pair(LOOPBACK));
            for ((socket, _, room), expected) in receivers.iter_mut().zip(expected) {
                let mut found = Vec::new();
                while found.len() < expected.len() {
                    let more = separate(room, socket);
                    assert!(!more.is_empty(), "{} of {}", found.len(), expected.len());
                    found.extend(more);
                }
                assert!(found == expected);
            }
        }
    }
}

#[test]
fn a_datagram_to_another_ip_version_is_an_error_that_keeps_it() {
    let sender = UdpSocket::bind(LOOPBACK.parse().unwrap()).unwrap();
    let mut batch = SendBatch::new(4, 100);
    batch.join_runs();
    batch.push_to(&[1; 100], sender.local_addr().unwrap()).unwrap();
    for _ in 0..2 {
        batch.push_to(&[1; 100], "[::1]:9".parse().unwrap()).unwrap();
    }
    let error = batch.flush(&sender).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EAFNOSUPPORT, "{error}");
    assert_eq!(batch.len(), 2);
}

/// Prints what a datagram costs, with and without joining at either side.
#[test]
#[ignore = "measures"]
fn what_joining_saves_is_measured() {
    const DATAGRAMS: u64 = 100_000;
    for bytes in [100, 1400] {
        for (joins_sent, joins_received) in [(false, false), (true, false), (true, true)] {
            let (socket, peer, mut room) = receiver(LOOPBACK);
            socket.set_receive_buffer(8 << 20).unwrap();
            if joins_received {
                socket.join_datagrams().unwrap();
            } else {
                room = ReceiveBatch::new(32, 2000);
            }
            let sender = UdpSocket::bind(LOOPBACK.parse().unwrap()).unwrap();
            let mut batch = SendBatch::new(32, bytes);
            if joins_sent {
                batch.join_runs();
            }
            let (mut received, mut spent) = (0, [0, 0]);
            while received < DATAGRAMS {
                let start = monotonic_ns();
                for _ in 0..32 {
                    batch.push_to(&vec![1; bytes], peer).unwrap();
                }
                batch.flush(&sender).unwrap();
                let sent = monotonic_ns();
                let mut here = 0;
                while here < 32 {
                    here += separate(&mut room, &socket).len();
                }
                received += 32;
                spent[0] += sent - start;
                spent[1] += monotonic_ns() - sent;
            }
            let [send, receive] = spent.map(|ns| ns / DATAGRAMS);
            println!("{bytes} bytes, joins {joins_sent} {joins_received}: {send} ns, {receive} ns");
        }
    }
}
