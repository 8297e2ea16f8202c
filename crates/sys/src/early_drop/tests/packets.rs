//! Frames for the tests: every form that the program knows, and damaged ones.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A small generator (splitmix64). The same seed gives the same numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len())]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }
}

/// Ports of the destinations, and one that is none.
pub const PORTS: [u16; 5] = [5000, 5001, 5002, 5003, 9];
pub const IPV4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(239, 1, 1, 1)];
pub const IPV6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)];

pub fn ethernet(tags: &[u16], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The start of UDP or TCP: ports, and a length that nothing reads.
pub fn transport(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 4242_u16.to_be_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend(u16::try_from(payload.len() + 8).unwrap().to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

/// An IPv4 packet. `fragment`: the flag of more fragments and the offset.
pub fn ipv4(to: Ipv4Addr, protocol: u8, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    ipv4_with(to, protocol, id, fragment, &[], payload)
}

fn ipv4_with(
    to: Ipv4Addr,
    protocol: u8,
    id: u16,
    fragment: u16,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let length = u16::try_from(20 + options.len() + payload.len()).unwrap();
    let mut bytes = vec![0x40 | words, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 10, 0, 0, 9]);
    bytes.extend(to.octets());
    // The kernel checks the sum of packets that pass.
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    sum += options
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum::<u32>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    let sum = !u16::try_from(sum).unwrap();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

/// An IPv6 packet whose first header after the fixed one is `next`.
pub fn ipv6(to: Ipv6Addr, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend([next, hops]);
    bytes.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9).octets());
    bytes.extend(to.octets());
    bytes.extend(payload);
    bytes
}

/// A fragment header of IPv6. `fragment`: the offset in its upper 13 bits, bit 0: more follow.
pub fn fragment_header(next: u8, fragment: u16, id: u32) -> Vec<u8> {
    let mut bytes = vec![next, 0];
    bytes.extend(fragment.to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes
}

/// A longer frame is in several pieces, and the program reads the first piece only.
const DAMAGED_BYTES_MAX: usize = 3000;

/// A frame of a random form, half of them damaged.
pub fn random_frame(random: &mut Random) -> Vec<u8> {
    let mut frame = whole_frame(random);
    if random.one_in(2) && frame.len() <= DAMAGED_BYTES_MAX {
        damage(random, &mut frame);
    }
    frame
}

fn whole_frame(random: &mut Random) -> Vec<u8> {
    let tags: Vec<u16> =
        (0..random.of(&[0, 0, 0, 1, 2, 3])).map(|_| random.of(&[0x8100, 0x88a8])).collect();
    let (ether_type, packet) = match random.below(8) {
        0 => (random.of(&[0x0806, 0x88cc, 0x8863]), random.bytes(28)),
        1..=4 => (0x0800, random_ipv4(random)),
        _ => (0x86dd, random_ipv6(random)),
    };
    let mut frame = ethernet(&tags, ether_type, &packet);
    let padding = random.of(&[0, 0, 6, 20]);
    frame.extend(random.bytes(padding));
    frame
}

fn random_transport(random: &mut Random) -> (u8, Vec<u8>) {
    let protocol = random.of(&[17, 17, 17, 6, 1, 58, 59, 50]);
    let count = match random.below(500) {
        0 => 5000,
        1..=20 => 1200,
        _ => random.below(60),
    };
    let payload = random.bytes(count);
    (protocol, transport(random.of(&PORTS), &payload))
}

fn random_ipv4(random: &mut Random) -> Vec<u8> {
    let (protocol, payload) = random_transport(random);
    let options = random.of(&[0, 0, 0, 4, 20, 40]);
    let options = random.bytes(options);
    // Few identifications, so that later fragments often meet their first one.
    let id = u16::from(random.byte() % 8);
    let fragment = random.of(&[0, 0, 0, 0x4000, 0x2000, 0x2000, 0x2003, 0x0003, 0x8000]);
    ipv4_with(random.of(&IPV4), protocol, id, fragment, &options, &payload)
}

fn random_ipv6(random: &mut Random) -> Vec<u8> {
    let hops = random.of(&[64, 255]);
    if random.one_in(8) {
        let payload = [random.of(&[128, 132, 133, 135, 136, 137, 138]), 0, 0, 0];
        return ipv6(random.of(&IPV6), 58, hops, &payload);
    }
    let (mut next, mut payload) = random_transport(random);
    for _ in 0..random.of(&[0, 0, 0, 1, 2, 3, 5, 6, 7, 8]) {
        let header = random.of(&[0, 43, 60, 51, 44]);
        let mut bytes = match header {
            44 => {
                let fragment = random.of(&[0, 1, 1, 0x8, 0x9, 0x6]);
                fragment_header(next, fragment, u32::from(random.byte() % 8))
            }
            51 => {
                let words = random.of(&[2_u8, 4, 6]);
                let mut bytes = vec![next, words];
                bytes.extend(random.bytes(usize::from(words) * 4 + 6));
                bytes
            }
            _ => {
                let eights = random.of(&[0_u8, 1, 3]);
                let mut bytes = vec![next, eights];
                bytes.extend(random.bytes(usize::from(eights) * 8 + 6));
                bytes
            }
        };
        bytes.extend(payload);
        (next, payload) = (header, bytes);
    }
    ipv6(random.of(&IPV6), next, hops, &payload)
}

/// Changes some bytes or bits, cuts the end off, appends bytes, or makes everything random.
fn damage(random: &mut Random, frame: &mut Vec<u8>) {
    match random.below(8) {
        0 => frame.truncate(14 + random.below(frame.len() - 13)),
        1 => {
            // Only the headers: the payload of long frames never matters.
            let count = random.below(100) + 14;
            *frame = random.bytes(count);
            if random.one_in(2) {
                frame[12..14].copy_from_slice(&random.of(&[[8, 0], [0x86, 0xdd], [0x81, 0]]));
            }
        }
        2 => {
            let at = random.below(frame.len().min(100));
            frame.remove(at);
            frame.resize(frame.len().max(14), 0);
        }
        _ => {
            for _ in 0..=random.below(3) {
                let at = 12 + random.below(frame.len().min(110) - 12);
                frame[at] = match random.below(3) {
                    0 => random.byte(),
                    1 => frame[at] ^ 1 << random.below(8),
                    _ => random.of(&[0, 255, 1, 44]),
                };
            }
        }
    }
}
