//! An owner with one flow, and the end of a modelled wire that sends to it.

#[path = "lent.rs"]
mod lent;

use std::net::SocketAddr;

use upcall_core::time::{Instant, Span};
use upcall_proto::packet::build::{self, Path};
use upcall_runtime::net::{
    Checksums, Descriptor, FlowForm, FlowTerms, FrameForm, FrameSize, KernelPaths, LinkSpec,
    MemoryDevice, Owner, OwnerSettings, Paths, Port, Share, Spread, UdpFlow, area,
};

use lent::lent;

pub const LOCAL: &str = "10.0.0.2:5004";
pub const PEER: &str = "10.0.0.1:7007";
const FORM: FrameForm = FrameForm { frames: 256, size: FrameSize::Half };

/// An owner with one flow, and the end of the wire that sends to it.
pub struct Wire {
    pub owner: Owner<MemoryDevice>,
    pub slot: u32,
    peer: Port<MemoryDevice>,
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

impl Wire {
    /// `apart`: as for a flow of another process.
    pub fn new(apart: bool, form: FlowForm) -> (Wire, UdpFlow) {
        let areas = [area(FORM).unwrap(), area(FORM).unwrap()];
        let [ours, theirs] =
            MemoryDevice::pair([&areas[0], &areas[1]], LinkSpec::new(0, Span::ZERO), 1, 64);
        let [our_area, their_area] = areas;
        // Nothing leaves in these tests, so no path of the kernel is asked for.
        let paths = Paths::Kernel(KernelPaths::new(1, [2; 6], 1500).unwrap());
        let spread = Spread { period: Span::from_millis(1), link_bits_per_second: None };
        let settings = OwnerSettings { flows_max: 4, spread, checksums: Checksums::Right };
        let mut owner = Owner::new(Port::new(our_area, ours, 128), paths, settings);
        let terms =
            FlowTerms { local: address(LOCAL), receive: None, send: Share::Weight(1), form };
        let (slot, flow) = match apart {
            false => owner.bind(terms).unwrap(),
            true => {
                let (memory, of_program) = lent(form);
                let (slot, wake) = owner.bind_apart(terms, memory).unwrap();
                (slot, of_program.attach(address(LOCAL), wake).unwrap())
            }
        };
        // The device has frames to receive into from here on.
        owner.input(Instant::ZERO, 1).unwrap();
        (Wire { owner, slot, peer: Port::new(their_area, theirs, 64) }, flow)
    }

    /// Sends a datagram to the flow.
    pub fn send(&mut self, payload: &[u8]) {
        let (from, to) = (address(PEER), address(LOCAL));
        let path = Path {
            link_source: [2, 0, 0, 0, 0, 1],
            link_destination: [2; 6],
            source: from.ip(),
            destination: to.ip(),
        };
        let mut bytes = [0; 2048];
        let length = build::udp(&mut bytes, path, (from.port(), to.port()), payload).unwrap();
        let frame = self.peer.take().unwrap();
        let part = Descriptor { frame, offset: 128, length: u16::try_from(length).unwrap() };
        assert_eq!(self.peer.area().part(part).unwrap().fill(0, &bytes[..length]), length);
        assert_eq!(self.peer.transmit(Instant::ZERO, None, &[part]).unwrap(), 1);
        self.peer.collect(&mut Vec::with_capacity(64)).unwrap();
    }

    /// Lets the owner take what was sent, at `at`.
    pub fn deliver(&mut self, at: Instant) {
        self.owner.input(at, 64).unwrap();
    }
}
