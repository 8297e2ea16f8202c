use super::counter::count_on;
use super::*;
use crate::OsError;
use crate::clock::realtime_ns;
use crate::schedule::{current_cpu, pin_thread};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

mod joining;
mod without_control;

const LOOPBACK: &str = "127.0.0.1:0";
const LOOPBACK_6: &str = "[::1]:0";

/// The loopback addresses of this machine. A container may lack IPv6.
fn loopbacks() -> Vec<&'static str> {
    match UdpSocket::bind(LOOPBACK_6.parse().unwrap()) {
        Ok(_) => vec![LOOPBACK, LOOPBACK_6],
        Err(error) => {
            // Not by a macro, because the output of a passing test is hidden.
            let _ = writeln!(std::io::stderr(), "skipped: the IPv6 part of a test: {error}");
            vec![LOOPBACK]
        }
    }
}

/// An address of the loopback network (127/8, RFC 1122 §3.2.1.3) that no other program chooses. So
/// a port of it stays free when its socket is closed, and no socket receives datagrams sent there.
fn loopback_of_our_own() -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.90.{high}.{low}:0")
}

/// A receiver and a sender connected to it. Pins the thread.
fn pair(address: &str) -> (UdpSocket, UdpSocket) {
    pin_thread(&[current_cpu()]).unwrap(); // for `settle`
    let receiver = UdpSocket::bind(address.parse().unwrap()).unwrap();
    let sender = UdpSocket::bind(address.parse().unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    (receiver, sender)
}

/// Sends `count` datagrams numbered from `first`, each `bytes` long. Returns when the kernel has
/// queued or dropped every one.
fn send(sender: &UdpSocket, first: u32, count: u32, bytes: usize) {
    let mut batch = SendBatch::new(64, bytes);
    let mut payload = vec![0; bytes];
    let marker = pair(LOOPBACK);
    for number in first..first + count {
        payload[..4].copy_from_slice(&number.to_ne_bytes());
        batch.push(&payload).unwrap();
        if batch.len() == 64 || number + 1 == first + count {
            while !batch.is_empty() {
                batch.flush(sender).unwrap();
            }
            settle(&marker);
        }
    }
}

/// Waits until the kernel has delivered all that this thread sent before. Usually it has when the
/// send returns, but under load it leaves that to a thread (ksoftirqd). Each CPU's queue is first
/// in, first out. So when a marker sent last arrives, all else sent from the same CPU has arrived.
/// Few enough datagrams must be in transit that none is dropped (`net.core.netdev_max_backlog`).
fn settle((receiver, sender): &(UdpSocket, UdpSocket)) {
    let mut out = SendBatch::new(1, 1);
    out.push(&[0]).unwrap();
    assert_eq!(out.flush(sender), Ok(1));
    assert!(receiver.wait_readable(60_000_000_000));
    assert_eq!(ReceiveBatch::new(1, 1).receive(receiver), Ok(1));
}

/// The numbers of all waiting datagrams.
fn receive_all(batch: &mut ReceiveBatch, receiver: &UdpSocket) -> Vec<u32> {
    let mut numbers = Vec::new();
    while batch.receive(receiver).unwrap() > 0 {
        numbers.extend(
            batch.datagrams().map(|d| u32::from_ne_bytes(d.payload[..4].try_into().unwrap())),
        );
    }
    numbers
}

#[test]
fn batches_lose_nothing_and_keep_the_order() {
    for address in loopbacks() {
        let (receiver, sender) = pair(address);
        receiver.set_receive_buffer(receive_buffer_bytes(100, 1470)).unwrap();
        let mut batch = ReceiveBatch::new(7, 1470); // not a divisor of the number sent
        for round in 0..20 {
            send(&sender, round * 100, 100, 1470);
            let expected: Vec<u32> = (round * 100..round * 100 + 100).collect();
            assert_eq!(receive_all(&mut batch, &receiver), expected);
        }
        assert_eq!((batch.socket_drops(), receiver.drops().unwrap()), (0, 0));
    }
}

#[test]
fn receiving_from_an_empty_socket_does_not_block() {
    let (receiver, _sender) = pair(LOOPBACK);
    let mut batch = ReceiveBatch::new(4, 100);
    assert_eq!(batch.receive(&receiver), Ok(0));
    assert_eq!(batch.datagrams().len(), 0);
    assert!(!receiver.wait_readable(1_000));
}

#[test]
fn a_waiting_thread_is_woken_by_a_datagram() {
    let (receiver, sender) = pair(LOOPBACK);
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| receiver.wait_readable(60_000_000_000));
        send(&sender, 0, 1, 100);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn every_datagram_of_a_flood_is_received_or_counted_as_dropped() {
    for address in loopbacks() {
        let (receiver, sender) = pair(address);
        receiver.set_receive_buffer(receive_buffer_bytes(50, 100)).unwrap();
        let mut batch = ReceiveBatch::new(64, 100);
        let mut received = 0;
        for round in 1..=3u64 {
            send(&sender, 0, 5_000, 100);
            // At the end of a flood only the kernel's own counter is right, because no datagram
            // came after the drops to report them.
            received += receive_all(&mut batch, &receiver).len() as u64;
            assert_eq!(received + receiver.drops().unwrap(), round * 5_000);
            assert!(batch.socket_drops() < receiver.drops().unwrap());
            assert_eq!(round == 1, batch.socket_drops() == 0);
        }
        // After one more datagram the other counter is up to date.
        send(&sender, 0, 1, 100);
        assert_eq!(receive_all(&mut batch, &receiver).len(), 1);
        assert_eq!(batch.socket_drops(), receiver.drops().unwrap());
        assert!(batch.socket_drops() > 0);
    }
}

#[test]
fn the_buffer_holds_its_computed_number_and_less_than_three_times_that() {
    for address in loopbacks() {
        for bytes in [4, 100, 197, 645, 700, 1470, 1472, 2000, 4000, 9000, 16_100, 32_000, 65_000] {
            let (receiver, sender) = pair(address);
            let mut batch = ReceiveBatch::new(1, bytes);
            let asked = receive_buffer_bytes(40, bytes);
            if receiver.set_receive_buffer(asked).unwrap() < asked {
                continue; // more than net.core.rmem_max, without the right
            }
            send(&sender, 0, 40, bytes);
            // Reads some datagrams, whose memory stays charged. The same number of new ones must
            // fit.
            for round in 0..20 {
                for _ in 0..5 {
                    assert_eq!(batch.receive(&receiver), Ok(1));
                }
                send(&sender, 0, 5, bytes);
                assert_eq!(receiver.drops(), Ok(0), "{bytes} bytes, round {round}");
            }
            // Generous, but not by much: twice the charge, plus the third that charged memory of
            // read datagrams can take.
            send(&sender, 0, 1000, bytes);
            let held = receive_all(&mut batch, &receiver).len();
            assert!((40..=107).contains(&held), "{bytes} bytes: {held} held");
        }
    }
}

#[test]
fn a_32_bit_counter_is_extended() {
    assert_eq!(count_on(0, 0), 0);
    assert_eq!(count_on(5, 7), 7);
    assert_eq!(count_on(0xFFFF_FFFF, 1), 0x1_0000_0001);
    assert_eq!(count_on(0x7_0000_0005, 5), 0x7_0000_0005);
    assert_eq!(count_on(0x7_0000_0005, 4), 0x8_0000_0004);
}

#[test]
fn a_port_in_use_is_an_error() {
    for address in loopbacks() {
        let is_free_after_close = || {
            let taken = UdpSocket::bind(address.parse().unwrap()).unwrap();
            let error = UdpSocket::bind(taken.local_addr().unwrap()).unwrap_err();
            assert_eq!(error, OsError::new("bind", libc::EADDRINUSE));
            let address = taken.local_addr().unwrap();
            drop(taken);
            UdpSocket::bind(address).is_ok()
        };
        // Another test may get the same port meanwhile, but hardly twice.
        assert!((0..3).any(|_| is_free_after_close()));
    }
}

#[test]
fn an_address_of_another_machine_is_an_error() {
    let error = UdpSocket::bind("192.0.2.1:0".parse().unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EADDRNOTAVAIL);
}

#[test]
fn a_datagram_that_is_too_long_is_truncated_and_marked() {
    let (receiver, sender) = pair(LOOPBACK);
    let mut batch = ReceiveBatch::new(4, 10);
    let mut out = SendBatch::new(3, 11);
    for bytes in [11, 10, 0] {
        out.push(&vec![b'x'; bytes]).unwrap();
    }
    assert_eq!(out.flush(&sender), Ok(3));
    settle(&pair(LOOPBACK));
    assert_eq!(batch.receive(&receiver), Ok(3));
    let seen: Vec<_> = batch.datagrams().map(|d| (d.payload.len(), d.truncated)).collect();
    assert_eq!(seen, [(10, true), (10, false), (0, false)]);
}

/// Returns when the kernel records arrival times. The first socket that asks for them makes the
/// kernel start in a worker thread (`net_enable_timestamp`, net/core/dev.c). On a busy machine that
/// thread waits. A datagram that comes earlier has the time of its reception.
fn wait_for_arrival_times() {
    let (receiver, sender) = pair(LOOPBACK);
    let mut batch = ReceiveBatch::new(1, 100);
    for _ in 0..60_000 {
        send(&sender, 0, 1, 100);
        let arrived_ns = realtime_ns();
        assert_eq!(batch.receive(&receiver), Ok(1));
        if batch.datagram(0).arrival_realtime_ns.unwrap() <= arrived_ns {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("no arrival times after a minute");
}

#[test]
fn arrival_lies_between_sending_and_receiving() {
    let (receiver, sender) = pair(LOOPBACK);
    wait_for_arrival_times();
    let before_ns = realtime_ns();
    send(&sender, 0, 3, 100);
    let mut batch = ReceiveBatch::new(4, 100);
    assert_eq!(batch.receive(&receiver), Ok(3));
    let after_ns = realtime_ns();
    let arrivals: Vec<u64> = batch.datagrams().map(|d| d.arrival_realtime_ns.unwrap()).collect();
    assert!(arrivals.is_sorted(), "{arrivals:?}");
    assert!(before_ns <= arrivals[0] && arrivals[2] <= after_ns, "{arrivals:?}");
}

#[test]
fn a_batch_that_was_moved_receives_as_before() {
    let (receiver, sender) = pair(LOOPBACK);
    let mut batch = ReceiveBatch::new(2, 100);
    send(&sender, 0, 4, 100);
    assert_eq!(batch.receive(&receiver), Ok(2));
    let mut moved = Box::new(batch);
    assert_eq!(receive_all(&mut moved, &receiver), [2, 3]);
}

#[test]
fn a_connected_socket_receives_only_from_its_peer() {
    let (receiver, sender) = pair(LOOPBACK);
    let other = UdpSocket::bind(LOOPBACK.parse().unwrap()).unwrap();
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    other.connect(receiver.local_addr().unwrap()).unwrap();
    send(&other, 7, 1, 100);
    send(&sender, 8, 1, 100);
    assert_eq!(receive_all(&mut ReceiveBatch::new(4, 100), &receiver), [8]);
}

#[test]
fn sending_continues_when_no_socket_listens() {
    let (receiver, sender) = pair(&loopback_of_our_own());
    let address = receiver.local_addr().unwrap();
    drop(receiver);
    let marker = pair(LOOPBACK);
    let mut out = SendBatch::new(10, 4);
    for _ in 0..10 {
        out.push(&[0; 4]).unwrap();
        assert_eq!(out.flush(&sender), Ok(1));
        settle(&marker); // the datagram was refused
        settle(&marker); // the refusal has arrived
    }
    // Each datagram caused one refusal, which the next call received.
    assert_eq!(out.refusals(), 9);
    let mut batch = ReceiveBatch::new(1, 4);
    assert_eq!(batch.receive(&sender), Ok(0));
    assert_eq!(batch.icmp_errors(), 1);
    // The same happens within a batch, if the refusals are fast enough.
    for _ in 0..10 {
        out.push(&[0; 4]).unwrap();
    }
    assert_eq!(out.flush(&sender), Ok(10));
    settle(&marker);
    settle(&marker);
    assert!((9..=19).contains(&out.refusals()));
    // A socket listens again, so the next datagram arrives.
    let receiver = UdpSocket::bind(address).unwrap();
    send(&sender, 42, 1, 4);
    assert_eq!(receive_all(&mut batch, &receiver), [42]);
}

#[test]
fn a_datagram_that_cannot_be_queued_is_refused_without_effect() {
    let mut out = SendBatch::new(2, 4);
    assert_eq!(out.push(&[0; 5]), Err(PushError::Length { found: 5, most: 4 }));
    out.push(&[1; 4]).unwrap();
    out.push(&[]).unwrap();
    assert_eq!(out.push(&[3; 4]), Err(PushError::Full { datagrams: 2 }));
    assert_eq!(out.len(), 2);
}

#[test]
fn unsent_datagrams_stay_queued_in_order() {
    let marker = pair(LOOPBACK);
    let receiver = UdpSocket::bind(LOOPBACK.parse().unwrap()).unwrap();
    let sender = UdpSocket::bind(LOOPBACK.parse().unwrap()).unwrap();
    let mut out = SendBatch::new(3, 4);
    for number in 0..3u32 {
        out.push(&number.to_ne_bytes()).unwrap();
    }
    let error = out.flush(&sender).unwrap_err(); // the socket is not connected
    assert_eq!(error.raw_os_error(), libc::EDESTADDRREQ);
    assert_eq!(out.len(), 3);
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    assert_eq!(out.flush(&sender), Ok(3));
    // Once around the ring of slots.
    for number in 3..5u32 {
        out.push(&number.to_ne_bytes()).unwrap();
    }
    assert_eq!(out.flush(&sender), Ok(2));
    settle(&marker);
    assert_eq!(receive_all(&mut ReceiveBatch::new(8, 4), &receiver), [0, 1, 2, 3, 4]);
    out.push(&[]).unwrap();
    out.clear();
    assert_eq!(out.flush(&sender), Ok(0));
}

#[test]
fn sizes_out_of_range_are_clamped() {
    let (receiver, sender) = pair(LOOPBACK);
    send(&sender, 0, 2, 100);
    let mut batch = ReceiveBatch::new(0, 0);
    assert_eq!(batch.receive(&receiver), Ok(1));
    assert_eq!((batch.datagram(0).payload.len(), batch.datagram(0).truncated), (1, true));
    let mut out = SendBatch::new(2, usize::MAX);
    assert_eq!(
        out.push(&vec![0; PAYLOAD_BYTES_MAX + 1]),
        Err(PushError::Length { found: PAYLOAD_BYTES_MAX + 1, most: PAYLOAD_BYTES_MAX })
    );
    out.push(&vec![0; PAYLOAD_BYTES_MAX]).unwrap();
    assert_eq!(out.flush(&sender), Ok(1));
}

#[test]
fn a_buffer_is_granted_up_to_the_limit() {
    let (receiver, _) = pair(LOOPBACK);
    let granted = receiver.set_receive_buffer(100_000).unwrap();
    assert_eq!(granted, 100_000);
    assert!(receiver.set_receive_buffer(usize::MAX).unwrap() >= granted);
    assert!(receiver.set_receive_buffer(0).unwrap() > 0);
    assert_eq!(receiver.set_send_buffer(100_000), Ok(100_000));
}

#[test]
#[ignore = "needs CAP_NET_ADMIN: run by cargo xtask ci where it is granted"]
fn cap_net_admin_grants_more_than_the_limit() {
    let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let (receiver, _) = pair(LOOPBACK);
    assert_eq!(receiver.set_receive_buffer(limit * 4), Ok(limit * 4));
}

#[test]
fn a_group_is_joined_while_the_socket_lives() {
    // Interface 1 is the loopback interface in every network namespace. The group is
    // interface-local and used only by this test.
    let group = format!("[ff01::5ca1:{:x}%1]:0", std::process::id() & 0xFFFF);
    let shown =
        format!("ff0100000000000000000000{:08x}", 0x5ca1_0000 | std::process::id() & 0xFFFF);
    if loopbacks().len() == 1 {
        return; // no IPv6
    }
    let joined = || std::fs::read_to_string("/proc/net/igmp6").unwrap().contains(&shown);
    assert!(!joined());
    let socket = UdpSocket::bind(group.parse().unwrap()).unwrap();
    assert!(joined());
    drop(socket);
    assert!(!joined());
}

#[test]
fn a_group_is_received_if_there_is_a_route_to_it() {
    // Organization-local scope (RFC 2365) and time to live 1, so the datagram stays within the
    // first network.
    let group = "239.195.202.161:0".parse().unwrap();
    let receiver = match UdpSocket::bind(group) {
        Ok(receiver) => receiver,
        Err(error) => {
            let routes = std::fs::read_to_string("/proc/net/route").unwrap();
            let by_default = routes.lines().any(|line| line.split('\t').nth(1) == Some("00000000"));
            assert!(!by_default && error.raw_os_error() == libc::ENODEV, "{error}");
            return;
        }
    };
    let sender = UdpSocket::bind("0.0.0.0:0".parse().unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let mut out = SendBatch::new(1, 4);
    out.push(&[9, 0, 0, 0]).unwrap();
    assert_eq!(out.flush(&sender), Ok(1));
    assert!(receiver.wait_readable(60_000_000_000));
    assert_eq!(
        receive_all(&mut ReceiveBatch::new(2, 100), &receiver),
        [u32::from_ne_bytes([9, 0, 0, 0])]
    );
}

#[test]
fn a_datagram_names_its_sender() {
    for address in loopbacks() {
        let (receiver, sender) = pair(address);
        let second = UdpSocket::bind(address.parse().unwrap()).unwrap();
        second.connect(receiver.local_addr().unwrap()).unwrap();
        send(&sender, 0, 1, 100);
        send(&second, 0, 1, 100);
        let mut batch = ReceiveBatch::new(4, 100);
        assert_eq!(batch.receive(&receiver), Ok(2));
        let senders: Vec<_> = batch.datagrams().map(|datagram| datagram.sender).collect();
        assert_eq!(senders, [sender.local_addr().unwrap(), second.local_addr().unwrap()]);
    }
}

#[test]
fn an_adopted_socket_keeps_its_datagrams_and_reports_times_and_drops() {
    for address in loopbacks() {
        let theirs = std::net::UdpSocket::bind(address).unwrap();
        let (_, sender) = pair(address);
        sender.connect(theirs.local_addr().unwrap()).unwrap();
        send(&sender, 0, 3, 100);
        let copy = theirs.try_clone().unwrap();
        let receiver = UdpSocket::from_fd(theirs.into()).unwrap();
        let mut batch = ReceiveBatch::new(8, 100);
        assert_eq!(receive_all(&mut batch, &receiver), [0, 1, 2]);
        // All who share the socket find it non-blocking.
        let blocked = copy.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(blocked.kind(), std::io::ErrorKind::WouldBlock);
        receiver.set_receive_buffer(receive_buffer_bytes(50, 100)).unwrap();
        send(&sender, 0, 5_000, 100);
        assert_eq!(batch.receive(&receiver), Ok(8));
        assert!(batch.datagrams().all(|datagram| datagram.arrival_realtime_ns.is_some()));
        receive_all(&mut batch, &receiver);
        send(&sender, 0, 1, 100);
        receive_all(&mut batch, &receiver);
        assert!(batch.socket_drops() > 0);
    }
}

#[test]
fn a_descriptor_that_is_no_udp_socket_is_refused() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = UdpSocket::from_fd(file.into()).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::ENOTSOCK);
    let stream = std::net::TcpListener::bind(LOOPBACK).unwrap();
    assert_eq!(UdpSocket::from_fd(stream.into()).unwrap_err().raw_os_error(), libc::EPROTOTYPE);
    let unix = std::os::unix::net::UnixDatagram::unbound().unwrap();
    assert_eq!(UdpSocket::from_fd(unix.into()).unwrap_err().raw_os_error(), libc::EPROTOTYPE);
}

/// Sets an option of UDP: `UDP_GRO`, `UDP_SEGMENT`.
fn set(socket: &impl AsRawFd, option: i32, value: i32) {
    let value = (&raw const value).cast();
    // SAFETY: the kernel reads one int from `value`, which lives until the end of the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, value, 4) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn an_adopted_socket_receives_separate_datagrams_despite_gro() {
    let adopted = || {
        let socket = std::net::UdpSocket::bind(LOOPBACK).unwrap();
        set(&socket, libc::UDP_GRO, 1);
        let address = socket.local_addr().unwrap();
        (OwnedFd::from(socket), address)
    };
    let send_three = |address| {
        let sender = std::net::UdpSocket::bind(LOOPBACK).unwrap();
        set(&sender, libc::UDP_SEGMENT, 10);
        assert_eq!(sender.send_to(&[7; 30], address).unwrap(), 30);
    };
    let (fd, address) = adopted();
    let receiver = UdpSocket::from_fd(fd).unwrap();
    send_three(address);
    let mut batch = ReceiveBatch::new(1, 100);
    for _ in 0..3 {
        assert!(receiver.wait_readable(60_000_000_000));
        assert_eq!(batch.receive(&receiver), Ok(1));
        assert_eq!(batch.datagram(0).payload, [7; 10]);
    }
    let (fd, address) = adopted();
    let receiver = crate::transfer::NonBlocking::new(fd).unwrap();
    send_three(address);
    for _ in 0..3 {
        let received = loop {
            match receiver.receive(&mut [0; 100]) {
                Err(error) if error.is_would_block() => std::thread::yield_now(),
                received => break received,
            }
        };
        assert_eq!(received, Ok(10));
    }
}
