//! Part `streams`: six streams share a link (rtu-1996 §8, Figure 7), and what a receiver gets of a
//! steady sender by packet size (Figure 6), idle and loaded.
//!
//! In Figure 7 one handler fills six flows, which always have packets, and the owner sends at the
//! rate of the link. The receivers are sockets of one ordinary process in the other namespace, with
//! large buffers. In Figure 6 the sender is steady, and the receiver has the buffer that the kernel
//! gives by default. It is a loop of an ordinary thread, as in the paper, or of a `SCHED_FIFO` one;
//! a handler with a kernel socket; or a handler with a flow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upcall::activity::ActivityParams;
use upcall::clock::now;
use upcall::net::{FlowForm, FlowTerms, InterfaceSettings, Share, Spread, UdpInterface};
use upcall::time::Span;
use upcall::{Config, Runtime};
use upcall_benches::{measured_cpu, smoke};
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule;
use upcall_sys::udp::{ReceiveBatch, SendBatch, UdpSocket};

use crate::pacing::Hogs;
use crate::wire::{INTERFACE, OURS, THEIRS, Wire};

/// Ports of the six receivers.
const PORTS: std::ops::Range<u16> = 5010..5016;
const PORT: u16 = 5020;
const PERIOD: Span = Span::from_millis(1);
/// As in the paper, in bits a second.
const LINK: u64 = 78_600_000;
/// Packets a second of the steady sender.
const RATE: u64 = 20_000;

/// In bytes. A flow takes no fragments.
const SIZES: [usize; 5] = [512, 1024, FLOW_BYTES_MAX, 4096, 8192];
const FLOW_BYTES_MAX: usize = 1472;

/// Measures and prints both figures.
pub fn measure(ms: u64) {
    println!("\nSix streams at 78.6 Mbit/s (rtu-1996, Figure 7), {ms} ms a run");
    println!("{:<8} {:<12} {:>7}  Mbit/s of each; worst deviation", "load", "weights", "Mbit/s");
    let weights = [[1, 2, 3, 4, 5, 6], [1; 6]];
    for &weights in if smoke() { &weights[..1] } else { &weights } {
        let mut idle = f64::NAN;
        for is_loaded in [false, true] {
            let _hogs = is_loaded.then(Hogs::start);
            let bytes = share(weights, ms);
            let all: u64 = bytes.iter().sum();
            let parts: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            let deviation = |(&got, &weight): (&u64, &u32)| {
                let expected = all as f64 * f64::from(weight) / parts as f64;
                (got as f64 - expected).abs() / expected * 100.0
            };
            let worst = bytes.iter().zip(&weights).map(deviation).fold(0.0, f64::max);
            let rate = |bytes: u64| bytes as f64 * 8.0 / 1e3 / ms as f64;
            if !is_loaded {
                idle = rate(all);
            }
            let each: Vec<String> = bytes.iter().map(|&it| format!("{:.2}", rate(it))).collect();
            println!(
                "{:<8} {:<12} {:>7.2}  {}; {worst:.2} %, {:.2} % of idle",
                if is_loaded { "loaded" } else { "idle" },
                weights.map(|weight| weight.to_string()).join(":"),
                rate(all),
                each.join(" "),
                rate(all) / idle * 100.0,
            );
        }
    }
    println!("\nReceived of {RATE} packets/s by size (rtu-1996, Figure 6), {ms} ms a run");
    println!(
        "{:<8} {:>6} {:>14} {:>14} {:>14} {:>14}",
        "load", "bytes", "recv loop", "FIFO loop", "handler", "flow"
    );
    for is_loaded in [false, true] {
        let _hogs = is_loaded.then(Hogs::start);
        for &bytes in if smoke() { &SIZES[..1] } else { &SIZES[..] } {
            let cells = ["loop", "fifo", "handler", "flow"].map(|way| {
                let fits = way != "flow" || bytes <= FLOW_BYTES_MAX;
                fits.then(|| steady(way, bytes, ms)).map_or("-".to_owned(), |(got, sent)| {
                    let rate = (got * bytes as u64) as f64 * 8.0 / 1e3 / ms as f64;
                    format!("{rate:.1} ({:.1} %)", 100.0 * got as f64 / sent.max(1) as f64)
                })
            });
            let [by_loop, by_fifo, handler, flow] = cells;
            let load = if is_loaded { "loaded" } else { "idle" };
            println!("{load:<8} {bytes:>6} {by_loop:>14} {by_fifo:>14} {handler:>14} {flow:>14}");
        }
    }
    println!("Mbit/s of payload, and the part of the packets that were sent");
}

fn runtime() -> Runtime {
    let config = Config { cpus: vec![measured_cpu()], ..Config::default() };
    Runtime::start(config).expect("a runtime")
}

/// Bytes that each receiver got in the time.
fn share(weights: [u32; 6], ms: u64) -> Vec<u64> {
    let wire = Wire::lay(1500);
    let spread = Spread { period: PERIOD, link_bits_per_second: Some(LINK) };
    let settings = InterfaceSettings { frames: 2048, spread, ..InterfaceSettings::default() };
    let mut interface = UdpInterface::open(INTERFACE, settings).expect("the interface");
    let mut flows = Vec::new();
    for (weight, port) in weights.into_iter().zip(PORTS) {
        let (local, send) = (SocketAddr::from((OURS, 0)), Share::Weight(weight));
        let form = FlowForm { receive_slots: 16, transmit_slots: 64 };
        let terms = FlowTerms { local, receive: None, send, form };
        flows.push((interface.bind(terms).expect("a flow").1, SocketAddr::from((THEIRS, port))));
    }
    let payload = [7; 1000];
    let mut runtime = runtime();
    let need = ActivityParams::new(PERIOD, Span::from_micros(300));
    let id = runtime
        .handler("sender", need, move |batch| {
            while batch.proceed() {
                for (flow, peer) in &mut flows {
                    while flow.send(&payload, *peer).expect("a flow") {}
                    flow.flush();
                }
                interface.process(now(), 64).expect("the interface");
            }
        })
        .expect("a handler");
    runtime.run(id).expect("it runs");
    let receiver = wire.start(&format!("count {ms}"));
    let output = receiver.wait_with_output().expect("the receiver ends");
    runtime.stop(|_, _| {});
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The role of the six receivers: prints the bytes of each.
pub fn count(ms: u64) {
    // The receivers are not what is measured.
    let _ = schedule::set_fifo(10);
    let sockets: Vec<UdpSocket> = PORTS
        .map(|port| {
            let socket = UdpSocket::bind((THEIRS, port).into()).expect("a socket");
            socket.set_receive_buffer(16 << 20).expect("a buffer");
            socket
        })
        .collect();
    let mut batch = ReceiveBatch::new(64, 2048);
    let mut take = |socket: &UdpSocket| -> u64 {
        let mut bytes = 0;
        while batch.receive(socket).expect("recvmmsg") > 0 {
            bytes += batch.datagrams().map(|it| it.payload.len() as u64).sum::<u64>();
        }
        bytes
    };
    // Until the link address is known and the rate is even.
    std::thread::sleep(std::time::Duration::from_millis(500));
    for socket in &sockets {
        take(socket);
    }
    let mut bytes = vec![0; sockets.len()];
    let end = monotonic_ns() + ms * 1_000_000;
    while monotonic_ns() < end {
        std::thread::sleep(std::time::Duration::from_millis(1));
        sockets.iter().zip(&mut bytes).for_each(|(socket, bytes)| *bytes += take(socket));
    }
    println!("{}", bytes.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
}

/// Packets that the receiver got, and that were sent.
fn steady(way: &str, bytes: usize, ms: u64) -> (u64, u64) {
    let wire = Wire::lay(1500);
    let sender = || wire.start(&format!("steady {bytes} {ms}"));
    let got = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let local = SocketAddr::from((OURS, PORT));
    let over = |sender: std::process::Child| {
        let output = sender.wait_with_output().expect("the sender ends");
        std::thread::sleep(std::time::Duration::from_millis(100));
        // Relaxed: it orders nothing else.
        is_over.store(true, Ordering::Relaxed);
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    };
    let sent = match way {
        "loop" | "fifo" => std::thread::scope(|scope| {
            let socket = UdpSocket::bind(local).expect("a socket");
            let (got, is_over) = (&got, &is_over);
            scope.spawn(move || {
                if way == "loop" {
                    schedule::set_ordinary().expect("the ordinary class");
                }
                take_each(&socket, got, is_over);
            });
            over(sender())
        }),
        _ => {
            let mut take: Box<dyn FnMut() -> u64 + Send> = if way == "flow" {
                let settings = InterfaceSettings { frames: 512, ..InterfaceSettings::default() };
                let mut interface = UdpInterface::open(INTERFACE, settings).expect("the interface");
                let form = FlowForm { receive_slots: 128, transmit_slots: 16 };
                let terms = FlowTerms { local, receive: None, send: Share::Weight(1), form };
                let mut flow = interface.bind(terms).expect("a flow").1;
                let mut copy = [0; 2048];
                Box::new(move || {
                    let mut packets = 0;
                    while interface.process(now(), 64).expect("the interface").0 > 0 {
                        while flow.receive(&mut copy).expect("a flow").is_some() {
                            packets += 1;
                        }
                    }
                    packets
                })
            } else {
                let socket = UdpSocket::bind(local).expect("a socket");
                let mut batch = ReceiveBatch::new(64, 16 << 10);
                Box::new(move || {
                    let mut packets = 0;
                    loop {
                        let found = batch.receive(&socket).expect("recvmmsg") as u64;
                        packets += found;
                        if found < 64 {
                            return packets;
                        }
                    }
                })
            };
            let mut runtime = runtime();
            let need = ActivityParams::new(PERIOD, Span::from_micros(300));
            let all = got.clone();
            let id = runtime
                .handler("receiver", need, move |batch| {
                    while batch.proceed() {
                        all.fetch_add(take(), Ordering::Relaxed);
                    }
                })
                .expect("a handler");
            runtime.run(id).expect("it runs");
            let sent = over(sender());
            runtime.stop(|_, _| {});
            sent
        }
    };
    (got.load(Ordering::Relaxed), sent)
}

/// A loop that takes one datagram a call, and counts them. Blocks until `is_over`.
pub fn take_each(socket: &UdpSocket, got: &AtomicU64, is_over: &AtomicBool) {
    let mut batch = ReceiveBatch::new(1, 16 << 10);
    // Relaxed: the count is read when all is over.
    while !is_over.load(Ordering::Relaxed) {
        socket.wait_readable(50_000_000);
        got.fetch_add(batch.receive(socket).expect("recv") as u64, Ordering::Relaxed);
    }
}

/// The role of the steady sender: prints how many datagrams it sent.
pub fn send_steadily(bytes: usize, ms: u64) {
    // The sender is not what is measured.
    let _ = schedule::set_fifo(10);
    let socket = UdpSocket::bind((THEIRS, 0).into()).expect("a socket");
    socket.connect((OURS, PORT).into()).expect("a peer");
    socket.set_send_buffer(4 << 20).expect("a buffer");
    let each = (RATE / 1000) as usize;
    let mut batch = SendBatch::new(each, bytes);
    let payload = vec![7; bytes];
    let (mut wake, mut sent) = (monotonic_ns(), 0);
    let end = wake + ms * 1_000_000;
    while wake < end {
        wake += 1_000_000;
        sleep_until_ns(wake);
        while batch.len() < each && batch.push(&payload).is_ok() {}
        sent += batch.flush(&socket).unwrap_or(0);
    }
    println!("{sent}");
}
