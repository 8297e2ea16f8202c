//! `upcall exec --receive` and `upcall net`, as whole programs, on a network of two namespaces.
//!
//! The namespaces are this file's own, and are removed at the end of each test. No packet leaves
//! them. The driver of veth runs the program that drops packets.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use support::{
    Done, Running, UPCALL, UPCALLD, folder, is_alive, list, machine, number, signal, text, truth,
    wait_until,
};

/// The interface of the receivers.
const INTERFACE: &str = "veth-r";
/// The receivers' address.
const ADDRESS: &str = "10.99.0.2";
/// An ordinary user.
const USER: &str = "65534";

/// Two namespaces with a cable between them, and a daemon at one end.
struct Network {
    senders: String,
    receivers: String,
    daemon: Option<Running>,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Network {
    fn start(flags: &[&str]) -> Self {
        let mut network = Network::without_daemon();
        network.start_daemon(flags);
        network
    }

    fn without_daemon() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("upcall-test-{}-{number}-{end}", std::process::id());
        let folder = folder();
        let socket = folder.path().join("upcall.sock");
        let network = Network {
            senders: name("s"),
            receivers: name("r"),
            daemon: None,
            socket,
            _folder: folder,
        };
        let Network { senders, receivers, .. } = &network;
        for command in [
            format!("ip netns add {senders}"),
            format!("ip netns add {receivers}"),
            // Reports of multicast groups would come at random moments.
            format!("ip netns exec {senders} sysctl -q net.ipv6.conf.default.disable_ipv6=1"),
            format!("ip netns exec {receivers} sysctl -q net.ipv6.conf.default.disable_ipv6=1"),
            format!("ip -n {receivers} link set lo up"),
        ] {
            succeed(&command);
        }
        network.connect();
        network
    }

    /// Makes the cable.
    fn connect(&self) {
        let Network { senders, receivers, .. } = self;
        for command in [
            format!(
                "ip -n {senders} link add veth-s type veth peer name {INTERFACE} netns {receivers}"
            ),
            format!("ip -n {senders} addr add 10.99.0.1/24 dev veth-s"),
            format!("ip -n {receivers} addr add {ADDRESS}/24 dev {INTERFACE}"),
            format!("ip -n {senders} link set veth-s up"),
            format!("ip -n {receivers} link set {INTERFACE} up"),
        ] {
            succeed(&command);
        }
    }

    fn start_daemon(&mut self, flags: &[&str]) {
        let mut command = self.at_receivers(UPCALLD);
        self.daemon = Some(support::daemon(command.args(flags), &self.socket));
    }

    /// `program` in the namespace of the receivers.
    fn at_receivers(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.receivers, program]);
        command.env("UPCALL_SOCKET", &self.socket);
        command
    }

    /// `upcall exec` with these options, for a program that runs until it is killed.
    fn exec(&self, options: &str) -> Running {
        let mut command = self.at_receivers(UPCALL);
        command.arg("exec").args(options.split_whitespace()).args(["--json", "--", "sleep", "600"]);
        Running::start(&mut command)
    }

    /// Sends `packets` datagrams, one after the other.
    fn send(&self, port: u16, packets: u32) {
        let script =
            format!("for i in $(seq {packets}); do echo > /dev/udp/{ADDRESS}/{port}; done");
        let ended = Command::new("ip")
            .args(["netns", "exec", &self.senders, "bash", "-c", &script])
            .status()
            .unwrap();
        assert!(ended.success());
    }

    /// How many datagrams the protocol work of the receivers' kernel has seen.
    fn seen(&self) -> u64 {
        let snmp = self.at_receivers("cat").arg("/proc/net/snmp").output().unwrap();
        let snmp = String::from_utf8(snmp.stdout).unwrap();
        let mut udp = snmp.lines().filter(|line| line.starts_with("Udp: "));
        let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
        let counts = names.split_whitespace().zip(values.split_whitespace());
        let seen = counts.filter(|(name, _)| ["InDatagrams", "NoPorts"].contains(name));
        seen.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
    }

    fn net(&self) -> Value {
        let done = Running::start(self.at_receivers(UPCALL).args(["net", "--json"])).finish();
        done.assert_code(&[0]).json()
    }

    fn quotas(&self) -> Vec<Value> {
        list(&self.net(), "packet_quotas").to_vec()
    }

    /// Whether a program is attached to the receivers' interface.
    fn is_attached(&self) -> bool {
        let net = self.net();
        let interface = list(&net, "interfaces").iter().find(|of| of["name"] == INTERFACE);
        !interface.unwrap()["attached"].is_null()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.daemon.take());
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

/// The object on the last line of standard error.
#[track_caller]
fn report(done: &Done) -> Value {
    let last = done.stderr.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {done:#?}"))
}

/// The process that `upcall exec` started.
#[track_caller]
fn program_of(exec: &mut Running) -> u32 {
    let mut found = None;
    wait_until("the program", || {
        assert!(exec.runs(), "upcall exec has ended: the quota was refused");
        let all = support::descendants(exec.pid());
        let is_sleep = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n")
        };
        found = all.into_iter().find(is_sleep);
        found.is_some()
    });
    found.unwrap()
}

/// One packet each 50 minutes, and 10 ahead: 1 that may come within 10 ms, and the burst. So the
/// counts do not depend on the time that the test takes.
const QUOTA: &str = "udp:5004@0.0003/s,burst=9";

#[test]
#[ignore = "needs root and ip"]
fn packets_beyond_a_quota_are_dropped_before_the_protocol_work() {
    let _machine = machine();
    let network = Network::start(&["--interfaces", INTERFACE]);
    let mut exec = network.exec(&format!("--receive {QUOTA} --receive udp:{ADDRESS}:5006@1000/s"));
    let program = program_of(&mut exec);
    let before = network.seen();
    network.send(5004, 200);
    network.send(5005, 50);
    // The driver may be behind the senders.
    wait_until("the last packet", || network.seen() - before >= 60);
    let quotas = network.quotas();
    let of = |quotas: &[Value], destination: &str| {
        let all: Vec<&Value> =
            quotas.iter().filter(|of| of["destination"] == destination).collect();
        assert_eq!(all.len(), 1, "{quotas:#?}");
        (number(all[0], "passed"), number(all[0], "dropped"))
    };
    assert_eq!(of(&quotas, "udp:5004"), (10, 190));
    assert_eq!(of(&quotas, "udp:10.99.0.2:5006"), (0, 0));
    assert!(quotas.iter().all(|quota| number(quota, "pid") == u64::from(program)));
    // Port 5005 has no quota, and loses nothing.
    assert_eq!(network.seen() - before, 60);
    signal(program, "TERM");
    let done = exec.finish();
    done.assert_code(&[143]);
    let report = report(&done);
    let receive = list(&report, "receive");
    assert_eq!(of(receive, "udp:5004"), (10, 190));
    assert!(done.stderr.contains("veth-r: "), "{done:#?}");
    wait_until("the end of the quotas", || network.quotas().is_empty());
    assert!(!network.is_attached());
    network.send(5004, 20);
    wait_until("the last packet", || network.seen() - before >= 80);
    assert_eq!(network.seen() - before, 80);
}

#[test]
#[ignore = "needs root and ip"]
fn packets_for_other_destinations_have_a_limit_of_their_own() {
    let _machine = machine();
    // One packet each 50 minutes, and 3 ahead.
    let network = Network::start(&["--interfaces", INTERFACE, "--other-packets", "0.0003/s"]);
    // Without a quota there is no limit.
    let before = network.seen();
    network.send(5005, 20);
    wait_until("the last packet", || network.seen() - before >= 20);
    let mut exec = network.exec(&format!("--receive {QUOTA}"));
    let program = program_of(&mut exec);
    network.send(5005, 30);
    network.send(5004, 30);
    let dropped = || network.quotas().iter().map(|quota| number(quota, "dropped")).sum::<u64>();
    wait_until("the last packet", || dropped() == 20 + 27);
    // An answer to ARP needs no place.
    assert_eq!(network.seen() - before, 20 + 3 + 10);
    let quotas = network.quotas();
    let others = quotas.iter().find(|of| of["destination"] == "others").unwrap();
    assert_eq!((number(others, "passed"), number(others, "dropped")), (3, 27), "{quotas:#?}");
    signal(program, "TERM");
    exec.finish().assert_code(&[143]);
}

#[test]
#[ignore = "needs root and ip"]
fn a_quota_ends_with_its_program_and_with_its_daemon_even_if_they_are_killed() {
    let _machine = machine();
    let flags = ["--interfaces", INTERFACE];
    let mut network = Network::start(&flags);
    let mut exec = network.exec(&format!("--receive {QUOTA}"));
    let program = program_of(&mut exec);
    assert!(network.is_attached());
    signal(exec.pid(), "KILL");
    wait_until("the end of the quota", || network.quotas().is_empty());
    assert!(!network.is_attached());
    assert!(is_alive(program), "the program runs on without its quota");
    signal(program, "KILL");

    let mut exec = network.exec(&format!("--receive {QUOTA}"));
    let program = program_of(&mut exec);
    assert!(network.is_attached());
    let daemon = network.daemon.take().unwrap();
    signal(daemon.pid(), "KILL");
    let _ = daemon.finish();
    wait_until("the end of the XDP program", || {
        let net = Running::start(network.at_receivers(UPCALL).args(["net", "--json"]));
        let net = net.finish().json();
        assert!(net["packet_quotas"].is_null(), "{net:#}");
        let found = list(&net, "interfaces").iter().find(|of| of["name"] == INTERFACE);
        found.unwrap()["attached"].is_null()
    });
    network.start_daemon(&flags);
    assert!(is_alive(program));
    // Another daemon does not restore the quota.
    assert!(network.quotas().is_empty());
    signal(program, "TERM");
    let done = exec.finish();
    done.assert_code(&[143]);
    let report = report(&done);
    let received = &list(&report, "receive")[0];
    assert!(received["passed"].is_null(), "{report:#}");
    assert!(!truth(received, "kept_to_end"));
    assert!(done.stderr.contains("sleep runs on without its packet quota"), "{done:#?}");
}

#[test]
#[ignore = "needs root and ip"]
fn a_daemon_of_exec_has_the_interfaces_of_the_command() {
    let _machine = machine();
    let network = Network::without_daemon();
    let mut exec = network.exec(&format!("--receive {QUOTA} --interfaces {INTERFACE}"));
    let program = program_of(&mut exec);
    network.send(5004, 30);
    wait_until("the last packet", || number(&network.quotas()[0], "dropped") == 20);
    assert_eq!(network.quotas().len(), 1);
    let options = ["exec", "--receive", "udp:5009@1/s", "--interfaces", "lo", "--", "true"];
    let other = Running::start(network.at_receivers(UPCALL).args(options)).finish();
    other.assert_code(&[0]);
    assert!(other.stderr.contains("--interfaces is not used"), "{other:#?}");
    signal(program, "TERM");
    let done = exec.finish();
    done.assert_code(&[143]);
    let report = report(&done);
    let received = &list(&report, "receive")[0];
    assert_eq!((number(received, "passed"), number(received, "dropped")), (10, 20));
    // The daemon ends with the last quota.
    wait_until("the end of the daemon", || !network.is_attached() && !network.socket.exists());
}

/// The capabilities that the drop-in of docs/install.md adds to the unit suffice.
#[test]
#[ignore = "needs root, ip and setpriv"]
fn two_more_capabilities_suffice_for_packet_quotas() {
    let _machine = machine();
    let mut network = Network::without_daemon();
    let page = std::fs::read_to_string(support::root().join("docs/install.md")).unwrap();
    let added = page.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let added = added.expect("the drop-in adds capabilities");
    assert_eq!(added, "CAP_BPF CAP_NET_ADMIN");
    // The unit has these: for the namespace of the command, and for the kernel's verifier.
    let all = added.split(' ').chain(["CAP_SYS_PTRACE", "CAP_PERFMON"]);
    let only = all.map(|name| format!(",+{}", name.trim_start_matches("CAP_")));
    let only = format!("-all{}", only.collect::<String>().to_lowercase());
    let mut command = network.at_receivers("setpriv");
    command.args(["--bounding-set", &only, "--inh-caps=-all", UPCALLD]);
    command.args(["--interfaces", INTERFACE]);
    network.daemon = Some(support::daemon(&mut command, &network.socket));
    let mut exec = network.exec(&format!("--receive {QUOTA}"));
    let program = program_of(&mut exec);
    network.send(5004, 20);
    wait_until("the last packet", || number(&network.quotas()[0], "dropped") == 10);
    signal(program, "TERM");
    exec.finish().assert_code(&[143]);
}

#[test]
#[ignore = "needs root and ip"]
fn an_interface_that_was_made_again_gets_all_quotas_with_the_next() {
    let _machine = machine();
    let network = Network::start(&["--interfaces", INTERFACE]);
    let mut first = network.exec(&format!("--receive {QUOTA}"));
    let first_program = program_of(&mut first);
    succeed(&format!("ip -n {} link del {INTERFACE}", network.receivers));
    network.connect();
    assert!(!network.is_attached());
    let mut second = network.exec("--receive udp:5006@1000/s");
    let second_program = program_of(&mut second);
    assert!(network.is_attached());
    network.send(5004, 30);
    let dropped = || network.quotas().iter().map(|quota| number(quota, "dropped")).sum::<u64>();
    wait_until("the last packet", || dropped() == 20);
    for (program, exec) in [(first_program, first), (second_program, second)] {
        signal(program, "TERM");
        exec.finish().assert_code(&[143]);
    }
}

#[test]
#[ignore = "needs root, ip and setpriv"]
fn a_quota_that_cannot_be_kept_is_refused_and_nothing_is_run() {
    let _machine = machine();
    let network = Network::start(&["--interfaces", INTERFACE, "--access", "everyone"]);
    let mut exec = network.exec(&format!("--receive {QUOTA}"));
    let program = program_of(&mut exec);

    let refused = |command: &mut Command| {
        let done = Running::start(command).finish();
        let report = report(&done);
        (done.code(), text(&report, "cause").to_owned(), text(&report, "reason").to_owned())
    };
    let options = ["exec", "--receive", QUOTA, "--json", "--", "true"];
    let (code, cause, reason) = refused(network.at_receivers(UPCALL).args(options));
    assert_eq!((code, cause.as_str()), (3, "taken"), "{reason}");
    // The same destination in another form.
    let form = ["exec", "--receive", "udp:0.0.0.0:5004@1/s", "--json", "--", "true"];
    assert_eq!(refused(network.at_receivers(UPCALL).args(form)).1, "taken");
    let far = ["exec", "--receive", "udp:5009@0.0003/s,burst=1000000", "--json", "--", "true"];
    assert_eq!(refused(network.at_receivers(UPCALL).args(far)).1, "terms");
    assert!(reason.contains("`sleep`"), "{reason}");
    // Of another namespace.
    let mut outside = Command::new(UPCALL);
    outside.args(options).env("UPCALL_SOCKET", &network.socket);
    assert_eq!(refused(&mut outside).1, "other namespace");
    // Of a user without the right.
    let folder = network.socket.parent().unwrap();
    let copy = folder.join("upcall");
    std::fs::copy(UPCALL, &copy).unwrap();
    for path in [folder, &copy] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    }
    let mut user = network.at_receivers("setpriv");
    user.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--bounding-set=-all"]);
    user.arg(&copy).args(["exec", "--receive", "udp:5009@1/s", "--json", "--", "true"]);
    user.env("XDG_RUNTIME_DIR", folder);
    let (code, cause, reason) = refused(&mut user);
    assert_eq!((code, cause.as_str()), (2, "no right"), "{reason}");
    signal(program, "TERM");
    exec.finish().assert_code(&[143]);
    drop(network);

    for (flags, cause) in [
        (&[][..], "no interface"),
        (&["--interfaces", "no-such"][..], "interface"),
        // The driver of loopback has no XDP.
        (&["--interfaces", "lo"][..], "interface"),
        // One of two: then neither keeps the program.
        (&["--interfaces", "veth-r,no-such"][..], "interface"),
    ] {
        let network = Network::start(flags);
        let (code, found, reason) = refused(network.at_receivers(UPCALL).args(options));
        assert_eq!((code, found.as_str()), (2, cause), "{flags:?}: {reason}");
        assert!(!network.is_attached());
    }
}
