//! The price of a hand-off between two domains in two processes. It is the time from the last
//! action of one handler to the first action of the other. The bench compares it with a bare futex
//! ping-pong between two processes, in one run on one CPU.
//!
//! The headline is the whole way from handler to handler. The rows below it contain less: the turn
//! alone, and the difference that the second process makes.
//!
//! The bench judges no figure, because the machine is shared. Read the ratios. It judges the rules:
//! admission takes all domains in, each keeps to what it declared, and the watchdog accuses none of
//! them. An offence against a domain is printed as DOES NOT HOLD.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::time::{Instant, Span};
use upcall::{Attach, Batch, Config, Runtime, clock};
use upcall_benches::{heading, measured_cpu, percentile, smoke};
use upcall_daemon::server::{self, Daemon};
use upcall_shm::DomainId;
use upcall_shm::turn_page::{PAGE_BYTES, TurnPage};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::{futex, schedule};

/// The environment variable that gives a process started by this one its role.
const ROLE: &str = "UPCALL_BENCH_ROLE";
/// The real-time priority, the same as that of the domains' threads.
const FIFO_PRIORITY: u8 = 60;
/// Words of the ping-pong's page. Each word that is used has its own cache line.
const WORDS: usize = 512;
const PING: usize = 0;
const PONG: usize = 8;

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split(' ').collect::<Vec<_>>()) {
        Err(_) => compare(),
        Ok(role) => match role[..] {
            ["echo", cpu, rounds, path] => echo(number(cpu), number(rounds), path),
            ["turns", cpu, rounds, path] => turns(number(cpu), number(rounds), path),
            ["domain", socket, begin_ns, millis, period_us, ref handlers @ ..] => {
                let time = (number(begin_ns), number(millis));
                domain(socket, time, number(period_us), handlers);
            }
            _ => panic!("unknown role {role:?}"),
        },
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

/// Release intervals of the handler with the higher rank. In the first, hand-offs follow each other
/// as fast as ping-pongs. In the second, they are as rare as in the ping-pong after work.
const PERIODS_US: [u64; 2] = [25, 100];
/// The work before each round of the rare ping-pong.
const WORK_NS: u64 = 100_000;

/// Rows of the table. The other rows are compared with the first two.
const ROWS: [&str; 11] = [
    "bare futex ping-pong, one way",
    "the same after 100 us of work, the way there",
    "the turn and its wake word alone, one way",
    "domain to domain, each 25 us, to a higher rank",
    "domain to domain, each 25 us, back",
    "within a domain, each 25 us, to a higher rank",
    "within a domain, each 25 us, back",
    "domain to domain, each 100 us, to a higher rank",
    "domain to domain, each 100 us, back",
    "within a domain, each 100 us, to a higher rank",
    "within a domain, each 100 us, back",
];
/// The rows of the headline: the whole way from handler to handler.
const WHOLE: [usize; 4] = [3, 4, 7, 8];
/// More rows, each the difference of two rows.
const DIFFERENCES: [(&str, usize, usize); 4] = [
    ("the hand-off alone, each 25 us, to a higher rank", 3, 5),
    ("the hand-off alone, each 25 us, back", 4, 6),
    ("the hand-off alone, each 100 us, to a higher rank", 7, 9),
    ("the hand-off alone, each 100 us, back", 8, 10),
];

fn compare() {
    let (blocks, rounds, millis) = if smoke() { (1, 500, 100) } else { (81, 1_000, 100) };
    let cpu = measured_cpu();
    println!("{}", heading("handoff"));
    println!("{blocks} blocks, each with all rows, the ping-pong at its begin and its end");
    let mut samples: [Vec<u64>; ROWS.len()] = Default::default();
    let mut rows = [const { Ratios::new() }; ROWS.len()];
    let mut differences = [const { (Vec::new(), Ratios::new()) }; DIFFERENCES.len()];
    let mut offences = Vec::new();
    for _ in 0..blocks {
        let (mut block, bare) = block(cpu, rounds, millis, &mut offences);
        let medians = block.each_mut().map(|samples| percentile(samples, 50.0));
        let bases = [bare, medians[1]];
        for ((_, of, less), (spans, ratios)) in DIFFERENCES.iter().zip(&mut differences) {
            let span = medians[*of].saturating_sub(medians[*less]);
            spans.push(span);
            ratios.push(span, bases);
        }
        for (row, samples_of_row) in block.iter_mut().enumerate() {
            rows[row].push(medians[row], bases);
            samples[row].append(samples_of_row);
        }
    }
    println!("\nthe whole way from handler to handler, by the bare ping-pong of the same block");
    for row in WHOLE {
        let median = percentile(&mut samples[row], 50.0);
        let [low, ratio, high] = spread(&mut rows[row].0[0]);
        println!("  {:<48} {median:>6} ns  {ratio:.2} times ({low:.2} to {high:.2})", ROWS[row]);
    }
    println!();
    println!(
        "{:<54} {:>7} {:>6} {:>6} {:>6} {:>6} {:>7} {:>5} {:>5} {:>7} {:>5} {:>5}",
        "nanoseconds for one",
        "samples",
        "p10",
        "median",
        "p90",
        "p99",
        "/bare",
        "p10",
        "p90",
        "/seldom",
        "p10",
        "p90"
    );
    for (name, (samples, ratios)) in ROWS.iter().zip(samples.iter_mut().zip(&mut rows)) {
        let count = samples.len();
        let [p10, median, p90, p99] = [10.0, 50.0, 90.0, 99.0].map(|of| percentile(samples, of));
        println!("{name:<54} {count:>7} {p10:>6} {median:>6} {p90:>6} {p99:>6} {}", ratios.print());
    }
    for ((name, ..), (spans, ratios)) in DIFFERENCES.iter().zip(&mut differences) {
        let span = percentile(spans, 50.0);
        println!("{name:<54} {:>7} {:>6} {span:>6} {:>6} {:>6} {}", "", "", "", "", ratios.print());
    }
    println!();
    println!("{}", verdict(&offences, blocks * RUNS_OF_BLOCK));
    println!();
    println!("{CONTENTS}");
}

/// What the watchdog did to the domains in `runs` runs. They are honest, so it must do nothing.
fn verdict(offences: &[String], runs: usize) -> String {
    if offences.is_empty() {
        return format!("admission took in all domains of {runs} runs, and none was accused");
    }
    let mut times = BTreeMap::new();
    for offence in offences {
        *times.entry(offence).or_insert(0_usize) += 1;
    }
    let lines: String = times.iter().map(|(what, times)| format!("\n  {what}, {times}x")).collect();
    format!("DOES NOT HOLD: the watchdog accused honest domains in {runs} runs:{lines}")
}

/// Runs of domains in a block: each rate in two domains, and in one.
const RUNS_OF_BLOCK: usize = 2 * PERIODS_US.len();

/// Samples of each row, and the median of the bare ping-pong. One block measures all rows, and the
/// ping-pong at both ends, because the speed of the machine changes over time. `offences` gets each
/// offence of a domain.
fn block(
    cpu: u32,
    rounds: usize,
    millis: u64,
    offences: &mut Vec<String>,
) -> ([Vec<u64>; ROWS.len()], u64) {
    let mut bare = ping_pong(cpu, rounds, 0);
    let [often, seldom] = PERIODS_US.map(|period_us| {
        let mut run = |domains: &[&[&str]]| hand_offs(cpu, (millis, period_us), domains, offences);
        let (there, back) = run(&[&["often"], &["long"]]);
        let (within, back_within) = run(&[&["often", "long"]]);
        [there, back, within, back_within]
    });
    // Only the first way follows the pause.
    let after_work = ping_pong(cpu, rounds / 2, WORK_NS).into_iter().step_by(2).collect();
    let turns = pass_turns(cpu, rounds);
    let mut end = ping_pong(cpu, rounds, 0);
    let median = u64::midpoint(percentile(&mut bare, 50.0), percentile(&mut end, 50.0));
    bare.append(&mut end);
    let mut rows = [bare, after_work, turns].into_iter().chain(often).chain(seldom);
    (std::array::from_fn(|_| rows.next().expect("one of each row")), median.max(1))
}

/// Ratios in thousandths, of the medians of one block, to the bare ping-pong and to the rare
/// ping-pong.
struct Ratios([Vec<u64>; 2]);

impl Ratios {
    const fn new() -> Self {
        Ratios([const { Vec::new() }; 2])
    }

    fn push(&mut self, span: u64, bases: [u64; 2]) {
        for (ratios, base) in self.0.iter_mut().zip(bases) {
            ratios.push(1_000 * span / base.max(1));
        }
    }

    fn print(&mut self) -> String {
        let columns = self.0.each_mut().map(|ratios| {
            let [low, ratio, high] = spread(ratios);
            format!("{ratio:>7.2} {low:>5.2} {high:>5.2}")
        });
        columns.join(" ")
    }
}

/// The tenth, the fiftieth and the ninetieth percentile of ratios in thousandths.
fn spread(ratios: &mut [u64]) -> [f64; 3] {
    [10.0, 50.0, 90.0].map(|of| percentile(ratios, of) as f64 / 1_000.0)
}

const CONTENTS: &str = "\
what a row contains, beside its name
  ping-pong           a read of the clock, a store, wake, wait, the kernel's switch, a read of the
                      clock
  after work          the same, but as rarely as the rows of 100 us below. The kernel's own path
                      is then less present in the caches than without work in between
  the turn alone      the same with the page that domains share: one thread passes the turn and
                      notifies a wake word, and the other sleeps on its wake word
  to a higher rank    the same, and before it the boundary at which the handler learns that it
                      must yield, its return, the decision, and its ranks into the page; after it,
                      in the other domain, the decision and the upcall
  back                the end of the job, its record, and the rest as above; then, in the other
                      domain, the upcall
  within a domain     the same two handlers in one process, under the same daemon: boundary,
                      return, decision and upcall, but no hand-off
  the hand-off alone  the extra cost if the next handler is in another process: the difference of
                      the two rows, by the medians of a block
  /bare, /seldom      ratios to the ping-pong and to the one after work, by the medians of a
                      block: the median and the spread";

/// Samples of both ways in ns, each of one way, the first way first. One side works for `work_ns`
/// before each round.
fn ping_pong(cpu: u32, rounds: usize, work_ns: u64) -> Vec<u64> {
    let page = SharedMapping::create("upcall-bench", WORDS * 8).expect("a page");
    let path = format!("/proc/{}/fd/{}", std::process::id(), page.fd().as_raw_fd());
    let mut child = start(&format!("echo {cpu} {rounds} {path}"));
    let sent = std::thread::spawn(move || {
        prepare(cpu);
        let words = page.words();
        let mut stamps = Vec::with_capacity(2 * rounds);
        wait(&words[PONG]);
        for _ in 0..rounds {
            work(work_ns);
            stamps.push(now());
            notify(&words[PING]);
            wait(&words[PONG]);
            stamps.push(now());
        }
        stamps
    });
    let here = sent.join().expect("no measurement panics");
    let there = stamps_of(&mut child, "echo");
    // This process stamps: sent, received, sent, received. The other stamps: received, sent, ...
    here.iter().zip(&there).map(|(here, there)| here.abs_diff(*there)).collect()
}

fn echo(cpu: u32, rounds: usize, path: &str) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the page");
    let page = SharedMapping::from_fd(OwnedFd::from(file), WORDS * 8).expect("the page");
    prepare(cpu);
    let words = page.words();
    let mut stamps = Vec::with_capacity(2 * rounds);
    notify(&words[PONG]);
    for _ in 0..rounds {
        wait(&words[PING]);
        stamps.push(now());
        stamps.push(now());
        notify(&words[PONG]);
    }
    print_stamps("echo", &stamps);
}

/// A ping-pong with a turn page: a hand-off without a decision.
fn pass_turns(cpu: u32, rounds: usize) -> Vec<u64> {
    let memory = SharedMapping::create("upcall-bench", PAGE_BYTES).expect("a page");
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.fd().as_raw_fd());
    let page = TurnPage::create(memory, cpu).expect("it is blank");
    let mut child = start(&format!("turns {cpu} {rounds} {path}"));
    let (me, other) = domains();
    let sent = std::thread::spawn(move || {
        prepare(cpu);
        let mut stamps = Vec::with_capacity(2 * rounds);
        wait_for_turn(&page, me);
        for _ in 0..rounds {
            stamps.push(now());
            pass(&page, other);
            wait_for_turn(&page, me);
            stamps.push(now());
        }
        stamps
    });
    let here = sent.join().expect("no measurement panics");
    let there = stamps_of(&mut child, "turns");
    here.iter().zip(&there).map(|(here, there)| here.abs_diff(*there)).collect()
}

fn turns(cpu: u32, rounds: usize, path: &str) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the page");
    let memory = SharedMapping::from_fd(OwnedFd::from(file), PAGE_BYTES).expect("the page");
    let page = TurnPage::attach(memory).expect("the page");
    prepare(cpu);
    let (other, me) = domains();
    let mut stamps = Vec::with_capacity(2 * rounds);
    // The daemon holds the turn of a new page. It passes to the process that measures.
    pass(&page, other);
    for _ in 0..rounds {
        wait_for_turn(&page, me);
        stamps.push(now());
        stamps.push(now());
        pass(&page, other);
    }
    print_stamps("turns", &stamps);
}

fn domains() -> (DomainId, DomainId) {
    let mut all = DomainId::all();
    (all.next().expect("1"), all.next().expect("2"))
}

fn pass(page: &TurnPage<SharedMapping>, to: DomainId) {
    assert!(page.turn().is_ok_and(|turn| page.pass(turn, to)), "nobody else passes it");
    let wake_word = page.wake_word(to);
    if wake_word.notify() {
        futex::wake_shared(wake_word.word(), 1);
    }
}

fn wait_for_turn(page: &TurnPage<SharedMapping>, me: DomainId) {
    let wake_word = page.wake_word(me);
    while page.holder() != Ok(me) {
        if wake_word.prepare_wait() {
            let _ = futex::wait_shared_until(wake_word.word(), ASLEEP, None);
        }
        wake_word.finish_wait();
    }
}

fn prepare(cpu: u32) {
    let class = schedule::pin_thread(&[cpu]).and(schedule::set_fifo(FIFO_PRIORITY));
    if let Err(error) = class {
        println!("the ping-pong ran in the ordinary class: {error}");
    }
}

fn notify(word: &AtomicU64) {
    word.store(1, Ordering::Release);
    futex::wake_shared(word, 1);
}

fn wait(word: &AtomicU64) {
    while word.load(Ordering::Acquire) == 0 {
        let _ = futex::wait_shared_until(word, 0, None);
    }
    word.store(0, Ordering::Relaxed);
}

fn work(ns: u64) {
    let until = now() + ns;
    while now() < until {}
}

fn now() -> u64 {
    clock::now().as_nanos()
}

/// Samples in ns: to the handler with the higher rank, and back. `domains` lists the handlers of
/// each domain. `offences` gets each offence of a domain.
fn hand_offs(
    cpu: u32,
    (millis, period_us): (u64, u64),
    domains: &[&[&str]],
    offences: &mut Vec<String>,
) -> (Vec<u64>, Vec<u64>) {
    let socket = std::env::temp_dir().join(format!("upcall-bench-{}", std::process::id()));
    let config = server::Config::new(socket.clone(), vec![cpu]);
    let config = server::Config { switch_cost: Some(HAND_OFF), ..config };
    let daemon = Daemon::start(config).expect("a daemon");
    let stopper = daemon.stopper();
    let serving = std::thread::spawn(move || {
        let mut offences = Vec::new();
        daemon.run(|event, _| match event {
            server::DaemonEvent::Attached { .. } | server::DaemonEvent::Detached { .. } => {}
            server::DaemonEvent::Offence { name, measure, .. } => {
                offences.push(format!("{name}, each {period_us} us: {measure:?}"));
            }
            other => println!("{other:?}"),
        });
        offences
    });
    let path = socket.display();
    let begin_ns = now() + 1_000_000 * LEAD_MS;
    let mut started: Vec<Child> = domains
        .iter()
        .map(|handlers| {
            let handlers = handlers.join(" ");
            start(&format!("domain {path} {begin_ns} {millis} {period_us} {handlers}"))
        })
        .collect();
    let mut stamps = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for (child, handlers) in started.iter_mut().zip(domains) {
        for &name in *handlers {
            let read = ["begun", "ended"].map(|what| stamps_of(child, &format!("{name}-{what}")));
            stamps[usize::from(name == "long")] = read;
        }
    }
    stopper.stop();
    offences.extend(serving.join().expect("the daemon does not panic"));
    let [often, long] = stamps;
    (spans(&long[1], &often[0]), spans(&often[1], &long[0]))
}

/// The times from the last stamp of `from` to each stamp of `to`, if nothing ran between the two.
fn spans(from: &[u64], to: &[u64]) -> Vec<u64> {
    let mut samples = Vec::new();
    for pair in to.windows(2) {
        let at = from.partition_point(|&stamp| stamp <= pair[1]);
        // If the stamp is older than the previous one of `to`, another handler of the same domain
        // ran in between, or the domain slept.
        if let Some(&before) = at.checked_sub(1).and_then(|at| from.get(at))
            && before > pair[0]
        {
            samples.push(pair[1] - before);
        }
    }
    samples
}

/// The cost of a hand-off in admission. A fixed one admits the same set in each block; it is above
/// the median of the rows that this bench prints.
const HAND_OFF: Span = Span::from_micros(3);
/// The jobs of `long`, each 400 ms, have this many quanta of 2 us of work, declared with 3.3 us.
/// They need 46 % of the CPU, and `often` needs 40 % with its hand-offs each 25 us: 86 of 90 %.
/// The first job takes longer than a run, so a run has no idle time. In idle time each release
/// would be a wake-up by the daemon's thread and no hand-off.
const LONG_BATCH: u32 = 56_000;
/// The time until all domains of a run have attached, in ms.
const LEAD_MS: u64 = 60;
/// `long` runs on for so long after the end of `often`, in ms.
const TAIL_MS: u64 = 5;

/// A domain with these handlers, for `millis` from `begin_ns` on: `often` runs for a moment every
/// `period_us`. `long` runs for the rest of the time, in quanta of 2 us.
fn domain(socket: &str, (begin_ns, millis): (u64, u64), period_us: u64, handlers: &[&str]) {
    let daemon = Some(Attach { socket: socket.into(), name: handlers.concat() });
    let config = Config { daemon, ..Config::default() };
    let mut runtime = Runtime::start(config).expect("the daemon attaches it");
    let room = usize::try_from(100 * millis).unwrap_or(usize::MAX);
    let end_ns = begin_ns + 1_000_000 * millis;
    let started: Vec<_> = handlers
        .iter()
        .map(|&name| {
            let is_long = name == "long";
            let need = match is_long {
                false => ActivityParams::new(Span::from_micros(period_us), Span::from_micros(4)),
                true => ActivityParams::new(Span::from_millis(400), Span::from_nanos(3_300))
                    .batch(LONG_BATCH),
            };
            let kept: Arc<Mutex<Stamps>> = Arc::default();
            let mut stamps = Stamps::new(kept.clone(), room);
            let handler = move |batch: &mut Batch<'_>| {
                let entered = now();
                stamps.enter(entered);
                while batch.proceed() {
                    if is_long {
                        work(2_000);
                    }
                    stamps.last = now();
                }
                if !is_long && entered >= end_ns {
                    batch.finish();
                }
            };
            (name, runtime.handler(name, need, handler).expect("it fits"), kept)
        })
        .collect();
    let ids: Vec<_> = started.iter().map(|(_, id, _)| *id).collect();
    runtime.run_at(&ids, Instant::from_nanos(begin_ns)).expect("the executor runs");
    let left_ns = (end_ns + 1_000_000 * TAIL_MS).saturating_sub(now());
    std::thread::sleep(Duration::from_nanos(left_ns));
    runtime.stop(|_, _| {});
    for (name, _, kept) in started {
        let kept = kept.lock().expect("no thread panicked");
        print_stamps(&format!("{name}-begun"), &kept.begun);
        print_stamps(&format!("{name}-ended"), &kept.ended);
    }
}

/// The times at which a handler was entered and at which it did its last action before it returned.
#[derive(Default)]
struct Stamps {
    begun: Vec<u64>,
    ended: Vec<u64>,
    last: u64,
    /// Where the stamps go at the end.
    kept: Option<Arc<Mutex<Stamps>>>,
}

impl Stamps {
    fn new(kept: Arc<Mutex<Stamps>>, count: usize) -> Self {
        let room = || Vec::with_capacity(count);
        Stamps { begun: room(), ended: room(), last: 0, kept: Some(kept) }
    }

    /// Records the end of the previous upcall only now, so that recording is not part of the
    /// measurement.
    fn enter(&mut self, entered: u64) {
        if self.begun.len() < self.begun.capacity() {
            self.begun.push(entered);
            self.ended.push(self.last);
        }
        self.last = entered;
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        if let Some(Ok(mut kept)) = self.kept.as_ref().map(|kept| kept.lock()) {
            kept.begun = std::mem::take(&mut self.begun);
            kept.ended = std::mem::take(&mut self.ended);
        }
    }
}

fn start(role: &str) -> Child {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started")
}

fn print_stamps(name: &str, stamps: &[u64]) {
    let text: Vec<String> = stamps.iter().map(u64::to_string).collect();
    println!("{name} {}", text.join(" "));
}

/// Reads lines of the child up to the one that begins with `name`.
fn stamps_of(child: &mut Child, name: &str) -> Vec<u64> {
    use std::io::Read;
    let output = child.stdout.as_mut().expect("the pipe exists");
    loop {
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte).is_ok_and(|read| read == 1) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        let line = String::from_utf8(line).expect("numbers");
        match line.strip_prefix(name) {
            Some(stamps) => return stamps.split_whitespace().map(number).collect(),
            None if line.is_empty() => panic!("the process that prints `{name}` has ended"),
            None => println!("{line}"),
        }
    }
}
