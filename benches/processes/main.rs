//! rtu-1995 Experiments 1 and 2 (§7.1, §7.2) with real processes: 2 and 16 processes of 6 handlers
//! each, with periods from 40 to 90 ms and random first releases. All run under one daemon on one
//! CPU.
//!
//! The bench compares four variants. *Immediate*: a handler can yield after every iteration, of
//! which a job has 96. *Delayed*: it can yield after all of them. *Fifo*: the kernel preempts; each
//! handler has a `SCHED_FIFO` thread with a priority by rate, and there is no daemon. *Deferred*:
//! delayed, with deferred preemption (decision 0014).
//!
//! The table has the kernel's count of switches of the domains' threads. Beside it stands the
//! number of hand-offs that the simulator needs for the same set at the measured cost of a
//! hand-off. The table also shows the disturbance by the host: the time for which it ran something
//! else on the CPU (steal), and the worst wake-up latency of a thread on another CPU, which nothing
//! in this bench can delay. The bench asserts nothing, because the machine is shared.
//!
//! `-- 16` runs only the sets of 16 processes, and `-- 16 85` only those at 85 %. `-- 16 85 256`
//! gives each handler a working set of 256 KiB. The load is then, as in the paper, the time that
//! jobs take under ideal conditions: one job alone, with its working set in the cache. Every switch
//! costs the time to bring the working set back. `-- 16 85 256 9` does all this for nine sets of
//! first releases, because the share of saved switches depends on them.

#![forbid(unsafe_code)]

mod domain;
mod witness;
mod working_set;
mod workload;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use domain::{Work, domain};
use upcall::activity::Terms;
use upcall::admission::{Platform, Reservations, Share};
use upcall::clock;
use upcall::discipline::RMDP;
use upcall::load::BackgroundLoad;
use upcall::time::Span;
use upcall_benches::{heading, measured_cpu, smoke, steal_ms};
use upcall_daemon::server::{self, Daemon, DaemonEvent};
use upcall_sim::{SimActivity, SimSpec, Simulation};
use witness::Witness;
use working_set::reload;
use workload::{BATCH, DEFER_PREEMPTION, PERIODS_MS, Variant, need, number, offsets};

/// The environment variable that gives a process started by this one its role.
const ROLE: &str = "UPCALL_BENCH_ROLE";
/// The seed of the first set of first releases, which is that of the simulator's test of Experiment
/// 2. The second set uses the next number, and so on.
const PHASES: u64 = 1995;
/// The most that admission grants here. The kernel leaves this part to the real-time class.
const LIMIT_PPM: u32 = 950_000;
/// Time from the last process's start to the first release.
const LEAD: Span = Span::from_millis(300);
/// Competing threads of ordinary class, in the half under load.
const LOAD_THREADS: u32 = 2;

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split('|').collect::<Vec<_>>()) {
        Err(_) => experiments(),
        Ok(role) => match role[..] {
            ["spin"] => upcall::load::spin(LOAD_THREADS),
            [socket, place, share_ppm, variant, millis, set_kib, phases] => domain(
                Path::new(socket),
                number(place),
                Work {
                    share_ppm: number(share_ppm),
                    variant: variant
                        .parse()
                        .unwrap_or_else(|()| panic!("`{variant}` is not a variant")),
                    set_kib: number(set_kib),
                    phases: number(phases),
                },
                number(millis),
            ),
            _ => panic!("unknown role {role:?}"),
        },
    }
}

/// One line of the table.
#[derive(Clone, Copy)]
struct Setting {
    processes: u32,
    /// Utilization by all processes together, in percent of the CPU.
    utilization: u32,
    variant: Variant,
    loaded: bool,
    /// Working set of a handler, in KiB.
    set_kib: usize,
    /// Time to bring the working set back into the cache.
    reload: Span,
    /// The seed of the first releases.
    phases: u64,
}

fn experiments() {
    // Cargo adds arguments of its own.
    let mut wanted = std::env::args().filter_map(|word| word.parse::<u32>().ok());
    let (size, utilization) = (wanted.next(), wanted.next());
    let set_kib = wanted.next().map_or(0, |kib| kib as usize);
    let sets = wanted.next().map_or(1, u64::from);
    let (sizes, utilizations, millis) = match smoke() {
        true => (vec![2], vec![50], 300),
        false => (vec![2, 16], (50..=95).step_by(5).collect(), 3_600),
    };
    let sizes = size.map_or(sizes, |size| vec![size]);
    let utilizations = utilization.map_or(utilizations, |utilization| vec![utilization]);
    println!("{}", heading("processes"));
    println!(
        "{millis} ms a run, {BATCH} iterations a job; immediate: quantum 1, delayed: quantum {BATCH}; fifo: a thread for each handler; deferred: delayed, deferral {} ms",
        DEFER_PREEMPTION.as_nanos() / 1_000_000
    );
    println!("under load: {LOAD_THREADS} spinning threads of ordinary class on the same CPU");
    let reload = reload(set_kib);
    if set_kib > 0 {
        let reload_us = reload.as_nanos() / 1_000;
        println!("working set of a handler: {set_kib} KiB; to bring it back: {reload_us} us");
    }
    println!();
    println!(
        "{:>9} {:>6} {:>5} {:<9} {:>8} {:>7} {:>7} {:>7} {:>10} {:>10} {:>9} {:>9} {:>9} {:>6} {:>7} {:>8} {:>8} {:>9}",
        "processes",
        "load",
        "CPU %",
        "yielding",
        "admitted",
        "busy %",
        "jobs",
        "missed",
        "slack ms",
        "slack 90",
        "switches",
        "hand-offs",
        "simulated",
        "stolen",
        "late ms",
        "fewer %",
        "simul. %",
        "than fifo"
    );
    for processes in sizes {
        for loaded in [false, true] {
            for &utilization in &utilizations {
                let mut saved = [Saved::default(), Saved::default()];
                for phases in PHASES..PHASES + sets {
                    let run_as = |variant| {
                        let setting = Setting {
                            processes,
                            utilization,
                            variant,
                            loaded,
                            set_kib,
                            reload,
                            phases,
                        };
                        let outcome = run(setting, millis);
                        print!("{}", line(setting, &outcome, millis));
                        outcome
                    };
                    let before = [Variant::Immediate, Variant::Fifo].map(|variant| {
                        let outcome = run_as(variant);
                        println!();
                        outcome
                    });
                    for (variant, saved) in
                        [Variant::Delayed, Variant::Deferred].into_iter().zip(&mut saved)
                    {
                        println!(" {}", saved.count(&before, &run_as(variant)));
                    }
                }
                if sets > 1 {
                    println!("fewer % over {sets} sets, least / median / most");
                    println!("  delayed: {}", saved[0]);
                    println!("  deferred: {}", saved[1]);
                }
            }
        }
    }
}

/// The percentage of switches saved, one value for each set of first releases.
#[derive(Default)]
struct Saved {
    than_immediate: Vec<f64>,
    simulated: Vec<f64>,
    than_fifo: Vec<f64>,
}

impl Saved {
    fn count(&mut self, [immediate, fifo]: &[Outcome; 2], outcome: &Outcome) -> String {
        let saved = |before: u64, after: u64| 100.0 - 100.0 * after as f64 / before.max(1) as f64;
        let than_immediate = saved(immediate.switches, outcome.switches);
        let than_fifo = saved(fifo.switches, outcome.switches);
        let simulated = immediate.simulated.zip(outcome.simulated);
        let simulated = simulated.map(|(before, after)| saved(before, after));
        self.than_immediate.push(than_immediate);
        self.simulated.extend(simulated);
        self.than_fifo.push(than_fifo);
        let simulated = simulated.map_or("-".to_owned(), |saved| format!("{saved:.1}"));
        format!("{than_immediate:>8.1} {simulated:>8} {than_fifo:>9.1}")
    }
}

impl std::fmt::Display for Saved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = |of: &[f64]| {
            let mut sorted = of.to_vec();
            sorted.sort_by(f64::total_cmp);
            let of = [0, sorted.len() / 2, sorted.len().saturating_sub(1)];
            let of = of.map(|at| sorted.get(at).map_or("-".to_owned(), |of| format!("{of:.1}")));
            of.join(" / ")
        };
        write!(
            f,
            "than immediate {} (simulated {}), than fifo {}",
            range(&self.than_immediate),
            range(&self.simulated),
            range(&self.than_fifo)
        )
    }
}

fn line(setting: Setting, outcome: &Outcome, millis: u64) -> String {
    let Setting { processes, utilization, variant, loaded, .. } = setting;
    let handlers = u64::from(processes) * PERIODS_MS.len() as u64;
    format!(
        "{processes:>9} {:>6} {utilization:>5} {:<9} {:>8} {:>7.1} {:>7} {:>7} {:>10.2} {:>10.2} {:>9} {:>9} {:>9} {:>6} {:>7.1}",
        if loaded { "spin" } else { "idle" },
        variant.name(),
        format!("{}/{handlers}", outcome.admitted),
        outcome.cpu_ns as f64 / millis as f64 / 1e4,
        outcome.jobs,
        outcome.misses,
        outcome.slack_ns_min as f64 / 1e6,
        outcome.slack_longest_ns_min as f64 / 1e6,
        outcome.switches,
        outcome.hand_offs,
        outcome.simulated.map_or("-".to_owned(), |switches| switches.to_string()),
        outcome.stolen_ms,
        outcome.late_ns_max as f64 / 1e6,
    )
}

/// Results of one process, or of all.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Handlers that admission accepted. The others run without a promise.
    admitted: u64,
    jobs: u64,
    misses: u64,
    slack_ns_min: i64,
    /// Least slack of the handlers with the longest period.
    slack_longest_ns_min: i64,
    switches: u64,
    hand_offs: u64,
    /// Switches between domains in the simulator.
    simulated: Option<u64>,
    cpu_ns: u64,
    /// Time for which the host took the CPU.
    stolen_ms: u64,
    /// The worst wake-up latency of the witness.
    late_ns_max: u64,
}

fn run(setting: Setting, millis: u64) -> Outcome {
    let cpu = measured_cpu();
    let socket = std::env::temp_dir().join(format!("upcall-processes-{}", std::process::id()));
    let config = server::Config {
        cpu_limit: Share::from_ppm(LIMIT_PPM).expect("it is in range"),
        defer_preemption: setting.variant.defer_preemption(),
        ..server::Config::new(socket.clone(), vec![cpu])
    };
    let daemon = Daemon::start(config).expect("a daemon");
    let share_ppm = u64::from(setting.utilization * 10_000 / setting.processes);
    let switch_cost = daemon.switch_cost() + setting.reload;
    let admitted = admitted(setting, share_ppm, cpu, switch_cost);
    // The simulator does not model deferred preemption.
    let simulated = (setting.variant != Variant::Deferred)
        .then(|| simulated(setting, share_ppm, switch_cost, millis));
    let stopper = daemon.stopper();
    let serving = std::thread::spawn(move || {
        daemon.run(|event, _| {
            if let DaemonEvent::Offence { .. } | DaemonEvent::Trouble(_) = event {
                println!("{event:?}");
            }
        });
    });
    let load = setting.loaded.then(|| {
        let program = std::env::current_exe().expect("this program").display().to_string();
        let command = ["env".to_owned(), format!("{ROLE}=spin"), program];
        BackgroundLoad::start(&command, &[cpu]).expect("a load")
    });
    let mut domains: Vec<Domain> = (0..setting.processes)
        .map(|number| {
            let Setting { variant, set_kib, phases, .. } = setting;
            let (socket, variant) = (socket.display(), variant.name());
            Domain::start(&format!(
                "{socket}|{number}|{share_ppm}|{variant}|{millis}|{set_kib}|{phases}"
            ))
        })
        .collect();
    domains.iter_mut().for_each(|domain| assert_eq!(domain.read_line(), "ready"));
    let start = (clock::now() + LEAD).as_nanos();
    domains.iter_mut().for_each(|domain| domain.write_number(start));
    let mut all = Outcome {
        admitted,
        jobs: 0,
        misses: 0,
        slack_ns_min: i64::MAX,
        slack_longest_ns_min: i64::MAX,
        switches: 0,
        hand_offs: 0,
        simulated,
        cpu_ns: 0,
        stolen_ms: 0,
        late_ns_max: 0,
    };
    let witness = Witness::start(cpu);
    let stolen_before_ms = steal_ms(cpu).unwrap_or_default();
    for mut domain in domains {
        let line = domain.read_line();
        let numbers: Vec<i64> = line.split(' ').map(number).collect();
        let &[jobs, misses, slack, slack_longest, switches, hand_offs, cpu_ns] = numbers.as_slice()
        else {
            panic!("a domain printed `{line}`")
        };
        all.jobs += jobs.unsigned_abs();
        all.misses += misses.unsigned_abs();
        all.slack_ns_min = all.slack_ns_min.min(slack);
        all.slack_longest_ns_min = all.slack_longest_ns_min.min(slack_longest);
        all.switches += switches.unsigned_abs();
        all.hand_offs += hand_offs.unsigned_abs();
        all.cpu_ns += cpu_ns.unsigned_abs();
        let _ = domain.child.wait();
    }
    all.stolen_ms = steal_ms(cpu).unwrap_or_default() - stolen_before_ms;
    all.late_ns_max = witness.stop();
    if let Some(load) = load {
        load.stop();
    }
    stopper.stop();
    serving.join().expect("the daemon does not panic");
    all
}

/// The number of handlers that the daemon's admission accepts, in its order.
fn admitted(setting: Setting, share_ppm: u64, cpu: u32, switch_cost: Span) -> u64 {
    let platform = Platform {
        cpus: vec![cpu],
        cpu_limit: Share::from_ppm(LIMIT_PPM).expect("it is in range"),
        switch_cost,
        wakeup_latency: Span::ZERO,
        defer_preemption: setting.variant.defer_preemption(),
    };
    let mut reservations = Reservations::new(platform, &RMDP);
    let mut admitted = 0;
    for period_ms in (0..setting.processes).flat_map(|_| PERIODS_MS) {
        let params = need(period_ms, share_ppm, setting.variant.quantum());
        let terms = Terms::default();
        match reservations.reserve("handler", params, &terms) {
            Ok(_) => admitted += 1,
            Err(_) => {
                reservations.reserve_unscreened("handler", params, &terms);
            }
        }
    }
    admitted
}

/// Hand-offs between domains that the same set takes in virtual time.
fn simulated(setting: Setting, share_ppm: u64, switch_cost: Span, millis: u64) -> u64 {
    let handlers = (0..setting.processes).flat_map(|domain| PERIODS_MS.map(|ms| (domain, ms)));
    let chances = offsets(setting.phases).zip(0..);
    let activities = handlers.zip(chances).map(|((domain, period_ms), (chance, number))| {
        // With threads, every switch is a switch of the kernel.
        let domain = if setting.variant == Variant::Fifo { number } else { domain };
        let params = need(period_ms, share_ppm, setting.variant.quantum());
        let params = params.offset(Span::from_nanos(chance % params.period.as_nanos()));
        let activity = SimActivity::new(format!("d{domain}-{period_ms}"), params);
        SimActivity { domain, ..activity }
    });
    let spec = SimSpec { switch_cost, ..SimSpec::new(&RMDP, activities.collect()) };
    let simulation = Simulation::new(spec).expect("the set makes sense");
    let outcome = simulation.run(Span::from_millis(millis), &mut |_| {});
    outcome.cpus.iter().map(|cpu| cpu.domain_switches).sum()
}

/// A process, as its parent sees it.
struct Domain {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Domain {
    fn start(role: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let output = child.stdout.take().expect("the pipe exists");
        Domain { child, lines: BufReader::new(output).lines() }
    }

    fn write_number(&mut self, number: u64) {
        use std::io::Write;
        let input = self.child.stdin.as_mut().expect("the pipe exists");
        writeln!(input, "{number}").expect("the child reads");
    }

    fn read_line(&mut self) -> String {
        self.lines.next().expect("the child prints a line").expect("text")
    }
}
