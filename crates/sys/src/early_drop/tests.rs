mod judged;
mod network;
mod packets;
mod reference;

use super::*;
use crate::interface::index;
use crate::placement::{self, Cpus, Placement};
use core::sync::atomic::Ordering::Relaxed;
use network::{Wire, has_program, in_own_network, ip, show_own_network};
use packets::{IPV4, IPV6, ethernet, fragment_header, ipv4, ipv6, transport};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the kernel may take for what it does soon.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Waits until `is_so`, and says whether it became so.
fn soon(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < WAIT_MAX {
        std::thread::sleep(Duration::from_millis(2));
    }
    is_so()
}

/// The early drop of `ours`, and the frames that were sent to it.
struct Pair {
    early: EarlyDrop,
    pages: QuotaPages,
    wire: Wire,
}

impl Pair {
    fn attach(request: Request) -> Pair {
        let early = EarlyDrop::attach(index("ours").unwrap(), request).unwrap();
        let pages = early.map_quota_page().unwrap();
        Pair { early, pages, wire: Wire::of("theirs") }
    }

    /// `slot` gets the packets of this protocol and port to any IPv4 address.
    fn insert(&mut self, protocol: u8, port: u16, slot: u32) {
        let address = Ipv4Addr::UNSPECIFIED.into();
        self.early.insert(Destination { address, protocol, port }, slot).unwrap();
    }

    fn load(&self, slot: u32, word: Word) -> u64 {
        self.pages.words()[slot as usize * 16 + word as usize].load(Relaxed)
    }

    fn store(&self, slot: u32, word: Word, value: u64) {
        self.pages.words()[slot as usize * 16 + word as usize].store(value, Relaxed);
    }

    /// `depth` packets pass, and then none for years.
    fn limit(&self, slot: u32, depth: u64) {
        self.store(slot, Word::Depth, depth << 48);
        self.store(slot, Word::Interval, 1 << 48);
    }

    /// Packets of `slot`: passed, dropped by the quota, without a socket.
    fn counts(&self, slot: u32) -> [u64; 3] {
        [Word::Passed, Word::Dropped, Word::Undelivered].map(|word| self.load(slot, word))
    }

    /// Sends `frame` and waits until the program has counted it in `slot`.
    fn send(&self, slot: u32, frame: &[u8]) {
        let count = |pair: &Pair| pair.counts(slot).iter().sum::<u64>();
        let before = count(self);
        self.wire.send(frame);
        assert!(soon(|| count(self) != before), "not counted in slot {slot}: {frame:x?}");
    }
}

/// Words of a slot (`quota_page.h`).
#[derive(Clone, Copy)]
enum Word {
    Interval = 0,
    Depth = 2,
    Action = 3,
    Passed = 9,
    Dropped = 10,
    Undelivered = 12,
}

fn udp(port: u16) -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4(IPV4[0], 17, 1, 0, &transport(port, b"data")))
}

/// How many datagrams `socket` has. They were delivered before.
fn received(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).unwrap();
    let mut count = 0;
    while socket.recv(&mut [0; 64]).is_ok() {
        count += 1;
    }
    count
}

#[test]
#[ignore = "needs root and ip: attaches a program to an interface of its own network"]
fn the_program_is_attached_as_long_as_its_owner() {
    in_own_network(|| {
        let ours = index("ours").unwrap();
        let early = EarlyDrop::attach(ours, Request::Auto).unwrap();
        assert_eq!((early.mode(), early.native_refusal()), (Mode::Native, None));
        assert!(has_program("ours"));
        let second = EarlyDrop::attach(ours, Request::Auto).unwrap_err();
        assert!(matches!(second, EarlyDropError::Busy(_)), "{second}");
        drop(early);
        assert!(!has_program("ours"));
        let none = EarlyDrop::attach(1 << 30, Request::Auto).unwrap_err();
        assert!(matches!(none, EarlyDropError::Os(error) if error.raw_os_error() == libc::ENODEV));
    });
}

#[test]
#[ignore = "needs root and ip: attaches a program to an interface of its own network"]
fn a_driver_that_refuses_is_named_and_generic_mode_follows() {
    in_own_network(|| {
        let lo = index("lo").unwrap();
        let refused = EarlyDrop::attach(lo, Request::Native).unwrap_err();
        assert!(matches!(refused, EarlyDropError::Os(_)), "{refused}");
        let early = EarlyDrop::attach(lo, Request::Auto).unwrap();
        assert_eq!(early.mode(), Mode::Generic);
        let EarlyDropError::Os(refusal) = refused else { unreachable!("checked above") };
        assert_eq!(early.native_refusal(), Some(refusal));
        let busy = EarlyDrop::attach(lo, Request::Generic).unwrap_err();
        assert!(matches!(busy, EarlyDropError::Busy(_)), "{busy}");
    });
}

#[test]
#[ignore = "needs root and ip: floods an interface of its own network"]
fn a_flood_of_one_destination_costs_another_one_nothing() {
    for request in [Request::Native, Request::Generic] {
        in_own_network(move || {
            let mut pair = Pair::attach(request);
            let [flooded, quiet] =
                [5000, 5001].map(|port| UdpSocket::bind(("10.0.0.1", port)).unwrap());
            pair.limit(1, 10);
            pair.insert(17, 5000, 1);
            pair.insert(17, 5001, 2);
            for _ in 0..50 {
                (0..20).for_each(|_| pair.send(1, &udp(5000)));
                pair.send(2, &udp(5001));
            }
            assert_eq!(pair.counts(1), [10, 990, 0], "{request:?}");
            assert_eq!(pair.counts(2), [50, 0, 0], "{request:?}");
            // What the program passes reaches its socket a little later.
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!((received(&flooded), received(&quiet)), (10, 50), "{request:?}");
        });
    }
}

#[test]
#[ignore = "needs root and ip: sends frames in its own network"]
fn every_form_of_packet_is_counted_in_its_slot() {
    in_own_network(|| {
        let mut pair = Pair::attach(Request::Native);
        pair.insert(17, 5000, 1);
        pair.insert(17, 5001, 2);
        pair.store(2, Word::Action, 2); // drop all
        pair.early
            .insert(Destination { address: IPV6[0].into(), protocol: 6, port: 80 }, 3)
            .unwrap();
        pair.insert(1, 0, 4);
        let v4 = |id, fragment, payload: &[u8]| {
            ethernet(&[], 0x0800, &ipv4(IPV4[1], 17, id, fragment, payload))
        };
        // A fragmented datagram that passes, and one that is dropped.
        pair.send(1, &v4(7, 0x2000, &transport(5000, &[0; 8])));
        pair.send(1, &v4(7, 2, &[0; 8]));
        pair.send(2, &v4(8, 0x2000, &transport(5001, &[0; 8])));
        pair.send(2, &v4(8, 2, &[0; 8]));
        assert_eq!((pair.counts(1), pair.counts(2)), ([2, 0, 0], [0, 2, 0]));
        // IPv6: whole, with a header between, in fragments, with a VLAN tag.
        let tcp = transport(80, &[0; 12]);
        let first = [fragment_header(6, 1, 9), tcp.clone()].concat();
        let later = [fragment_header(6, 8, 9), vec![0; 8]].concat();
        let options = [vec![6, 0, 1, 4, 0, 0, 0, 0], tcp.clone()].concat();
        let v6 = |next, payload: &[u8]| ipv6(IPV6[0], next, 64, payload);
        pair.send(3, &ethernet(&[], 0x86dd, &v6(6, &tcp)));
        pair.send(3, &ethernet(&[], 0x86dd, &v6(60, &options)));
        pair.send(3, &ethernet(&[], 0x86dd, &v6(44, &first)));
        pair.send(3, &ethernet(&[], 0x86dd, &v6(44, &later)));
        pair.send(3, &ethernet(&[0x88a8, 0x8100], 0x86dd, &v6(6, &tcp)));
        assert_eq!(pair.counts(3), [5, 0, 0]);
        pair.send(4, &ethernet(&[], 0x0800, &ipv4(IPV4[0], 1, 1, 0, &[8, 0, 0, 0])));
        assert_eq!(pair.counts(4), [1, 0, 0]);
        // The last slot of the page is none.
        let any = Destination { address: IPV6[1].into(), protocol: 17, port: 1 };
        let refused = pair.early.insert(any, SLOT_MAX + 1).unwrap_err();
        assert_eq!(refused.raw_os_error(), libc::EINVAL);
        pair.early.insert(any, SLOT_MAX).unwrap();
        // After its removal a destination has no slot.
        let any = Destination { address: Ipv4Addr::UNSPECIFIED.into(), protocol: 17, port: 5000 };
        assert_eq!((pair.early.remove(any), pair.early.remove(any)), (Ok(true), Ok(false)));
        pair.send(0, &udp(5000));
        assert_eq!(pair.counts(1), [2, 0, 0]);
    });
}

#[test]
#[ignore = "needs root and ip: cuts off all packets without a slot in its own network"]
fn the_host_can_be_reached_whatever_is_dropped() {
    in_own_network(|| {
        let pair = Pair::attach(Request::Native);
        pair.store(0, Word::Action, 2); // drop all
        pair.send(0, &udp(5000));
        // `theirs` asks for the address of `ours`: an ARP request, and a packet is dropped then.
        ip("address add 10.0.0.2/24 dev theirs");
        let request = [
            &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 9][..],
            &[0, 0, 0, 0, 0, 0, 10, 0, 0, 1],
        ];
        let known = || ip("neigh show dev ours");
        pair.wire.send(&ethernet(&[], 0x0806, &request.concat()));
        assert!(soon(|| known().contains("10.0.0.9")), "{}", known());
        assert_eq!(pair.counts(0)[0], 0);
    });
}

#[test]
#[ignore = "needs root and ip: redirects packets in its own network"]
fn a_packet_for_a_socket_never_reaches_the_kernel_instead() {
    in_own_network(|| {
        let mut pair = Pair::attach(Request::Native);
        let kernel = UdpSocket::bind(("10.0.0.1", 5000)).unwrap();
        pair.insert(17, 5000, 1);
        pair.send(1, &udp(5000));
        pair.store(1, Word::Action, 9 << 32 | 1); // redirect to socket 9
        pair.send(1, &udp(5000));
        assert_eq!(pair.counts(1), [1, 0, 1]);
        // A socket that is bound to no queue cannot take it.
        // SAFETY: takes only numbers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", OsError::last("socket(AF_XDP)"));
        // SAFETY: the call has just made this descriptor.
        let socket = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        pair.early.insert_socket(9, socket.as_fd()).unwrap();
        pair.send(1, &udp(5000));
        assert_eq!(pair.counts(1), [2, 0, 1]);
        pair.early.remove_socket(9).unwrap();
        pair.send(1, &udp(5000));
        assert_eq!(pair.counts(1), [2, 0, 2]);
        let refused = pair.early.insert_socket(256, socket.as_fd()).unwrap_err();
        assert_eq!(refused.raw_os_error(), libc::EINVAL);
        let refused = pair.early.insert_socket(1, kernel.as_fd()).unwrap_err();
        assert_eq!(refused.raw_os_error(), libc::EOPNOTSUPP);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(received(&kernel), 1);
    });
}

#[test]
#[ignore = "needs root and ip: moves receive work in its own network"]
fn the_placement_of_a_veth_pair_follows_its_settings() {
    in_own_network(|| {
        show_own_network();
        let place = || Placement::of("ours").unwrap();
        let polled_by_nobody = placement::set_threaded("ours", true).unwrap_err();
        assert_eq!(polled_by_nobody.raw_os_error(), libc::EOPNOTSUPP);
        let pair = Pair::attach(Request::Native);
        let line = "drops run on the sender's CPU (veth, native)";
        assert_eq!(place().line(Mode::Native), line);
        assert_eq!(place().veth_peer, Some(index("theirs").unwrap()));
        let change = placement::set_rps_cpus("ours", &[0]).unwrap();
        assert_eq!((place().early_drop(Mode::Native), place().rps_cpus), (Cpus::Senders, vec![0]));
        assert_eq!(place().early_drop(Mode::Generic), Cpus::Listed(vec![0]));
        change.restore().unwrap();
        assert_eq!(place().line(Mode::Native), line);
        let change = placement::set_threaded("ours", true).unwrap();
        let threads = place().napi_threads;
        assert!(!threads.is_empty());
        for thread in threads {
            crate::schedule::pin_thread_of(thread, &[0]).unwrap();
        }
        assert_eq!(place().early_drop(Mode::Native), Cpus::Listed(vec![0]));
        // The thread polls: the packet is counted.
        pair.send(0, &udp(5000));
        change.restore().unwrap();
        assert_eq!(place().line(Mode::Native), line);
        let missing = placement::set_rps_cpus("ours", &[70_000]).unwrap_err();
        assert!([libc::EINVAL, libc::EOVERFLOW].contains(&missing.raw_os_error()), "{missing}");
    });
}

/// The variable that makes [`as_owner`] do something.
const OWNER_OF: &str = "UPCALL_TEST_OWNER_OF";

/// The role of another owner: attaches to the interface that [`OWNER_OF`] names, says what came of
/// it, and stays until it is killed.
#[test]
fn as_owner() {
    let Ok(interface) = std::env::var(OWNER_OF) else { return };
    let early = EarlyDrop::attach(index(&interface).unwrap(), Request::Auto);
    match &early {
        Ok(early) => println!("owner: {:?}", early.mode()),
        Err(EarlyDropError::Rights(error)) => println!("owner: no right: {error}"),
        Err(error) => println!("owner: {error}"),
    }
    if early.is_err() {
        // Nobody reads what libtest would say.
        std::process::exit(0);
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Starts [`as_owner`] with the arguments of `command`, in this network. Returns what it says.
fn start_owner(command: &mut Command) -> (Child, String) {
    let role = ["--exact", "early_drop::tests::as_owner", "--nocapture"];
    let command = command.args(role).env(OWNER_OF, "ours").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.find_map(|line| {
        let line = line.unwrap();
        line.split_once("owner: ").map(|(_, said)| said.to_owned())
    });
    (child, said.unwrap_or_default())
}

#[test]
#[ignore = "needs root and ip: kills an owner in its own network"]
fn all_goes_with_an_owner_that_is_killed() {
    in_own_network(|| {
        let program = std::env::current_exe().unwrap();
        let (mut owner, said) = start_owner(&mut Command::new(program));
        assert_eq!(said, "Native");
        assert!(has_program("ours"));
        owner.kill().unwrap();
        owner.wait().unwrap();
        // The kernel may free a descriptor of a dead process a little later.
        assert!(soon(|| !has_program("ours")));
        EarlyDrop::attach(index("ours").unwrap(), Request::Native).unwrap();
    });
}

#[test]
#[ignore = "needs root, ip and setpriv: starts an owner without rights"]
fn three_rights_are_enough_and_a_missing_one_is_told() {
    in_own_network(|| {
        let owner_with = |rights: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", rights, "--inh-caps", "-all"]);
            start_owner(command.arg(std::env::current_exe().unwrap()))
        };
        for too_few in ["-all", "-all,+bpf,+perfmon", "-all,+net_admin", "-all,+bpf,+net_admin"] {
            let (mut owner, said) = owner_with(too_few);
            assert!(said.starts_with("no right: bpf("), "{too_few}: {said}");
            owner.wait().unwrap();
        }
        let (mut owner, said) = owner_with("-all,+bpf,+net_admin,+perfmon");
        assert_eq!(said, "Native");
        owner.kill().unwrap();
        owner.wait().unwrap();
        let remedy = crate::grant::how_to_drop_early().to_string();
        assert!(remedy.contains("CAP_BPF CAP_NET_ADMIN CAP_PERFMON"), "{remedy}");
    });
}
