//! C programs as domains of a daemon, beside one in Rust.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, HandlerId, Runtime, allowed_cpus};
use upcall_daemon::server::{self, Daemon, DaemonEvent, Stopper};

use super::*;

/// A daemon on one CPU.
struct Running {
    stopper: Stopper,
    thread: JoinHandle<Vec<DaemonEvent>>,
    directory: TempDir,
}

impl Running {
    fn start() -> Self {
        Running::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut server::Config)) -> Self {
        let directory = TempDir::new().unwrap();
        let cpu = *allowed_cpus().unwrap().last().unwrap();
        let socket = directory.path().join("socket");
        let mut config = server::Config::new(socket, vec![cpu]);
        change(&mut config);
        let daemon = Daemon::start(config).unwrap();
        let stopper = daemon.stopper();
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            daemon.run(|event, _| events.push(event.clone()));
            events
        });
        Running { stopper, thread, directory }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn stop(self) -> Vec<DaemonEvent> {
        self.stopper.stop();
        self.thread.join().unwrap()
    }
}

/// A domain that reserves half of the CPU and uses little of it.
struct Beside {
    runtime: Runtime,
    handler: HandlerId,
    upcalls: Arc<AtomicU32>,
}

impl Beside {
    fn start(daemon: &Running) -> Self {
        let daemon = Some(Attach { socket: daemon.socket(), name: "rust".to_owned() });
        let mut runtime = Runtime::start(Config { daemon, ..Config::default() }).unwrap();
        let half = ActivityParams::new(Span::from_millis(10), Span::from_micros(1250)).batch(4);
        let upcalls = Arc::new(AtomicU32::new(0));
        let counted = upcalls.clone();
        let count = move |batch: &mut upcall::Batch<'_>| {
            while batch.proceed() {}
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let handler = runtime.handler("half", half, count).unwrap();
        runtime.run(handler).unwrap();
        let beside = Beside { runtime, handler, upcalls };
        beside.goes_on();
        beside
    }

    /// Waits for three more upcalls.
    fn goes_on(&self) {
        let seen = self.upcalls.load(Ordering::Relaxed);
        let give_up = Instant::now() + PROGRAM_TIME_MAX;
        while self.upcalls.load(Ordering::Relaxed).wrapping_sub(seen) < 3 {
            assert!(Instant::now() < give_up, "not upcalled any more");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(self.runtime.is_active(self.handler));
    }
}

/// Names of the domains that attached. None of them offended.
fn attached_names(events: &[DaemonEvent]) -> Vec<String> {
    let mut names = Vec::new();
    for event in events {
        match event {
            DaemonEvent::Attached { name, .. } => names.push(name.clone()),
            DaemonEvent::Detached { .. } | DaemonEvent::Refused { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    names
}

#[test]
fn a_c_program_is_a_domain_beside_one_in_rust() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "tests/c/domain.c", &flags);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Running::start();
    let beside = Beside::start(&daemon);
    let (socket, nowhere) = (daemon.socket(), daemon.directory.path().join("nowhere"));
    let arguments = [socket.to_str().unwrap(), nowhere.to_str().unwrap()];
    assert_eq!(installation.run("tests/c/domain.c", &arguments, |_| {}), "a domain\n");
    beside.goes_on();
    assert!(beside.runtime.stop(|_, _| {}).stuck.is_empty());
    assert_eq!(attached_names(&daemon.stop()), ["rust", "from-c"]);
}

#[test]
fn a_c_program_that_knows_of_no_daemon_runs_under_the_one_that_the_environment_names() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "examples/periodic.c", &flags);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Running::start();
    let beside = Beside::start(&daemon);
    let socket = daemon.socket();
    let printed = installation.run("examples/periodic.c", &[], |command| {
        command.env("UPCALL_SOCKET", &socket);
    });
    for (name, pdus, jobs) in [("audio", 40, 20), ("video", 100, 10)] {
        assert_eq!(number(&printed, name, "PDUs"), pdus, "{printed}");
        assert_eq!(number(&printed, name, "jobs"), jobs, "{printed}");
    }
    beside.goes_on();
    drop(beside);
    assert_eq!(attached_names(&daemon.stop()), ["rust", "program"]);
}

/// The header says so. The program names no policy.
#[test]
fn a_c_program_without_a_policy_takes_that_of_its_daemon() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "examples/periodic.c", &flags);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Running::with(|config| config.discipline = &upcall::discipline::DWS);
    let socket = daemon.socket();
    let printed = installation.run("examples/periodic.c", &[], |command| {
        command.env("UPCALL_SOCKET", &socket);
    });
    assert_eq!(number(&printed, "audio", "jobs"), 20, "{printed}");
    assert_eq!(attached_names(&daemon.stop()), ["program"]);
}

#[test]
fn a_domain_that_ends_has_its_abort_phase_and_the_others_go_on() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "tests/c/abort.c", &flags);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Running::start();
    let beside = Beside::start(&daemon);
    let socket = daemon.socket();
    let run = || {
        installation.run("tests/c/abort.c", &["return"], |command| {
            command.env("UPCALL_SOCKET", &socket);
        })
    };
    let closed = "polite resets\npolite is free\nmain is over\n";
    prints_in_most_attempts(closed, run);
    beside.goes_on();
    drop(beside);
    assert_eq!(attached_names(&daemon.stop())[..2], ["rust", "program"]);
}

#[test]
fn a_domain_whose_daemon_ends_goes_on_and_is_given_nothing_more() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "tests/c/orphan.c", &flags);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Running::start();
    let (socket, ready) = (daemon.socket(), daemon.directory.path().join("ready"));
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            installation.run("tests/c/orphan.c", &[ready.to_str().unwrap()], |command| {
                command.env("UPCALL_SOCKET", &socket);
            })
        });
        while !ready.exists() && !program.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Its directory is removed too, with the file.
        assert_eq!(attached_names(&daemon.stop()), ["program"]);
        assert_eq!(program.join().unwrap(), "an orphan\n");
    });
}
