//! The events of `tracing`, and a socket that was passed to the daemon.

use super::*;
use std::io::Write;
use upcall_sys::local::{Access, Connection};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a daemon under a subscriber of its own thread, and `meanwhile` in another thread. Returns
/// the subscriber's output.
fn traced(daemon: Daemon, meanwhile: impl FnOnce() + Send) -> String {
    let (stopper, lines) = (daemon.stopper(), Lines::default());
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().without_time();
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            tracing::subscriber::with_default(subscriber, || daemon.run(|_, _| {}));
        });
        meanwhile();
        stopper.stop();
    });
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

fn attach(socket: &std::path::Path, name: &str) -> Runtime {
    let daemon = Some(Attach { socket: socket.to_owned(), name: name.to_owned() });
    Runtime::start(RuntimeConfig { daemon, ..RuntimeConfig::default() }).unwrap()
}

fn config(socket: &std::path::Path) -> Config {
    Config::new(socket.to_owned(), vec![*schedule::allowed_cpus().unwrap().last().unwrap()])
}

#[test]
fn attaching_refusing_and_detaching_are_traced_with_fields() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("upcalld");
    let daemon = Daemon::start(config(&socket)).unwrap();
    let log = traced(daemon, || {
        let mut domain = attach(&socket, "player");
        let too_much = ActivityParams::new(Span::from_millis(5), Span::from_micros(4900));
        assert!(domain.handler("too much", too_much, spin).is_err());
        domain.stop(|_, _| {});
    });
    let line = |event: &str| {
        let field = format!("event=\"{event}\"");
        let mut found = log.lines().filter(|line| line.contains(&field));
        let line = found.next().unwrap_or_else(|| panic!("no {field}: {log}"));
        assert_eq!(found.next(), None, "{log}");
        line.to_owned()
    };
    let pid = format!("pid={}", std::process::id());
    let attached = line("attached");
    for part in ["INFO", "upcall_daemon", "domain=1", "name=\"player\"", &pid, "uid="] {
        assert!(attached.contains(part), "no {part}: {attached}");
    }
    let refused = line("refused");
    assert!(refused.contains(&pid) && refused.contains("reason=\"too much"), "{refused}");
    let detached = line("detached");
    assert!(detached.contains("domain=1") && detached.contains("reason="), "{detached}");
    assert!(log.find("attached").unwrap() < log.find("refused").unwrap(), "{log}");
}

#[test]
fn a_daemon_does_not_remove_the_file_of_a_passed_socket() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("upcalld");
    let listener = Listener::bind(&socket, Access::Owner).unwrap();
    // The daemon serves connections made before its start.
    let early = Connection::connect(&socket).unwrap();
    early.send(&ToDaemon::Inspect.encode(), &[]).unwrap();
    let daemon = Daemon::start_at(config(&socket), listener).unwrap();
    let log = traced(daemon, || {
        drop(attach(&socket, "player"));
        let mut buffer = [0; upcall_shm::wire::MESSAGE_BYTES_MAX];
        assert!(early.receive(&mut buffer).unwrap().len > 0);
    });
    assert!(log.contains("event=\"attached\""), "{log}");
    assert!(socket.exists(), "the service manager's file is gone");
}
