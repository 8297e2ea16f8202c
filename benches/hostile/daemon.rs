//! The daemon under attack, in a process of its own, as `upcalld` is.
//!
//! It prints each event that the table shows as a line. It ends when its standard input ends.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use upcall::time::Span;
use upcall_benches::measured_cpu;
use upcall_daemon::server::{self, Access, Daemon, DaemonEvent};
use upcall_shm::Measure;

use crate::attack::DaemonOptions;
use crate::child::{Running, start};
use crate::outcome::{VICTIM, VICTIMS_USER};

/// The names of the victims. A measure against any other domain is one against the attacker.
pub(crate) const VICTIMS: [&str; 2] = ["one", "two"];

/// How long a daemon may take to start, and to end.
const LIMIT: Duration = Duration::from_secs(10);

/// The daemon's process, seen from the bench.
pub(crate) struct Server {
    pub(crate) socket: PathBuf,
    options: DaemonOptions,
    process: Running,
    /// Lines that were printed. Each is printed once.
    said: BTreeSet<String>,
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
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn start(options: DaemonOptions) -> Self {
        let socket = std::env::temp_dir().join(format!("upcall-hostile-{}", std::process::id()));
        let process = launch(&socket, options).unwrap_or_else(|why| panic!("{why}"));
        Server { socket, options, process, said: BTreeSet::new() }
    }

    pub(crate) fn options(&self) -> DaemonOptions {
        self.options
    }

    /// The number of the daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.process.id()
    }

    pub(crate) fn take_events(&mut self) -> Events {
        let mut events = Events::default();
        while let Some(line) = self.process.line(Instant::now()) {
            match line.split_once(' ') {
                Some(("measure", measure)) => events.measures.push(measure.to_owned()),
                Some(("detached", _)) => events.detached += 1,
                _ if self.said.contains(&line) => {}
                _ => {
                    println!("{line}");
                    self.said.insert(line);
                }
            }
        }
        events
    }

    /// Kills the daemon and starts it again at the same socket. Returns the events until then, or
    /// why it does not start.
    pub(crate) fn restart(&mut self) -> Result<Events, String> {
        let _ = self.process.process.kill();
        if self.process.ended_within(LIMIT).is_none() {
            return Err(format!("the killed daemon did not end within {LIMIT:?}"));
        }
        let events = self.take_events();
        self.process = launch(&self.socket, self.options)?;
        Ok(events)
    }

    /// Whether the daemon's process has not ended.
    pub(crate) fn lives(&mut self) -> bool {
        self.process.ended_within(Duration::ZERO).is_none()
    }

    /// Ends the daemon. The error says how it ended, if that was by a panic or not at all.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        drop(self.process.process.stdin.take());
        match self.process.ended_within(LIMIT) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the daemon ended with {status}")),
            None => Err(format!("the daemon did not end within {LIMIT:?}")),
        }
    }
}

/// Starts the process of a daemon. Blocks until it listens.
fn launch(socket: &Path, options: DaemonOptions) -> Result<Running, String> {
    let DaemonOptions { kill, descriptors_max, claims_within_s, all_cpus } = options;
    let options = format!("{kill}|{descriptors_max}|{claims_within_s}|{all_cpus}");
    let process = start(&format!("daemon|{}|{options}", socket.display()));
    match process.line(Instant::now() + LIMIT).as_deref() {
        Some("ready") => Ok(process),
        other => Err(format!("the daemon does not start: {other:?}")),
    }
}

/// The daemon's process: serves until its standard input ends.
pub(crate) fn serve(socket: &Path, options: DaemonOptions) {
    if options.descriptors_max > 0 {
        let limit = Some(options.descriptors_max);
        let limit = Rlimit { current: limit, maximum: limit };
        setrlimit(Resource::Nofile, limit).expect("a process may lower its limit");
    }
    let mut cpus = vec![measured_cpu()];
    if options.all_cpus {
        let allowed = upcall::allowed_cpus().expect("the CPUs of this process");
        cpus.extend(allowed.into_iter().filter(|&cpu| cpu != measured_cpu()));
    }
    let mut config = server::Config::new(socket.to_owned(), cpus);
    (config.access, config.kill) = (Access::Everyone, options.kill);
    config.claims_within = Span::from_secs(options.claims_within_s);
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
            let whose = match measure {
                _ if !VICTIMS.contains(&name.as_str()) => "",
                // It names any domain of the user.
                Measure::Slowed => VICTIMS_USER,
                _ => VICTIM,
            };
            println!("measure {whose}{measure} ({:.1} ms)", held.as_secs_f64() * 1e3);
        }
        DaemonEvent::Detached { domain, .. } => println!("detached {domain}"),
        DaemonEvent::Trouble(trouble) => println!("daemon: {trouble}"),
        _ => {}
    });
}
