//! One try of a row: a daemon, domains that are always busy, and what each of them got.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use upcall::activity::Claim;
use upcall::clock;
use upcall::load::BackgroundLoad;
use upcall::status::status;
use upcall::time::Span;
use upcall_benches::measured_cpu;
use upcall_daemon::server::{self, Daemon, DaemonEvent};
use upcall_sys::clock::process_cpu_ns;
use upcall_sys::schedule;

use crate::domain::Ended;
use crate::workload::{self, PS_OF_QUANTUM, QUANTUM};

/// The environment variable that gives a process started by this one its role.
pub(crate) const ROLE: &str = "UPCALL_BENCH_ROLE";
/// Time from the last process's start to the first release.
const LEAD: Span = Span::from_millis(100);
/// Time from the first release until the processes are counted.
const SETTLE: Duration = Duration::from_millis(50);
/// Time between two looks at the lags.
const SAMPLE_EVERY: Duration = Duration::from_millis(3);

/// What one domain got.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) claims: Vec<Claim>,
    /// Its part of what all domains get.
    pub(crate) part: f64,
    pub(crate) cpu_ns: u64,
    pub(crate) ended: Ended,
}

/// The result of a try.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) domains: Vec<Got>,
    /// The time in which `cpu_ns` was counted.
    pub(crate) elapsed: Span,
    /// The cost of a hand-off, as the daemon measured it.
    pub(crate) hand_off: Span,
    /// The lags of all domains at all looks, in ns, sorted, without their signs.
    pub(crate) lags_ns: Vec<u64>,
    /// The daemon's events about offences and trouble.
    pub(crate) offences: Vec<String>,
}

impl Row {
    /// The CPU time of all domains.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.domains.iter().map(|got| got.cpu_ns).sum()
    }

    /// How far what a domain got is from its part, in percent of the CPU.
    pub(crate) fn deviation(&self, got: &Got) -> f64 {
        let due_ns = self.cpu_ns() as f64 * got.part;
        (got.cpu_ns as f64 - due_ns) * 100.0 / self.elapsed.as_nanos() as f64
    }

    pub(crate) fn worst_deviation(&self) -> f64 {
        self.domains.iter().map(|got| self.deviation(got).abs()).fold(0.0, f64::max)
    }

    /// How far a domain is from its part, as a fraction of that part.
    pub(crate) fn worst_part_deviation(&self) -> f64 {
        let all_ns = self.cpu_ns() as f64;
        let off = |got: &Got| (got.cpu_ns as f64 / (all_ns * got.part).max(1.0) - 1.0).abs();
        self.domains.iter().map(off).fold(0.0, f64::max)
    }

    pub(crate) fn longest_ns(&self) -> u64 {
        self.domains.iter().map(|got| got.ended.longest_ns).max().unwrap_or_default()
    }

    pub(crate) fn activity_lag_ns_max(&self) -> u64 {
        self.domains.iter().map(|got| got.ended.lag_ns_max).max().unwrap_or_default()
    }

    /// The most that a lag may be at each level: a quantum, by how much the longest PDU was longer,
    /// and a hand-off.
    pub(crate) fn bound_ns(&self) -> u64 {
        self.longest_ns().max(QUANTUM.as_nanos()) + self.hand_off.as_nanos()
    }
}

/// Measures `processes` domains for `length`. Blocks.
pub(crate) fn measure(processes: u32, loaded: bool, length: Duration) -> Row {
    let socket = std::env::temp_dir().join(format!("upcall-shares-{}", std::process::id()));
    let config = server::Config {
        discipline: &PS_OF_QUANTUM,
        ..server::Config::new(socket.clone(), vec![measured_cpu()])
    };
    let daemon = Daemon::start(config).expect("a daemon");
    let (hand_off, stopper) = (daemon.switch_cost(), daemon.stopper());
    let serving = std::thread::spawn(move || {
        pin_away();
        let mut offences = Vec::new();
        daemon.run(|event, _| {
            if let DaemonEvent::Offence { .. } | DaemonEvent::Trouble(_) = event {
                offences.push(format!("{event:?}"));
            }
        });
        offences
    });
    let load = loaded.then(|| {
        let program = std::env::current_exe().expect("this program").display().to_string();
        let command = ["env".to_owned(), format!("{ROLE}=spin"), program];
        BackgroundLoad::start(&command, &[measured_cpu()]).expect("a load")
    });
    let claimed = workload::claims(processes);
    let parts = workload::parts(&claimed);
    let mut domains: Vec<Domain> = (0..)
        .zip(&claimed)
        .map(|(place, claims)| {
            Domain::start(&format!("{}|d{place}|{}", socket.display(), workload::text(claims)))
        })
        .collect();
    domains.iter_mut().for_each(|domain| assert_eq!(domain.read_line(), "ready"));
    let start = clock::now() + LEAD;
    domains.iter_mut().for_each(|domain| domain.write_line(&start.as_nanos().to_string()));
    std::thread::sleep(Duration::from(start.since(clock::now())) + SETTLE);
    let cpu_ns = |domains: &[Domain]| -> Vec<u64> { domains.iter().map(Domain::cpu_ns).collect() };
    let sampler = Sampler::start(&socket);
    let (begun, before) = (clock::now(), cpu_ns(&domains));
    std::thread::sleep(length);
    let (elapsed, after) = (clock::now().since(begun), cpu_ns(&domains));
    let lags_ns = sampler.stop();
    domains.iter_mut().for_each(|domain| domain.write_line("end"));
    let used = before.iter().zip(after).map(|(before, after)| after - before);
    let got = domains.iter_mut().zip(claimed).zip(parts).zip(used);
    let domains = got
        .map(|(((domain, claims), part), cpu_ns)| Got {
            claims,
            part,
            cpu_ns,
            ended: Ended::parse(&domain.read_line()),
        })
        .collect();
    if let Some(load) = load {
        load.stop();
    }
    stopper.stop();
    let offences = serving.join().expect("the daemon does not panic");
    Row { domains, elapsed, hand_off, lags_ns, offences }
}

/// Keeps the calling thread off the measured CPU, if there is another one.
fn pin_away() {
    let mut others = schedule::allowed_cpus().unwrap_or_default();
    others.retain(|&cpu| cpu != measured_cpu());
    if !others.is_empty() {
        schedule::pin_thread(&others).expect("the process may use these CPUs");
    }
}

/// A thread that reads the lags of all domains from the daemon's status.
struct Sampler {
    over: &'static AtomicBool,
    thread: JoinHandle<Vec<u64>>,
}

impl Sampler {
    fn start(socket: &Path) -> Self {
        let socket = socket.to_owned();
        // One for each try.
        let over: &'static AtomicBool = Box::leak(Box::default());
        let thread = std::thread::spawn(move || {
            pin_away();
            let mut lags_ns = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let status = status(&socket).expect("the daemon answers");
                let all = status.domains.iter().flat_map(|domain| &domain.virtual_processors);
                lags_ns.extend(all.filter_map(|of| of.lag_ns).map(i64::unsigned_abs));
                std::thread::sleep(SAMPLE_EVERY);
            }
            lags_ns.sort_unstable();
            lags_ns
        });
        Sampler { over, thread }
    }

    fn stop(self) -> Vec<u64> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

/// A process, as its parent sees it; killed when it is dropped.
struct Domain {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Domain {
    fn start(role: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        let command = command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program can be started");
        let output = child.stdout.take().expect("the pipe exists");
        Domain { child, lines: BufReader::new(output).lines() }
    }

    fn write_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("the pipe exists");
        writeln!(input, "{line}").expect("the child reads");
    }

    fn read_line(&mut self) -> String {
        self.lines.next().expect("the child prints a line").expect("text")
    }

    fn cpu_ns(&self) -> u64 {
        process_cpu_ns(self.child.id()).expect("the child runs")
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}
