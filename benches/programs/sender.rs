//! The senders of the messages, as threads of the bench.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use upcall_sys::clock::monotonic_ns;

/// Sends messages of `bytes` to a port at `rate` a second until `until`. With `bursty` the times
/// between them are exponential with that mean. Returns how many were sent.
pub(crate) fn send(port: u16, (bytes, rate): (usize, u64), bursty: bool, until: Instant) -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(port));
    let mut message = vec![0_u8; bytes];
    let (mean, mut next, mut sent) = (1.0 / rate as f64, Instant::now(), 0);
    loop {
        let gap = if bursty { -random.part().ln() * mean } else { mean };
        next += Duration::from_secs_f64(gap);
        if next >= until {
            return sent;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        message[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
        // It fails while the receiver has not started: that message is lost, as over a network.
        sent += u64::from(socket.send_to(&message, ("127.0.0.1", port)).is_ok());
    }
}

/// Random numbers by xorshift64*, the same in each run.
struct Random(u64);

impl Random {
    /// Above 0, at most 1.
    fn part(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (bits + 1) as f64 / (1_u64 << 53) as f64
    }
}
