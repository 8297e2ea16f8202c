//! A sender: packets at a rate, constant or with exponential times between them.
//!
//! It sleeps to absolute times. All packets that are due go with one system call, and the kernel
//! makes them in one go (`UDP_SEGMENT`). So one CPU sends hundreds of thousands of them a second.
//! They cross the wire one by one (`bench::wire`).

use std::net::SocketAddr;
use std::time::Duration;

use upcall::udp::Sender;

use super::counts::Sent;
use super::dialogue::{now_ns as now, print_counts, times};
use crate::exit::Failure;

/// Most packets of one system call.
const BATCH: u32 = 64;

/// Sends packets of `bytes`, so many a second, bursty or not, with this seed for the gaps.
///
/// # Errors
/// The system has no socket left.
pub fn send(
    to: SocketAddr,
    bytes: usize,
    (rate, bursty, seed): (u64, bool, u64),
) -> Result<(), Failure> {
    let length = u32::try_from(bytes).map_err(Failure::of_error)?;
    let mut sender = Sender::connect(to, BATCH, length).map_err(Failure::of_error)?;
    let Some(times) = times()? else { return Ok(()) };
    times.sleep_until_begin();
    let mut packet = vec![0_u8; bytes.max(8)];
    let mut due = Due { begin_ns: times.begin_ns, rate, gaps: bursty.then(|| Gaps::new(seed)) };
    let mut held = 0;
    for number in 0_u64.. {
        let due_ns = due.of(number);
        let mut now_ns = now();
        if due_ns > now_ns || held == BATCH {
            sender.flush();
            held = 0;
        }
        if due_ns >= times.end_ns || now_ns >= times.end_ns {
            break;
        }
        if due_ns > now_ns {
            std::thread::sleep(Duration::from_nanos(due_ns - now_ns));
            now_ns = now();
        }
        packet[..8].copy_from_slice(&now_ns.to_le_bytes());
        sender.send(&packet[..bytes]);
        held += 1;
    }
    sender.flush();
    print_counts(&Sent { packets: sender.counters().received.value() })
}

/// When packets are due.
struct Due {
    begin_ns: u64,
    rate: u64,
    gaps: Option<Gaps>,
}

impl Due {
    /// The time of packet `number`. With gaps, the packets must be asked for in order.
    fn of(&mut self, number: u64) -> u64 {
        match &mut self.gaps {
            None => {
                let offset_ns = u128::from(number) * 1_000_000_000 / u128::from(self.rate.max(1));
                self.begin_ns + u64::try_from(offset_ns).unwrap_or(u64::MAX / 2)
            }
            Some(gaps) => {
                let mean_ns = 1e9 / self.rate.max(1) as f64;
                self.begin_ns + gaps.next_ns(mean_ns)
            }
        }
    }
}

/// Exponential gaps from random numbers by xorshift64*, the same for the same seed.
struct Gaps {
    state: u64,
    sum_ns: f64,
}

impl Gaps {
    fn new(seed: u64) -> Self {
        Gaps {
            state: 0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0x2545_f491_4f6c_dd1d),
            sum_ns: 0.0,
        }
    }

    /// The sum of the gaps up to the next packet.
    fn next_ns(&mut self, mean_ns: f64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let bits = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        // Above 0, at most 1.
        let part = (bits + 1) as f64 / (1_u64 << 53) as f64;
        self.sum_ns -= part.ln() * mean_ns;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let sum_ns = self.sum_ns as u64;
        sum_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_packets_are_due_without_drift() {
        let mut due = Due { begin_ns: 5, rate: 90, gaps: None };
        assert_eq!((due.of(0), due.of(90), due.of(90_000)), (5, 1_000_000_005, 1_000_000_000_005));
    }

    #[test]
    fn gaps_have_the_mean_of_the_rate_and_differ_by_seed() {
        let of = |seed| {
            let mut due = Due { begin_ns: 0, rate: 100, gaps: Some(Gaps::new(seed)) };
            (0..10_000).map(|number| due.of(number)).collect::<Vec<_>>()
        };
        let (one, other) = (of(1), of(2));
        assert!(one.is_sorted() && one != other);
        for times in [one, other] {
            // 100 s; the standard deviation is 1 s.
            assert!((95e9..105e9).contains(&(times[9_999] as f64)), "{}", times[9_999]);
        }
    }
}
