//! Builds captures byte by byte, for the tests of the reader and of the whole program.

/// Byte orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

pub const ORDERS: [Order; 2] = [Order::Little, Order::Big];

impl Order {
    fn two(self, number: u16) -> [u8; 2] {
        if self == Order::Little { number.to_le_bytes() } else { number.to_be_bytes() }
    }

    pub fn four(self, number: u32) -> [u8; 4] {
        if self == Order::Little { number.to_le_bytes() } else { number.to_be_bytes() }
    }

    pub fn eight(self, number: u64) -> [u8; 8] {
        if self == Order::Little { number.to_le_bytes() } else { number.to_be_bytes() }
    }
}

/// A pcap file of packets, each with seconds, microseconds or nanoseconds, and data.
pub fn pcap(order: Order, nano: bool, link: u32, frames: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = order.four(if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
    file.extend(order.two(2));
    file.extend(order.two(4));
    for number in [0, 0, 65_535, link] {
        file.extend(order.four(number));
    }
    for (seconds, fraction, packet) in frames {
        let length = u32::try_from(packet.len()).expect("a short packet");
        for number in [*seconds, *fraction, length, length] {
            file.extend(order.four(number));
        }
        file.extend(*packet);
    }
    file
}

/// A block of pcapng.
pub fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = body.len().next_multiple_of(4) - body.len();
    let length = u32::try_from(body.len() + padding + 12).expect("a short block");
    let ends = order.four(length);
    [&order.four(kind), &ends[..], body, &[0; 3][..padding], &ends].concat()
}

pub fn section(order: Order) -> Vec<u8> {
    let body = [&order.four(0x1a2b_3c4d)[..], &order.two(1), &order.two(0), &order.eight(u64::MAX)];
    block(order, 0x0a0d_0d0a, &body.concat())
}

pub fn interface(order: Order, link: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = [&order.two(link)[..], &[0; 2], &order.four(262_144)].concat();
    for (code, value) in options {
        body.extend(order.two(*code));
        body.extend(order.two(u16::try_from(value.len()).expect("a short option")));
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    if !options.is_empty() {
        body.extend([0; 4]);
    }
    block(order, 1, &body)
}

/// An enhanced packet block.
pub fn enhanced(order: Order, interface: u32, ticks: u64, packet: &[u8]) -> Vec<u8> {
    let length = u32::try_from(packet.len()).expect("a short packet");
    let [high, low] = [ticks >> 32, ticks & 0xffff_ffff].map(|half| half as u32);
    let mut body = Vec::new();
    for number in [interface, high, low, length, length] {
        body.extend(order.four(number));
    }
    body.extend(packet);
    block(order, 6, &body)
}

/// A UDP datagram of ten bytes to `port`.
pub fn udp(port: u16) -> Vec<u8> {
    [&40_000_u16.to_be_bytes()[..], &port.to_be_bytes(), &[0, 18, 0, 0], &[7; 10]].concat()
}

/// An IPv4 packet with options; with `fragment` as a fragment, whose flag "more" is bit 13.
pub fn ipv4(protocol: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let total = u16::try_from(header + payload.len()).expect("a short packet");
    let words = u8::try_from(header / 4).expect("at most 15");
    let mut packet = vec![0x40 | words, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    [&packet, options, payload].concat()
}

/// An IPv6 packet.
pub fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a short packet");
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([0; 32]);
    [&packet, payload].concat()
}

/// A frame with a VLAN tag for each EtherType in `tags`.
pub fn ethernet(tags: &[u16], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 5]);
    }
    frame.extend(ether_type.to_be_bytes());
    [&frame, payload].concat()
}
