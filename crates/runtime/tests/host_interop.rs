//! `upcall_proto::host` against the kernel, over a TAP device: the host is at one end, and the
//! kernel with its tools at the other.
//!
//! Each test runs in a process with a network namespace of its own, which goes with the process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use upcall_core::time::{Instant, Span};
use upcall_proto::flow::UDP;
use upcall_proto::host::{
    AddressPrefix, Host, HostSettings, Input, PathError, PathErrorKind, RouteError,
};
use upcall_proto::packet::{Frame, LinkAddress, build, check, parse};
use upcall_runtime::net::{Descriptor, FileDevice, FrameForm, FrameSize, Port, area};

const FORM: FrameForm = FrameForm { frames: 128, size: FrameSize::Half };
const LINK: LinkAddress = [2, 0, 0, 0, 0, 1];
/// Addresses of the host. Those of the kernel end in 2.
const OWN: [(&str, u8); 3] = [("10.0.0.1", 24), ("2001:db8::1", 64), ("fe80::1", 64)];

/// The host with the device, and what came of the frames.
struct Interface {
    port: Port<FileDevice>,
    host: Host,
    begin: std::time::Instant,
    errors: Vec<PathError>,
    /// Payloads of datagrams to the port 7.
    datagrams: Vec<Vec<u8>>,
    /// What the host sent.
    sent: Vec<Vec<u8>>,
}

impl Interface {
    /// A host on the new TAP device `tap`.
    fn new() -> Interface {
        let area = area(FORM).unwrap();
        let device = FileDevice::tap(&area, "tap").unwrap();
        let addresses =
            OWN.map(|(text, prefix_bits)| AddressPrefix { address: address(text), prefix_bits });
        let gateways = vec![address("10.0.0.2"), address("2001:db8::2")];
        let settings =
            HostSettings { link: LINK, mtu: 1500, addresses: addresses.into(), gateways, seed: 7 };
        Interface {
            port: Port::new(area, device, 64),
            host: Host::new(settings).unwrap(),
            begin: std::time::Instant::now(),
            errors: Vec::new(),
            datagrams: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + Span::from(self.begin.elapsed())
    }

    /// Gives the host what arrived, and sends what it has to send.
    fn work(&mut self) {
        let mut parts = Vec::with_capacity(32);
        let now = self.now();
        self.port.receive(now, &mut parts).unwrap();
        for part in parts {
            let mut frame = vec![0; part.length.into()];
            self.port.area().part(part).unwrap().copy_to(0, &mut frame);
            self.port.release(part.frame).unwrap();
            self.input(&frame, now);
        }
        let mut out = [0; 1514];
        while let Some(length) = self.host.output(&mut out, now) {
            self.send(&out[..length]);
            self.sent.push(out[..length].to_vec());
        }
        self.port.collect(&mut Vec::with_capacity(32)).unwrap();
    }

    fn input(&mut self, frame: &[u8], now: Instant) {
        let Ok(parsed) = parse(frame) else { return };
        if let Frame::Ip(headers) = &parsed
            && headers.destination.protocol == UDP
        {
            assert_eq!(check(frame, headers), Ok(()));
            match headers.destination.port {
                7 => self.datagrams.push(frame[headers.payload.clone()].to_vec()),
                _ => self.host.unreachable(frame, headers, now),
            }
            return;
        }
        if let Input::Error(error) = self.host.input(frame, &parsed, now) {
            self.errors.push(error);
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let frame = self.port.take().unwrap();
        let part = Descriptor { frame, offset: 0, length: u16::try_from(bytes.len()).unwrap() };
        assert_eq!(self.port.area().part(part).unwrap().fill(0, bytes), bytes.len());
        assert_eq!(self.port.transmit(self.now(), None, &[part]), Ok(1));
    }

    /// Sends a datagram from the port 7 in a packet of `packet_bytes`, once the way is known.
    fn send_datagram(&mut self, to: SocketAddr, packet_bytes: usize) {
        let mut found = Err(RouteError::Resolving);
        self.work_until("a way", |it| {
            found = it.host.path(None, to.ip(), it.now());
            found != Err(RouteError::Resolving)
        });
        let header = if to.is_ipv4() { 28 } else { 48 };
        let payload = vec![b'x'; packet_bytes - header];
        let mut out = [0; 1514];
        let length = build::udp(&mut out, found.unwrap(), (7, to.port()), &payload).unwrap();
        self.send(&out[..length]);
    }

    /// Works until `look` is true, for a minute at most.
    fn work_until(&mut self, what: &str, mut look: impl FnMut(&mut Interface) -> bool) {
        for _ in 0..120_000 {
            self.work();
            if look(self) {
                return;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        panic!("waited a minute for {what}");
    }

    /// Works while a command runs. Returns its output if it succeeded.
    fn run(&mut self, command: &str) -> Result<String, String> {
        let mut parts = command.split(' ');
        let mut child = Command::new(parts.next().unwrap());
        let mut child = child.args(parts).stdout(Stdio::piped()).spawn().unwrap();
        self.work_until(command, |_| child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if output.status.success() { Ok(text) } else { Err(text) }
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Runs `work` in a process with a network namespace of its own, by the `test` of this file that
/// calls it.
fn in_own_network(test: &str, work: fn()) {
    if std::env::var_os("UPCALL_OWN_NETWORK").is_some() {
        return work();
    }
    if !Path::new("/dev/net/tun").exists() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no /dev/net/tun");
        return;
    }
    let mut command = Command::new("unshare");
    command.arg("--net").arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    let output = command.env("UPCALL_OWN_NETWORK", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{error}");
}

/// Runs a command that takes no frames of the host.
fn run(command: &str) -> String {
    let mut parts = command.split(' ');
    let output = Command::new(parts.next().unwrap()).args(parts).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Gives the kernel's end of the link, `interface`, its addresses.
fn set_up(interface: &str) {
    run("ip link set lo up");
    run("ip link set tap up");
    run(&format!("ip address add 10.0.0.2/24 dev {interface}"));
    run(&format!("ip address add 2001:db8::2/64 dev {interface} nodad"));
    for _ in 0..60_000 {
        let found = run("ip -oneline link show tap");
        if found.contains("LOWER_UP") && !found.contains("qdisc noop ") {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited a minute for the interface");
}

#[test]
#[ignore = "needs root, ip, unshare and ping: an interface in its own network"]
fn ping_is_answered_and_the_kernel_knows_the_link_address() {
    in_own_network("ping_is_answered_and_the_kernel_knows_the_link_address", || {
        let mut interface = Interface::new();
        set_up("tap");
        for (family, own, payload) in
            [("-4", "10.0.0.1", 56), ("-4", "10.0.0.1", 1472), ("-6", "2001:db8::1", 1452)]
        {
            let command = format!("ping {family} -c 3 -i 0.2 -W 5 -s {payload} {own}");
            let text = interface.run(&command).unwrap();
            assert!(text.contains("3 received, 0% packet loss"), "{text}");
        }
        for own in ["10.0.0.1", "2001:db8::1"] {
            let found = run("ip neighbor show dev tap");
            let expected = format!("{own} lladdr 02:00:00:00:00:01 ");
            let line = found.lines().find(|line| line.starts_with(&expected));
            assert!(line.is_some_and(|line| line.contains("REACHABLE")), "{found}");
        }
        // An address of nobody is not answered.
        let text = interface.run("ping -4 -c 1 -W 1 10.0.0.77").unwrap_err();
        assert!(text.contains("0 received"), "{text}");
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn datagrams_and_their_errors_go_both_ways() {
    in_own_network("datagrams_and_their_errors_go_both_ways", || {
        let mut interface = Interface::new();
        set_up("tap");
        for (own, kernel) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
            let (own, kernel) = (address(own), address(kernel));
            let socket = UdpSocket::bind((kernel, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            // Nobody has the port: the kernel's socket is refused.
            socket.connect((own, 9)).unwrap();
            socket.send(b"nobody").unwrap();
            interface.work_until("a refusal", |_| {
                let found = socket.recv(&mut [0; 9]).unwrap_err().kind();
                assert!([ErrorKind::WouldBlock, ErrorKind::ConnectionRefused].contains(&found));
                found == ErrorKind::ConnectionRefused
            });
            // Somebody has it.
            socket.connect((own, 7)).unwrap();
            socket.send(b"somebody").unwrap();
            interface.work_until("a datagram", |it| !it.datagrams.is_empty());
            assert_eq!(std::mem::take(&mut interface.datagrams), [b"somebody"]);
            let mut bytes = [0; 2000];
            interface.send_datagram(socket.local_addr().unwrap(), 1500);
            let mut received = 0;
            interface.work_until("an answer", |_| match socket.recv(&mut bytes) {
                Ok(length) => {
                    received = length;
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    false
                }
            });
            assert_eq!(received, if kernel.is_ipv4() { 1472 } else { 1452 });
            // Nobody has the port of the kernel.
            interface.send_datagram((kernel, 9).into(), 100);
            interface.work_until("an error", |it| !it.errors.is_empty());
            let error = interface.errors.remove(0);
            assert_eq!((error.local.address.to_canonical(), error.local.port), (own, 7));
            assert_eq!((error.peer, error.kind), ((kernel, 9), PathErrorKind::PortUnreachable));
        }
        // Nobody has the address.
        let nobody = address("10.0.0.77");
        interface.work_until("three requests", |it| {
            it.host.path(None, nobody, it.now()) == Err(RouteError::Unreachable)
        });
        assert_eq!(interface.host.counts().neighbors_failed, 1);
    });
}

#[test]
#[ignore = "needs root, ip, bridge and unshare: an interface in its own network"]
fn a_bridge_of_older_versions_knows_the_groups_of_the_host() {
    in_own_network("a_bridge_of_older_versions_knows_the_groups_of_the_host", || {
        a_bridge_knows_the_groups("mcast_igmp_version 2 mcast_mld_version 1");
    });
}

#[test]
#[ignore = "needs root, ip, bridge and unshare: an interface in its own network"]
fn a_bridge_of_newer_versions_knows_the_groups_of_the_host() {
    in_own_network("a_bridge_of_newer_versions_knows_the_groups_of_the_host", || {
        a_bridge_knows_the_groups("mcast_igmp_version 3 mcast_mld_version 2");
    });
}

/// A bridge, which asks with these `versions`, learns from the host which groups it is in.
fn a_bridge_knows_the_groups(versions: &str) {
    let mut interface = Interface::new();
    // It asks each second, and wants answers within half of one; in units of 10 ms.
    let asks = "mcast_querier 1 mcast_query_interval 100 mcast_query_response_interval 50";
    let first = "mcast_startup_query_interval 100";
    run(&format!("ip link add lan type bridge mcast_snooping 1 {asks} {first} {versions}"));
    run("ip link set tap master lan");
    run("ip link set lan up");
    set_up("lan");
    let knows = |group: &str| {
        let found = run("bridge mdb show dev lan");
        found.lines().any(|line| {
            let mut words = line.split_whitespace();
            line.contains("port tap") && words.any(|word| word == group)
        })
    };
    for group in ["239.1.2.3", "ff0e::5"] {
        assert!(!knows(group));
        let now = interface.now();
        interface.host.join(address(group), now).unwrap();
        interface.work_until("the join", |_| knows(group));
        // Two for the join, and the others are answers. A report ends with its group.
        let octets = match address(group) {
            IpAddr::V4(group) => group.octets().to_vec(),
            IpAddr::V6(group) => group.octets().to_vec(),
        };
        interface.work_until("answers", |it| {
            it.sent.iter().filter(|frame| frame.ends_with(&octets)).count() >= 4
        });
        assert!(knows(group));
        let now = interface.now();
        interface.host.leave(address(group), now).unwrap();
        // The bridge asks whether others are in the group.
        interface.work_until("the leave", |_| !knows(group));
    }
}

#[test]
#[ignore = "needs root, ip and unshare: interfaces in their own network"]
fn a_narrow_link_behind_the_kernel_lowers_the_path_mtu() {
    in_own_network("a_narrow_link_behind_the_kernel_lowers_the_path_mtu", || {
        let mut interface = Interface::new();
        set_up("tap");
        for (name, mtu, own, peer) in [
            ("narrow4", 600, "192.0.2.1/24", "192.0.2.2"),
            ("narrow6", 1300, "2001:db8:1::1/64", "2001:db8:1::2"),
        ] {
            run(&format!("ip link add {name} mtu {mtu} type veth peer name far-{name} mtu {mtu}"));
            run(&format!("ip link set far-{name} up"));
            run(&format!("ip link set {name} up"));
            let no_dad = if own.contains(':') { " nodad" } else { "" };
            run(&format!("ip address add {own} dev {name}{no_dad}"));
            run(&format!("ip neighbor add {peer} lladdr 02:00:00:00:00:07 dev {name}"));
        }
        for path in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/{path}"), "1").unwrap();
        }
        for (peer, mtu) in [("192.0.2.2", 600), ("2001:db8:1::2", 1300)] {
            let to: SocketAddr = (address(peer), 5004).into();
            let limit = |it: &Interface| it.host.packet_bytes_max(to.ip(), it.now());
            assert_eq!(limit(&interface), 1500);
            interface.send_datagram(to, 1500);
            interface.work_until("an error", |it| !it.errors.is_empty());
            let error = interface.errors.remove(0);
            assert_eq!((error.kind, error.peer), (PathErrorKind::TooBig { mtu }, (to.ip(), 5004)));
            assert_eq!(limit(&interface), mtu);
            // A packet of this size passes.
            let name = if to.is_ipv4() { "narrow4" } else { "narrow6" };
            let sent = || run(&format!("ip -s -oneline link show {name}"));
            let before = sent();
            interface.send_datagram(to, mtu.into());
            interface.work_until("the packet", |_| sent() != before);
            assert_eq!(interface.errors, []);
        }
    });
}
