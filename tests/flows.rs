//! Flows of the daemon, as whole programs, on a network of two namespaces.
//!
//! The daemon and the programs with flows are at one end. The kernel of the other end echoes
//! datagrams. The namespaces are this file's own, and are removed at the end of each test.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../crates/upcall/examples/udp_echo_flow.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{
    Running, UPCALL, UPCALLD, folder, list, machine, number, signal, skipped, text, wait_until,
};
use upcall::net::{FlowRequest, OpenFlowError, UdpFlow};

const INTERFACE: &str = "veth-f";
const OURS: &str = "10.98.0.2";
const THEIRS: &str = "10.98.0.1";
const ECHO: u16 = 7007;
/// An ordinary user.
const USER: &str = "65534";
/// How long a datagram may take before it counts as lost. It only has to be longer than any stop of
/// this machine.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// Two namespaces with a cable between them, the echo at one end, and a daemon at the other.
struct Network {
    ours: String,
    theirs: String,
    daemon: Option<Running>,
    socket: PathBuf,
    echo: Option<Child>,
    /// This program, where any user may execute it.
    program: PathBuf,
    _folder: tempfile::TempDir,
}

impl Network {
    /// `None`: this machine has no network namespaces for us.
    fn start(flags: &[&str]) -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let at = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("upcall-flow-{}-{at}-{end}", std::process::id());
        let (ours, theirs) = (name("o"), name("t"));
        if !succeeds(&format!("ip netns add {ours}")) {
            skipped("no right to make a network namespace");
            return None;
        }
        let folder = folder();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everyone).unwrap();
        let program = folder.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let socket = folder.path().join("upcall.sock");
        let (daemon, echo) = (None, None);
        let mut network = Network { ours, theirs, daemon, socket, echo, program, _folder: folder };
        let Network { ours, theirs, .. } = &network;
        for command in [
            format!("ip netns add {theirs}"),
            format!("ip netns exec {ours} sysctl -q net.ipv6.conf.default.disable_ipv6=1"),
            format!("ip netns exec {theirs} sysctl -q net.ipv6.conf.default.disable_ipv6=1"),
            format!("ip -n {ours} link set lo up"),
            format!("ip -n {ours} link add {INTERFACE} type veth peer name veth-t netns {theirs}"),
            format!("ip -n {ours} addr add {OURS}/24 dev {INTERFACE}"),
            format!("ip -n {theirs} addr add {THEIRS}/24 dev veth-t"),
            format!("ip -n {ours} link set {INTERFACE} up"),
            format!("ip -n {theirs} link set veth-t up"),
        ] {
            assert!(succeeds(&command), "{command}");
        }
        let mut echo = network.at(&network.theirs, &network.program);
        network.echo = Some(part(&mut echo, "as_echo_server", "").spawn().unwrap());
        network.start_daemon(flags);
        Some(network)
    }

    fn start_daemon(&mut self, flags: &[&str]) {
        let mut command = self.at(&self.ours, Path::new(UPCALLD));
        self.daemon = Some(support::daemon(command.args(flags), &self.socket));
    }

    fn at(&self, namespace: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program);
        command.env("UPCALL_SOCKET", &self.socket);
        command
    }

    /// A program with a flow, of an ordinary user.
    fn program(&self, port: u16, window: u32) -> Program {
        Program::start(&mut self.command(&format!("{port} {window}")))
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ours, "setpriv", "--reuid", USER, "--regid", USER]);
        command.args(["--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
        command.arg(&self.program).env("UPCALL_SOCKET", &self.socket);
        part(&mut command, "as_program_with_flow", words);
        command
    }

    fn net(&self) -> Value {
        let mut command = self.at(&self.ours, Path::new(UPCALL));
        Running::start(command.args(["net", "--json"])).finish().assert_code(&[0]).json()
    }

    fn flows(&self) -> Vec<Value> {
        self.net()["flows"].as_array().cloned().unwrap_or_default()
    }

    fn is_attached(&self) -> bool {
        let net = self.net();
        let interface = list(&net, "interfaces").iter().find(|of| of["name"] == INTERFACE);
        !interface.unwrap()["attached"].is_null()
    }

    /// Ends the daemon, and returns what it has said.
    fn end_daemon(&mut self) -> String {
        let daemon = self.daemon.take().unwrap();
        signal(daemon.pid(), "TERM");
        daemon.finish().stderr
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.daemon.take());
        if let Some(mut echo) = self.echo.take() {
            let _ = echo.kill();
            let _ = echo.wait();
        }
        for name in [&self.ours, &self.theirs] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn succeeds(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let done = Command::new(words.next().unwrap()).args(words).output().unwrap();
    if !done.status.success() {
        println!("{command}: {done:?}");
    }
    done.status.success()
}

/// A part of this file as a process of its own.
fn part<'c>(command: &'c mut Command, test: &str, words: &str) -> &'c mut Command {
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    command.env("UPCALL_PART", words).stdin(Stdio::piped()).stdout(Stdio::piped())
}

/// A program with a flow, which exchanges datagrams until its input ends.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Program { child, input, lines }
    }

    /// The rest of the next line that begins with `word`.
    #[track_caller]
    fn line(&mut self, word: &str) -> String {
        let mut all = String::new();
        loop {
            let before = all.len();
            assert!(self.lines.read_line(&mut all).unwrap() > 0, "no line `{word}`: {all}");
            // The harness of the test may have begun the line.
            if let Some((_, rest)) = all[before..].split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Ends it. Returns how many datagrams came back, and how many did not.
    #[track_caller]
    fn end(mut self) -> (u64, u64) {
        drop(self.input.take());
        let line = self.line("exchanged ");
        let mut numbers = line.split(' ').map(|word| word.parse().unwrap());
        assert!(self.child.wait().unwrap().success());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The echo server, in a process of its own.
#[test]
#[ignore = "a part of other tests"]
fn as_echo_server() {
    if std::env::var_os("UPCALL_PART").is_none() {
        return println!("skipped: it is a part of other tests");
    }
    let socket = UdpSocket::bind((THEIRS, ECHO)).unwrap();
    let mut bytes = [0; 65_536];
    loop {
        // An error is that of an earlier datagram, to a program that was killed.
        if let Ok((length, peer)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..length], peer);
        }
    }
}

/// A program with a flow, in a process of its own: `PORT WINDOW`. It has WINDOW datagrams on their
/// way, and sends each one once.
#[test]
#[ignore = "a part of other tests"]
fn as_program_with_flow() {
    let Some(words) = std::env::var("UPCALL_PART").ok() else {
        return println!("skipped: it is a part of other tests");
    };
    let words: Vec<u16> = words.split(' ').map(|word| word.parse().unwrap()).collect();
    let socket = PathBuf::from(std::env::var_os("UPCALL_SOCKET").unwrap());
    let mut flow = match UdpFlow::open(&socket, &request(words[0])) {
        Ok(flow) => flow,
        Err(OpenFlowError::Refused { cause, reason }) => {
            return println!("refused {cause:?} {reason}");
        }
        Err(error) => panic!("{error}"),
    };
    println!("open {}", flow.local());
    let input = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let peer: SocketAddr = (THEIRS.parse::<std::net::IpAddr>().unwrap(), ECHO).into();
    let window = usize::from(words[1]);
    let mut sent_at: Vec<(u64, Instant)> = Vec::new();
    let (mut next, mut exchanged, mut lost) = (0u64, 0u64, 0u64);
    let mut bytes = [0; 2048];
    loop {
        let is_ending = input.is_finished() || !flow.is_open();
        while sent_at.len() < window && !is_ending {
            // Of every length up to that of a whole packet.
            let length = 8 + usize::try_from(next % 1464).unwrap();
            assert!(flow.send(&message(next)[..length], peer).unwrap());
            sent_at.push((next, Instant::now()));
            next += 1;
        }
        flow.flush();
        while let Some((length, from, _)) = flow.receive(&mut bytes).unwrap() {
            assert_eq!(from, peer);
            let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(&bytes[..length], &message(number)[..length], "another's datagram");
            let before = sent_at.len();
            sent_at.retain(|(of, _)| *of != number);
            exchanged += (before - sent_at.len()) as u64;
            if exchanged == 100 {
                println!("many");
            }
        }
        if !flow.is_open() {
            println!("closed");
            break;
        }
        if is_ending && sent_at.is_empty() {
            break;
        }
        let before = sent_at.len();
        sent_at.retain(|(_, at)| at.elapsed() < LOST_AFTER);
        lost += (before - sent_at.len()) as u64;
        std::thread::sleep(Duration::from_micros(300));
    }
    println!("exchanged {exchanged} {lost}");
    let _ = input.join();
}

/// A program with a socket of the kernel, in a process of its own.
#[test]
#[ignore = "a part of other tests"]
fn as_program_with_socket() {
    if std::env::var_os("UPCALL_PART").is_none() {
        return println!("skipped: it is a part of other tests");
    }
    let socket = UdpSocket::bind((OURS, 5004)).unwrap();
    socket.set_read_timeout(Some(LOST_AFTER)).unwrap();
    socket.send_to(b"kernel", (THEIRS, ECHO)).unwrap();
    let mut back = [0; 16];
    assert_eq!(socket.recv(&mut back).unwrap(), 6);
    println!("kernel answers");
}

/// The example `udp_echo_flow`, in a process of its own, with the words of its command line.
#[test]
#[ignore = "a part of other tests"]
fn as_udp_echo_flow() {
    let Some(words) = std::env::var("UPCALL_PART").ok() else {
        return println!("skipped: it is a part of other tests");
    };
    let request = example::Request::parse(words.split(' ').map(str::to_owned)).unwrap();
    let socket = PathBuf::from(std::env::var_os("UPCALL_SOCKET").unwrap());
    let (counts, missed) = example::serve(&request, &socket, Arc::default()).unwrap();
    let [echoed, no_room, refused] =
        [&counts.echoed, &counts.no_room, &counts.refused].map(|it| it.load(Ordering::Relaxed));
    println!("served {echoed} {no_room} {refused}, {missed} missed");
}

/// A client of an echo server at the port of its word, until that has ended.
#[test]
#[ignore = "a part of other tests"]
fn as_client() {
    let Some(port) = std::env::var("UPCALL_PART").ok().filter(|words| !words.is_empty()) else {
        return println!("skipped: it is a part of other tests");
    };
    let socket = UdpSocket::bind((THEIRS, 0)).unwrap();
    socket.connect((OURS, port.parse().unwrap())).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut number, mut bytes) = (0u64, [0; 2048]);
    loop {
        let sent = message(number);
        let length = 8 + usize::try_from(number * 77 % 1464).unwrap();
        // An error: nobody is there yet.
        let _ = socket.send(&sent[..length]);
        if let Ok(found) = socket.recv(&mut bytes)
            && bytes[..found] == sent[..length]
        {
            number += 1;
            println!("answered {number}");
        }
    }
}

fn request(port: u16) -> FlowRequest {
    FlowRequest::new(INTERFACE, SocketAddr::new(OURS.parse().unwrap(), port))
}

/// A datagram of 1472 bytes that differs from all others.
fn message(number: u64) -> Vec<u8> {
    let rest = (8..1472u64).map(|at| (number.wrapping_mul(31) + at * 7).to_le_bytes()[0]);
    number.to_ne_bytes().into_iter().chain(rest).collect()
}

const FLAGS: [&str; 4] = ["--interfaces", INTERFACE, "--access", "everyone"];

#[test]
#[ignore = "needs root, ip, sysctl and setpriv"]
fn an_ordinary_user_exchanges_datagrams_with_the_kernel_by_the_daemon() {
    let _machine = machine();
    let Some(mut network) = Network::start(&FLAGS) else { return };
    let mut program = network.program(5004, 8);
    assert_eq!(program.line("open "), format!("{OURS}:5004"));
    program.line("many");
    wait_until("the counts", || network.flows().iter().any(|of| number(of, "received") >= 100));
    let net = network.net();
    let [flow] = list(&net, "flows") else { panic!("{net:#}") };
    assert_eq!(text(flow, "local"), format!("{OURS}:5004"));
    assert_eq!(text(flow, "interface"), INTERFACE);
    assert_eq!(number(flow, "uid").to_string(), USER);
    let [owned] = list(&net, "owned_interfaces") else { panic!("{net:#}") };
    assert!(text(owned, "path").contains("AF_XDP"), "{net:#}");
    assert!(network.is_attached());
    // The port is taken, also for the kernel's sockets.
    let mut second = network.program(5004, 1);
    assert!(second.line("refused ").starts_with("Taken"));
    second.kill();
    let mut low = network.program(53, 1);
    assert!(low.line("refused ").starts_with("NoRight"));
    low.kill();
    let (exchanged, lost) = program.end();
    assert!(exchanged >= 100);
    assert_eq!(lost, 0);
    wait_until("the end of the XDP program", || !network.is_attached());
    let said = network.end_daemon();
    assert!(said.contains("8192 of 8192 frames are free"), "{said}");
}

#[test]
#[ignore = "needs root, ip and sysctl"]
fn the_example_udp_echo_flow_sends_back_what_the_kernel_sends() {
    let _machine = machine();
    let Some(mut network) = Network::start(&FLAGS) else { return };
    let mut server = network.at(&network.ours, &network.program);
    let words = format!("{INTERFACE} {OURS}:5004 --packets 20");
    let mut server = Program::start(part(&mut server, "as_udp_echo_flow", &words));
    let mut client = network.at(&network.theirs, &network.program);
    let mut client = Program::start(part(&mut client, "as_client", "5004"));
    assert!(server.line("served ").starts_with("20 0 0, "));
    assert!(server.child.wait().unwrap().success());
    // The last answer may be lost with the flow.
    for number in 1..20 {
        assert_eq!(client.line("answered "), number.to_string());
    }
    client.kill();
    wait_until("the end of the XDP program", || !network.is_attached());
    let said = network.end_daemon();
    assert!(said.contains("8192 of 8192 frames are free"), "{said}");
}

#[test]
#[ignore = "needs root, ip, sysctl and setpriv"]
fn a_program_that_is_killed_at_any_moment_costs_others_nothing_and_loses_no_frame() {
    const ROUNDS: u32 = 40;
    let _machine = machine();
    let Some(mut network) = Network::start(&FLAGS) else { return };
    let mut steady = network.program(5004, 8);
    steady.line("many");
    let mut random = u64::from(std::process::id()) | 1;
    println!("seed {random}");
    for _ in 0..ROUNDS {
        let mut victim = network.program(5005, 32);
        victim.line("open ");
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(random % 30_000));
        victim.kill();
    }
    wait_until("the ends of the flows", || network.flows().len() == 1);
    let mut last = Value::Null;
    wait_until("the frames", || {
        last = network.net()["owned_interfaces"][0].clone();
        let at = |name| number(&last, name);
        let all = at("free") + at("receiving") + at("sending") + at("waiting");
        assert_eq!((all, at("faults")), (at("frames"), 0), "{last:#}");
        // The steady program may have some on their way at any look.
        at("sending") + at("waiting") <= 8
    });
    let (exchanged, lost) = steady.end();
    println!("{ROUNDS} rounds; the other program exchanged {exchanged} datagrams; {last}");
    assert_eq!(lost, 0, "of {exchanged}");
    let said = network.end_daemon();
    assert!(said.contains("8192 of 8192 frames are free"), "{said}");
}

#[test]
#[ignore = "needs root, ip, sysctl and setpriv"]
fn a_killed_daemon_leaves_the_interface_to_the_kernel() {
    let _machine = machine();
    let Some(mut network) = Network::start(&FLAGS) else { return };
    let mut program = network.program(5004, 8);
    program.line("many");
    assert!(network.is_attached());
    let daemon = network.daemon.take().unwrap();
    signal(daemon.pid(), "KILL");
    let _ = daemon.finish();
    program.line("closed");
    wait_until("the end of the XDP program", || !network.is_attached());
    program.kill();
    // The next daemon has the port again, so no socket of the former is left.
    network.start_daemon(&FLAGS);
    let mut program = network.program(5004, 8);
    program.line("many");
    assert_eq!(program.end().1, 0);
    // And the kernel gets what comes for the port.
    wait_until("the end of the XDP program", || !network.is_attached());
    let mut kernel = network.at(&network.ours, &network.program);
    let done = part(&mut kernel, "as_program_with_socket", "").output().unwrap();
    assert!(String::from_utf8_lossy(&done.stdout).contains("kernel answers"), "{done:?}");
}

#[test]
#[ignore = "needs root, ip, sysctl and setpriv"]
fn packet_quotas_and_flows_share_an_interface() {
    let _machine = machine();
    let Some(mut network) = Network::start(&FLAGS) else { return };
    let quota = |network: &Network, destination: &str| {
        let mut command = network.at(&network.ours, Path::new(UPCALL));
        command.args(["exec", "--receive", destination, "--json", "--", "sleep", "600"]);
        Running::start(&mut command)
    };
    let flood = |network: &Network| {
        let script =
            format!("for i in $(seq 100); do echo > /dev/udp/{OURS}/5006; done; echo done");
        let mut command = network.at(&network.theirs, Path::new("bash"));
        assert!(command.args(["-c", &script]).output().unwrap().status.success());
    };
    let dropped = |network: &Network| {
        list(&network.net(), "packet_quotas").iter().map(|of| number(of, "dropped")).sum::<u64>()
    };
    let mut program = network.program(5004, 8);
    program.line("many");
    // One packet each 50 minutes, and 10 at once.
    let exec = quota(&network, "udp:5006@0.0003/s,burst=9");
    wait_until("the quota", || list(&network.net(), "packet_quotas").len() == 1);
    flood(&network);
    wait_until("the drops", || dropped(&network) == 90);
    // The destination of the one is not that of the other.
    let same = quota(&network, &format!("udp:{OURS}:5004@1/s")).finish();
    let report: Value = serde_json::from_str(same.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(text(&report, "cause"), "taken", "{report:#}");
    // The quota outlives the flow, and a flow the quota.
    assert_eq!(program.end().1, 0);
    wait_until("the end of the flow", || network.flows().is_empty());
    flood(&network);
    wait_until("the drops", || dropped(&network) == 190);
    let mut program = network.program(5004, 8);
    program.line("many");
    signal(exec.pid(), "KILL");
    wait_until("the end of the quota", || list(&network.net(), "packet_quotas").is_empty());
    assert!(network.is_attached());
    assert_eq!(program.end().1, 0);
    wait_until("the end of the XDP program", || !network.is_attached());
    let said = network.end_daemon();
    assert!(said.contains("8192 of 8192 frames are free"), "{said}");
}
