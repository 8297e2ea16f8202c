//! Part `loopback`: a client and a server of one machine (rtu-1995 §7.3, Figure 9), idle and
//! loaded.
//!
//! Client and server share one CPU, and UDP is the kernel's. Each is a loop of an ordinary thread
//! that sends, or receives, one packet a call; or a handler of 20 ms (client) and 10 ms (server).
//! The receive buffer is that of the paper. A handler sends its batch in each period, however large
//! its packets are, and the buffer takes it. So the last column shows that batch, and whether it
//! arrives. A loop sends more in 10 ms than the buffer takes. The handler that serves it then takes
//! a full buffer each period, and the middle column shows how much that is.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Batch, Config, Runtime};
use upcall_benches::{measured_cpu, smoke};
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule;
use upcall_sys::udp::{ReceiveBatch, SendBatch, UdpSocket};

use crate::pacing::Hogs;
use crate::streams;

const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 5030);
const SIZES: [usize; 5] = [512, 1024, 2048, 4096, 8192];
/// The socket buffer of the paper, in bytes.
const BUFFER_BYTES: usize = 192 << 10;
/// Packets that the client sends in a period, one a PDU. The buffer holds 11 of the largest.
const SENT: u32 = 10;
/// Most packets of a system call of the server: its PDU.
const TAKEN: usize = 64;
/// Most PDUs of the server in a period: more than the buffer holds of the smallest packets.
const BATCH: u32 = 8;

/// Measures and prints all rows. `ms` a run.
pub fn measure(ms: u64) {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(status.is_ok_and(|status| status.success()), "ip(8) fails");
    println!("\nA client and a server on one CPU (rtu-1995, Figure 9), {ms} ms a run");
    println!(
        "A handler sends {SENT} packets each 20 ms, and takes what the buffer holds each 10 ms."
    );
    println!(
        "{:<8} {:>6} {:>19} {:>19} {:>19}",
        "load", "bytes", "loop to loop", "loop to handler", "handler to handler"
    );
    for is_loaded in [false, true] {
        let _hogs = is_loaded.then(Hogs::start);
        for &bytes in if smoke() { &SIZES[..1] } else { &SIZES[..] } {
            let cells = [(false, false), (false, true), (true, true)].map(|(client, server)| {
                let (sent, received) = run(client, server, bytes, ms);
                let rate = (received * bytes as u64) as f64 * 8.0 / 1e3 / ms as f64;
                format!("{rate:.1} ({:.1} %)", 100.0 * received as f64 / sent.max(1) as f64)
            });
            let [loops, mixed, handlers] = cells;
            let load = if is_loaded { "loaded" } else { "idle" };
            println!("{load:<8} {bytes:>6} {loops:>19} {mixed:>19} {handlers:>19}");
        }
    }
    println!("Mbit/s of payload that the server received, and the part of what was sent");
}

/// Packets that were sent and received.
fn run(client: bool, server: bool, bytes: usize, ms: u64) -> (u64, u64) {
    let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let socket = UdpSocket::bind(SERVER.into()).expect("a socket");
    socket.set_receive_buffer(BUFFER_BYTES).expect("a buffer");
    let peer = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
    peer.connect(SERVER.into()).expect("a peer");
    let config = Config { cpus: vec![measured_cpu()], ..Config::default() };
    let mut runtime = Runtime::start(config).expect("a runtime");
    let end = monotonic_ns() + ms * 1_000_000;
    std::thread::scope(|scope| {
        // Relaxed: the counts are read when all is over.
        if server {
            let mut packets = ReceiveBatch::new(TAKEN, 16 << 10);
            let count = received.clone();
            let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(100));
            let work = move |batch: &mut Batch<'_>| {
                while batch.proceed() {
                    let found = packets.receive(&socket).expect("recvmmsg");
                    count.fetch_add(found as u64, Ordering::Relaxed);
                    if found < TAKEN {
                        return;
                    }
                }
            };
            let id = runtime.handler("server", need.batch(BATCH), work).expect("a handler");
            runtime.run(id).expect("it runs");
        } else {
            let (received, is_over) = (&received, &is_over);
            scope.spawn(move || {
                schedule::set_ordinary().expect("the ordinary class");
                streams::take_each(&socket, received, is_over);
            });
        }
        let payload = vec![7; bytes];
        if client {
            let mut packets = SendBatch::new(1, bytes);
            let (count, over) = (sent.clone(), is_over.clone());
            let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(50));
            let work = move |batch: &mut Batch<'_>| {
                while !over.load(Ordering::Relaxed) && batch.proceed() {
                    let _ = packets.push(&payload);
                    let taken = packets.flush(&peer).unwrap_or(0);
                    count.fetch_add(taken as u64, Ordering::Relaxed);
                }
            };
            let id = runtime.handler("client", need.batch(SENT), work).expect("a handler");
            runtime.run(id).expect("it runs");
            sleep_until_ns(end);
        } else {
            let sent = &sent;
            let thread = scope.spawn(move || {
                schedule::set_ordinary().expect("the ordinary class");
                let mut batch = SendBatch::new(1, bytes);
                while monotonic_ns() < end {
                    let _ = batch.push(&payload);
                    let taken = batch.flush(&peer).unwrap_or(0);
                    sent.fetch_add(taken as u64, Ordering::Relaxed);
                }
            });
            thread.join().expect("the client ends");
        }
        is_over.store(true, Ordering::Relaxed);
        // What is on its way.
        std::thread::sleep(std::time::Duration::from_millis(100));
    });
    runtime.stop(|_, _| {});
    (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed))
}
