//! The flow of a stream whose packets are processed in user space: what it asks of the daemon.
//!
//! `plan` shows the quota, and [`super::Endpoint`] opens the flow. The numbers come from the
//! mapping, so the flow lets through what the spec declares.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use upcall::net::{FlowForm, FlowRequest, Quota, Share, UdpFlow};
use upcall::packet_quota::{RECEIVE_PERIOD_MAX, limit_of};
use upcall::qos::{Class, Mapping};
use upcall::status::FlowStatus;
use upcall::time::Span;

use super::sizes::{buffered, made_datagrams, pdus_of_unit};
use crate::spec::{Address, Direction, Stream};

/// Slots to receive for a stream that sends: for ICMP errors, and what comes unasked.
const SENDER_RECEIVE_SLOTS: u32 = 16;

/// Fewest slots to send: packets wait until the link address of the peer is found.
const TRANSMIT_SLOTS_MIN: u32 = 16;

/// What may arrive at a stream that receives by `xdp://`. `None`: by the kernel's UDP, or there is
/// no limit of its rate.
///
/// The limit is that of a receiver of one packet in each packet interval. The packets of a unit or
/// of a burst may come together, and as much before their time as the stream works ahead. The owner
/// of an interface hands those over when they come.
pub fn receive_quota(stream: &Stream, mapping: &Mapping) -> Option<Quota> {
    let Direction::Receive(address) = &stream.direction else { return None };
    address.interface.as_ref()?;
    let datagrams_a_pdu = stream.pdu_bytes.div_ceil(stream.packet_bytes);
    let (interval, depth) = limit_of(packet_interval(mapping, datagrams_a_pdu), None);
    let pdus_together = match stream.class {
        Class::Transaction { burst, .. } => burst,
        _ => pdus_of_unit(stream),
    };
    let pdus_ahead = mapping.params.batch.saturating_mul(stream.workahead);
    let pdus_at_once = pdus_together.saturating_add(pdus_ahead);
    let at_once = pdus_at_once.saturating_mul(datagrams_a_pdu).max(1);
    Some(quota(interval, depth.saturating_add(at_once - 1), at_once))
}

/// Datagrams that came for the flow of a stream and that it did not get, by the daemon's counts.
pub fn drops(stream: &Stream, flows: &[FlowStatus]) -> u64 {
    let Direction::Receive(Address { socket, interface: Some(interface) }) = &stream.direction
    else {
        return 0;
    };
    // No other flow of the interface has the address.
    let is_its = |flow: &&FlowStatus| {
        flow.interface == *interface
            && flow.local.port() == socket.port()
            && flow.local.ip() == socket.ip().to_canonical()
    };
    flows.iter().find(is_its).map_or(0, |FlowStatus { counts, .. }| {
        counts.over_quota
            + counts.behind
            + counts.queue_full
            + counts.receive_full
            + counts.checksum
            + counts.undelivered
    })
}

/// Opens the flow of `stream` at the daemon with this socket. Blocks until it answers.
///
/// # Errors
/// The daemon refused, or packets of the stream do not fit a frame.
pub fn open(
    stream: &Stream,
    mapping: &Mapping,
    interface: &str,
    daemon: &Path,
) -> io::Result<UdpFlow> {
    let request = request(stream, mapping, interface)?;
    let flow = UdpFlow::open(daemon, &request).map_err(io::Error::other)?;
    let most = flow.payload_bytes_max();
    match stream.packet_bytes > most.into() {
        false => Ok(flow),
        true => Err(io::Error::other(format!(
            "a packet of {} B does not fit a frame, which has room for {most} B",
            stream.packet_bytes
        ))),
    }
}

fn request(stream: &Stream, mapping: &Mapping, interface: &str) -> io::Result<FlowRequest> {
    let interface = interface.to_owned();
    Ok(match &stream.direction {
        Direction::Receive(address) => FlowRequest {
            interface,
            local: address.socket,
            receive: receive_quota(stream, mapping),
            send: Share::Weight(1),
            form: FlowForm { receive_slots: slots(buffered(stream, mapping))?, transmit_slots: 1 },
        },
        Direction::Send(peer) => {
            let datagrams_a_pdu = made_datagrams(stream).map_err(io::Error::other)?;
            let batch = mapping.params.batch.saturating_mul(datagrams_a_pdu);
            let (interval, _) = limit_of(packet_interval(mapping, datagrams_a_pdu), None);
            // Nothing is to arrive.
            let (never, depth) = limit_of(RECEIVE_PERIOD_MAX, None);
            FlowRequest {
                interface,
                local: any_of_family(peer.socket),
                receive: Some(quota(never, depth, 1)),
                // As for a receiver, a little faster than the stream: what was late catches up.
                send: Share::Paced { interval },
                form: FlowForm {
                    receive_slots: SENDER_RECEIVE_SLOTS,
                    // A batch is on its way while the next one is made.
                    transmit_slots: slots(batch.saturating_mul(2).max(TRANSMIT_SLOTS_MIN))?,
                },
            }
        }
    })
}

fn quota(interval: Span, depth: u32, at_once: u32) -> Quota {
    Quota { step_ns: 0, interval_ns: interval.as_nanos(), depth, at_once }
}

/// The time between two datagrams of a stream.
fn packet_interval(mapping: &Mapping, datagrams_a_pdu: u32) -> Span {
    mapping.pdu_interval / datagrams_a_pdu.max(1)
}

/// As many slots as a queue may have, for `datagrams` at least.
fn slots(datagrams: u32) -> io::Result<u32> {
    let slots = datagrams.checked_next_power_of_two().filter(|slots| *slots <= SLOTS_MAX);
    slots.ok_or_else(|| {
        io::Error::other(format!("{datagrams} datagrams wait at once, a flow has {SLOTS_MAX}"))
    })
}

/// The most slots of a queue that a daemon gives a flow.
const SLOTS_MAX: u32 = 4096;

/// Any port and address, with which one reaches `peer`.
fn any_of_family(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use upcall::qos::map;

    fn request_of(keys: &str) -> (io::Result<FlowRequest>, Mapping) {
        let text = format!("[[stream]]\nname = \"s\"\ncost = \"1 us\"\n{keys}");
        let spec = Spec::parse("test.toml", text.as_bytes()).unwrap();
        let stream = &spec.streams[0];
        let mapping = map(&stream.stream_spec(Span::from_micros(1)), Span::ZERO).unwrap();
        let mapping = match stream.direction {
            Direction::Receive(_) => mapping,
            Direction::Send(_) => mapping.paced(),
        };
        (request(stream, &mapping, "eth1"), mapping)
    }

    const MEDIA: &str = "class = \"continuous-media\"\npdu = \"1000 B\"\ndelay = \"50 ms\"\n";
    const AT: &str = "receive = \"xdp://eth1/10.0.0.2:5004\"\n";

    #[test]
    fn a_receiver_may_get_a_tenth_more_than_its_rate_and_what_comes_together() {
        let (request, mapping) = request_of(&format!("{MEDIA}{AT}rate = \"90/s\""));
        let FlowRequest { interface, local, receive, form, .. } = request.unwrap();
        assert_eq!((interface.as_str(), local), ("eth1", "10.0.0.2:5004".parse().unwrap()));
        // As `upcall exec --receive udp:5004@90/s`.
        let (interval, depth) = limit_of(Span::from_nanos(1_000_000_000 / 90), None);
        assert_eq!(receive, Some(quota(interval, depth, 1)));
        assert_eq!(form.receive_slots, mapping.buffers.next_power_of_two());

        // 5 packets of 1000 B in each frame, and 20 frames a second: 100 packets a second.
        let frames = "frame = \"4500 B\"\nframe_rate = \"20/s\"";
        let (request, _) = request_of(&format!("{MEDIA}{AT}{frames}"));
        let (interval, depth) = limit_of(Span::from_millis(10), None);
        assert_eq!(request.unwrap().receive, Some(quota(interval, depth + 4, 5)));
    }

    #[test]
    fn what_is_declared_to_come_together_is_handed_over_at_once() {
        let transaction = |burst| {
            let class = "class = \"transaction\"\npdu = \"100 B\"\ndelay = \"50 ms\"\n";
            request_of(&format!("{class}{AT}rate = \"10/s\"\nburst = {burst}")).0.unwrap()
        };
        let (interval, depth) = limit_of(Span::from_millis(100), None);
        assert_eq!(transaction(1).receive, Some(quota(interval, depth, 1)));
        assert_eq!(transaction(8).receive, Some(quota(interval, depth + 7, 8)));
        let (request, mapping) = request_of(&format!("{MEDIA}{AT}rate = \"90/s\"\nworkahead = 4"));
        let ahead = 4 * mapping.params.batch;
        let receive = request.unwrap().receive.unwrap();
        let (interval, depth) = limit_of(Span::from_nanos(1_000_000_000 / 90), None);
        assert_eq!(receive, quota(interval, depth + ahead, 1 + ahead));
    }

    #[test]
    fn a_sender_is_paced_and_receives_nothing_to_speak_of() {
        let to = "send = \"xdp://eth1/[fe80::1]:5006\"\nrate = \"100/s\"";
        let (request, mapping) = request_of(&format!("{MEDIA}{to}"));
        let FlowRequest { local, receive, send, form, .. } = request.unwrap();
        assert_eq!(local, "[::]:0".parse().unwrap());
        assert!(receive.unwrap().interval_ns > 3_000_000_000_000);
        let Share::Paced { interval } = send else { panic!("{send:?}") };
        assert_eq!(interval, limit_of(Span::from_millis(10), None).0);
        assert_eq!((mapping.params.batch, form.transmit_slots), (1, 16));
        let fast = to.replace("100/s", "100000/s");
        let (request, mapping) = request_of(&format!("{MEDIA}{fast}"));
        let slots = request.unwrap().form.transmit_slots;
        assert!(slots > 16 && slots >= 2 * mapping.params.batch, "{slots}");
    }
}
