//! Datagrams without arrival times and counts of drops.

use super::*;

#[test]
fn a_socket_may_omit_arrival_times_and_drop_counts() {
    let (receiver, sender) = pair(LOOPBACK);
    receiver.omit_control().unwrap();
    let granted = receiver.set_receive_buffer(0).unwrap();
    send(&sender, 0, u32::try_from(granted).unwrap() / 256, 64);
    let mut batch = ReceiveBatch::new(64, 64);
    while batch.receive(&receiver).unwrap() > 0 {
        assert!(batch.datagrams().all(|datagram| datagram.arrival_realtime_ns.is_none()));
    }
    // One after the drops would bring their number.
    send(&sender, 0, 1, 64);
    assert_eq!(batch.receive(&receiver).unwrap(), 1);
    assert_eq!(batch.socket_drops(), 0);
    assert!(receiver.drops().unwrap() > 0, "the buffer took all");
}
