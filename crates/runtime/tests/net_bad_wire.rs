//! UDP in user space over a bad wire between two kernels' interfaces: frames are lost, doubled,
//! overtaken and damaged.
//!
//! The kernel here has no `netem`. So two packet sockets and the model of a wire (`proto::link`)
//! join two veth pairs. The bad wire completes checksums first, as a network card does: a veth end
//! leaves them out, and damage would not be found.
//!
//! ```text
//!   flow - ours =veth= near -- bad wire, both ways -- far =veth= theirs - echo server
//! ```

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/own_network.rs"]
mod own_network;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use own_network::{
    ECHO, Peer, echo_server, in_own_network, move_into, namespace, run, serve_echo, wait_for,
};
use upcall_core::time::{Instant, Span};
use upcall_proto::flow::UDP;
use upcall_proto::link::{Link, LinkCounts, LinkSpec};
use upcall_proto::packet::build::{self, Path};
use upcall_proto::packet::{Frame, parse};
use upcall_runtime::clock::now;
use upcall_runtime::net::{
    Descriptor, FileDevice, FlowForm, FlowTerms, FrameForm, FrameSize, InterfaceSettings, Port,
    Received, Share, UdpInterface, area,
};
use upcall_sys::interface::index;

const OURS: &str = "10.77.0.1";
const THEIRS: &str = "10.77.0.2";
const DATAGRAMS: u32 = 10_000;
const BAD: LinkSpec = LinkSpec {
    loss_ppm: 10_000,
    duplication_ppm: 10_000,
    reordering_ppm: 50_000,
    lateness: Span::from_millis(5),
    corruption_ppm: 20_000,
    ..LinkSpec::new(0, Span::from_micros(100))
};

/// Both veth pairs, and the echo server in a network namespace of its own.
fn network() -> [Peer; 2] {
    let (namespace, there) = namespace();
    run("ip link add ours type veth peer name near");
    run("ip link add far type veth peer name theirs");
    move_into(&namespace, "theirs");
    for (prefix, interface) in [("", "ours"), ("", "near"), ("", "far"), (&there, "theirs")] {
        run(&format!("{prefix}ip link set {interface} addrgenmode none"));
        if let Some(address) =
            [("ours", OURS), ("theirs", THEIRS)].iter().find(|it| it.0 == interface)
        {
            run(&format!("{prefix}ip address add {}/24 dev {interface}", address.1));
        }
        run(&format!("{prefix}ip link set {interface} up"));
    }
    [echo_server(&there), namespace]
}

/// The echo server of [`network`], in a process of its own.
#[test]
#[ignore = "a part of other tests"]
fn as_echo_server() {
    serve_echo(THEIRS.parse().unwrap());
}

/// One end of the bad wire, and what is on the way from it.
struct End {
    port: Port<FileDevice>,
    link: Link,
    state: u64,
}

impl End {
    fn new(interface: &str, state: u64) -> End {
        let area = area(FrameForm { frames: 512, size: FrameSize::Half }).unwrap();
        let device = FileDevice::packet(&area, index(interface).unwrap()).unwrap();
        End { port: Port::new(area, device, 256), link: Link::new(BAD), state }
    }

    /// Frames that arrived at this end go onto the wire.
    fn take(&mut self, at: Instant) {
        let mut parts = Vec::with_capacity(64);
        self.port.receive(at, &mut parts).unwrap();
        for part in parts {
            let mut bytes = vec![0; part.length.into()];
            self.port.area().part(part).unwrap().copy_to(0, &mut bytes);
            self.port.release(part.frame).unwrap();
            let state = &mut self.state;
            self.link.send(completed(bytes), at, &mut || next_word(state));
        }
    }

    /// Frames that have crossed the wire leave at the other end.
    fn give(&mut self, other: &mut Port<FileDevice>, at: Instant) {
        while let Some((_, bytes)) = self.link.receive(at) {
            let Some(frame) = other.take() else { panic!("no frame is free") };
            let length = u16::try_from(bytes.len()).unwrap();
            let part = Descriptor { frame, offset: 128, length };
            other.area().part(part).unwrap().fill(0, &bytes);
            // The kernel refuses what is no frame any more.
            if other.transmit(at, None, &[part]) != Ok(1) {
                other.release(frame).unwrap();
            }
            other.collect(&mut Vec::with_capacity(64)).unwrap();
        }
    }
}

/// The frame with the checksum of its datagram, as a network card sends it.
fn completed(bytes: Vec<u8>) -> Vec<u8> {
    let Ok(Frame::Ip(headers)) = parse(&bytes) else { return bytes };
    if headers.destination.protocol != UDP || headers.fragment.is_some() {
        return bytes;
    }
    let path = Path {
        link_source: headers.link.source,
        link_destination: headers.link.destination,
        source: headers.source.to_canonical(),
        destination: headers.destination.address.to_canonical(),
    };
    let mut whole = vec![0; bytes.len().max(60)];
    let ports = (headers.source_port, headers.destination.port);
    let length = build::udp(&mut whole, path, ports, &bytes[headers.payload]).unwrap();
    whole.truncate(length);
    whole
}

/// `SplitMix64` (Steele and others 2014).
fn next_word(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Passes frames both ways until `is_over`. Returns what happened from `near` on, and from `far`.
fn bad_wire(is_over: &AtomicBool) -> [LinkCounts; 2] {
    let mut ends = [End::new("near", 5), End::new("far", 6)];
    while !is_over.load(Ordering::Relaxed) {
        let at = now();
        let [near, far] = &mut ends;
        near.take(at);
        far.take(at);
        near.give(&mut far.port, at);
        far.give(&mut near.port, at);
        std::thread::sleep(Duration::from_micros(100));
    }
    ends.map(|end| {
        let counts = end.link.counts();
        // Nothing of the wire's own frames is lost either.
        assert!(end.port.close().all_free());
        counts
    })
}

/// Ends the wire, also if the test fails.
struct Ends<'test>(&'test AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The payload with this number.
fn payload(number: u32) -> Vec<u8> {
    let bytes = 4 + number.wrapping_mul(37) % 1469;
    let mut payload: Vec<u8> =
        (0..bytes).map(|at| at.wrapping_mul(number | 1).to_le_bytes()[1]).collect();
    payload[..4].copy_from_slice(&number.to_le_bytes());
    payload
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: interfaces in its own network"]
fn a_bad_wire_loses_what_it_loses_and_no_wrong_byte_gets_through() {
    const TEST: &str = "a_bad_wire_loses_what_it_loses_and_no_wrong_byte_gets_through";
    in_own_network(TEST, &[], exchange);
}

fn exchange() {
    let _peers = network();
    let settings = InterfaceSettings { frames: 8192, ..InterfaceSettings::default() };
    let mut interface = UdpInterface::open("ours", settings).unwrap();
    let local: SocketAddr = format!("{OURS}:5004").parse().unwrap();
    let peer: SocketAddr = format!("{THEIRS}:{ECHO}").parse().unwrap();
    let form = FlowForm { receive_slots: 2048, transmit_slots: 256 };
    let terms = FlowTerms { local, receive: None, send: Share::Weight(1), form };
    let (slot, mut flow) = interface.bind(terms).unwrap();
    let is_over = AtomicBool::new(false);
    let end = Ends(&is_over);
    let [mut sent, mut received, mut doubled, mut overtaken, mut newest] = [0u32; 5];
    let mut found = HashSet::new();
    let [to_them, to_us] = std::thread::scope(|threads| {
        let end = end;
        let wire = threads.spawn(|| bad_wire(&is_over));
        let mut take = |interface: &mut UdpInterface, sends: bool| {
            // While the link address is looked for, no frame may be free.
            sent += u32::from(sends && flow.send(&payload(sent), peer).unwrap());
            flow.flush();
            interface.process(now(), 64).unwrap();
            let mut came = 0;
            while let Some(next) = flow.take().unwrap() {
                // The echo server may not be there yet, and damaged datagrams may go to others.
                let Received::Datagram(datagram) = next else { continue };
                let mut bytes = vec![0; datagram.len()];
                flow.payload(&datagram).unwrap().copy_to(0, &mut bytes);
                assert_eq!(datagram.peer(), peer);
                flow.release(datagram).unwrap();
                came += 1;
                let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                assert!(number < sent && bytes == payload(number), "a wrong payload came through");
                received += 1;
                doubled += u32::from(!found.insert(number));
                overtaken += u32::from(number < newest);
                newest = newest.max(number);
            }
            came
        };
        // Until the echo server and the link addresses are there. These datagrams count, too.
        wait_for(|| take(&mut interface, true) > 0, "the first echo");
        for _ in 0..DATAGRAMS / 8 {
            (0..8).for_each(|_| {
                take(&mut interface, true);
            });
            std::thread::sleep(Duration::from_millis(1));
        }
        // What is on the way.
        let mut quiet = 0;
        while quiet < 100 {
            quiet = if take(&mut interface, false) > 0 { 0 } else { quiet + 1 };
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        wire.join().unwrap()
    });
    let counts = interface.owner().flow_counts(slot).unwrap();
    println!("sent {sent}, received {received}, doubled {doubled}, overtaken {overtaken}");
    println!("{counts:?}\nto them {to_them:?}\nto us {to_us:?}");
    assert_eq!(counts.received, u64::from(received));
    // Each fault took place, and was seen or found.
    assert!(found.len() < sent as usize && found.len() > sent as usize / 2);
    assert!(doubled > 0 && overtaken > 0 && counts.checksum > 0);
    // What crossed the wire is there, but for what was damaged and what is no datagram (ARP).
    let known = counts.received + counts.checksum + counts.receive_full;
    let others = to_us.delivered - known;
    assert!(known <= to_us.delivered && others <= to_us.corrupted + 64, "{others} are missing");
    drop(flow);
    assert!(interface.close().all_free());
}
