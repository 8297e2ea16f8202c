//! UDP in user space on a real interface, against the kernel's UDP in another network namespace.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/lent.rs"]
mod lent;
#[path = "support/own_network.rs"]
mod own_network;

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use lent::lent;
use own_network::{
    ECHO, Peer, echo_server, in_own_network, move_into, namespace, run, serve_echo, wait_for,
};
use upcall_core::time::{Instant, Span};
use upcall_runtime::clock::now;
use upcall_runtime::net::{
    FlowTerms, InterfaceSettings, NoteKind, Quota, Received, Share, UdpFlow, UdpInterface,
};

const PORT: u16 = 5004;
const OURS: [&str; 2] = ["10.77.0.1", "fd77::1"];
const THEIRS: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// The veth pair `ours` and `theirs`. The kernel of another network namespace has `theirs`, and
/// echoes datagrams.
fn network() -> [Peer; 2] {
    let (namespace, there) = namespace();
    run("ip link add ours type veth peer name theirs");
    move_into(&namespace, "theirs");
    for (prefix, interface, addresses) in [("", "ours", OURS), (&*there, "theirs", THEIRS)] {
        run(&format!("{prefix}ip address add {}/24 dev {interface}", addresses[0]));
        run(&format!("{prefix}ip address add {}/64 dev {interface} nodad", addresses[1]));
        run(&format!("{prefix}ip link set {interface} up"));
    }
    [echo_server(&there), namespace]
}

/// The echo server of [`network`], in a process of its own.
#[test]
#[ignore = "a part of other tests"]
fn as_echo_server() {
    serve_echo(Ipv6Addr::UNSPECIFIED.into());
}

fn terms(local: SocketAddr) -> FlowTerms {
    FlowTerms::new(local)
}

fn interface() -> UdpInterface {
    let interface = UdpInterface::open("ours", InterfaceSettings::default()).unwrap();
    println!("{}", interface.reason());
    interface
}

/// Sends `bytes` to `peer` until it comes back.
fn exchange(interface: &mut UdpInterface, flow: &mut UdpFlow, bytes: &[u8], peer: SocketAddr) {
    let mut back = vec![0; 2048];
    let mut looks = 0;
    let found = |interface: &mut UdpInterface, flow: &mut UdpFlow| {
        if looks % 500 == 0 {
            // Again, should the server not be there yet.
            assert!(flow.send(bytes, peer).unwrap());
        }
        looks += 1;
        flow.flush();
        interface.process(now(), 64).unwrap();
        let received = flow.receive(&mut back).unwrap();
        received.is_some_and(|(length, from, arrival)| {
            assert!(from == peer && arrival <= now());
            // An echo of a datagram that was sent again may be late.
            &back[..length] == bytes
        })
    };
    let mut found = found;
    wait_for(|| found(interface, flow), "the echo");
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn a_flow_and_the_kernel_exchange_datagrams() {
    in_own_network("a_flow_and_the_kernel_exchange_datagrams", &[], || {
        let _peers = network();
        let mut interface = interface();
        for (ours, theirs) in OURS.into_iter().zip(THEIRS) {
            let [ours, theirs]: [IpAddr; 2] = [ours, theirs].map(|it| it.parse().unwrap());
            let peer = SocketAddr::new(theirs, ECHO);
            let (slot, mut flow) = interface.bind(terms(SocketAddr::new(ours, PORT))).unwrap();
            let any_port = terms(SocketAddr::new(ours, 0));
            let (memory, of_program) = lent(any_port.form);
            let (_, local, wake) = interface.bind_apart(any_port, memory).unwrap();
            let mut apart = of_program.attach(local, wake).unwrap();
            let most = 1500 - 8 - if ours.is_ipv4() { 20 } else { 40 };
            for length in [0, 1, 17, 64, 500, most] {
                let bytes: Vec<u8> =
                    (0..length).map(|at: usize| (at * 7 + length).to_le_bytes()[0]).collect();
                exchange(&mut interface, &mut flow, &bytes, peer);
                exchange(&mut interface, &mut apart, &bytes, peer);
            }
            // One byte more is not sent, and the program learns it.
            assert!(flow.send(&vec![0; most + 1], peer).unwrap());
            flow.flush();
            interface.process(now(), 64).unwrap();
            let told = std::iter::from_fn(|| flow.take().unwrap()).find_map(|it| match it {
                Received::Error { kind, .. } => Some(kind),
                _ => None,
            });
            assert_eq!(told, Some(NoteKind::TooLong { packet_bytes_max: 1500 }));
            let counts = interface.owner().flow_counts(slot).unwrap();
            assert_eq!((counts.too_long, counts.checksum, counts.receive_full), (1, 0, 0));
            assert!(counts.received >= 6 && counts.sent >= 6, "{counts:?}");
            // A port of nobody is the kernel's, as before.
            let kernel = UdpSocket::bind((ours, 0)).unwrap();
            kernel.send_to(b"kernel", peer).unwrap();
            kernel.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut back = [0; 16];
            assert_eq!(kernel.recv_from(&mut back).unwrap(), (6, peer));
        }
        // The programs of two flows are gone: their ports are free again.
        interface.process(now(), 64).unwrap();
        let port_is_free = UdpSocket::bind((OURS[0].parse::<IpAddr>().unwrap(), PORT)).is_ok();
        assert!(port_is_free);
        let counts = interface.owner().counts();
        assert_eq!((counts.faults, counts.account_errors, counts.malformed), (0, 0, 0));
    });
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn a_flow_gets_no_more_than_its_quota() {
    in_own_network("a_flow_gets_no_more_than_its_quota", &[], || {
        let _peers = network();
        let mut interface = interface();
        let [ours, theirs]: [IpAddr; 2] = [OURS[0], THEIRS[0]].map(|it| it.parse().unwrap());
        let peer = SocketAddr::new(theirs, ECHO);
        let quota = Quota { step_ns: 0, interval_ns: 20_000_000, depth: 3, at_once: 1 };
        let limited = FlowTerms { receive: Some(quota), ..terms(SocketAddr::new(ours, PORT)) };
        let (slot, mut flow) = interface.bind(limited).unwrap();
        let (_, mut other) = interface.bind(terms(SocketAddr::new(ours, 0))).unwrap();
        exchange(&mut interface, &mut flow, b"first", peer);
        let begin = now();
        let (mut sent, mut received, mut others) = (0, 0, 0);
        let mut bytes = [0; 64];
        while now() < begin + Span::from_millis(500) {
            sent += u64::from(flow.send(b"flood", peer).unwrap());
            let _ = other.send(b"other", peer).unwrap();
            flow.flush();
            other.flush();
            interface.process(now(), 64).unwrap();
            received += std::iter::from_fn(|| flow.receive(&mut bytes).unwrap()).count();
            others += std::iter::from_fn(|| other.receive(&mut bytes).unwrap()).count();
        }
        let elapsed = now().since(begin).as_nanos();
        let most = elapsed / quota.interval_ns + u64::from(quota.depth) + 1;
        assert!(sent > 4 * most, "the flow sent only {sent}");
        // The program stops for as long as the host does, so there is no lower bound near the rate.
        assert!((most / 4..=most).contains(&(received as u64)), "{received} of at most {most}");
        let counters = interface.program_counts(slot);
        assert!(counters.dropped > 0, "{counters:?}");
        assert!(others > received, "the other flow got {others}");
    });
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn paced_flows_leave_one_by_one() {
    in_own_network("paced_flows_leave_one_by_one", &[], || {
        let _peers = network();
        let mut interface = interface();
        let [ours, theirs]: [IpAddr; 2] = [OURS[0], THEIRS[0]].map(|it| it.parse().unwrap());
        let peer = SocketAddr::new(theirs, ECHO);
        let interval = Span::from_millis(2);
        let paced =
            FlowTerms { send: Share::Paced { interval }, ..terms(SocketAddr::new(ours, PORT)) };
        let (slot, mut flow) = interface.bind(paced).unwrap();
        exchange(&mut interface, &mut flow, b"first", peer);
        let before = interface.owner().flow_counts(slot).unwrap().sent;
        for _ in 0..32 {
            assert!(flow.send(b"paced", peer).unwrap());
        }
        let begin = now();
        flow.flush();
        let mut times: Vec<Instant> = Vec::new();
        let done = |times: &mut Vec<Instant>| {
            let at = now();
            let (_, sent) = interface.process(at, 64).unwrap();
            // One after a stop of this test, which is late, and the next one.
            assert!(sent <= 2, "{sent} packets of a paced flow at once");
            times.extend((0..sent).map(|_| at));
            times.len() == 32
        };
        let mut done = done;
        wait_for(|| done(&mut times), "32 packets");
        assert_eq!(interface.owner().flow_counts(slot).unwrap().sent - before, 32);
        // None is before its eligible time, whenever this test ran.
        for (time, number) in times.iter().zip(0..) {
            let earliest = begin + interval.saturating_mul(number);
            // Half a period of the owner early.
            assert!(*time + Span::from_micros(500) >= earliest, "packet {number}");
        }
    });
}

/// rtu-1996 §5.2: no system call for a packet.
#[test]
#[ignore = "needs root, ip, unshare, nsenter and strace: an interface in its own network"]
fn packets_that_keep_coming_cost_no_system_call_and_a_sent_batch_one() {
    const PACKETS: u64 = 32;
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls.txt");
    let strace = ["strace", "-f", "-o", calls.to_str().unwrap()];
    let test = "packets_that_keep_coming_cost_no_system_call_and_a_sent_batch_one";
    let work = || {
        let _peers = network();
        let mut interface = interface();
        let [ours, theirs]: [IpAddr; 2] = [OURS[0], THEIRS[0]].map(|it| it.parse().unwrap());
        let peer = SocketAddr::new(theirs, ECHO);
        let (slot, mut flow) = interface.bind(terms(SocketAddr::new(ours, PORT))).unwrap();
        exchange(&mut interface, &mut flow, b"first", peer);
        // These calls show up among the others.
        let mark = |name: &str| assert!(!std::path::Path::new(name).exists());
        for _ in 0..PACKETS {
            assert!(flow.send(b"count", peer).unwrap());
        }
        flow.flush();
        let before = interface.program_counts(slot).passed;
        // The path is looked up again each second: not within the marks.
        interface.owner().output(now(), 0).unwrap();
        mark("/upcall-send");
        let sent = interface.owner().output(now(), 64).unwrap();
        mark("/upcall-sent");
        assert_eq!(u64::from(sent), PACKETS);
        wait_for(|| interface.program_counts(slot).passed >= before + PACKETS, "the echoes");
        std::thread::sleep(Duration::from_millis(50));
        let mut bytes = [0; 64];
        let mut received = 0;
        mark("/upcall-receive");
        for _ in 0..PACKETS / 4 {
            interface.owner().input(now(), 4).unwrap();
            for _ in 0..4 {
                received += u64::from(flow.receive(&mut bytes).unwrap().is_some());
            }
            flow.flush();
        }
        mark("/upcall-received");
        assert_eq!(received, PACKETS);
    };
    in_own_network(test, &strace, work);
    // The inner process ends here too.
    if std::env::var_os("UPCALL_OWN_NETWORK").is_none() {
        let calls = std::fs::read_to_string(calls).unwrap();
        let line_of = |name: &str| calls.lines().position(|line| line.contains(name)).unwrap();
        let between = |first: &str, last: &str| -> Vec<&str> {
            let (first, last) = (line_of(first), line_of(last));
            let thread = calls.lines().nth(first).unwrap().split(' ').next().unwrap();
            let lines = calls.lines().skip(first + 1).take(last - first - 1);
            lines.filter(|line| line.starts_with(thread)).collect()
        };
        assert_eq!(between("/upcall-receive\"", "/upcall-received"), Vec::<&str>::new());
        // Requests for the path aside, which come once a second, and second halves of lines.
        let sent = between("/upcall-send\"", "/upcall-sent");
        let is_call = |line: &&&str| !line.contains("nlmsg") && !line.contains(" resumed>");
        let sent: Vec<&&str> = sent.iter().filter(is_call).collect();
        assert!(sent.len() <= 1, "{sent:?}");
    }
}
