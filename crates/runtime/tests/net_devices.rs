//! One suite of checks for every device: order, loss, bounds, full rings, the account of frames,
//! and the end of an interface.
//!
//! A test of a real interface runs in a process with a network namespace of its own, which goes
//! with the process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use upcall_core::time::{Instant, Span};
use upcall_runtime::net::{
    Area, Choice, Chosen, Descriptor, Device, DeviceError, FileDevice, FrameForm, FrameSize,
    LinkSpec, MemoryDevice, Port, Redirect, XdpDevice, area, choose,
};
use upcall_shm::quota_page::{Action, Owner};
use upcall_sys::af_xdp::CopyMode;
use upcall_sys::early_drop::{Destination, EarlyDrop, Request};
use upcall_sys::interface::index;

const FORM: FrameForm = FrameForm { frames: 128, size: FrameSize::Half };
/// Frames that a device has to receive into.
const RECEIVING: u32 = 64;
const PORT: u16 = 9000;

type AnyPort = Port<Box<dyn Device>>;

/// Two devices that are connected, and what to do to make the interface of the second one go.
struct Pair {
    ports: [AnyPort; 2],
    /// Whatever must live as long as the devices.
    _kept: Vec<EarlyDrop>,
    delete: &'static str,
    /// Whether the receiver counts what it drops.
    counts_drops: bool,
}

fn port(area: Arc<Area>, device: impl Device + 'static) -> AnyPort {
    Port::new(area, Box::new(device), RECEIVING)
}

fn areas() -> [Arc<Area>; 2] {
    [area(FORM).unwrap(), area(FORM).unwrap()]
}

/// A UDP datagram of `bytes` with Ethernet, which has the number `number`.
fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = vec![number.to_le_bytes()[0]; bytes];
    let [ip_bytes, udp_bytes] = [bytes - 14, bytes - 34].map(|n| u16::try_from(n).unwrap());
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..34]
        .copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    let checksum = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..42].fill(0);
    frame[35] = 1;
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    frame[38..40].copy_from_slice(&udp_bytes.to_be_bytes());
    frame[42..46].copy_from_slice(&number.to_le_bytes());
    frame
}

/// The sum of the Internet checksum.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    u16::try_from((sum & 0xFFFF) + (sum >> 16)).unwrap()
}

/// The size of the frame with this number: each from 60 to 1514 comes up.
fn bytes_of(number: u32) -> usize {
    60 + (number as usize * 7) % 1455
}

/// Sends the frames of `numbers` that fit, and returns how many the device took.
fn send(port: &mut AnyPort, now: Instant, numbers: std::ops::Range<u32>) -> u32 {
    let mut parts = Vec::new();
    for number in numbers {
        let Some(taken) = port.take() else { break };
        let bytes = frame(number, bytes_of(number));
        let length = u16::try_from(bytes.len()).unwrap();
        let part = Descriptor { frame: taken, offset: 64, length };
        assert_eq!(port.area().part(part).unwrap().fill(0, &bytes), bytes.len());
        parts.push(part);
    }
    let sent = port.transmit(now, None, &parts).unwrap();
    parts[sent..].iter().for_each(|part| port.release(part.frame).unwrap());
    u32::try_from(sent).unwrap()
}

/// The numbers of our frames among those that arrived, each checked byte by byte.
fn receive(port: &mut AnyPort, now: Instant, most: usize) -> Result<Vec<u32>, DeviceError> {
    let mut parts = Vec::with_capacity(most);
    let received = port.receive(now, &mut parts);
    assert!(parts.len() <= most);
    let mut numbers = Vec::new();
    for part in parts {
        let mut bytes = vec![0; part.length.into()];
        port.area().part(part).unwrap().copy_to(0, &mut bytes);
        port.release(part.frame).unwrap();
        // The kernel of an interface may send frames of its own.
        if bytes.get(36..38) == Some(&PORT.to_be_bytes()) {
            let number = u32::from_le_bytes(bytes[42..46].try_into().unwrap());
            assert!(bytes == frame(number, bytes_of(number)), "frame {number} was changed");
            numbers.push(number);
        }
    }
    received.map(|()| numbers)
}

fn collect(port: &mut AnyPort) {
    let mut sent = Vec::with_capacity(32);
    port.collect(&mut sent).unwrap();
    assert!(sent.iter().all(|sent| sent.flow.is_none()));
}

/// Calls `look` until it is true, for a minute at most.
fn wait_for(mut look: impl FnMut() -> bool, what: &str) {
    for _ in 0..60_000 {
        if look() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited a minute for {what}");
}

/// All checks, on devices that lose nothing.
fn conform(make: impl Fn() -> Pair, remove: impl Fn(&str)) {
    in_order_without_loss(make());
    a_full_receiver_drops_and_counts(make());
    frames_come_back_when_it_ends(make(), remove);
}

/// Frames of all sizes arrive once and in order, in both directions.
fn in_order_without_loss(mut pair: Pair) {
    const FRAMES: u32 = 2000;
    for direction in [0, 1] {
        let (mut sent, mut next) = (0, 0);
        // Gives the receiver its frames.
        receive(&mut pair.ports[1 - direction], Instant::ZERO, 1).unwrap();
        wait_for(
            || {
                // Fewer than the receiver has frames, so that nothing may be lost.
                if sent - next < 32 {
                    let end = (sent + 1 + sent % 31).min(FRAMES);
                    sent += send(&mut pair.ports[direction], Instant::ZERO, sent..end);
                }
                collect(&mut pair.ports[direction]);
                for _ in 0..8 {
                    let most = 1 + next as usize % 9;
                    let port = &mut pair.ports[1 - direction];
                    for number in receive(port, Instant::ZERO, most).unwrap() {
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
            assert_eq!(port.drops().unwrap().unwrap_or(0), 0);
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
    receive(&mut pair.ports[1], Instant::ZERO, 1).unwrap();
    for _ in 0..12 {
        let now = send(&mut pair.ports[0], Instant::ZERO, sent..sent + 16);
        sent += now;
        collect(&mut pair.ports[0]);
    }
    assert!(sent > 0);
    // Before the receiver reads, so that it gets no frame back.
    let mut parts = Vec::with_capacity(1000);
    std::thread::sleep(Duration::from_millis(50));
    pair.ports[1].receive(Instant::ZERO, &mut parts).unwrap();
    let first = u32::try_from(parts.len()).unwrap();
    assert!((1..=RECEIVING).contains(&first), "{first}");
    for part in parts {
        pair.ports[1].release(part.frame).unwrap();
    }
    if !pair.counts_drops {
        println!("skipped: this device does not count drops");
        return end(pair);
    }
    let mut received = first;
    wait_for(
        || {
            collect(&mut pair.ports[0]);
            received +=
                u32::try_from(receive(&mut pair.ports[1], Instant::ZERO, 64).unwrap().len())
                    .unwrap();
            let drops = pair.ports[1].drops().unwrap().unwrap();
            u64::from(received) + drops == u64::from(sent)
        },
        "each frame, received or counted",
    );
    end(pair);
}

/// Everything is accounted for once both devices are closed.
fn end(pair: Pair) {
    for port in pair.ports {
        assert!(port.close().all_free());
    }
}

/// Both devices report that the interface is gone, and their frames come back.
fn frames_come_back_when_it_ends(mut pair: Pair, remove: impl Fn(&str)) {
    receive(&mut pair.ports[1], Instant::ZERO, 1).unwrap();
    assert!(send(&mut pair.ports[0], Instant::ZERO, 0..16) > 0);
    let delete = pair.delete;
    let [first, second] = pair.ports;
    let mut ports = Vec::from([second]);
    if delete.is_empty() {
        // A wire goes with its other end.
        assert!(first.close().all_free());
    } else {
        ports.push(first);
        remove(delete);
    }
    for mut port in ports {
        wait_for(
            || {
                let mut found = receive(&mut port, Instant::ZERO, 4).err();
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

#[test]
fn a_wire_in_memory_conforms() {
    let make = || {
        let areas = areas();
        let spec = LinkSpec::new(0, Span::ZERO);
        let [a, b] = MemoryDevice::pair([&areas[0], &areas[1]], spec, 1, 256);
        let [one, two] = areas;
        let ports = [port(one, a), port(two, b)];
        Pair { ports, _kept: Vec::new(), delete: "", counts_drops: true }
    };
    conform(make, |_| {});
}

#[test]
fn a_bad_wire_loses_doubles_and_reorders_the_same_frames_for_the_same_seed() {
    let run = |seed| {
        let areas = areas();
        let spec = LinkSpec {
            loss_ppm: 100_000,
            duplication_ppm: 100_000,
            reordering_ppm: 200_000,
            lateness: Span::from_micros(50),
            ..LinkSpec::new(0, Span::from_micros(10))
        };
        let [a, b] = MemoryDevice::pair([&areas[0], &areas[1]], spec, seed, 256);
        let [one, two] = areas;
        let [mut a, mut b] = [port(one, a), port(two, b)];
        let mut received = Vec::new();
        for step in 0..100 {
            let now = Instant::ZERO + Span::from_micros(u64::from(step) * 10);
            assert_eq!(send(&mut a, now, step * 4..step * 4 + 4), 4);
            collect(&mut a);
            received.extend(receive(&mut b, now, 64).unwrap());
        }
        assert_eq!(b.drops(), Ok(Some(0)));
        assert!(a.close().all_free() && b.close().all_free());
        received
    };
    let received = run(7);
    assert_eq!(received, run(7));
    assert_ne!(received, run(8));
    let mut distinct = received.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() < received.len(), "none was doubled");
    assert!(distinct.len() < 390, "none was lost");
    assert!(!received.is_sorted(), "none was late");
}

#[test]
fn a_frame_that_the_owner_does_not_have_is_not_sent() {
    let areas = areas();
    let spec = LinkSpec::new(0, Span::ZERO);
    let [a, b] = MemoryDevice::pair([&areas[0], &areas[1]], spec, 1, 256);
    let [mut a, mut b] = [port(areas[0].clone(), a), port(areas[1].clone(), b)];
    let frame = a.take().unwrap();
    let part = Descriptor { frame, offset: 0, length: 60 };
    // Twice in one batch: the first is sent.
    assert_eq!(a.transmit(Instant::ZERO, None, &[part, part]), Ok(1));
    assert!(matches!(a.transmit(Instant::ZERO, None, &[part]), Err(DeviceError::Account(_))));
    let free = Descriptor { frame: 77, ..part };
    assert!(matches!(a.transmit(Instant::ZERO, Some(1), &[free]), Err(DeviceError::Account(_))));
    collect(&mut a);
    let outside = Descriptor { frame: a.take().unwrap(), offset: 2000, length: 60 };
    assert!(matches!(a.transmit(Instant::ZERO, None, &[outside]), Err(DeviceError::Fault(_))));
    a.release(outside.frame).unwrap();
    let mut parts = Vec::with_capacity(4);
    b.receive(Instant::ZERO, &mut parts).unwrap();
    assert_eq!(parts.len(), 1);
    b.release(parts[0].frame).unwrap();
    assert!(b.release(parts[0].frame).is_err());
    assert!(a.close().all_free() && b.close().all_free());
}

/// Runs `work` in a process with a network namespace of its own, by the `test` of this file that
/// calls it. `with` is put before the command, to watch it.
fn in_own_network(test: &str, with: &[&str], work: fn()) {
    if std::env::var_os("UPCALL_OWN_NETWORK").is_some() {
        return work();
    }
    let mut command = Command::new("unshare");
    command.arg("--net").args(with).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    let output = command.env("UPCALL_OWN_NETWORK", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{error}");
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the veth pair `ours` and `theirs` anew.
fn veth() {
    // There is none the first time.
    let _ = Command::new("ip").args(["link", "delete", "ours"]).output().unwrap();
    ip("link add ours type veth peer name theirs");
    ["ours", "theirs"].into_iter().for_each(quiet);
    ["ours", "theirs"].into_iter().for_each(wait_until_up);
}

/// Sets an interface up, without frames of the kernel's own.
fn quiet(interface: &str) {
    ip(&format!("link set {interface} addrgenmode none"));
    ip(&format!("link set {interface} up"));
}

/// The kernel puts the queue of a new interface into use with a delay. It drops frames till then.
fn wait_until_up(interface: &str) {
    let is_up = || {
        let found = ip(&format!("-oneline link show {interface}"));
        found.contains("LOWER_UP") && !found.contains("qdisc noop ")
    };
    wait_for(is_up, "the interface");
}

fn delete(interface: &str) {
    ip(&format!("link delete {interface}"));
}

/// A program on `interface` that redirects our frames to the socket of `device`.
fn redirect(interface: &str, device: &XdpDevice) -> EarlyDrop {
    let mut program = EarlyDrop::attach(index(interface).unwrap(), Request::Auto).unwrap();
    let page = Owner::new(program.map_quota_page().unwrap()).unwrap();
    page.set_action(1, Action::Redirect { socket: 0 });
    program.insert_socket(0, device.socket()).unwrap();
    let address = std::net::Ipv4Addr::UNSPECIFIED.into();
    program.insert(Destination { address, protocol: 17, port: PORT }, 1).unwrap();
    program
}

fn xdp(interface: &str) -> (AnyPort, EarlyDrop) {
    let area = area(FORM).unwrap();
    let device = XdpDevice::open(&area, index(interface).unwrap(), 0, CopyMode::Copy).unwrap();
    let program = redirect(interface, &device);
    (port(area, device), program)
}

fn packet(interface: &str) -> AnyPort {
    let area = area(FORM).unwrap();
    let device = FileDevice::packet(&area, index(interface).unwrap()).unwrap();
    port(area, device)
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn packet_sockets_conform() {
    in_own_network("packet_sockets_conform", &[], || {
        let make = || {
            veth();
            let ports = [packet("ours"), packet("theirs")];
            Pair { ports, _kept: Vec::new(), delete: "ours", counts_drops: true }
        };
        conform(make, delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn a_tap_device_conforms() {
    in_own_network("a_tap_device_conforms", &[], || {
        if !std::path::Path::new("/dev/net/tun").exists() {
            println!("skipped: no /dev/net/tun");
            return;
        }
        let make = || {
            let area = area(FORM).unwrap();
            let device = FileDevice::tap(&area, "tap").unwrap();
            quiet("tap");
            wait_until_up("tap");
            let ports = [packet("tap"), port(area, device)];
            Pair { ports, _kept: Vec::new(), delete: "tap", counts_drops: false }
        };
        conform(make, delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn af_xdp_conforms_with_af_xdp() {
    in_own_network("af_xdp_conforms_with_af_xdp", &[], || {
        let make = || {
            veth();
            let [(one, first), (two, second)] = [xdp("ours"), xdp("theirs")];
            let _kept = vec![first, second];
            Pair { ports: [one, two], _kept, delete: "ours", counts_drops: true }
        };
        conform(make, delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn af_xdp_conforms_with_a_packet_socket() {
    in_own_network("af_xdp_conforms_with_a_packet_socket", &[], || {
        let make = || {
            veth();
            let (theirs, program) = xdp("theirs");
            let ports = [packet("ours"), theirs];
            Pair { ports, _kept: vec![program], delete: "ours", counts_drops: true }
        };
        conform(make, delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn the_choice_says_why() {
    in_own_network("the_choice_says_why", &[], || {
        veth();
        let (area, ours) = (area(FORM).unwrap(), index("ours").unwrap());
        let Choice { device, reason } = choose(&area, ours, 0, Redirect::Missing).unwrap();
        assert!(
            matches!(device, Chosen::Packet(_)) && reason.contains("no XDP program"),
            "{reason}"
        );
        let Choice { device, reason } = choose(&area, ours, 0, Redirect::Attached).unwrap();
        assert!(matches!(device, Chosen::Xdp(_)) && reason.contains("one copy"), "{reason}");
        // The queue has a socket now.
        let Choice { device: second, reason } = choose(&area, ours, 0, Redirect::Attached).unwrap();
        assert!(matches!(second, Chosen::Packet(_)) && reason.contains("EBUSY"), "{reason}");
        drop(device);
        let error = choose(&area, 9999, 0, Redirect::Attached).unwrap_err();
        assert!(matches!(error, DeviceError::Down(_)), "{error}");
    });
}

#[test]
#[ignore = "needs root, ip, unshare and strace: an interface in its own network"]
fn frames_that_come_over_af_xdp_cost_no_system_call() {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls.txt");
    let strace = ["strace", "-f", "-o", calls.to_str().unwrap()];
    in_own_network("frames_that_come_over_af_xdp_cost_no_system_call", &strace, || {
        veth();
        let ((mut theirs, _program), mut ours) = (xdp("theirs"), packet("ours"));
        receive(&mut theirs, Instant::ZERO, 1).unwrap();
        assert_eq!(send(&mut ours, Instant::ZERO, 0..48), 48);
        std::thread::sleep(Duration::from_millis(50));
        let mut parts = Vec::with_capacity(4);
        let mut received = 0;
        // These two calls show up among the others.
        let mark = |name: &str| assert!(!std::path::Path::new(name).exists());
        mark("/upcall-first");
        for _ in 0..12 {
            parts.clear();
            theirs.receive(Instant::ZERO, &mut parts).unwrap();
            received += parts.len();
            parts.iter().for_each(|part| theirs.release(part.frame).unwrap());
        }
        mark("/upcall-last");
        assert_eq!(received, 48);
    });
    // The inner process ends here too.
    if std::env::var_os("UPCALL_OWN_NETWORK").is_none() {
        let calls = std::fs::read_to_string(calls).unwrap();
        let line_of = |name: &str| calls.lines().position(|line| line.contains(name)).unwrap();
        let (first, last) = (line_of("/upcall-first"), line_of("/upcall-last"));
        let thread = calls.lines().nth(first).unwrap().split(' ').next().unwrap();
        let between = calls.lines().skip(first + 1).take(last - first - 1);
        let found: Vec<&str> = between.filter(|line| line.starts_with(thread)).collect();
        assert_eq!(found, Vec::<&str>::new());
    }
}
