//! Clients of a root daemon that want to harm others through its socket, each of another user.
//!
//! The children are those of the module [`support`]. The daemon is one, too, so that its limit of
//! descriptors is its own. All tests need root; without root they are skipped.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use upcall_core::activity::ActivityParams;
use upcall_core::time::Span;
use upcall_daemon::server::{Access, Config, Daemon, DaemonEvent};
use upcall_runtime::{Attach, Config as RuntimeConfig, Runtime};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, ToDaemon, ToDomain};
use upcall_sys::local::Connection;
use upcall_sys::process::effective_user;
use upcall_sys::readiness::{Direction, wait_until};

use support::{ChildProcess, ROLE, read_line};

const SOCKET: &str = "UPCALL_SOCKET";
const HOSTILE: u32 = 65534;
const HONEST: u32 = 65533;
const NEW: u32 = 65532;

/// A daemon in a process of its own.
struct Host {
    daemon: ChildProcess,
    directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Host {
    /// Starts root's daemon, with so many descriptors. `None` if this process is not root.
    fn start(test: &str, descriptors: u32) -> Option<Self> {
        if effective_user() != 0 {
            // `eprintln` would be captured.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: needs root");
            return None;
        }
        let alone = support::alone();
        let directory = tempfile::tempdir().unwrap();
        let program = support::program_for_all(directory.path());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]).arg(program);
        let mut daemon = start(shell, directory.path(), 0, "daemon");
        daemon.read_word("ready");
        Some(Host { daemon, directory, _alone: alone })
    }

    fn child(&self, uid: u32, role: &str) -> ChildProcess {
        let program = Command::new(self.directory.path().join("child"));
        start(program, self.directory.path(), uid, role)
    }

    /// Ends the daemon. Returns its events.
    fn stop(mut self) -> Vec<String> {
        self.daemon.write_line("end");
        let events = self.daemon.rest();
        events
            .lines()
            .filter_map(|line| line.split_once("#event "))
            .map(|e| e.1.to_owned())
            .collect()
    }
}

/// Starts a child in `directory`, with the socket there.
fn start(mut program: Command, directory: &Path, uid: u32, role: &str) -> ChildProcess {
    program.env(SOCKET, directory.join("upcalld")).current_dir(directory);
    ChildProcess::start(program, uid, role)
}

/// The number of jobs that an honest domain has done so far.
fn jobs(honest: &mut ChildProcess) -> u64 {
    honest.write_line("jobs");
    honest.read_word("jobs").parse().unwrap()
}

/// Waits until an honest domain has done more jobs than `before`.
fn wait_for_jobs(honest: &mut ChildProcess, before: u64) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while jobs(honest) <= before {
        assert!(Instant::now() < give_up, "not {before} jobs in a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// No test of its own: the other tests start it.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let socket = PathBuf::from(std::env::var(SOCKET).unwrap());
    match role.as_str() {
        "daemon" => daemon(&socket),
        "honest" => honest(&socket),
        "silent" => silent(&socket),
        "requests" => requests(&socket),
        "soft" => soft(&socket),
        "descriptors" => descriptors(&socket),
        "names" => names(&socket),
        _ => panic!("unknown role {role:?}"),
    }
}

/// Runs a daemon that kills offenders, until it reads a line. Prints its events.
fn daemon(socket: &Path) {
    let cpu = *upcall_runtime::default_cpus().unwrap().last().unwrap();
    let mut config = Config::new(socket.to_owned(), vec![cpu]);
    (config.access, config.kill) = (Access::Everyone, true);
    config.switch_cost = Some(Span::from_micros(20));
    let daemon = Daemon::start(config).unwrap();
    let stopper = daemon.stopper();
    println!("#ready ");
    std::thread::spawn(move || {
        read_line();
        stopper.stop();
    });
    daemon.run(|event, _| match event {
        DaemonEvent::Offence { .. } => println!("#event offence: {event}"),
        _ => println!("#event {event}"),
    });
}

/// A domain that keeps to the rules. Prints its count of jobs whenever it is asked.
fn honest(socket: &Path) {
    let daemon = Some(Attach { socket: socket.to_owned(), name: "honest".to_owned() });
    let started = Runtime::start(RuntimeConfig { daemon, ..RuntimeConfig::default() });
    let mut runtime = match started {
        Ok(runtime) => runtime,
        Err(error) => return println!("#ready {error}"),
    };
    let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(800));
    let id = runtime.handler("works", need.batch(2), |batch| {
        while batch.proceed() {
            let until = upcall_runtime::clock::now() + Span::from_micros(700);
            while upcall_runtime::clock::now() < until {}
        }
    });
    let id = id.unwrap();
    runtime.run(id).unwrap();
    println!("#ready attached");
    while read_line() == "jobs" {
        runtime.poll(|_, _| {});
        println!("#jobs {}", runtime.statistics(id).unwrap().jobs);
    }
}

/// Keeps as many connections as it can get, says nothing, and connects again when one is closed.
fn silent(socket: &Path) {
    let mut connections: Vec<Connection> = Vec::new();
    for round in 0.. {
        match Connection::connect(socket) {
            Ok(connection) => connections.push(connection),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        if round % 50 == 0 {
            let is_open = |it: &Connection| it.peek(&mut [0]).is_err_and(|e| e.is_would_block());
            connections.retain(is_open);
        }
        if round == 300 {
            println!("#ready ");
        }
    }
}

#[test]
fn silent_connections_cost_others_neither_turns_nor_attachments_nor_accusations() {
    let name = "silent_connections_cost_others_neither_turns_nor_attachments_nor_accusations";
    let Some(host) = Host::start(name, 72) else { return };
    let mut honest = host.child(HONEST, "honest");
    assert_eq!(honest.read_word("ready"), "attached");
    // Before the first report: the reports are 10 s apart from then on.
    let begun = Instant::now();
    let mut silent = host.child(HOSTILE, "silent");
    silent.read_word("ready");
    let before = jobs(&mut honest);
    let mut new = host.child(NEW, "honest");
    let attached = new.read_word("ready");
    if attached != "attached" {
        panic!("while others are silent: {attached}, {:?}", host.stop());
    }
    wait_for_jobs(&mut honest, before + 50);
    wait_for_jobs(&mut new, 50);
    drop((silent, honest, new));
    let events = host.stop();
    assert!(!events.iter().any(|event| event.starts_with("offence")), "{events:?}");
    let few = events.iter().filter(|event| event.contains("descriptors are left")).count();
    let most = 1 + begun.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&(few as u64)), "told once in 10 s: {events:?}");
}

/// A connection whose messages are read and dropped.
struct Client(Connection);

impl Client {
    fn attach(socket: &Path, name: &str) -> Self {
        let client = Client(Connection::connect(socket).unwrap());
        client.send(&ToDaemon::Hello { name: name.to_owned(), policy: "rmdp".to_owned() });
        client
    }

    fn send(&self, message: &ToDaemon) {
        self.0.send(&message.encode(), &[]).unwrap();
    }

    fn create(&self, pdu_cost_ns: u64, unscreened: bool, name: &str) -> Option<ToDomain> {
        let need = Need {
            period_ns: 10_000_000,
            deadline_ns: 10_000_000,
            batch: 1,
            quantum: 1,
            pdu_cost_ns,
            ..Need::default()
        };
        self.send(&ToDaemon::Create { request: 1, unscreened, need, name: name.to_owned() });
        loop {
            let reply = self.receive()?;
            if matches!(reply, ToDomain::Granted { .. } | ToDomain::Refused { .. }) {
                return Some(reply);
            }
        }
    }

    /// The next message; `None` if the daemon has closed the connection.
    fn receive(&self) -> Option<ToDomain> {
        wait_until(self.0.as_fd(), Direction::Readable, None).unwrap();
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let received = self.0.receive(&mut buffer).ok()?;
        (received.len > 0).then(|| ToDomain::decode(&buffer[..received.len]).unwrap())
    }
}

/// The file beside the socket with the number of requests that were answered.
const ANSWERED: &str = "answered";

/// From many connections, requests that cost the server much, without end. Counts the answers in
/// [`ANSWERED`].
fn requests(socket: &Path) {
    let mut answered = 0_u64;
    let count = std::fs::File::options().write(true).open(socket.with_file_name(ANSWERED)).unwrap();
    // Of coprime periods, so that each analysis is long. Together they almost fill the CPU.
    let need = |number: u64| Need {
        period_ns: 10_000_019 + number * 70_003,
        deadline_ns: 10_000_019 + number * 70_003,
        batch: 3,
        quantum: 1,
        pdu_cost_ns: 70_000,
        ..Need::default()
    };
    let clients: Vec<_> = (0..20).map(|_| Client::attach(socket, "floods")).collect();
    println!("#ready ");
    for number in 0.. {
        for client in &clients {
            let (request, name) = (number, "x".to_owned());
            let create =
                ToDaemon::Create { request, unscreened: false, need: need(number % 500), name };
            // A full socket: the daemon has enough to do.
            let _ = client.0.send(&create.encode(), &[]);
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            while client.0.receive(&mut buffer).is_ok() {
                answered += 1;
                count.write_all_at(&answered.to_ne_bytes(), 0).unwrap();
            }
        }
    }
}

#[test]
fn a_flood_of_requests_keeps_no_other_user_from_being_served() {
    let name = "a_flood_of_requests_keeps_no_other_user_from_being_served";
    let Some(host) = Host::start(name, 1024) else { return };
    let mut honest = host.child(HONEST, "honest");
    assert_eq!(honest.read_word("ready"), "attached");
    let file = host.directory.path().join(ANSWERED);
    std::fs::write(&file, 0_u64.to_ne_bytes()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let answered = || u64::from_ne_bytes(std::fs::read(&file).unwrap().try_into().unwrap());
    let mut flood = host.child(HOSTILE, "requests");
    flood.read_word("ready");
    std::thread::sleep(Duration::from_millis(300));
    let before = jobs(&mut honest);
    // Each message of another user waits for one of the flood at most, not for its queues. The
    // flood counts its answers later than they are given, so one count may be of many answers.
    let socket = host.directory.path().join("upcalld");
    let begun = answered();
    let mut meanwhile: Vec<u64> = (0..21)
        .map(|_| {
            let before = answered();
            upcall_runtime::status::status(&socket).unwrap();
            answered() - before
        })
        .collect();
    // A domain is attached meanwhile, too: the daemon answers its greeting.
    let new = Client::attach(&socket, "new");
    let reply = new.receive();
    assert!(matches!(reply, Some(ToDomain::Welcome { .. })), "{reply:?}");
    let all = answered() - begun;
    let _ = writeln!(std::io::stderr(), "answers to the flood during each status: {meanwhile:?}");
    meanwhile.sort_unstable();
    assert!(all > 0, "the flood was not served");
    // The quarter with the fewest: on a busy machine this thread reads a reply late.
    assert!(meanwhile[5] <= 8, "answers to the flood during each status: {meanwhile:?}");
    wait_for_jobs(&mut honest, before);
    drop((flood, honest, new));
    let events = host.stop();
    let accused = |event: &&String| event.starts_with("offence") && event.contains("honest");
    assert_eq!(events.iter().find(accused), None);
}

/// Takes a part of the CPU, and then asks to run more although it is refused.
fn soft(socket: &Path) {
    let client = Client::attach(socket, "soft");
    let granted = client.create(2_000_000, false, "fits").unwrap();
    assert!(matches!(granted, ToDomain::Granted { .. }), "{granted:?}");
    match client.create(8_500_000, true, "soft").unwrap() {
        ToDomain::Refused { reason, .. } => println!("#soft {reason}"),
        reply => println!("#soft {reply:?}"),
    }
    read_line();
}

#[test]
fn a_user_without_the_right_cannot_run_what_admission_refuses() {
    let name = "a_user_without_the_right_cannot_run_what_admission_refuses";
    let Some(host) = Host::start(name, 1024) else { return };
    let mut soft = host.child(HOSTILE, "soft");
    let reply = soft.read_word("soft");
    assert!(reply.contains("user 65534 has no right to run it all the same"), "{reply}");
    // Root has the right, and that costs nobody a place.
    let client = Client::attach(&host.directory.path().join("upcalld"), "root");
    let granted = client.create(8_500_000, true, "soft").unwrap();
    assert!(matches!(granted, ToDomain::Granted { response_max_ns: u64::MAX, .. }), "{granted:?}");
    let small = client.create(100_000, false, "small").unwrap();
    assert!(matches!(small, ToDomain::Granted { .. }), "{small:?}");
    drop(soft);
    host.stop();
}

/// Sends a descriptor.
fn descriptors(socket: &Path) {
    let client = Client(Connection::connect(socket).unwrap());
    let (reader, _writer) = std::io::pipe().unwrap();
    let inspect = ToDaemon::Inspect.encode();
    let sent = client.0.send(&inspect, &[reader.as_fd()]);
    let is_closed = sent.is_ok() && client.receive().is_none();
    println!("#sent {}", if is_closed { "closed".to_owned() } else { format!("{sent:?}") });
}

#[test]
fn a_client_that_sends_descriptors_is_refused_by_the_kernel_or_loses_its_connection() {
    let name = "a_client_that_sends_descriptors_is_refused_by_the_kernel_or_loses_its_connection";
    let Some(host) = Host::start(name, 1024) else { return };
    let sent = host.child(HOSTILE, "descriptors").read_word("sent");
    assert!(sent == "closed" || sent.contains("EPERM"), "{sent}");
    host.stop();
}

/// Attaches under a name that would forge a line of the log.
fn names(socket: &Path) {
    let client = Client::attach(socket, "a\nupcalld: forged\u{1b}[2J\u{202e}");
    let refused = client.create(99_000_000, false, &"x".repeat(900)).unwrap();
    println!("#refused {refused:?}");
}

#[test]
fn names_of_clients_are_escaped_and_cut_wherever_the_daemon_shows_them() {
    let name = "names_of_clients_are_escaped_and_cut_wherever_the_daemon_shows_them";
    let Some(host) = Host::start(name, 1024) else { return };
    let mut names = host.child(HOSTILE, "names");
    let _ = names.read_word("refused");
    let events = host.stop();
    let shown = "`a\\nupcalld: forged\\u{1b}[2J\\u{202e}`";
    assert!(events.iter().any(|event| event.contains(shown)), "{events:?}");
    assert!(events.iter().all(|event| event.len() < 500), "{events:?}");
}
