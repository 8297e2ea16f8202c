//! The daemon under attack, in a process of its own, as `upcalld` is.
//!
//! It prints each event that the table shows as a line. It ends when its standard input ends.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Resource, Rlimit, setrlimit};
use upcall::time::Span;
use upcall_benches::measured_cpu;
use upcall_daemon::server::{self, Access, Daemon, DaemonEvent};

use crate::attack::DaemonOptions;
use crate::child::start;

/// The names of the victims. A measure against any other domain is one against the attacker.
pub(crate) const VICTIMS: [&str; 2] = ["one", "two"];

/// The daemon's process, seen from the bench.
pub(crate) struct Server {
    pub(crate) socket: PathBuf,
    options: DaemonOptions,
    process: Child,
    reader: Option<JoinHandle<()>>,
    events: Arc<Mutex<Events>>,
}

/// What a daemon has reported since the last look.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Measures of the watchdog, as the table shows them.
    pub(crate) measures: Vec<String>,
    /// Domains that left.
    pub(crate) detached: usize,
}

impl Server {
    /// Starts a daemon. Blocks until it listens.
    pub(crate) fn start(options: DaemonOptions) -> Self {
        let socket = std::env::temp_dir().join(format!("upcall-hostile-{}", std::process::id()));
        let events = Arc::default();
        let (process, reader) = launch(&socket, options, &events);
        Server { socket, options, process, reader: Some(reader), events }
    }

    pub(crate) fn options(&self) -> DaemonOptions {
        self.options
    }

    /// The number of the daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn take_events(&self) -> Events {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Kills the daemon and starts it again at the same socket.
    pub(crate) fn restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.join_reader();
        let (process, reader) = launch(&self.socket, self.options, &self.events);
        (self.process, self.reader) = (process, Some(reader));
    }

    /// Whether the daemon's process has not ended.
    pub(crate) fn lives(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Ends the daemon. Returns whether it ended without a panic.
    pub(crate) fn stop(mut self) -> bool {
        drop(self.process.stdin.take());
        let ended = self.process.wait();
        self.join_reader();
        ended.is_ok_and(|status| status.success())
    }

    fn join_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Starts the process of a daemon, and a thread that collects its events.
fn launch(
    socket: &Path,
    options: DaemonOptions,
    events: &Arc<Mutex<Events>>,
) -> (Child, JoinHandle<()>) {
    let DaemonOptions { kill, descriptors_max } = options;
    let mut process = start(&format!("daemon|{}|{kill}|{descriptors_max}", socket.display()));
    let mut lines = BufReader::new(process.stdout.take().expect("the pipe exists")).lines();
    let ready = lines.next().and_then(Result::ok);
    assert_eq!(ready.as_deref(), Some("ready"), "the daemon starts");
    let events = events.clone();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
            match line.split_once(' ') {
                Some(("measure", measure)) => events.measures.push(measure.to_owned()),
                Some(("detached", _)) => events.detached += 1,
                _ => println!("{line}"),
            }
        }
    });
    (process, reader)
}

/// The daemon's process: serves until its standard input ends.
pub(crate) fn serve(socket: &Path, options: DaemonOptions) {
    if options.descriptors_max > 0 {
        let limit = Some(options.descriptors_max);
        let limit = Rlimit { current: limit, maximum: limit };
        setrlimit(Resource::Nofile, limit).expect("a process may lower its limit");
    }
    let mut config = server::Config::new(socket.to_owned(), vec![measured_cpu()]);
    (config.access, config.kill) = (Access::Everyone, options.kill);
    // Measured beside an attack, the cost could be so high that the next victim is refused.
    config.switch_cost = Some(Span::from_micros(20));
    let daemon = Daemon::start(config).expect("a daemon");
    let stopper = daemon.stopper();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopper.stop();
    });
    println!("ready");
    daemon.run(|event, _| match event {
        DaemonEvent::Offence { measure, name, held, .. } => {
            let whose = if VICTIMS.contains(&name.as_str()) { "VICTIM " } else { "" };
            println!("measure {whose}{measure} ({:.1} ms)", held.as_secs_f64() * 1e3);
        }
        DaemonEvent::Detached { domain, .. } => println!("detached {domain}"),
        DaemonEvent::Trouble(trouble) => println!("daemon: {trouble}"),
        _ => {}
    });
}
