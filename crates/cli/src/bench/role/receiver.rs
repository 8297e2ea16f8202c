//! A receiver: it waits for a packet, computes, and waits for the next.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::computing::compute;
use super::counts::Received;
use super::dialogue::{now_ns, print_counts, times};
use crate::exit::Failure;

/// How long a receiver without packets waits, before it looks whether the time is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Receives at `port` and computes `rounds` for each packet. The first 8 bytes of a packet are the
/// time at which it was sent.
///
/// # Errors
/// The port is taken, or a call on the socket fails.
pub fn receive(port: u16, period_ns: u64, rounds: u64) -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(Failure::of_error)?;
    socket.set_read_timeout(Some(LOOK_EVERY)).map_err(Failure::of_error)?;
    let Some(times) = times()? else { return Ok(()) };
    let (mut packet, mut delays_ns, mut on_time) = ([0_u8; 2_048], Vec::new(), 0);
    while now_ns() < times.end_ns {
        let Ok(length) = socket.recv(&mut packet) else { continue };
        let Some(sent_ns) = packet[..length].first_chunk::<8>() else { continue };
        compute(rounds);
        let delay_ns = now_ns().saturating_sub(u64::from_le_bytes(*sent_ns));
        on_time += u64::from(delay_ns <= period_ns);
        delays_ns.push(delay_ns);
    }
    let mut left = 0;
    // The senders have stopped, so this ends.
    socket.set_nonblocking(true).map_err(Failure::of_error)?;
    std::thread::sleep(LOOK_EVERY);
    while socket.recv(&mut packet).is_ok() {
        left += 1;
    }
    delays_ns.sort_unstable();
    print_counts(&Received {
        packets: delays_ns.len() as u64,
        on_time,
        delay_ns_p50: percentile(&delays_ns, 50),
        delay_ns_p99: percentile(&delays_ns, 99),
        left,
        socket_drops: drops(port)?,
    })
}

/// The value that `percent` % of `sorted` do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// What the kernel dropped because the socket at `port` was full.
fn drops(port: u16) -> Result<u64, Failure> {
    const TABLE: &str = "/proc/self/net/udp";
    let table =
        fs::read_to_string(TABLE).map_err(|error| Failure::of_file(TABLE.as_ref(), error))?;
    drops_in(&table, port).ok_or_else(|| Failure::new(format_args!("{TABLE}: no port {port}")))
}

/// The last number of the line of a port: `sl local_address ... drops`.
fn drops_in(table: &str, port: u16) -> Option<u64> {
    let port = format!(":{port:04X}");
    let mut lines = table.lines().map(str::split_whitespace);
    let line = lines.find(|fields| fields.clone().nth(1).is_some_and(|at| at.ends_with(&port)))?;
    line.last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue drops\n\
                     1: 00000000:1389 00000000:0000 07 00000000:00000000 00:00000000 00000000 7\n\
                     2: 00000000:138A 00000000:0000 07 00000000:00000000 00:00000000 00000000 12\n";
        assert_eq!(drops_in(table, 5_001), Some(7));
        assert_eq!(drops_in(table, 5_002), Some(12));
        assert_eq!(drops_in(table, 5_003), None);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (Some(100), Some(198)));
        assert_eq!(percentile(&[], 50), None);
    }
}
