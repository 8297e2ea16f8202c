//! The checks of every device.

use super::frames::{
    AnyPort, RECEIVING, Route, bytes_of, collect, ends, frame, receive, receive_bytes, send,
    send_bytes,
};
use std::net::SocketAddr;
use std::time::Duration;

use upcall_core::time::Instant;
use upcall_runtime::net::{Descriptor, DeviceError};
use upcall_sys::early_drop::EarlyDrop;

/// Two devices that are connected.
pub struct Pair {
    pub ports: [AnyPort; 2],
    /// Whatever must live as long as the devices.
    pub _kept: Vec<EarlyDrop>,
    /// The addresses at the ends.
    pub ends: [SocketAddr; 2],
    pub end: End,
    /// Whether the receiver counts what it drops.
    pub counts_drops: bool,
    /// Whether any frame arrives as it was sent, and not its payload only.
    pub carries_frames: bool,
}

/// How a device comes to its end.
#[derive(Clone, Copy)]
pub enum End {
    /// With the interface of this name.
    Interface(&'static str),
    /// With its other end.
    Other,
    /// Never.
    Never,
}

impl Pair {
    /// Devices that carry frames and count drops.
    pub fn new(ports: [AnyPort; 2], end: End) -> Pair {
        let _kept = Vec::new();
        Pair { ports, _kept, ends: ends(), end, counts_drops: true, carries_frames: true }
    }

    /// The way of frames that the device with this index sends.
    pub fn route(&self, from: usize) -> Route {
        (self.ends[from], self.ends[1 - from])
    }

    pub fn send(&mut self, from: usize, numbers: std::ops::Range<u32>) -> u32 {
        let route = self.route(from);
        send(&mut self.ports[from], Instant::ZERO, route, numbers)
    }

    /// Receives what the other device sent.
    pub fn receive(&mut self, at: usize, most: usize) -> Result<Vec<u32>, DeviceError> {
        let route = self.route(1 - at);
        receive(&mut self.ports[at], Instant::ZERO, route, most)
    }
}

/// Calls `look` until it is true, for a minute at most.
pub fn wait_for(mut look: impl FnMut() -> bool, what: &str) {
    for _ in 0..60_000 {
        if look() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited a minute for {what}");
}

/// All checks, on devices that lose nothing.
pub fn conform(make: impl Fn() -> Pair, remove: impl Fn(&str)) {
    in_order_without_loss(make());
    a_full_receiver_drops_and_counts(make());
    vlan_tags_arrive(make());
    frames_come_back_when_it_ends(make(), remove);
}

/// Frames of all sizes arrive once and in order, in both directions.
fn in_order_without_loss(mut pair: Pair) {
    const FRAMES: u32 = 2000;
    for direction in [0, 1] {
        let (mut sent, mut next) = (0, 0);
        // Gives the receiver its frames.
        pair.receive(1 - direction, 1).unwrap();
        wait_for(
            || {
                // Fewer than the receiver has frames, so that nothing may be lost.
                if sent - next < 32 {
                    let end = (sent + 1 + sent % 31).min(FRAMES);
                    sent += pair.send(direction, sent..end);
                }
                collect(&mut pair.ports[direction]);
                for _ in 0..8 {
                    let most = 1 + next as usize % 9;
                    for number in pair.receive(1 - direction, most).unwrap() {
                        assert_eq!(number, next, "lost, doubled or out of order");
                        next += 1;
                    }
                }
                next == FRAMES
            },
            "all frames",
        );
        let [a, b] = &mut pair.ports;
        for port in [a, b] {
            assert_eq!(port.drops().unwrap().unwrap_or_default().all(), 0);
            wait_for(
                || {
                    collect(port);
                    port.account().counts().sending == 0
                },
                "sent frames",
            );
        }
    }
    end(pair);
}

/// A receiver that nobody reads keeps what it has room for. The rest is dropped and counted, and
/// the sender is not held up.
fn a_full_receiver_drops_and_counts(mut pair: Pair) {
    let mut sent = 0;
    // Gives the receiver its frames.
    pair.receive(1, 1).unwrap();
    wait_for(
        || {
            let now = pair.send(0, sent..sent + 16);
            sent += now;
            collect(&mut pair.ports[0]);
            // The wire drops when it is read, and holds so many frames till then.
            let is_full = matches!(pair.end, End::Other) && now == 0;
            let drops = pair.ports[1].drops().unwrap();
            is_full || drops.map_or(sent >= 192, |drops| drops.no_room > 0)
        },
        "a drop",
    );
    // Before the receiver gets a frame back.
    let mut parts = Vec::with_capacity(1000);
    wait_for(
        || {
            pair.ports[1].receive(Instant::ZERO, &mut parts).unwrap();
            !parts.is_empty()
        },
        "the first frames",
    );
    let first = u32::try_from(parts.len()).unwrap();
    assert!((1..=RECEIVING).contains(&first), "{first}");
    for part in parts {
        pair.ports[1].release(part.frame).unwrap();
    }
    if !pair.counts_drops {
        return end(pair);
    }
    let mut received = first;
    wait_for(
        || {
            collect(&mut pair.ports[0]);
            received += u32::try_from(pair.receive(1, 64).unwrap().len()).unwrap();
            let drops = pair.ports[1].drops().unwrap().unwrap();
            assert_eq!(drops.too_long, 0);
            drops.no_room > 0 && u64::from(received) + drops.no_room == u64::from(sent)
        },
        "each frame, received or counted",
    );
    end(pair);
}

/// Frames with one or two tags, of both kinds, arrive with them.
fn vlan_tags_arrive(mut pair: Pair) {
    if !pair.carries_frames {
        return end(pair);
    }
    let tags: [&[u8]; 4] = [
        &[0x81, 0, 0xA0, 7],
        &[0x81, 0, 0, 0],
        &[0x88, 0xA8, 0x2F, 0xFF],
        &[0x88, 0xA8, 0, 1, 0x81, 0, 0xE0, 2],
    ];
    let route = pair.route(0);
    pair.receive(1, 1).unwrap();
    for (number, tags) in (0..).zip(tags) {
        let mut sent = frame(route, number, bytes_of(route, number * 100));
        sent.splice(12..12, tags.iter().copied());
        assert_eq!(send_bytes(&mut pair.ports[0], &sent), Ok(1));
        wait_for(
            || {
                collect(&mut pair.ports[0]);
                let found = receive_bytes(&mut pair.ports[1], Instant::ZERO, 8).unwrap();
                // The kernel of an interface may send frames of its own.
                found.contains(&sent)
            },
            "a frame with its tags",
        );
    }
    end(pair);
}

/// Everything is accounted for once both devices are closed.
pub fn end(pair: Pair) {
    for port in pair.ports {
        assert!(port.close().all_free());
    }
}

/// Both devices report that the interface is gone, and their frames come back.
fn frames_come_back_when_it_ends(mut pair: Pair, remove: impl Fn(&str)) {
    pair.receive(1, 1).unwrap();
    assert!(pair.send(0, 0..16) > 0);
    let [first, second] = pair.ports;
    let mut ports = Vec::from([second]);
    match pair.end {
        End::Never => ports.clear(),
        End::Other => assert!(first.close().all_free()),
        End::Interface(name) => {
            ports.push(first);
            remove(name);
        }
    }
    for mut port in ports {
        wait_for(
            || {
                let mut found = receive_bytes(&mut port, Instant::ZERO, 4).err();
                if found.is_none()
                    && let Some(frame) = port.take()
                {
                    let part = Descriptor { frame, offset: 0, length: 60 };
                    found = port.transmit(Instant::ZERO, None, &[part]).err();
                    if found.is_some() {
                        port.release(frame).unwrap();
                    }
                }
                match found {
                    Some(DeviceError::Down(error)) => {
                        println!("gone: {error}");
                        true
                    }
                    Some(other) => panic!("{other}"),
                    None => false,
                }
            },
            "an error",
        );
        assert!(port.close().all_free());
    }
}
