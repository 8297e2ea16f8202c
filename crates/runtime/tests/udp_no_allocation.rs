//! Tests the hot path of a UDP receiver: taking datagrams allocates nothing.

use std::net::UdpSocket;

use upcall_runtime::udp::{Receiver, ReceiverOptions};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const DATAGRAMS: usize = 100;

#[test]
fn a_receiver_does_not_allocate() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = socket.local_addr().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = ReceiverOptions { buffered: 256, ..ReceiverOptions::default() };
    let mut receiver = Receiver::from_socket(socket, &options).unwrap();
    for _ in 0..DATAGRAMS {
        sender.send_to(&[1; 500], target).unwrap();
    }
    let blocks = || dhat::HeapStats::get().total_blocks;
    let (before, mut bytes, mut taken) = (blocks(), 0, 0);
    while taken < DATAGRAMS {
        if receiver.ready()
            && let Some(datagram) = receiver.take()
        {
            bytes += datagram.payload.len();
            taken += usize::from(datagram.sender.port() != 0 && datagram.arrival.is_some());
            receiver.processed();
        }
    }
    assert_eq!(blocks(), before);
    assert_eq!(bytes, 500 * DATAGRAMS);
    // Checks that the test can fail: an allocation is counted.
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(blocks(), before + 1);
}
