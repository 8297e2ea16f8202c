//! A receiver of proportional-share-1998 §5, as a program that knows nothing of Upcall: it reads a
//! message from a UDP socket, computes for a known CPU time, and goes on. Also the program that
//! only computes, in place of Dhrystone.
//!
//! ```text
//! program-receiver PORT COST_US SECONDS   reads and computes
//! program-receiver spin SECONDS           computes
//! ```
//!
//! A message of one byte ends it, and so does the end of its SECONDS. Then it prints one line:
//! messages, and the time of each job in microseconds, from the arrival of its message or the end
//! of the former job to its end. The first 8 bytes of a message are the time at which it was sent
//! (CLOCK_MONOTONIC, in ns).

#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> u64 {
        arguments.get(at).and_then(|text| text.parse().ok()).expect("PORT COST_US SECONDS")
    };
    match arguments.first().map(String::as_str) {
        Some("spin") => spin(now_ns(ClockId::Monotonic) + number(1) * 1_000_000_000),
        Some(port) => receive(port, number(1) * 1_000, number(2)),
        None => panic!("found no argument, expected PORT or `spin`"),
    }
}

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or_default()
}

fn spin(until_ns: u64) {
    let mut iterations = 0_u64;
    while now_ns(ClockId::Monotonic) < until_ns {
        iterations += 1;
    }
    println!("{iterations}");
}

fn compute(cost_ns: u64) {
    let until_ns = now_ns(ClockId::ThreadCPUTime) + cost_ns;
    while now_ns(ClockId::ThreadCPUTime) < until_ns {}
}

fn receive(port: &str, cost_ns: u64, seconds: u64) {
    let socket = UdpSocket::bind(format!("127.0.0.1:{port}")).expect("the port is free");
    // An end without messages.
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a valid time");
    let until_ns = now_ns(ClockId::Monotonic) + seconds * 1_000_000_000;
    let (mut message, mut ended_ns, mut jobs_us) = ([0_u8; 2_048], 0, Vec::new());
    while now_ns(ClockId::Monotonic) < until_ns {
        let Ok(length) = socket.recv(&mut message) else { continue };
        let Some(sent) = message[..length].first_chunk::<8>() else { break };
        let begun_ns = ended_ns.max(u64::from_le_bytes(*sent));
        compute(cost_ns);
        ended_ns = now_ns(ClockId::Monotonic);
        jobs_us.push((ended_ns.saturating_sub(begun_ns) / 1_000).to_string());
    }
    println!("{} {}", jobs_us.len(), jobs_us.join(" "));
}
