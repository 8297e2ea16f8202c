//! rtu-1995 Experiments 1 and 2 (§7.1, §7.2) for real: 2 and 16 processes of 6 handlers
//! each, periods 40 to 90 ms, first releases at random, under one daemon on one CPU;
//! immediate preemption (a handler yields after every iteration if it must, one of 96)
//! against delayed (after all of them).
//!
//! Switches are the kernel's count of the domains' threads; beside them stands how many
//! hand-offs the simulator needs for the same set at the hand-off's measured cost, and what
//! the host did: how long it ran something else on the CPU (steal), and how late a thread
//! on another CPU woke at worst, which nothing here can delay. Nothing is asserted: the machine
//! is shared. `-- 16` runs only the sets of 16 processes,
//! `-- 16 85` only at 85 %.

#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use upcall::activity::{ActivityParams, Terms};
use upcall::admission::{Platform, Reservations, Share};
use upcall::load::BackgroundLoad;
use upcall::policy::rmdp::RMDP;
use upcall::time::{Instant, Span};
use upcall::{Attach, Config, HandlerId, Runtime, clock, default_cpus};
use upcall_benches::{heading, smoke, steal_ms};
use upcall_daemon::server::{self, Daemon, Event};
use upcall_sim::{SimActivity, SimSpec, Simulation};
use upcall_sys::{process, schedule};

/// What a process started by this one is to do: its variable of the environment.
const ROLE: &str = "UPCALL_BENCH_ROLE";
/// Of the handlers of each process.
const PERIODS_MS: [u64; 6] = [40, 50, 60, 70, 80, 90];
/// Iterations of a job: at 85 % and 96 handlers, 3.7 to 8.3 us each.
const BATCH: u32 = 96;
/// Of an iteration's cost, what its boundary takes; the rest is spun.
const BOUNDARY_NS: u64 = 300;
/// Makes the first releases, those of the simulator's test of Experiment 2.
const PHASES: u64 = 1995;
/// Most that admission gives away here: what the kernel leaves to the real-time class.
const LIMIT_PPM: u32 = 950_000;
/// From the last process's start to the first release.
const LEAD: Span = Span::from_millis(300);
/// Threads of ordinary class that compete, in the half under load.
const LOAD_THREADS: u32 = 2;

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split('|').collect::<Vec<_>>()) {
        Err(_) => experiments(),
        Ok(role) => match role[..] {
            ["spin"] => upcall::load::spin(LOAD_THREADS),
            [socket, place, utilization_ppm, quantum, millis] => domain(
                Path::new(socket),
                number(place),
                number(utilization_ppm),
                number(quantum),
                number(millis),
            ),
            _ => panic!("unknown role {role:?}"),
        },
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// One line of the table.
#[derive(Clone, Copy)]
struct Setting {
    processes: u32,
    /// Of all processes together, in percent of the CPU.
    utilization: u32,
    quantum: u32,
    loaded: bool,
}

fn experiments() {
    // Cargo adds words of its own.
    let mut wanted = std::env::args().filter_map(|word| word.parse::<u32>().ok());
    let (size, utilization) = (wanted.next(), wanted.next());
    let (sizes, utilizations, millis) = match smoke() {
        true => (vec![2], vec![50], 300),
        false => (vec![2, 16], (50..=95).step_by(5).collect(), 3_600),
    };
    let sizes = size.map_or(sizes, |size| vec![size]);
    let utilizations = utilization.map_or(utilizations, |utilization| vec![utilization]);
    println!("{}", heading("processes"));
    println!(
        "{millis} ms a run, {BATCH} iterations a job; immediate: quantum 1, delayed: quantum {BATCH}"
    );
    println!("under load: {LOAD_THREADS} spinning threads of ordinary class on the same CPU");
    println!();
    println!(
        "{:>9} {:>6} {:>5} {:<9} {:>8} {:>7} {:>7} {:>7} {:>10} {:>10} {:>9} {:>9} {:>9} {:>6} {:>7} {:>8} {:>8}",
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
        "simul. %"
    );
    for processes in sizes {
        for loaded in [false, true] {
            for &utilization in &utilizations {
                let mut immediate = None;
                for quantum in [1, BATCH] {
                    let setting = Setting { processes, utilization, quantum, loaded };
                    let outcome = run(setting, millis);
                    let of = [outcome.switches, outcome.simulated];
                    let fewer = immediate.map_or(String::new(), |before: [u64; 2]| {
                        let fewer =
                            |at: usize| 100.0 - 100.0 * of[at] as f64 / before[at].max(1) as f64;
                        format!("{:>8.1} {:>8.1}", fewer(0), fewer(1))
                    });
                    immediate = Some(of);
                    println!("{} {fewer}", line(setting, &outcome, millis));
                }
            }
        }
    }
}

fn line(setting: Setting, outcome: &Outcome, millis: u64) -> String {
    let Setting { processes, utilization, quantum, loaded } = setting;
    let handlers = u64::from(processes) * PERIODS_MS.len() as u64;
    format!(
        "{processes:>9} {:>6} {utilization:>5} {:<9} {:>8} {:>7.1} {:>7} {:>7} {:>10.2} {:>10.2} {:>9} {:>9} {:>9} {:>6} {:>7.1}",
        if loaded { "spin" } else { "idle" },
        if quantum == 1 { "immediate" } else { "delayed" },
        format!("{}/{handlers}", outcome.admitted),
        outcome.cpu_ns as f64 / millis as f64 / 1e4,
        outcome.jobs,
        outcome.misses,
        outcome.slack_ns_min as f64 / 1e6,
        outcome.slack_longest_ns_min as f64 / 1e6,
        outcome.switches,
        outcome.hand_offs,
        outcome.simulated,
        outcome.stolen_ms,
        outcome.late_ns_max as f64 / 1e6,
    )
}

/// Of one process, or of all.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Handlers that admission took; the others run all the same.
    admitted: u64,
    jobs: u64,
    misses: u64,
    slack_ns_min: i64,
    /// Of the handlers with the longest period.
    slack_longest_ns_min: i64,
    switches: u64,
    hand_offs: u64,
    /// From one domain to another, as the simulator has it.
    simulated: u64,
    cpu_ns: u64,
    /// Of the CPU, by the host.
    stolen_ms: u64,
    /// Of the witness.
    late_ns_max: u64,
}

fn run(setting: Setting, millis: u64) -> Outcome {
    let cpu = default_cpus().ok().and_then(|cpus| cpus.last().copied()).unwrap_or(0);
    let socket = std::env::temp_dir().join(format!("upcall-processes-{}", std::process::id()));
    let config = server::Config {
        cpu_limit: Share::from_ppm(LIMIT_PPM).expect("it is in range"),
        ..server::Config::new(socket.clone(), vec![cpu])
    };
    let daemon = Daemon::start(config).expect("a daemon");
    let share_ppm = u64::from(setting.utilization * 10_000 / setting.processes);
    let admitted = admitted(setting, share_ppm, cpu, daemon.switch_cost());
    let simulated = simulated(setting, share_ppm, daemon.switch_cost(), millis);
    let stopper = daemon.stopper();
    let serving = std::thread::spawn(move || {
        daemon.run(|event, _| {
            if let Event::Offence { .. } | Event::Trouble(_) = event {
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
            let quantum = setting.quantum;
            Domain::start(&format!("{}|{number}|{share_ppm}|{quantum}|{millis}", socket.display()))
        })
        .collect();
    domains.iter_mut().for_each(|domain| assert_eq!(domain.hear(), "ready"));
    let start = (clock::now() + LEAD).as_nanos();
    domains.iter_mut().for_each(|domain| domain.say(start));
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
        let told = domain.hear();
        let numbers: Vec<i64> = told.split(' ').map(number).collect();
        let &[jobs, misses, slack, slack_longest, switches, hand_offs, cpu_ns] = numbers.as_slice()
        else {
            panic!("a domain said `{told}`")
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

/// A thread of the highest rank on another CPU that does nothing: if it wakes late, the whole
/// machine stood still, which the host need not count as steal.
struct Witness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Witness {
    const LOOK_EVERY: Span = Span::from_millis(2);
    const PRIORITY: u8 = 98;

    fn start(cpu: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            let mut others = schedule::allowed_cpus().unwrap_or_default();
            others.retain(|&other| other != cpu);
            let apart = !others.is_empty() && schedule::pin_thread(&others).is_ok();
            if !apart || schedule::set_fifo(Witness::PRIORITY).is_err() {
                return 0;
            }
            let mut late_ns_max = 0;
            while !seen.load(Ordering::Relaxed) {
                let at = clock::now() + Witness::LOOK_EVERY;
                upcall_sys::clock::sleep_until_ns(at.as_nanos());
                late_ns_max = late_ns_max.max(clock::now().since(at).as_nanos());
            }
            late_ns_max
        });
        Witness { over, thread }
    }

    /// How late it woke at worst, in ns; 0: nothing is known.
    fn stop(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// How many handlers the daemon's admission takes, in its order.
fn admitted(setting: Setting, share_ppm: u64, cpu: u32, switch_cost: Span) -> u64 {
    let platform = Platform {
        cpus: vec![cpu],
        cpu_limit: Share::from_ppm(LIMIT_PPM).expect("it is in range"),
        switch_cost,
        wakeup_latency: Span::ZERO,
    };
    let mut reservations = Reservations::new(platform, &RMDP);
    let mut admitted = 0;
    for period_ms in (0..setting.processes).flat_map(|_| PERIODS_MS) {
        let params = need(period_ms, share_ppm, setting.quantum);
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
    let activities = handlers.zip(offsets()).map(|((domain, period_ms), chance)| {
        let params = need(period_ms, share_ppm, setting.quantum);
        let params = params.offset(Span::from_nanos(chance % params.period.as_nanos()));
        let activity = SimActivity::new(format!("d{domain}-{period_ms}"), params);
        SimActivity { domain, ..activity }
    });
    let spec = SimSpec { switch_cost, ..SimSpec::new(&RMDP, activities.collect()) };
    let simulation = Simulation::new(spec).expect("the set makes sense");
    let outcome = simulation.run(Span::from_millis(millis), &mut |_| {});
    outcome.cpus.iter().map(|cpu| cpu.domain_switches).sum()
}

/// Of a handler of a process that is to use so much of the CPU.
fn need(period_ms: u64, share_ppm: u64, quantum: u32) -> ActivityParams {
    let period = Span::from_millis(period_ms);
    let handlers = PERIODS_MS.len() as u64;
    let pdu_ns = period.as_nanos() * share_ppm / 1_000_000 / handlers / u64::from(BATCH);
    ActivityParams::new(period, Span::from_nanos(pdu_ns)).batch(BATCH).quantum(quantum)
}

/// A number for each handler of all processes: Lehmer's generator with Park and Miller's
/// numbers (CACM 1988).
fn offsets() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(PHASES), |chance| Some(chance * 48_271 % 0x7fff_ffff)).skip(1)
}

/// A process, as the one who started it sees it.
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
        let output = child.stdout.take().expect("it is piped");
        Domain { child, lines: BufReader::new(output).lines() }
    }

    fn say(&mut self, number: u64) {
        use std::io::Write;
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{number}").expect("it listens");
    }

    fn hear(&mut self) -> String {
        self.lines.next().expect("it speaks").expect("text")
    }
}

fn domain(socket: &Path, place: usize, share_ppm: u64, quantum: u32, millis: u64) {
    let name = format!("d{place}");
    let daemon = Some(Attach { socket: socket.into(), name: name.clone() });
    // What admission refuses runs all the same, as in the paper.
    let config = Config { unscreened: true, daemon, ..Config::default() };
    let mut runtime = Runtime::start(config).expect("attached");
    let ids: Vec<HandlerId> = PERIODS_MS
        .iter()
        .zip(offsets().skip(place * PERIODS_MS.len()))
        .map(|(&period_ms, chance)| {
            let need = need(period_ms, share_ppm, quantum);
            let need = need.offset(Span::from_nanos(chance % need.period.as_nanos()));
            let spin = Span::from_nanos(need.pdu_cost.as_nanos().saturating_sub(BOUNDARY_NS));
            runtime
                .handler(&format!("{name}-{period_ms}"), need, move |batch| {
                    while batch.proceed() {
                        // By the clock: nobody takes the CPU amid an iteration, and it
                        // costs no system call.
                        let until = clock::now() + spin;
                        while clock::now() < until {}
                    }
                })
                .expect("unscreened")
        })
        .collect();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a start");
    let start = Instant::from_nanos(number(line.trim()));
    runtime.run_at(&ids, start).expect("its thread is there");
    // What attaching took is not of the experiment.
    std::thread::sleep(start.since(clock::now()).into());
    let before = kernel_account();
    let until = start + Span::from_millis(millis);
    while clock::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        runtime.poll(|_, _| {});
    }
    let after = kernel_account();
    let report = runtime.stop(|_, _| {});
    let counters = || report.activities.iter().filter_map(|activity| activity.counters);
    let longest = report.activities.last().and_then(|activity| activity.counters);
    println!(
        "{} {} {} {} {} {} {}",
        counters().map(|of| of.jobs).sum::<u64>(),
        counters().map(|of| of.misses).sum::<u64>(),
        counters().map(|of| of.slack_ns_min).min().unwrap_or(i64::MAX),
        longest.map_or(i64::MAX, |of| of.slack_ns_min),
        after[0] - before[0],
        report.domain_switches,
        after[1] - before[1],
    );
}

/// What the kernel counted of this process's executive: switches, and its CPU time in
/// nanoseconds.
fn kernel_account() -> [u64; 2] {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let comm = |path: &Path| std::fs::read_to_string(path.join("comm")).unwrap_or_default();
    let of_executive = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let tid = path.file_name()?.to_str()?.parse().ok()?;
        comm(&path).starts_with("upcall-cpu").then_some(tid)
    });
    let pid = std::process::id();
    of_executive.fold([0, 0], |[switches, cpu_ns], tid| {
        let switched = process::switches_of(pid, tid).unwrap_or_default().total();
        let ran_ns = process::cpu_time_of(pid, tid).unwrap_or_default();
        [switches + switched, cpu_ns + ran_ns]
    })
}
