//! Part `packets`: what a packet costs its receiver, by seven paths.
//!
//! A sender on another CPU floods one port. The receiver wakes each millisecond, takes all that has
//! come, and sleeps again. It never polls, so its CPU time is that of packets and of 1000 wake-ups
//! a second, the same for each path. All of its time from the first packet to the last counts. Two
//! tables:
//!
//! - Kernel's work on the receiver's CPU: a thread of the kernel (threaded NAPI) takes the packets
//!   there, and its CPU time counts. This is what a packet costs the CPU of the receiver.
//! - Kernel's work on the sender's CPU, as a veth pair does it by itself. It is not counted, so
//!   this is what a packet costs the receiving thread.
//!
//! | path | what the receiver does |
//! |---|---|
//! | ring | takes frames from the AF_XDP ring and gives them back; looks at no byte |
//! | ring+read | the same, and copies each payload, as any program that uses it must read it |
//! | recvmmsg | up to 64 datagrams a system call, with arrival times and the count of drops |
//! | plain | the same without arrival times and the count of drops |
//! | joined | as plain, with `UDP_GRO`: the kernel joins datagrams, up to 64 to one |
//! | flow | the owner of the interface and a flow: headers, queue, copy of the payload |
//! | apart | the flow of another process, in one thread here: one more copy, and no switch |
//!
//! Senders on this machine leave the checksum to the interface, and the wire is virtual. So no path
//! sums a payload: the kernel trusts the mark of the packet, and a flow the sum of its addresses.
//! The sender hands over runs of datagrams (`UDP_SEGMENT`), which its kernel takes apart before the
//! wire. In `joined` of the first table the receiver's kernel joins them again. In that of the
//! second they cross the wire as one packet, as on no real wire. The ratio to `ring` shows how far
//! a path is from a floor that no receiver can reach. In the first table that floor is high: veth
//! copies a packet into a frame before the XDP program, which a real interface does not. So its
//! ratios are lower than on a real interface.

use std::fmt;
use std::net::SocketAddr;

use upcall::clock::now;
use upcall::net::{
    Descriptor, Device as _, FlowForm, FlowMemory, FlowOffer, FlowTerms, FrameForm, FrameSize,
    InterfaceSettings, Share, UdpInterface, XdpDevice, area,
};
use upcall::time::{Instant, Span};
use upcall_benches::calm::{Calm, Try, why_none_is_judged};
use upcall_benches::{at_percent, measured_cpu, smoke};
use upcall_sys::af_xdp::CopyMode;
use upcall_sys::clock::{monotonic_ns, sleep_until_ns, thread_cpu_ns};
use upcall_sys::early_drop::{Destination, EarlyDrop, Request};
use upcall_sys::interface::index;
use upcall_sys::udp::{ReceiveBatch, SendBatch, UdpSocket};

use crate::wire::{INTERFACE, NapiThread, OURS, THEIRS, Wire};

/// The port of the receiver.
const PORT: u16 = 5004;
/// How often the receiver looks.
const PERIOD_NS: u64 = 1_000_000;
/// 1 % of the CPU for a row.
const CALM: Calm = Calm { tries_max: 3, stolen_ms_max: 10, wait_s_max: 10, ..Calm::ONCE };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Recvmmsg,
    Plain,
    Joined,
    Ring,
    RingAndRead,
    Flow,
    Apart,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Way::Recvmmsg => "recvmmsg",
            Way::Plain => "plain",
            Way::Joined => "joined",
            Way::Ring => "ring",
            Way::RingAndRead => "ring+read",
            Way::Flow => "flow",
            Way::Apart => "apart",
        })
    }
}

/// The order in which they are measured: the ring first, for the ratios.
const WAYS: [Way; 7] =
    [Way::Ring, Way::RingAndRead, Way::Recvmmsg, Way::Plain, Way::Joined, Way::Flow, Way::Apart];

/// Where the kernel works on received packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// In a thread on the receiver's CPU. Its time counts.
    Counted,
    /// On the CPU of the sender.
    Apart,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Row {
    received: u64,
    bytes: u64,
    ns: u64,
    /// Of the receiving thread.
    cpu_ns: u64,
    /// Of the kernel's thread.
    kernel_ns: u64,
    sent: u64,
}

impl Row {
    fn cpu_ns_a_packet(&self) -> f64 {
        (self.cpu_ns + self.kernel_ns) as f64 / self.received.max(1) as f64
    }
}

/// Payloads of frames of 106 and 1514 bytes.
pub const SIZES: [u32; 2] = [64, 1472];

/// Measures and prints all rows. `ms` a run.
pub fn measure(ms: u64, runs: u32, sizes: &[u32]) {
    for (kernel, title) in [
        (Kernel::Counted, "CPU of the receiver a packet, with the kernel's work for it"),
        (Kernel::Apart, "CPU of the receiving thread a packet; the kernel works on the other CPU"),
    ] {
        println!("\n{title}; {ms} ms a run, {runs} runs of all paths in turn");
        println!("{}", notes(kernel));
        println!(
            "{:>6} {:<9} {:>10} {:>8} {:>8} {:>9} {:>9} {:>7}  tries",
            "bytes", "path", "packets/s", "lost %", "CPU %", "kernel ns", "ns/packet", "ratio"
        );
        sizes.iter().for_each(|&bytes| measure_size(kernel, bytes, ms, runs));
    }
}

/// What stands above a table.
fn notes(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Counted => {
            "The receiver looks 1000 times a second on each path, and never polls. All of its CPU time \
             counts\nfrom the first packet to the last, and that of the kernel's thread (kernel ns). \
             recvmmsg: 64\ndatagrams a call, with arrival times and drop counts; plain: without these. \
             joined: plain, and the\nreceiver's kernel joins datagrams (UDP_GRO). apart: owner and flow \
             in one thread, so no switch\nbetween processes. For ring, flow and apart veth copies each \
             packet before the XDP program."
        }
        Kernel::Apart => {
            "As above, but what the kernel does before the socket or the ring does not count. joined: \
             the\ndatagrams cross the virtual wire as one packet, as on no real wire."
        }
    }
}

fn measure_size(kernel: Kernel, payload_bytes: u32, ms: u64, runs: u32) {
    let rule = if smoke() { Calm::ONCE } else { CALM };
    let mut costs = WAYS.map(|_| Vec::new());
    for _ in 0..runs {
        let mut ring = f64::NAN;
        for (way, costs) in WAYS.into_iter().zip(&mut costs) {
            let tries = rule.runs(|| run(way, kernel, payload_bytes, ms));
            let marks: Vec<String> = tries.iter().map(Try::marked).collect();
            let marks = marks.join(" ");
            let Some(row) = tries.iter().find(|it| it.judged).map(|it| it.result) else {
                println!("{payload_bytes:>6} {way:<9} {}: {marks}", why_none_is_judged(&tries));
                continue;
            };
            assert_eq!(row.bytes, row.received * u64::from(payload_bytes), "wrong payloads");
            let cost = row.cpu_ns_a_packet();
            if way == Way::Ring {
                ring = cost;
            }
            costs.push((cost, cost / ring));
            println!(
                "{payload_bytes:>6} {way:<9} {:>10.0} {:>8.2} {:>8.1} {:>9.1} {cost:>9.1} {:>7.2}  \
                 {marks}",
                row.received as f64 * 1e9 / row.ns as f64,
                100.0 * row.sent.saturating_sub(row.received) as f64 / row.sent.max(1) as f64,
                100.0 * (row.cpu_ns + row.kernel_ns) as f64 / row.ns as f64,
                row.kernel_ns as f64 / row.received.max(1) as f64,
                cost / ring,
            );
        }
    }
    for (way, costs) in WAYS.into_iter().zip(&costs) {
        println!(
            "{payload_bytes:>6} {way:<9} of {} runs: {} ns, ratio {}",
            costs.len(),
            spread(costs.iter().map(|it| it.0), 1),
            spread(costs.iter().map(|it| it.1).filter(|it| it.is_finite()), 2),
        );
    }
}

/// The median, and the 10th and 90th percentile by nearest rank.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let [Some(p10), Some(p50), Some(p90)] =
        [10.0, 50.0, 90.0].map(|percent| at_percent(&values, percent))
    else {
        return "not measured".to_owned();
    };
    format!("median {p50:.digits$}, p10 {p10:.digits$}, p90 {p90:.digits$}")
}

/// What the receiver of a run needs.
struct Run {
    wire: Wire,
    kernel: Kernel,
    /// The role of the sender.
    sender: String,
}

fn run(way: Way, kernel: Kernel, payload_bytes: u32, ms: u64) -> Row {
    let sender = format!("flood {payload_bytes} {ms}");
    let run = Run { wire: Wire::lay(1500), kernel, sender };
    if way == Way::Joined && kernel == Kernel::Apart {
        run.wire.carry_joined();
    }
    match way {
        Way::Recvmmsg | Way::Plain | Way::Joined => by_socket(&run, way),
        Way::Ring => by_ring(&run, false),
        Way::RingAndRead => by_ring(&run, true),
        Way::Flow => by_flow(&run, false),
        Way::Apart => by_flow(&run, true),
    }
}

impl Run {
    /// Calls `take` each millisecond while the sender runs, and a little longer. `take` returns
    /// packets and payload bytes. `has_program`: an XDP program is attached.
    fn drive(&self, has_program: bool, mut take: impl FnMut() -> (u64, u64)) -> Row {
        let thread = (self.kernel == Kernel::Counted)
            .then(|| self.wire.process_in_thread(measured_cpu(), !has_program));
        let kernel_ns = || thread.map_or(0, NapiThread::cpu_ns);
        let now = || (monotonic_ns(), thread_cpu_ns());
        let mut sender = self.wire.start(&self.sender);
        let kernel = kernel_ns();
        let (mut received, mut bytes) = (0, 0);
        let mut begin = None;
        let mut last = now();
        let mut wake = last.0;
        loop {
            wake += PERIOD_NS;
            sleep_until_ns(wake);
            let woken = now();
            let (packets, more) = take();
            received += packets;
            bytes += more;
            if packets > 0 {
                begin.get_or_insert(woken);
                last = now();
            } else if woken.0 > last.0 + 300_000_000 && matches!(sender.try_wait(), Ok(Some(_))) {
                break;
            }
        }
        let begin = begin.expect("a packet comes");
        let (ns, cpu_ns) = (last.0 - begin.0, last.1 - begin.1);
        let kernel_ns = kernel_ns() - kernel;
        let output = sender.wait_with_output().expect("the sender ends");
        let sent = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
        Row { received, bytes, ns, cpu_ns, kernel_ns, sent }
    }
}

fn by_socket(run: &Run, way: Way) -> Row {
    let socket = UdpSocket::bind((OURS, PORT).into()).expect("a socket");
    socket.set_receive_buffer(64 << 20).expect("a buffer");
    let joins = way == Way::Joined;
    if joins {
        socket.join_datagrams().expect("UDP_GRO");
    }
    if way != Way::Recvmmsg {
        socket.omit_control().expect("setsockopt");
    }
    let mut batch = ReceiveBatch::new(64, if joins { 65536 } else { 2048 });
    let mut copy = [0; 2048];
    run.drive(false, || {
        let (mut packets, mut bytes) = (0, 0);
        loop {
            let found = batch.receive(&socket).expect("recvmmsg");
            for datagram in batch.datagrams() {
                let each = datagram.joined_bytes.unwrap_or(datagram.payload.len()).max(1);
                for payload in datagram.payload.chunks(each) {
                    // As a program that looks at it.
                    copy[..payload.len()].copy_from_slice(payload);
                    std::hint::black_box(&copy);
                    bytes += payload.len() as u64;
                    packets += 1;
                }
            }
            if found < 64 {
                return (packets, bytes);
            }
        }
    })
}

fn by_ring(run: &Run, reads: bool) -> Row {
    let area = area(FrameForm { frames: 4096, size: FrameSize::Half }).expect("an area");
    let interface = index(INTERFACE).expect("the interface");
    let mut device = XdpDevice::open(&area, interface, 1, CopyMode::Copy).expect("AF_XDP");
    let mut program = EarlyDrop::attach(interface, Request::Auto).expect("a program");
    let page = upcall_shm::quota_page::Owner::new(program.map_quota_page().expect("a page"));
    let page = page.expect("a page");
    page.set_action(1, upcall_shm::quota_page::Action::Redirect { socket: 0 });
    let socket = device.sockets().next().expect("one queue");
    program.insert_socket(0, socket).expect("a socket");
    let mut free: Vec<u32> = (0..4096).collect();
    device.supply(&mut free).expect("frames");
    program
        .insert(Destination { address: OURS.into(), protocol: 17, port: PORT }, 1)
        .expect("a destination");
    let mut parts: Vec<Descriptor> = Vec::with_capacity(32);
    let mut copy = [0; 2048];
    run.drive(true, || {
        let (mut packets, mut bytes) = (0, 0);
        loop {
            parts.clear();
            device.receive(Instant::ZERO, &mut parts).expect("frames");
            if parts.is_empty() {
                return (packets, bytes);
            }
            for part in &parts {
                // Ethernet, IPv4 and UDP.
                bytes += u64::from(part.length) - 42;
                if reads {
                    let (_, payload) = part.split(42);
                    area.part(payload).expect("a part").copy_to(0, &mut copy);
                    std::hint::black_box(&copy);
                }
                free.push(part.frame);
            }
            packets += parts.len() as u64;
            device.supply(&mut free).expect("frames");
        }
    })
}

fn by_flow(run: &Run, apart: bool) -> Row {
    let settings = InterfaceSettings { frames: 8192, ..InterfaceSettings::default() };
    let mut interface = UdpInterface::open(INTERFACE, settings).expect("the interface");
    let form = FlowForm { receive_slots: 4096, transmit_slots: 64 };
    let local = SocketAddr::from((OURS, PORT));
    let terms = FlowTerms { local, receive: None, send: Share::Weight(1), form };
    let mut flow = match apart {
        false => interface.bind(terms).expect("a flow").1,
        true => {
            let offer = FlowOffer::create(form, FrameSize::Half).expect("files");
            let fds = offer.fds().map(|fd| fd.try_clone_to_owned().expect("a descriptor"));
            let of_program = FlowMemory::take(fds, form, FrameSize::Half).expect("memory");
            let memory = offer.accept().expect("memory");
            let (_, local, wake) = interface.bind_apart(terms, memory).expect("a flow");
            of_program.attach(local, wake).expect("a flow")
        }
    };
    let mut copy = [0; 2048];
    run.drive(true, || {
        let (mut packets, mut bytes) = (0, 0);
        loop {
            let (received, _) = interface.process(now(), 64).expect("packets");
            while let Some((length, ..)) = flow.receive(&mut copy).expect("a datagram") {
                bytes += length as u64;
                packets += 1;
            }
            std::hint::black_box(&copy);
            if received == 0 {
                return (packets, bytes);
            }
        }
    })
}

/// The role of the sender: floods for `ms`, and prints how many datagrams it sent.
pub fn flood(payload_bytes: usize, ms: u64) {
    let socket = UdpSocket::bind((THEIRS, 0).into()).expect("a socket");
    socket.connect((OURS, PORT).into()).expect("a peer");
    let mut batch = SendBatch::new(64, payload_bytes);
    // The kernel makes packets of a run in one call. Most cross the wire one by one (`Wire::lay`).
    batch.join_runs();
    let payload = vec![7; payload_bytes];
    let end = now() + Span::from_millis(ms);
    let mut sent = 0;
    while now() < end {
        while batch.len() < 64 && batch.push(&payload).is_ok() {}
        sent += batch.flush(&socket).unwrap_or(0) as u64;
    }
    println!("{sent}");
}
