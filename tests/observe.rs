//! `upcall ps` and `upcall top`, as whole programs, with a running daemon and without one.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::Type::{Bool, Count, CountOrNull, Float, List, SignedOrNull, Text, TextOrNull};
use support::{
    Done, Running, UPCALL, a_cpu, assert_fields, field, folder, list, named, number, text, truth,
    upcall, wait_until,
};
use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, Runtime};

/// A daemon for one test.
struct Daemon {
    running: Running,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let folder = folder();
        let socket = folder.path().join("upcall.sock");
        let running = support::daemon(Command::new(UPCALL).arg("daemon"), &socket);
        Daemon { running, socket, _folder: folder }
    }

    fn ask(&self, command: &[&str]) -> Done {
        upcall(&[command, &["--socket", self.socket.to_str().unwrap()]].concat())
    }

    fn ps(&self) -> Value {
        let done = self.ask(&["ps", "--json"]);
        done.assert_code(&[0]);
        assert_eq!(done.stderr, "");
        done.json()
    }

    fn domain(&self, name: &str) -> Runtime {
        let daemon = Some(Attach { socket: self.socket.clone(), name: name.to_owned() });
        Runtime::start(Config { daemon, ..Config::default() }).unwrap()
    }
}

/// Checks the fields of a domain and of its two activities (docs/observing.md).
fn assert_is_a_domain(player: &Value) {
    assert_fields(
        player,
        &[
            ("domain", Count),
            ("generation", Count),
            ("uid", Count),
            ("at_ns", Count),
            ("state", Text),
            ("fault", TextOrNull),
            ("utilization", Float),
            ("used_ns", Count),
            ("offences", Count),
            ("handoffs", Count),
            ("upcalls", Count),
            ("switches", Count),
            ("misses", Count),
            ("pdus", Count),
            ("slack_ns_min", SignedOrNull),
            ("virtual_processors", List),
        ],
    );
    let activities = list(player, "activities");
    assert_eq!(activities.len(), 2);
    for activity in activities {
        assert_fields(
            activity,
            &[
                ("order", Count),
                ("cpu", Count),
                ("deadline_ns", Count),
                ("quantum", Count),
                ("utilization", Float),
                ("response_ns_max", CountOrNull),
                ("next_release_ns", CountOrNull),
                ("state", Text),
            ],
        );
    }
}

#[test]
fn ps_lists_a_domain_with_its_activities_until_it_ends() {
    let _machine = support::machine();
    let daemon = Daemon::start();
    let empty = daemon.ps();
    assert_eq!(list(&empty, "domains"), &[] as &[Value]);
    let cpus = list(&empty, "cpus");
    assert_eq!((cpus.len(), number(&cpus[0], "cpu")), (1, u64::from(a_cpu())));
    assert_fields(&empty, &[("policy", Text), ("real_time", Bool), ("switch_cost_ns", Count)]);

    let mut domain = daemon.domain("player");
    let params = |period_ms| {
        ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(100)).batch(2)
    };
    let tick = domain.handler("tick", params(10), |batch| while batch.proceed() {}).unwrap();
    domain.handler("rest", params(40), |batch| while batch.proceed() {}).unwrap();
    domain.run(tick).unwrap();
    let mut seen = Value::Null;
    wait_until("some jobs", || {
        seen = daemon.ps();
        let player = named(&seen, "domains", "player");
        number(player, "jobs") > 2 && number(player, "used_ns") > 0
    });

    let player = named(&seen, "domains", "player");
    assert_eq!(number(player, "pid"), u64::from(std::process::id()));
    assert_is_a_domain(player);
    let tick = named(player, "activities", "tick");
    let numbers = ["period_ns", "batch", "pdu_cost_ns"].map(|path| number(tick, path));
    assert_eq!(numbers, [10_000_000, 2, 100_000]);
    assert_eq!(field(tick, "utilization").as_f64(), Some(0.02));
    assert!(truth(tick, "admitted"));
    assert_eq!(text(named(player, "activities", "rest"), "state"), "suspended");
    let [virtual_processor] = list(player, "virtual_processors") else { panic!("{player:#}") };
    assert_fields(virtual_processor, &[("tid", Count), ("state", Text), ("used_ns", Count)]);
    assert_eq!(number(virtual_processor, "cpu"), u64::from(a_cpu()));
    for of_its_only_one in ["state", "used_ns", "utilization"] {
        assert_eq!(field(player, of_its_only_one), field(virtual_processor, of_its_only_one));
    }

    let tables = daemon.ask(&["ps"]);
    tables.assert_code(&[0]);
    for word in ["player", "tick", "rest", "suspended", "turns passed"] {
        assert!(tables.stdout.contains(word), "no `{word}`: {}", tables.stdout);
    }

    drop(domain);
    wait_until("the end of the domain", || list(&daemon.ps(), "domains").is_empty());
    daemon.running.signal("TERM");
    daemon.running.finish().assert_code(&[0]);
}

#[test]
fn a_missing_daemon_is_reported_in_a_line() {
    let folder = folder();
    let path = folder.path().join("nobody.sock");
    let path = path.to_str().unwrap();
    let done = upcall(&["ps", "--json", "--socket", path]);
    done.assert_code(&[2]);
    assert_eq!((done.stdout.as_str(), done.stderr.lines().count()), ("", 1), "{done:#?}");
    assert!(done.stderr.contains(path) && done.stderr.contains("no daemon"), "{}", done.stderr);
    // A screen needs a terminal, which `script` is.
    let mut command = Command::new("script");
    command.args(["-qefc", &format!("{UPCALL} top --socket {path}"), "/dev/null"]);
    let done = Running::start(command.env("TERM", "xterm")).finish();
    assert!(done.stdout.contains(path) && done.stdout.contains("no daemon"), "{done:#?}");
}

#[test]
fn the_socket_of_an_ended_daemon_is_reported_differently() {
    let _machine = support::machine();
    let folder = folder();
    let path = folder.path().join("left.sock");
    let daemon = support::daemon(Command::new(UPCALL).arg("daemon"), &path);
    let path = path.to_str().unwrap();
    daemon.signal("KILL");
    daemon.finish();
    let done = upcall(&["ps", "--socket", path]);
    done.assert_code(&[2]);
    assert_eq!((done.stdout.as_str(), done.stderr.lines().count()), ("", 1), "{done:#?}");
    let said = format!("the socket {path} is there, but the daemon that listened at it has ended");
    assert!(done.stderr.contains(&said), "{}", done.stderr);
}

#[test]
fn top_without_a_terminal_names_ps() {
    let done = upcall(&["top"]);
    done.assert_code(&[2]);
    assert_eq!((done.stdout.as_str(), done.stderr.lines().count()), ("", 1), "{done:#?}");
    assert!(done.stderr.contains("terminal") && done.stderr.contains("upcall ps"), "{done:#?}");
}

/// `script` gives `top` a terminal. Each update asks the daemon, whose reply holds the time. Both
/// run at once, so that a slow machine delays both.
#[test]
fn top_asks_the_daemon_once_an_interval() {
    let _machine = support::machine();
    let daemon = Daemon::start();
    let socket = daemon.socket.to_str().unwrap();
    let folder = folder();
    let [often, seldom] = ["20ms", "10min"].map(|interval| {
        let output = folder.path().join(interval);
        let top = format!("{UPCALL} top --socket {socket} --interval {interval}");
        let mut command = Command::new("script");
        command.args(["-qefc", &top]).arg(&output).env("TERM", "xterm");
        (Running::start(&mut command), output)
    });
    let bytes = |output: &Path| fs::metadata(output).map_or(0, |file| file.len());
    // Before the first screen, `script` writes a line with the command.
    wait_until("the first screens", || bytes(&often.1).min(bytes(&seldom.1)) > 500);
    wait_until("updates", || bytes(&often.1) > 2 * bytes(&seldom.1));
}

/// A program that ignores SIGHUP, as below nohup(1), has to notice the end of its terminal itself.
#[test]
fn top_ends_with_its_terminal() {
    let _machine = support::machine();
    let daemon = Daemon::start();
    let socket = daemon.socket.to_str().unwrap();
    let folder = folder();
    let output = folder.path().join("screen");
    let top = format!("{UPCALL} top --socket {socket} --interval 10min");
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" HUP; exec script -qefc "$0" "$1""#, &top]).arg(&output);
    let terminal = Running::start(command.env("TERM", "xterm"));
    wait_until("the first screen", || fs::metadata(&output).is_ok_and(|file| file.len() > 500));
    assert!(is_shown(socket));
    terminal.signal("KILL");
    wait_until("the end of `top`", || !is_shown(socket));
}

/// Whether an `upcall top` of this socket runs.
fn is_shown(socket: &str) -> bool {
    let commands = fs::read_dir("/proc").unwrap().flatten();
    let commands = commands.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let mut words = commands.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    words.any(|line| line.starts_with(&format!("{UPCALL} top")) && line.contains(socket))
}
