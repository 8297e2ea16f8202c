//! From a wake-up to the run: a better activity of one process is woken while a worse domain, in
//! another process, runs on the same CPU. The bound is what admission counts, one quantum of the
//! worse domain and a hand-off, and what the kernel alone takes for a yield to a thread that it
//! wakes across CPUs.
//!
//! The module [`kernel`] measures the kernel alone, before the rows of each kind and with threads
//! that run no code of Upcall. Its 99th percentile is part of the bound. So one sample of a hundred
//! may be above the bound because of the kernel, but no more.
//!
//! Quanta are counted, too, because a host may delay any wake-up by milliseconds. Admission counts
//! the rest of one quantum. A trace of the better domain tells when its executor noticed the
//! wake-up. From then on no quantum of the worse domain should begin before the run.
//!
//! The row *other user* is a stream, too, but the better activity belongs to a domain of another
//! user. Only root can measure it.
//!
//! Two kinds of threads wake: one that knows the domain (a thread of its process wakes a task or
//! starts a handler), and one that does not (it writes to a stream). Both run on another CPU.
//!
//! The bench asserts nothing, because the machine is shared. Each row is repeated until the host is
//! calm ([`Calm`]). Every try is printed, and one is judged. `-- KIND` measures one kind.

#![forbid(unsafe_code)]

mod domains;
mod kernel;

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use upcall::discipline::{DWS, Discipline, RMDP};
use upcall::time::Span;
use upcall_benches::calm::{Calm, Try};
use upcall_benches::{heading, measured_cpu, percentile, smoke};
use upcall_daemon::server::{self, Access, Daemon, DaemonEvent};
use upcall_sys::schedule;
use upcall_sys::schedule::Band;

use domains::OF_OTHER;
use kernel::Way;

/// The environment variable that gives a process started by this one its role.
const ROLE: &str = "UPCALL_BENCH_ROLE";
/// The quanta of the worse domain. 0: there is no worse domain, and the CPU is idle.
const QUANTA_US: [u64; 4] = [0, 20, 100, 500];
/// The kinds of wake-ups, with the policy under which each is measured, and the same way with
/// plain threads.
const KINDS: [(&str, &Discipline, Way); 5] = [
    ("stream", &RMDP, Way::Futex),
    (OF_OTHER, &RMDP, Way::Relay),
    ("task", &DWS, Way::Futex),
    ("io_wait", &DWS, Way::Pipe),
    ("control", &RMDP, Way::Futex),
];
/// The user *nobody*.
const OTHER_USER: u32 = 65_534;
/// Quanta that are longer than nine of ten wake-ups across CPUs.
const LONG_US: u64 = 100;
/// 0.2 % of the measured CPU for the five seconds of a row.
const CALM: Calm = Calm { tries_max: 5, stolen_ms_max: 10, wait_s_max: 20, ..Calm::ONCE };

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split(' ').collect::<Vec<_>>()) {
        Err(_) => measure(),
        Ok(role) => match role[..] {
            ["works", socket, policy, quantum_us] => {
                let quantum_us = quantum_us.parse().expect("a number");
                domains::works(Path::new(socket), policy, quantum_us);
            }
            ["wakes", socket, kind, policy, rounds] => {
                let rounds = rounds.parse().expect("a number");
                domains::wakes(Path::new(socket), kind, policy, rounds);
            }
            _ => panic!("unknown role {role:?}"),
        },
    }
}

/// Samples in ns, and statistics of them.
struct Samples {
    sorted: Vec<u64>,
    /// How many samples had none, one, and more quanta of the worse domain that began after the
    /// call that wakes did and before the run. All 0: there is no worse domain.
    begun: [usize; 3],
    /// From the moment at which the executor noticed the wake-up to the run.
    rest_ns: Vec<u64>,
    /// Samples beside which the worse domain began a quantum within that rest.
    later: usize,
    /// The daemon's cost of a hand-off. Zero: the kernel alone.
    hand_off: Span,
}

impl Samples {
    fn new(mut samples: Vec<u64>, hand_off: Span) -> Self {
        samples.sort_unstable();
        Samples { sorted: samples, begun: [0; 3], rest_ns: Vec::new(), later: 0, hand_off }
    }

    fn percentile(&self, percent: f64) -> u64 {
        percentile(&mut self.sorted.clone(), percent)
    }

    fn worst(&self) -> u64 {
        self.sorted.last().copied().unwrap_or_default()
    }

    fn above(&self, bound_ns: u64) -> usize {
        self.sorted.iter().filter(|&&ns| ns > bound_ns).count()
    }

    /// The columns that all rows have.
    fn columns(&self) -> String {
        let [p50, p99, worst] = [50.0, 99.0, 100.0].map(|of| us(self.percentile(of)));
        format!("{:>8} {p50:>8} {p99:>8} {worst:>8}", self.sorted.len())
    }
}

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

/// How the samples of a row stand to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// No sample is above.
    Keeps,
    /// As many are above as those of the kernel above its 99th percentile: 1 % at most.
    AsTheKernel,
    Above,
}

impl Verdict {
    fn of(samples: &Samples, bound_ns: u64) -> Self {
        match samples.above(bound_ns) {
            0 => Verdict::Keeps,
            above if above * 100 <= samples.sorted.len() => Verdict::AsTheKernel,
            _ => Verdict::Above,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Verdict::Keeps => "no sample above",
            Verdict::AsTheKernel => "1 % above at most",
            Verdict::Above => "MORE THAN 1 % ABOVE",
        }
    }
}

fn measure() {
    let (rounds, calm) = if smoke() { (30, Calm::ONCE) } else { (1_000, CALM) };
    println!("{}", heading("wake"));
    println!("{HEAD}{}\n", calm.describe());
    if schedule::fifo_permission(Band::WHOLE.watchdog()).is_err() {
        println!("SKIPPED: needs the right to the real-time class");
        return;
    }
    println!(
        "{:>7} {:<10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>8} {:>8} {:>5} {:>5} \
         {:>5}",
        "stolen",
        "us",
        "quantum",
        "hand-off",
        "samples",
        "p50",
        "p99",
        "worst",
        "bound",
        "above",
        "by",
        "rest p99",
        "rest max",
        "later",
        "one",
        "more"
    );
    let mut total = Total::default();
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let chosen = |kind: &str| only.as_ref().is_none_or(|only| kind == only);
    for (kind, discipline, way) in KINDS.into_iter().filter(|(kind, ..)| chosen(kind)) {
        if kind == OF_OTHER && upcall_sys::process::effective_user() != 0 {
            println!("SKIPPED: {kind} needs root");
            total.skipped.push(kind.to_owned());
            continue;
        }
        let alone = |way, is_busy| {
            let name = if is_busy { "busy" } else { "idle" };
            let tries = calm.runs(|| {
                // The measurement pins its thread.
                let run = move || kernel::samples(way, is_busy, rounds);
                let samples = std::thread::spawn(run).join().expect("no measurement panics");
                Samples::new(samples, Span::ZERO)
            });
            for tried in &tries {
                let (stolen, columns) = (tried.marked(), tried.result.columns());
                println!("{stolen:>7} {:<10} {name:>7} {:>8} {columns}", "  kernel", "");
            }
            judged(tries)
        };
        // An idle CPU has nobody to be asked.
        let idle = alone(if way == Way::Relay { Way::Futex } else { way }, false);
        let busy = alone(way, true);
        for quantum_us in QUANTA_US {
            let tries = calm.runs(|| samples(kind, discipline, quantum_us, rounds * 3 / 2));
            let kernel = if quantum_us == 0 { &idle } else { &busy };
            let reference = Reference { quantum_us, way, kernel: kernel.as_ref() };
            for tried in &tries {
                print_row(kind, reference, tried);
            }
            total.add(kind, reference, judged(tries));
        }
    }
    println!("\n{}\n{CONTENTS}", total.text());
}

fn judged(tries: Vec<Try<Samples>>) -> Option<Samples> {
    tries.into_iter().find(|tried| tried.judged).map(|tried| tried.result)
}

/// By what the samples of a row are judged.
#[derive(Clone, Copy)]
struct Reference<'a> {
    /// 0: the CPU is idle.
    quantum_us: u64,
    way: Way,
    /// `None`: the kernel alone was never measured on a calm host.
    kernel: Option<&'a Samples>,
}

impl Reference<'_> {
    /// The bound of a row beside a worse domain.
    fn bound_ns(self, row: &Samples) -> Option<u64> {
        let p99_ns = self.kernel.filter(|_| self.quantum_us > 0)?.percentile(99.0);
        // A relay contains its hand-off.
        let hand_off = if self.way == Way::Relay { Span::ZERO } else { row.hand_off };
        Some(self.quantum_us * 1_000 + hand_off.as_nanos() + p99_ns)
    }

    /// What Upcall adds to the median wake-up of an idle CPU.
    fn added_ns(self, row: &Samples) -> Option<u64> {
        let p50_ns = self.kernel.filter(|_| self.quantum_us == 0)?.percentile(50.0);
        Some(row.percentile(50.0).saturating_sub(p50_ns))
    }
}

fn print_row(kind: &str, reference: Reference<'_>, tried: &Try<Samples>) {
    let (stolen, row) = (tried.marked(), &tried.result);
    let quantum = match reference.quantum_us {
        0 => "idle".to_owned(),
        quantum_us => quantum_us.to_string(),
    };
    let (hand_off, columns) = (us(row.hand_off.as_nanos()), row.columns());
    let judgement = if let Some(bound_ns) = reference.bound_ns(row) {
        let (bound, above) = (us(bound_ns), row.above(bound_ns));
        let by = us(row.worst().saturating_sub(bound_ns));
        let [p99, worst] = [99.0, 100.0].map(|of| us(percentile(&mut row.rest_ns.clone(), of)));
        let ([_, one, more], verdict) = (row.begun, Verdict::of(row, bound_ns).words());
        let rest = format!("{p99:>8} {worst:>8} {:>5} {one:>5} {more:>5}", row.later);
        format!("{bound:>8} {above:>6} {by:>8} {rest}  {verdict}")
    } else if let Some(added_ns) = reference.added_ns(row) {
        let added = us(added_ns);
        format!("{:>59}  {added} more than the kernel at p50", "")
    } else {
        "no bound: the kernel alone was never measured on a calm host".to_owned()
    };
    println!("{stolen:>7} {kind:<10} {quantum:>7} {hand_off:>8} {columns} {judgement}");
}

/// What the judged tries say together.
#[derive(Default)]
struct Total {
    /// The rows beside a worse domain.
    busy: Vec<(String, Verdict)>,
    samples: usize,
    above: usize,
    /// Their sum of [`Samples::begun`], for quanta of [`LONG_US`] and for shorter ones.
    begun: [[usize; 3]; 2],
    later: usize,
    /// What Upcall adds on an idle CPU, in ns, by row.
    idle_ns: Vec<u64>,
    skipped: Vec<String>,
}

impl Total {
    fn add(&mut self, kind: &str, reference: Reference<'_>, row: Option<Samples>) {
        let name = format!("{kind} {}", reference.quantum_us);
        let Some(row) = row.filter(|_| reference.kernel.is_some()) else {
            self.skipped.push(format!("{name} (the host was never calm)"));
            return;
        };
        self.idle_ns.extend(reference.added_ns(&row));
        if let Some(bound_ns) = reference.bound_ns(&row) {
            self.samples += row.sorted.len();
            self.above += row.above(bound_ns);
            let sums = &mut self.begun[usize::from(reference.quantum_us < LONG_US)];
            sums.iter_mut().zip(row.begun).for_each(|(sum, count)| *sum += count);
            self.later += row.later;
            self.busy.push((name, Verdict::of(&row, bound_ns)));
        }
    }

    fn text(&self) -> String {
        let count = |verdict| self.busy.iter().filter(|(_, of)| *of == verdict).count();
        let mut lines = vec![format!(
            "beside a worse domain: {} of {} samples above the bound; of {} rows, no sample above in \
             {}, 1 % at most in {}, more than 1 % in {}",
            self.above,
            self.samples,
            self.busy.len(),
            count(Verdict::Keeps),
            count(Verdict::AsTheKernel),
            count(Verdict::Above),
        )];
        for ([none, one, more], which) in self.begun.iter().zip(["of 100 us and more", "shorter"]) {
            lines.push(format!(
                "quanta that the worse domain began between the call that wakes and the run, {which}: \
                 none in {none} samples, one in {one}, more in {more}"
            ));
        }
        lines.push(format!(
            "it began a quantum between the executor's notice and the run in {} samples",
            self.later
        ));
        let above = self.busy.iter().filter(|(_, of)| *of == Verdict::Above);
        let above: Vec<&str> = above.map(|(name, _)| name.as_str()).collect();
        if !above.is_empty() {
            lines.push(format!("DOES NOT HOLD: {}", above.join(", ")));
        }
        if let (Some(least), Some(most)) = (self.idle_ns.iter().min(), self.idle_ns.iter().max()) {
            let (least, most) = (us(*least), us(*most));
            lines.push(format!("on an idle CPU: {least} to {most} us more than the kernel at p50"));
        }
        if !self.skipped.is_empty() {
            lines.push(format!("SKIPPED: {}", self.skipped.join(", ")));
        }
        lines.join("\n")
    }
}

const HEAD: &str = "\
bound: one quantum of the worse domain, a hand-off as the daemon measured it, and what the kernel
alone takes for the yield: p99 of the nearest row `kernel busy` above, of this run. So 1 % of the
samples may be above it because of the kernel. Quantum idle: there is no worse domain, so there is
no bound. The row is compared with the row `kernel idle`.
kernel: plain threads without Upcall, with the classes and CPUs of the domains. Busy: an ordinary
thread on the other CPU wakes one, while another of the same priority calls sched_yield(2) without
end; the woken one sleeps again, and the time ends when the other one runs again. Idle: the CPU is
idle, and the time ends when the woken thread runs.
";

const CONTENTS: &str = "
stream: an ordinary thread writes to a stream that a handler reads; it knows no domain
other-user: the same, and the two domains belong to different users. Its row `kernel` is a relay:
the woken thread wakes another, which stops the one that yields; a third, of a lower priority, then
wakes the first again. That contains the hand-off through the daemon, so none is added
task: an ordinary thread of the process wakes a task
io_wait: an ordinary thread writes to a pipe for which a task waits; a thread of the runtime wakes
the task. Its row `kernel` has such a thread, too
control: an ordinary thread of the process starts a handler
The time begins before the write, the wake-up or the start, and ends in the handler or task. Each
quantum takes exactly its time, by the clock. The worse domain works for 40 ms of each 60 ms, and
only wake-ups within that time are samples of its rows.
above, by: samples above the bound, and by how much the worst one is
rest: from the moment at which the executor of the better domain noticed the wake-up to the run
later: samples beside which the worse domain began a quantum within that rest
one, more: samples with one quantum, and with more, that the worse domain began between the begin of
the call that wakes and the run. While the host takes that CPU, none begins. While it takes the CPU
of the waking thread, or delays the interrupt, quanta begin";

/// The times from the wake-up to the run, and the daemon's cost of a hand-off. A wake-up counts
/// only if it falls into a job of the worse domain, where there is one. Otherwise the CPU was idle.
fn samples(kind: &str, of: &'static Discipline, quantum_us: u64, rounds: u32) -> Samples {
    let socket = std::env::temp_dir().join(format!("upcall-bench-{}", std::process::id()));
    let config = server::Config {
        discipline: of,
        access: Access::Everyone,
        ..server::Config::new(socket.clone(), vec![measured_cpu()])
    };
    let daemon = Daemon::start(config).expect("a daemon");
    let (stopper, cost) = (daemon.stopper(), daemon.switch_cost());
    let serving = std::thread::spawn(move || {
        daemon.run(|event, _| {
            if let DaemonEvent::Offence { .. } = event {
                println!("{event:?}");
            }
        });
    });
    let (path, policy) = (socket.display(), of.name);
    let works = (quantum_us > 0).then(|| {
        let mut works = start(&format!("works {path} {policy} {quantum_us}"));
        let mut output = works.stdout.take().expect("it is piped");
        let times = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            output.read_to_end(&mut bytes).map(|_| bytes)
        });
        (works, times)
    });
    let mut wakes = command(&format!("wakes {path} {kind} {policy} {rounds}"));
    if kind == OF_OTHER {
        wakes.uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
    }
    let wakes = wakes.spawn().expect("any user can start this program");
    let woken = lines(&wakes.wait_with_output().expect("it ends").stdout);
    let jobs = works.map(|(mut works, times)| {
        let _ = works.kill();
        let _ = works.wait();
        let bytes = times.join().expect("no panic").expect("a pipe can be read");
        Jobs::of(&bytes, domains::quanta_of(quantum_us) as usize)
    });
    stopper.stop();
    serving.join().expect("the daemon does not panic");
    let counts = |woken: &&Woken| jobs.as_ref().is_none_or(|jobs| jobs.contain(woken.begun_ns));
    let woken: Vec<&Woken> = woken.iter().filter(counts).collect();
    let mut begun = [0; 3];
    if let Some(jobs) = &jobs {
        woken.iter().for_each(|of| begun[jobs.begun_within(of.begun_ns, of.ran_ns).min(2)] += 1);
    }
    let is_later = |of: &&&Woken| {
        jobs.as_ref().is_some_and(|jobs| jobs.begun_within(of.noticed_ns, of.ran_ns) > 0)
    };
    let samples = woken.iter().map(|of| of.ran_ns - of.begun_ns).collect();
    Samples {
        begun,
        rest_ns: woken.iter().map(|of| of.ran_ns - of.noticed_ns).collect(),
        later: woken.iter().filter(is_later).count(),
        ..Samples::new(samples, cost)
    }
}

/// One wake-up, in ns.
struct Woken {
    begun_ns: u64,
    noticed_ns: u64,
    ran_ns: u64,
}

/// The lines of three numbers that the better domain printed.
fn lines(output: &[u8]) -> Vec<Woken> {
    let text = String::from_utf8_lossy(output);
    let woken = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse().ok());
        let [begun_ns, noticed_ns, ran_ns] = [numbers.next()??, numbers.next()??, numbers.next()??];
        Some(Woken { begun_ns, noticed_ns, ran_ns })
    };
    text.lines().filter_map(woken).collect()
}

/// The jobs of the worse domain.
struct Jobs {
    /// When each quantum began, in ns, ascending.
    quanta_ns: Vec<u64>,
    /// When each job began and ended, in ns.
    jobs_ns: Vec<std::ops::Range<u64>>,
}

impl Jobs {
    /// From the times that the worse domain wrote, of so many quanta a job.
    fn of(bytes: &[u8], quanta: usize) -> Self {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let numbers: Vec<u64> = bytes.chunks_exact(8).map(number).collect();
        let mut jobs = Jobs { quanta_ns: Vec::new(), jobs_ns: Vec::new() };
        // The last job may not be whole.
        for job in numbers.chunks_exact(quanta + 1) {
            let (quanta_ns, end_ns) = (&job[..quanta], job[quanta]);
            jobs.quanta_ns.extend(quanta_ns);
            jobs.jobs_ns.push(quanta_ns[0]..end_ns);
        }
        jobs
    }

    fn contain(&self, at_ns: u64) -> bool {
        self.jobs_ns.iter().any(|job| job.contains(&at_ns))
    }

    /// How many quanta began after `from_ns` and before `to_ns`.
    fn begun_within(&self, from_ns: u64, to_ns: u64) -> usize {
        let before = |at_ns| self.quanta_ns.partition_point(|&begun_ns| begun_ns < at_ns);
        before(to_ns).saturating_sub(before(from_ns))
    }
}

fn start(role: &str) -> Child {
    command(role).spawn().expect("this program can be started")
}

fn command(role: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.env(ROLE, role).stdout(Stdio::piped());
    command
}
