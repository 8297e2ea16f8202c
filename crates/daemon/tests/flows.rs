//! Flows of a daemon against hostile programs, on an interface in a network of its own.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "flows/memory.rs"]
mod memory;
#[path = "flows/raw.rs"]
mod raw;

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use upcall_daemon::server::{Config, Daemon, DaemonEvent, Stopper};
use upcall_runtime::net::{
    FlowCause, FlowError, FlowForm, FlowRequest, OpenFlowError, Quota, Share, UdpFlow,
};
use upcall_runtime::status::status;
use upcall_shm::wire::{FlowCounts, InterfaceDrops};

use raw::Raw;

const ECHO: u16 = 7007;
const OURS: &str = "10.97.0.1";
const THEIRS: &str = "10.97.0.2";

/// A child that ends with the test.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `work` in a process with a network of its own, by the `test` of this file that calls it.
fn in_own_network(test: &str, work: fn()) {
    if std::env::var_os("UPCALL_OWN_NETWORK").is_some() {
        return work();
    }
    let can = Command::new("unshare").args(["--net", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        let why = "no right to make a network namespace";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--kill-child", "--fork"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    let output = command.env("UPCALL_OWN_NETWORK", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{error}");
}

fn run(arguments: &str) {
    let mut words = arguments.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The veth pair `ours` and `theirs`. The kernel of another namespace has `theirs`, and echoes.
fn network() -> [Peer; 2] {
    let sleeper = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
    let namespace = Peer(sleeper);
    let pid = namespace.0.id();
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
    wait_for("the namespace", || of(&pid.to_string()).ok() != of("self").ok());
    run("ip link add ours type veth peer name theirs");
    run(&format!("ip link set theirs netns {pid}"));
    let there = format!("nsenter --net=/proc/{pid}/ns/net ");
    for (prefix, interface, address) in [("", "ours", OURS), (there.as_str(), "theirs", THEIRS)] {
        run(&format!("{prefix}ip address add {address}/24 dev {interface}"));
        run(&format!("{prefix}ip link set {interface} up"));
    }
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{pid}/ns/net")).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "as_echo_server", "--include-ignored", "--nocapture"]);
    command.env("UPCALL_ECHO", "1").stdout(Stdio::null()).stderr(Stdio::null());
    let echo = Peer(command.spawn().unwrap());
    [echo, namespace]
}

/// The echo server of [`network`], in a process of its own.
#[test]
#[ignore = "a part of other tests"]
fn as_echo_server() {
    if std::env::var_os("UPCALL_ECHO").is_none() {
        return println!("skipped: it is a part of other tests");
    }
    let socket = UdpSocket::bind((THEIRS, ECHO)).unwrap();
    let mut bytes = [0; 65_536];
    while let Ok((length, peer)) = socket.recv_from(&mut bytes) {
        let _ = socket.send_to(&bytes[..length], peer);
    }
}

/// Calls `look` until it is true, for a minute at most.
#[track_caller]
fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if look() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited a minute for {what}");
}

/// A daemon in a thread of this process.
struct Served {
    socket: PathBuf,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<Vec<String>>>,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start() -> Served {
        Served::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("upcall.sock");
        let mut config = Config::new(socket.clone(), vec![0]);
        config.interfaces = vec!["ours".to_owned()];
        change(&mut config);
        let daemon = Daemon::start(config).unwrap();
        let stopper = daemon.stopper();
        let serve = move || {
            let mut said = Vec::new();
            daemon.run(|event: &DaemonEvent, _| said.push(event.to_string()));
            said
        };
        let thread = Some(std::thread::spawn(serve));
        Served { socket, stopper, thread, _folder: folder }
    }

    /// Ends it. Returns what it has said.
    fn end(mut self) -> Vec<String> {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

fn request(port: u16) -> FlowRequest {
    FlowRequest {
        interface: "ours".to_owned(),
        local: SocketAddr::new(OURS.parse().unwrap(), port),
        receive: None,
        send: Share::Weight(1),
        form: FlowForm { receive_slots: 64, transmit_slots: 64 },
    }
}

/// `SplitMix64` (Steele and others 2014).
fn next_word(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn a_program_that_writes_garbage_loses_its_own_flow_only() {
    in_own_network("a_program_that_writes_garbage_loses_its_own_flow_only", || {
        const ROUNDS: u64 = 200;
        let _peers = network();
        let served = Served::start();
        let mut honest = UdpFlow::open(&served.socket, &request(5004)).unwrap();
        let peer = SocketAddr::new(THEIRS.parse().unwrap(), ECHO);
        let mut bytes = [0; 2048];
        let mut exchange = |number: u64| {
            assert!(honest.send(&number.to_ne_bytes(), peer).unwrap());
            honest.flush();
            wait_for("the echo", || match honest.receive(&mut bytes).unwrap() {
                None => false,
                Some((length, from, _)) => {
                    assert_eq!((length, from), (8, peer));
                    assert_eq!(bytes[..8], number.to_ne_bytes());
                    true
                }
            });
        };
        exchange(0);
        let seed = u64::from(std::process::id());
        println!("seed {seed}");
        let (mut state, mut closed) = (seed, 0);
        for round in 1..=ROUNDS {
            let raw = Raw::open(&served.socket, 5005);
            assert_eq!(raw.memory.len(), 5);
            // A few words of any memory, or many of them. Small numbers are more often plausible.
            let words = if round.is_multiple_of(4) { 2000 } else { 1 + next_word(&mut state) % 8 };
            for _ in 0..words {
                let at = next_word(&mut state) % 5;
                let memory = raw.memory[usize::try_from(at).unwrap()].words();
                // The heads of the queues are at their beginnings.
                let most = if at > 0 && state.is_multiple_of(2) { 32 } else { memory.len() };
                let word = next_word(&mut state) % u64::try_from(most).unwrap();
                let shift = next_word(&mut state) % 64;
                let garbage = next_word(&mut state) >> shift;
                memory[usize::try_from(word).unwrap()].store(garbage, Relaxed);
            }
            exchange(round);
            closed += u64::from(raw.is_closed());
        }
        // A queue that says it has more entries than places is found for sure.
        let raw = Raw::open(&served.socket, 5005);
        for memory in &raw.memory[1..] {
            memory.words().iter().for_each(|word| word.store(u64::MAX, Relaxed));
        }
        wait_for("the end of the flow", || raw.is_closed());
        exchange(ROUNDS + 1);
        wait_for("the end of the other flow", || status(&served.socket).unwrap().flows.len() == 1);
        println!("{closed} of {ROUNDS} flows with garbage were closed at once");
        // The status is a few periods old.
        wait_for("the frames", || {
            let state = status(&served.socket).unwrap();
            let [owned] = state.owned_interfaces.as_slice() else { panic!("{state:?}") };
            owned.faults > 0 && owned.free + owned.receiving == owned.frames
        });
        drop((raw, honest));
        let said = served.end();
        let is_broken = |line: &String| line.contains("it broke a queue of its flow");
        assert!(said.iter().any(is_broken), "{said:#?}");
        assert!(said.iter().any(|line| line.contains("8192 of 8192 frames are free")), "{said:#?}");
    });
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn a_program_that_waits_is_woken_and_learns_the_end() {
    in_own_network("a_program_that_waits_is_woken_and_learns_the_end", || {
        let _peers = network();
        let served = Served::start();
        let peer = SocketAddr::new(THEIRS.parse().unwrap(), ECHO);
        let mut bytes = [0; 64];
        let mut exchange = |flow: &mut UdpFlow, number: u64| {
            assert!(flow.send(&number.to_ne_bytes(), peer).unwrap());
            // It is shown what was sent, too. The wait would be for good without a wake-up.
            while flow.receive(&mut bytes).unwrap().is_none() {
                assert!(flow.wait(None).unwrap());
            }
            assert_eq!(bytes[..8], number.to_ne_bytes());
        };
        let mut flow = UdpFlow::open(&served.socket, &request(5004)).unwrap();
        // The echo server is there.
        let mut looks = 0;
        wait_for("the first echo", || {
            if looks % 500 == 0 {
                assert!(flow.send(&[0; 8], peer).unwrap());
            }
            looks += 1;
            flow.flush();
            flow.receive(&mut [0; 8]).unwrap().is_some()
        });
        (1..=200).for_each(|number| exchange(&mut flow, number));
        // Nothing remains of flows that end: one stays, so that the interface does.
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let flows = || status(&served.socket).unwrap().flows.len();
        let before = descriptors();
        for number in 0..50 {
            let mut other = UdpFlow::open(&served.socket, &request(5005)).unwrap();
            exchange(&mut other, number);
            drop(other);
            wait_for("the end of the flow", || flows() == 1);
        }
        wait_for("the descriptors", || descriptors() == before);
        run("ip link del ours");
        assert_eq!(flow.wait(None), Err(FlowError::Closed));
        served.end();
    });
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn packets_without_a_way_do_not_hold_up_other_flows() {
    in_own_network("packets_without_a_way_do_not_hold_up_other_flows", || {
        const DATAGRAMS: u64 = 100;
        let _peers = network();
        let served = Served::start();
        let mut honest = UdpFlow::open(&served.socket, &request(5004)).unwrap();
        // All flows that a user may have. Their datagrams are too long for the interface.
        let mut hostile: Vec<UdpFlow> =
            (0..15).map(|_| UdpFlow::open(&served.socket, &request(0)).unwrap()).collect();
        let peer = SocketAddr::new(THEIRS.parse().unwrap(), ECHO);
        let mut flood = || {
            for flow in &mut hostile {
                // What it is told of them takes no place from more.
                while flow.take().unwrap().is_some() {}
                while flow.send(&[0; 1900], peer).unwrap() {}
                flow.flush();
            }
        };
        let mut bytes = [0; 64];
        for number in 0..DATAGRAMS {
            flood();
            assert!(honest.send(&number.to_ne_bytes(), peer).unwrap());
            honest.flush();
            wait_for("the echo", || {
                flood();
                honest.receive(&mut bytes).unwrap().is_some()
            });
        }
        let mut too_long = 0;
        wait_for("the counts", || {
            flood();
            let flows = status(&served.socket).unwrap().flows;
            too_long = flows.iter().map(|flow| flow.counts.too_long).sum();
            too_long > DATAGRAMS
        });
        println!("{too_long} packets without a way beside {DATAGRAMS} exchanges");
        drop(hostile);
        served.end();
    });
}

/// Sends `count` datagrams to `port` of the flow's side, from the other namespace, as fast as it
/// can, and waits for the end of that. Returns how many of them the other end of the wire dropped.
fn flood(namespace: &Peer, port: u16, count: u64) -> u64 {
    let there = format!("--net=/proc/{}/ns/net", namespace.0.id());
    let mut command = Command::new("nsenter");
    command.arg(there).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "as_flood", "--include-ignored", "--nocapture"]);
    command.env("UPCALL_FLOOD", format!("{port} {count}"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lost = text.split_once("lost ").and_then(|(_, rest)| rest.split_whitespace().next());
    lost.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

/// The sender of [`flood`], in a process of its own.
#[test]
#[ignore = "a part of other tests"]
fn as_flood() {
    let Ok(words) = std::env::var("UPCALL_FLOOD") else {
        return println!("skipped: it is a part of other tests");
    };
    let (port, count) = words.split_once(' ').unwrap();
    let port: u16 = port.parse().unwrap();
    // Another mount of /sys shows another network.
    let lost = || {
        let mut command = Command::new("ip");
        command.args(["-json", "-stats", "link", "show", "theirs"]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, sent) = text.split_once("\"tx\":").unwrap();
        let (_, dropped) = sent.split_once("\"dropped\":").unwrap();
        dropped.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let socket = UdpSocket::bind((THEIRS, 0)).unwrap();
    socket.connect((OURS, port)).unwrap();
    let (before, mut refused) = (lost(), 0);
    for number in 0..count.parse().unwrap() {
        let number: u64 = number;
        // The interface may refuse one, and then counts it.
        refused += u64::from(socket.send(&number.to_ne_bytes()).is_err());
    }
    println!("refused {refused}, lost {} in all", lost() - before);
}

/// The counts of the only flow, and the drops of its interface.
fn counts(served: &Served) -> (FlowCounts, InterfaceDrops) {
    let state = status(&served.socket).unwrap();
    let [flow] = state.flows.as_slice() else { panic!("{state:?}") };
    (flow.counts, state.owned_interfaces[0].drops)
}

/// Waits until `count` datagrams for the flow are in one of the counts, or lost on the wire.
fn all_counted(served: &Served, lost: u64, count: u64) -> (FlowCounts, InterfaceDrops) {
    for _ in 0..500 {
        let (flow, interface) = counts(served);
        if accounted(lost, flow, interface) == count {
            return (flow, interface);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("of {count}, {lost} were lost on the wire, and here: {:?}", counts(served));
}

/// What became of the datagrams for a flow, on the wire's other end and here.
fn accounted(lost: u64, flow: FlowCounts, interface: InterfaceDrops) -> u64 {
    let FlowCounts { received, over_quota, behind, queue_full, receive_full, .. } = flow;
    lost + received
        + over_quota
        + behind
        + queue_full
        + receive_full
        + flow.undelivered
        + interface.no_room
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn each_datagram_of_a_flood_is_received_or_counted_with_its_reason() {
    in_own_network("each_datagram_of_a_flood_is_received_or_counted_with_its_reason", || {
        const COUNT: u64 = 100_000;
        let [_echo, namespace] = network();
        let served = Served::start();
        // A quota of one datagram in an hour drops the others in the driver.
        let quota = Quota { step_ns: 0, interval_ns: 3_600_000_000_000, depth: 1, at_once: 1 };
        let request_with = |receive| FlowRequest { receive, ..request(5004) };
        let flow = UdpFlow::open(&served.socket, &request_with(Some(quota))).unwrap();
        let lost = flood(&namespace, 5004, COUNT);
        let last = all_counted(&served, lost, COUNT);
        println!("quota: {lost} lost on the wire, {last:?}");
        assert_eq!((last.0.receive_full, last.0.queue_full), (0, 0), "{last:?}");
        assert!(last.0.over_quota + lost + 1 >= COUNT && last.0.over_quota > 0, "{last:?}");
        drop(flow);
        wait_for("the end of the flow", || status(&served.socket).unwrap().flows.is_empty());
        // A program that takes none has its slots full. Then the driver drops.
        let before = InterfaceDrops::default();
        let mut flow = UdpFlow::open(&served.socket, &request_with(None)).unwrap();
        assert_eq!(counts(&served).1, before);
        let lost = flood(&namespace, 5004, COUNT);
        let last = all_counted(&served, lost, COUNT);
        println!("no reader: {lost} lost on the wire, {last:?}");
        assert_eq!((last.0.received, last.0.over_quota), (64, 0), "{last:?}");
        // What passed before the owner knew, and what the kernel had not put into the ring yet.
        assert!(last.0.receive_full <= 128 && last.1.no_room == 0, "{last:?}");
        assert!(last.0.behind >= COUNT - lost - 192, "{last:?}");
        let (mut taken, mut bytes) = (0, [0; 8]);
        while flow.receive(&mut bytes).unwrap().is_some() {
            taken += 1;
        }
        assert_eq!(taken, 64);
        // It takes again, and gets all.
        for round in 1..=20 {
            let lost = flood(&namespace, 5004, 64);
            wait_for("the datagrams", || {
                while flow.receive(&mut bytes).unwrap().is_some() {
                    taken += 1;
                }
                taken + lost == 64 * (round + 1)
            });
            assert_eq!(lost, 0);
        }
        let (flow_counts, _) = all_counted(&served, lost, COUNT + 20 * 64);
        assert_eq!(flow_counts.received, 21 * 64);
        assert_eq!(flow_counts.behind, last.0.behind);
        drop(flow);
        served.end();
    });
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn a_request_beyond_the_bounds_is_refused_with_its_cause() {
    in_own_network("a_request_beyond_the_bounds_is_refused_with_its_cause", || {
        let _peers = network();
        let served = Served::start();
        let refusal = |request: &FlowRequest| match UdpFlow::open(&served.socket, request) {
            Err(OpenFlowError::Refused { cause, reason }) => (cause, reason),
            other => panic!("{other:?}"),
        };
        let at = |address: &str| SocketAddr::new(address.parse().unwrap(), 5004);
        let form = |receive_slots, transmit_slots| FlowForm { receive_slots, transmit_slots };
        let quota = |interval_ns, depth| Some(Quota { step_ns: 0, interval_ns, depth, at_once: 1 });
        let good = request(5004);
        let wrong = [
            (FlowRequest { interface: "lo".into(), ..good.clone() }, FlowCause::NoInterface),
            (FlowRequest { local: at(THEIRS), ..good.clone() }, FlowCause::NotLocal),
            (FlowRequest { local: at("127.0.0.1"), ..good.clone() }, FlowCause::NotLocal),
            (FlowRequest { local: at("10.97.0.255"), ..good.clone() }, FlowCause::NotLocal),
            (FlowRequest { local: at("224.0.0.9"), ..good.clone() }, FlowCause::NotLocal),
            (FlowRequest { form: form(0, 64), ..good.clone() }, FlowCause::Terms),
            (FlowRequest { form: form(64, 63), ..good.clone() }, FlowCause::Terms),
            (FlowRequest { form: form(1 << 31, 1 << 31), ..good.clone() }, FlowCause::Terms),
            (FlowRequest { receive: quota(0, 1), ..good.clone() }, FlowCause::Terms),
            (FlowRequest { receive: quota(1, 0), ..good.clone() }, FlowCause::Terms),
            (FlowRequest { receive: quota(1, u32::MAX), ..good.clone() }, FlowCause::Limit),
            (FlowRequest { send: Share::Weight(0), ..good.clone() }, FlowCause::Terms),
            (FlowRequest { form: form(4096, 4096), ..good.clone() }, FlowCause::Interface),
        ];
        // The last one is no refusal: it has all frames of a user, so the next has none.
        let [wrong @ .., (whole, _)] = wrong;
        for (request, cause) in wrong {
            assert_eq!(refusal(&request).0, cause, "{request:?}");
        }
        let all = UdpFlow::open(&served.socket, &whole).unwrap();
        assert_eq!(refusal(&request(5005)).0, FlowCause::Limit);
        drop(all);
        // The daemon finds the end of a connection in its own time.
        let mut flows = Vec::new();
        wait_for("the end of the flow", || status(&served.socket).unwrap().flows.is_empty());
        for _ in 0..16 {
            flows.push(UdpFlow::open(&served.socket, &request(0)).unwrap());
        }
        let (cause, reason) = refusal(&request(0));
        assert_eq!(cause, FlowCause::Limit, "{reason}");
        assert!(flows[0].is_open() && flows[0].local().port() != 0);
        flows.pop();
        wait_for("the end of the flow", || status(&served.socket).unwrap().flows.len() == 15);
        // A socket of the kernel has the port.
        let kernel = UdpSocket::bind((OURS, 0)).unwrap();
        let taken = request(kernel.local_addr().unwrap().port());
        assert_eq!(refusal(&taken).0, FlowCause::Taken);
        // The interface goes: so do the flows, and their programs learn it.
        run("ip link del ours");
        wait_for("the ends of the flows", || flows.iter().all(|flow| !flow.is_open()));
        assert_eq!(refusal(&request(0)).0, FlowCause::Interface);
        drop(flows);
        let said = served.end();
        assert!(said.iter().any(|line| line.contains("8192 of 8192 frames are free")), "{said:#?}");
    });
}
