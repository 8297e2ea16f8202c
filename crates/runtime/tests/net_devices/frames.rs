//! Frames with numbers, and how they are sent and received.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_proto::packet::build::{self, Path};
use upcall_proto::packet::{Frame, parse};
use upcall_runtime::net::{
    Area, Descriptor, Device, DeviceError, FrameForm, FrameSize, HEADROOM_BYTES, Port, area,
};

pub const FORM: FrameForm = FrameForm { frames: 128, size: FrameSize::Half };
/// Frames that a device has to receive into.
pub const RECEIVING: u32 = 64;
/// The port of both ends, where no kernel chooses another.
pub const PORT: u16 = 9000;

pub type AnyPort = Port<Box<dyn Device>>;

/// From where to where a frame goes.
pub type Route = (SocketAddr, SocketAddr);

/// The ends of a link of which no kernel knows the addresses.
pub fn ends() -> [SocketAddr; 2] {
    [2, 1].map(|host| (Ipv4Addr::new(10, 0, 0, host), PORT).into())
}

pub fn port(area: Arc<Area>, device: impl Device + 'static) -> AnyPort {
    Port::new(area, Box::new(device), RECEIVING)
}

pub fn areas() -> [Arc<Area>; 2] {
    [area(FORM).unwrap(), area(FORM).unwrap()]
}

/// Bytes of the headers of Ethernet, IP and UDP.
fn headers_bytes((source, _): Route) -> usize {
    if source.is_ipv4() { 42 } else { 62 }
}

/// A UDP datagram of `bytes` with Ethernet, which has the number `number`.
pub fn frame(route: Route, number: u32, bytes: usize) -> Vec<u8> {
    let (source, destination) = route;
    let mut payload = vec![number.to_le_bytes()[0]; bytes - headers_bytes(route)];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    let path = Path {
        link_source: [2, 0, 0, 0, 0, 2],
        link_destination: [2, 0, 0, 0, 0, 1],
        source: source.ip(),
        destination: destination.ip(),
    };
    let mut frame = vec![0; bytes];
    let ports = (source.port(), destination.port());
    assert_eq!(build::udp(&mut frame, path, ports, &payload), Ok(bytes));
    frame
}

/// The number of a frame of `route`, if it is one.
pub fn number_of((source, destination): Route, frame: &[u8]) -> Option<u32> {
    let Ok(Frame::Ip(headers)) = parse(frame) else { return None };
    let is_ours = headers.source_port == source.port()
        && headers.destination.port == destination.port()
        && headers.source.to_canonical() == source.ip();
    let payload = &frame[headers.payload];
    is_ours.then(|| u32::from_le_bytes(payload[..4].try_into().unwrap()))
}

/// The size of the frame with this number: each from 60 to 1514 comes up. The shortest of IPv6 has
/// 66 bytes, for the number.
pub fn bytes_of(route: Route, number: u32) -> usize {
    (60 + (number as usize * 7) % 1455).max(headers_bytes(route) + 4)
}

/// Puts `bytes` into a frame of the owner.
pub fn fill(port: &mut AnyPort, bytes: &[u8]) -> Option<Descriptor> {
    let length = u16::try_from(bytes.len()).unwrap();
    let part = Descriptor { frame: port.take()?, offset: 64, length };
    assert_eq!(port.area().part(part).unwrap().fill(0, bytes), bytes.len());
    Some(part)
}

/// Sends the frames of `numbers` that fit, and returns how many the device took.
pub fn send(port: &mut AnyPort, now: Instant, route: Route, numbers: std::ops::Range<u32>) -> u32 {
    let mut parts = Vec::new();
    for number in numbers {
        let bytes = frame(route, number, bytes_of(route, number));
        let Some(part) = fill(port, &bytes) else { break };
        parts.push(part);
    }
    let sent = port.transmit(now, None, &parts).unwrap();
    parts[sent..].iter().for_each(|part| port.release(part.frame).unwrap());
    u32::try_from(sent).unwrap()
}

/// Sends one frame. The error, if the device refuses it.
pub fn send_bytes(port: &mut AnyPort, bytes: &[u8]) -> Result<usize, DeviceError> {
    let part = fill(port, bytes).unwrap();
    let sent = port.transmit(Instant::ZERO, None, &[part]);
    if sent != Ok(1) {
        port.release(part.frame).unwrap();
    }
    sent
}

/// All frames that arrived, at most `most`. Each leaves the headroom free.
pub fn receive_bytes(
    port: &mut AnyPort,
    now: Instant,
    most: usize,
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let mut parts = Vec::with_capacity(most);
    let received = port.receive(now, &mut parts);
    assert!(parts.len() <= most);
    let mut frames = Vec::new();
    for part in parts {
        assert!(part.offset >= HEADROOM_BYTES, "{part:?}");
        let mut bytes = vec![0; part.length.into()];
        port.area().part(part).unwrap().copy_to(0, &mut bytes);
        port.release(part.frame).unwrap();
        frames.push(bytes);
    }
    received.map(|()| frames)
}

/// The numbers of our frames among those that arrived, each checked byte by byte.
pub fn receive(
    port: &mut AnyPort,
    now: Instant,
    route: Route,
    most: usize,
) -> Result<Vec<u32>, DeviceError> {
    let mut numbers = Vec::new();
    for bytes in receive_bytes(port, now, most)? {
        // The kernel of an interface may send frames of its own.
        if let Some(number) = number_of(route, &bytes) {
            let sent = frame(route, number, bytes_of(route, number));
            // UDP sockets have no link.
            assert!(bytes[12..] == sent[12..], "frame {number} was changed");
            numbers.push(number);
        }
    }
    Ok(numbers)
}

pub fn collect(port: &mut AnyPort) {
    let mut sent = Vec::with_capacity(32);
    port.collect(&mut sent).unwrap();
    assert!(sent.iter().all(|sent| sent.flow.is_none()));
}
