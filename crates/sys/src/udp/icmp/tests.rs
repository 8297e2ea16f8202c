use crate::transfer::NonBlocking;
use crate::udp::{ReceiveBatch, UdpSocket};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use std::io::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsRawFd, OwnedFd};

/// Type and code of the messages that the kernel reports to a connected socket.
const REPORTED: [(u8, u8); 12] = [
    (3, 2),
    (3, 3),
    (3, 4),
    (3, 6),
    (3, 7),
    (3, 8),
    (3, 9),
    (3, 10),
    (3, 13),
    (3, 14),
    (3, 15),
    (12, 0),
];

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

/// A router's message about a datagram from port `from` to port `to` of the loopback interface.
fn message((kind, code): (u8, u8), from: u16, to: u16) -> Vec<u8> {
    let [host, peer] = [Ipv4Addr::LOCALHOST.octets(); 2];
    let mut quoted = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0];
    quoted.extend(host.iter().chain(&peer));
    let sum = checksum(&quoted);
    quoted[10..12].copy_from_slice(&sum);
    quoted.extend(from.to_be_bytes().iter().chain(&to.to_be_bytes()).chain(&[0, 8, 0, 0]));
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(quoted);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// Sends each message of [`REPORTED`] about the datagram that `ours` sent to `peer`. Calls `then`
/// after each one.
fn each_reported(ours: u16, peer: u16, mut then: impl FnMut((u8, u8))) {
    let raw = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(ipproto::ICMP),
    );
    let raw: OwnedFd = raw.unwrap();
    let host: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    for kind in REPORTED {
        let message = message(kind, ours, peer);
        rustix::net::sendto(&raw, &message, SendFlags::empty(), &host).unwrap();
        // Loopback delivers the message within the call, or soon after.
        std::thread::sleep(std::time::Duration::from_millis(5));
        then(kind);
    }
}

fn connected() -> (StdSocket, StdSocket, u16, u16) {
    let ours = StdSocket::bind("127.0.0.1:0").unwrap();
    let peer = StdSocket::bind("127.0.0.1:0").unwrap();
    ours.connect(peer.local_addr().unwrap()).unwrap();
    peer.connect(ours.local_addr().unwrap()).unwrap();
    let (port, peer_port) = (ours.local_addr().unwrap().port(), peer.local_addr().unwrap().port());
    (ours, peer, port, peer_port)
}

/// Runs `work` on a thread with a network namespace of its own and a loopback interface. The kernel
/// remembers for minutes what ICMP reports of a path, for all users of the address.
fn in_own_network(work: fn()) {
    let thread = std::thread::spawn(move || {
        // SAFETY: changes the network of this thread only, which has no socket yet.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", Error::last_os_error());
        let socket = StdSocket::bind("0.0.0.0:0").unwrap();
        // SAFETY: the struct has only integers and arrays of integers, for which zero is valid.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        for (place, byte) in request.ifr_name.iter_mut().zip(c"lo".to_bytes_with_nul()) {
            *place = libc::c_char::from_ne_bytes([*byte]);
        }
        request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).unwrap();
        // SAFETY: the kernel reads one `ifreq`.
        let up = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
        assert_eq!(up, 0, "{}", Error::last_os_error());
        work();
    });
    thread.join().unwrap();
}

#[test]
#[ignore = "needs root: makes a network namespace and forges ICMP messages in it"]
fn no_icmp_message_ends_receiving_or_sending() {
    in_own_network(no_message_ends_receiving_or_sending);
}

fn no_message_ends_receiving_or_sending() {
    let (ours, peer, port, peer_port) = connected();
    let plain = NonBlocking::new(ours.try_clone().unwrap().into()).unwrap();
    each_reported(port, peer_port, |kind| {
        let refused = plain.receive(&mut [0; 4]).unwrap_err();
        assert!(refused.is_would_block(), "{kind:?}: {refused}");
    });
    each_reported(port, peer_port, |kind| {
        let sent = plain.write(b"four");
        assert_eq!(sent, Ok(4), "{kind:?}");
        assert_eq!(peer.recv(&mut [0; 4]).unwrap(), 4);
    });
    let socket = UdpSocket::from_fd(ours.into()).unwrap();
    let mut batch = ReceiveBatch::new(1, 4);
    each_reported(port, peer_port, |kind| {
        assert_eq!(batch.receive(&socket), Ok(0), "{kind:?}");
    });
    assert_eq!(batch.icmp_errors(), REPORTED.len() as u64);
}
