//! `upcall run` with streams on an interface of the daemon, on a network of two namespaces.
//!
//! The namespaces are this file's own, and are removed at the end of each test. No packet leaves
//! them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use support::{Running, UPCALL, folder, list, machine, number, root, text, wait_until};

/// Packets that the other end sends.
const PACKETS: u64 = 150;

/// Two namespaces with a cable between them, as in the head of the example.
struct Network {
    senders: String,
    receivers: String,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Network {
    fn new() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("upcall-xdp-{}-{number}-{end}", std::process::id());
        let folder = folder();
        let socket = folder.path().join("upcall.sock");
        let network = Network { senders: name("s"), receivers: name("r"), socket, _folder: folder };
        let Network { senders, receivers, .. } = &network;
        for command in [
            format!("ip netns add {senders}"),
            format!("ip netns add {receivers}"),
            // Reports of multicast groups would come at random moments.
            format!("ip netns exec {senders} sysctl -q net.ipv6.conf.default.disable_ipv6=1"),
            format!("ip netns exec {receivers} sysctl -q net.ipv6.conf.default.disable_ipv6=1"),
            format!("ip -n {senders} link add veth-l type veth peer name veth-r netns {receivers}"),
            format!("ip -n {senders} addr add 10.99.0.1/24 dev veth-l"),
            format!("ip -n {receivers} addr add 10.99.0.2/24 dev veth-r"),
            format!("ip -n {senders} link set veth-l up"),
            format!("ip -n {receivers} link set veth-r up"),
        ] {
            succeed(&command);
        }
        network
    }

    /// `upcall` in the namespace of the receivers, where no other daemon is found.
    fn upcall(&self, arguments: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.receivers, UPCALL]);
        command.args(arguments.split(' ')).current_dir(root());
        command.env("UPCALL_SOCKET", &self.socket);
        command
    }

    /// What a command prints as JSON. `None`: no daemon answers yet.
    fn ask(&self, command: &str) -> Option<Value> {
        let done = Running::start(&mut self.upcall(command)).finish();
        serde_json::from_str(&done.stdout).ok()
    }

    /// The jobs that have ended at the daemon.
    fn jobs(&self) -> u64 {
        let jobs = |domain: &Value| domain["jobs"].as_u64().unwrap_or(0);
        let ps = self.ask("ps --json");
        ps.map_or(0, |ps| list(&ps, "domains").iter().map(jobs).sum())
    }

    /// Waits until `more` jobs have ended since this call.
    fn wait_for_jobs(&self, mut run: Running, more: u64) -> Running {
        let before = self.jobs();
        wait_until("jobs", || !run.runs() || self.jobs() >= before + more);
        match run.runs() {
            true => run,
            false => panic!("upcall run has ended: {:#?}", run.finish()),
        }
    }

    /// Sends all packets while `run` receives, and ends it when all but `waiting` were processed or
    /// dropped.
    fn send_and_end(&self, run: Running, waiting: u64) -> Value {
        let run = self.wait_for_jobs(run, 1);
        assert!(self.is_attached());
        self.send();
        wait_until("the last packet", || {
            let net = self.ask("net --json").unwrap();
            let voice = list(&net, "flows").iter().find(|of| text(of, "local").ends_with(":5004"));
            let voice = voice.unwrap();
            let dropped = |reason| number(&voice["dropped"], reason);
            let in_driver = dropped("over_quota") + dropped("behind");
            number(voice, "received") + in_driver >= PACKETS - waiting
        });
        // More than those that were under way.
        let run = self.wait_for_jobs(run, 100);
        run.signal("INT");
        let done = run.finish();
        // A machine without time for the handlers breaks a promise.
        done.assert_code(&[0, 4]).json()
    }

    /// Sends packets to the first stream, at less than its rate.
    fn send(&self) {
        let script = format!(
            "for i in $(seq {PACKETS}); do echo hello > /dev/udp/10.99.0.2/5004; sleep 0.01; done"
        );
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.senders, "bash", "-c", &script]);
        assert!(command.status().unwrap().success());
    }

    /// How many datagrams the kernel of the other end got.
    fn seen(&self) -> u64 {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.senders, "cat", "/proc/net/snmp"]);
        let snmp = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let mut udp = snmp.lines().filter(|line| line.starts_with("Udp: "));
        let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
        let counts = names.split_whitespace().zip(values.split_whitespace());
        let seen = counts.filter(|(name, _)| ["InDatagrams", "NoPorts"].contains(name));
        seen.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
    }

    /// Whether a program is attached to the receivers' interface.
    fn is_attached(&self) -> bool {
        let net = Running::start(&mut self.upcall("net --json")).finish().json();
        let interface = list(&net, "interfaces").iter().find(|of| of["name"] == "veth-r");
        !interface.unwrap()["attached"].is_null()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.senders, &self.receivers] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[track_caller]
fn succeed(command: &str) {
    let mut words = command.split_whitespace();
    let done = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(done.status.success(), "{command}: {done:?}");
}

#[track_caller]
fn stream<'v>(run: &'v Value, name: &str) -> &'v Value {
    list(run, "streams").iter().find(|of| of["name"] == name).unwrap()
}

#[test]
#[ignore = "needs root, ip and sysctl"]
fn a_run_receives_and_sends_on_an_interface_of_its_daemon() {
    let _machine = machine();
    let network = Network::new();
    let mut command = network.upcall("run examples/xdp.toml --duration 600s --json");
    let outcome = network.send_and_end(Running::start(&mut command), 0);
    let voice = stream(&outcome, "voice");
    for count in ["offered", "received"] {
        assert_eq!(number(voice, count), PACKETS, "{outcome:#}");
    }
    // A stream of media drops what waited too long, after a stop of the machine.
    let skipped = number(&voice["dropped"], "queue");
    assert_eq!(number(voice, "processed") + skipped, PACKETS, "{outcome:#}");
    assert!(skipped < PACKETS / 2, "{outcome:#}");
    assert_eq!(number(&voice["dropped"], "socket"), 0, "{outcome:#}");
    assert!(number(voice, "delay_ns_max") > 0);
    let sent = number(stream(&outcome, "answer"), "received");
    let seen = network.seen();
    // Those of the end may be on their way when the flow is closed.
    assert!(seen > 100 && (sent - 8..=sent).contains(&seen), "{seen} of {sent}: {outcome:#}");
    // The daemon of the run has ended, and all that it attached.
    wait_until("the end of the daemon", || !network.socket.exists() && !network.is_attached());
}

/// The stream is declared to get one packet each 1000 s, so the counts do not depend on the time
/// that the test takes.
#[test]
#[ignore = "needs root, ip and sysctl"]
fn packets_beyond_the_declared_rate_are_dropped_and_counted() {
    let _machine = machine();
    let network = Network::new();
    let text = std::fs::read_to_string(root().join("examples/xdp.toml")).unwrap();
    let spec = network.socket.with_file_name("slow.toml");
    std::fs::write(&spec, text.replace("\"200/s\"", "\"0.001/s\"")).unwrap();
    let mut command = network.upcall("run --duration 600s --json");
    let outcome = network.send_and_end(Running::start(command.arg(&spec)), 2);
    let voice = stream(&outcome, "voice");
    // The first one is eligible at once. Up to 2 that came early wait in the daemon, as many as the
    // program has room for.
    let (received, dropped) = (number(voice, "received"), number(&voice["dropped"], "socket"));
    assert_eq!(received, 1, "{outcome:#}");
    assert!((PACKETS - 3..PACKETS).contains(&dropped), "{outcome:#}");
    assert_eq!(number(voice, "offered"), received + dropped);
}

#[test]
#[ignore = "needs root, ip and sysctl"]
fn each_mode_has_the_same_flow() {
    let _machine = machine();
    let network = Network::new();
    let command = "run examples/xdp.toml --duration 2s --compare --json";
    let done = Running::start(&mut network.upcall(command)).finish();
    let outcome = done.assert_code(&[0, 4]).json();
    let runs = list(&outcome, "runs");
    assert_eq!(runs.len(), 3, "{outcome:#}");
    let sent = runs.iter().map(|run| number(stream(run, "answer"), "received"));
    assert!(sent.clone().all(|sent| sent > 0), "{outcome:#}");
    // A new cable drops packets for up to a second, and those of the end may be on their way.
    let (sent, seen) = (sent.sum::<u64>(), network.seen());
    assert!(seen > 100 && seen <= sent, "{seen} of {sent}: {outcome:#}");
    wait_until("the end of the daemon", || !network.socket.exists() && !network.is_attached());
}

#[test]
#[ignore = "needs root, ip and sysctl"]
fn a_flow_that_is_not_to_be_had_is_named_with_its_place_in_the_file() {
    let _machine = machine();
    let network = Network::new();
    let text = std::fs::read_to_string(root().join("examples/xdp.toml")).unwrap();
    let spec = network.socket.with_file_name("missing.toml");
    std::fs::write(&spec, text.replace("xdp://veth-r/10.99.0.2", "xdp://veth-x/10.99.0.2"))
        .unwrap();
    let mut command = network.upcall("run --duration 1s");
    let done = Running::start(command.arg(&spec)).finish();
    done.assert_code(&[2]);
    assert!(done.stderr.contains("stream \"voice\": receive: interface "), "{done:#?}");
    assert!(done.stderr.contains("veth-x"), "{done:#?}");
    // No daemon is left.
    Running::start(&mut network.upcall("ps")).finish().assert_code(&[2]);
}

#[test]
fn the_plan_shows_the_quota_of_the_declared_rate() {
    let plan = |flag: &[&str]| {
        let arguments = [&["plan", "examples/xdp.toml"], flag].concat();
        Running::start(Command::new(UPCALL).args(arguments).current_dir(root())).finish()
    };
    let json = plan(&["--json"]).assert_code(&[0]).json();
    let of = |name: &str| {
        list(&json, "activities").iter().find(|of| of["name"] == name).unwrap().clone()
    };
    let (voice, answer) = (of("voice"), of("answer"));
    assert_eq!(voice["receive"], "xdp://veth-r/10.99.0.2:5004");
    assert!(voice["send"].is_null() && answer["receive"].is_null());
    assert_eq!(answer["send"], "xdp://veth-r/10.99.0.1:5006");
    // 200/s and a tenth more; 2 in 10 ms, and 2 that come early.
    assert_eq!(number(&voice["packet_quota"], "interval_ns"), 4_545_454);
    assert_eq!(number(&voice["packet_quota"], "depth"), 4);
    assert!(answer["packet_quota"].is_null());
    let text = plan(&[]).stdout;
    assert!(text.contains("voice receives at xdp://veth-r/10.99.0.2:5004, at most"), "{text}");
}

#[test]
fn the_simulation_takes_the_stream_as_any_other_of_its_rate() {
    let sim = |spec: &std::path::Path| {
        let mut command = Command::new(UPCALL);
        command.args(["sim", "--duration", "1s", "--json"]).arg(spec).current_dir(root());
        Running::start(&mut command).finish().assert_code(&[0]).json()
    };
    let folder = folder();
    let by_kernel = folder.path().join("udp.toml");
    let text = std::fs::read_to_string(root().join("examples/xdp.toml")).unwrap();
    std::fs::write(&by_kernel, text.replace("xdp://veth-r/", "udp://")).unwrap();
    assert_eq!(sim("examples/xdp.toml".as_ref()), sim(&by_kernel));
}
