//! Table 1 of split-level-1991 on this machine: all variants in the blocks of one run.

use upcall_benches::{percentile, smoke};

use crate::ready_messages;
use crate::variant::Variant;
use crate::wakes::{self, Cause};

/// The paper's overhead of a thread in us. The other overheads of the paper stand beside the rows
/// that correspond to them.
const PAPER_THREAD_US: f64 = 145.0;

/// A ratio up to this counts as not above another, because two runs differ by this much noise.
pub const NOT_ABOVE: f64 = 1.05;

/// A line of the table.
struct Row {
    name: String,
    paper_us: Option<f64>,
    /// Picoseconds.
    samples_ps: Vec<u64>,
    late_ns: Vec<u64>,
    /// The median of each block.
    medians_ps: Vec<u64>,
}

/// A comparison of two rows, by their index.
struct Claim {
    text: &'static str,
    of: usize,
    over: usize,
    at_most: f64,
}

/// Measures and prints.
pub fn run(cpus: [u32; 2]) {
    let (blocks, wakes) = if smoke() { (1, 20) } else { (61, 300) };
    println!("{blocks} blocks, each with all rows; a ratio is of the medians of one block");
    let mut rows = rows();
    for _ in 0..blocks {
        let mut row = rows.iter_mut();
        for (_, measure) in ready_messages::ROWS {
            row.next().expect("a row of each").take(measure(cpus[0]), Vec::new());
        }
        for cause in Cause::ALL {
            for &variant in cause.variants() {
                // A timer makes a thousand wakes per second.
                let wakes = if cause == Cause::Timer { wakes / 10 } else { wakes };
                let found = wakes::measure(cause, variant, cpus, wakes);
                let ps = found.taken_ns.into_iter().map(|ns| ns * 1_000).collect();
                row.next().expect("a row of each").take(ps, found.late_ns);
            }
        }
    }
    let base = ready_messages::ROWS
        .iter()
        .position(|(name, _)| *name == ready_messages::THREADS)
        .unwrap_or(0);
    print(&mut rows, base);
    verdicts(&rows, base);
}

impl Row {
    fn take(&mut self, mut samples_ps: Vec<u64>, mut late_ns: Vec<u64>) {
        self.medians_ps.push(percentile(&mut samples_ps, 50.0));
        self.samples_ps.append(&mut samples_ps);
        self.late_ns.append(&mut late_ns);
    }

    /// The tenth, the fiftieth and the ninetieth percentile of the ratios of blocks.
    fn over(&self, other: &Row) -> [f64; 3] {
        let mut ratios: Vec<u64> = self
            .medians_ps
            .iter()
            .zip(&other.medians_ps)
            .filter(|&(&one, &other)| one > 0 && other > 0)
            .map(|(&one, &other)| 10_000 * one / other)
            .collect();
        [10.0, 50.0, 90.0].map(|of| percentile(&mut ratios, of) as f64 / 10_000.0)
    }
}

fn rows() -> Vec<Row> {
    let ready =
        ready_messages::ROWS.iter().zip([17.0, 17.0, 17.0, 0.0, 145.0, 129.0, 0.0, 0.0, 0.0]);
    let ready = ready.map(|(&(name, _), paper_us)| (name.to_owned(), paper_us));
    let wakes = Cause::ALL.into_iter().flat_map(|cause| {
        cause
            .variants()
            .iter()
            .map(move |&variant| (name(cause, variant).to_owned(), paper_us(cause, variant)))
    });
    ready
        .chain(wakes)
        .map(|(name, paper_us)| Row {
            name,
            paper_us: (paper_us > 0.0).then_some(paper_us),
            samples_ps: Vec::new(),
            late_ns: Vec::new(),
            medians_ps: Vec::new(),
        })
        .collect()
}

fn name(cause: Cause, variant: Variant) -> &'static str {
    match (cause, variant) {
        (Cause::Timer, Variant::Split) => "handler, its next release",
        (Cause::Timer, Variant::Task) => "task, timed_sleep()",
        (Cause::Timer, Variant::Epoll) => "epoll: timerfd, epoll_wait, read(2)",
        (Cause::Timer, Variant::Tokio) => "tokio: interval",
        (_, Variant::EpollRanked) => "epoll: a read in vain, epoll_wait, read(2), priority",
        (Cause::Timer, Variant::ThreadRanked) => "thread: clock_nanosleep(2), priority",
        (_, Variant::ThreadRanked) => "thread: blocked in read(2) of a pipe, priority",
        (Cause::Timer, _) => "thread: clock_nanosleep(2)",
        (_, Variant::ThreadSocket) => "thread: blocked in recv(2) of a UNIX socket",
        (_, Variant::Epoll) => "epoll: pipe, epoll_wait, read(2)",
        (_, Variant::Tokio) => "tokio: pipe",
        (_, Variant::Split) => "stream's handler",
        _ => "thread: blocked in read(2) of a pipe",
    }
}

fn paper_us(cause: Cause, variant: Variant) -> f64 {
    match (cause, variant) {
        (Cause::Timer, Variant::Split | Variant::Task) => 132.0,
        (_, Variant::Split) => 67.0,
        (Cause::SameCpu | Cause::OtherCpu, Variant::EpollRanked) => 384.0,
        _ => 0.0,
    }
}

fn print(rows: &mut [Row], base: usize) {
    println!();
    println!(
        "{:<54} {:>7} {:>7} {:>7}  {:>7} {:>6} {:>6}  {:>6} {:>6}  {:>7} {:>7}",
        "nanoseconds for one message",
        "p10",
        "median",
        "p90",
        "/thread",
        "p10",
        "p90",
        "paper",
        "/145",
        "late",
        "p90",
    );
    let mut first = 0;
    let mut sections = vec![("the message is there", ready_messages::ROWS.len())];
    for cause in Cause::ALL {
        let title = match cause {
            Cause::SameCpu => "woken by a message, sent by an ordinary process of the same CPU",
            Cause::OtherCpu => "woken by a message, sent from the other CPU",
            Cause::Timer => "woken by a timer",
        };
        sections.push((title, cause.variants().len()));
    }
    for (title, count) in sections {
        println!("{title}");
        for at in first..first + count {
            let ratios = rows[at].over(&rows[base]);
            line(&mut rows[at], ratios);
        }
        first += count;
    }
    println!();
}

fn line(row: &mut Row, [low, ratio, high]: [f64; 3]) {
    let [p10, median, p90] =
        [10.0, 50.0, 90.0].map(|of| percentile(&mut row.samples_ps, of) as f64 / 1e3);
    let name = &row.name;
    print!("  {name:<52} {p10:>7.0} {median:>7.0} {p90:>7.0}  ");
    print!("{ratio:>7.3} {low:>6.3} {high:>6.3}  ");
    match row.paper_us {
        Some(us) => print!("{us:>6.0} {:>6.2}", us / PAPER_THREAD_US),
        None => print!("{:>6} {:>6}", "-", "-"),
    }
    if !row.late_ns.is_empty() {
        let [late, late_p90] = [50.0, 90.0].map(|of| percentile(&mut row.late_ns, of));
        print!("  {late:>7} {late_p90:>7}");
    }
    println!();
}

/// Prints the comparisons that must hold.
fn verdicts(rows: &[Row], base: usize) {
    let place = |cause: Cause, variant: Variant| {
        let before: usize = Cause::ALL
            .into_iter()
            .take_while(|&other| other != cause)
            .map(|other| other.variants().len())
            .sum();
        let nth = cause.variants().iter().position(|&other| other == variant);
        ready_messages::ROWS.len() + before + nth.expect("a row of this cause")
    };
    let claim = |text, of, over, at_most| Claim { text, of, over, at_most };
    let mut claims = vec![
        claim("a message of the upcall (the paper: 0.12)", 0, base, 0.25),
        claim("a message an upcall, handlers in turn", 1, base, 0.25),
        claim("a message and time_advance(), tasks in turn", 2, base, 0.25),
        claim("a message of the upcall", 0, 3, 0.5),
        claim("a message and time_advance(), tasks in turn", 2, 5, NOT_ABOVE),
        claim("a message and time_advance(), tasks in turn", 2, 8, NOT_ABOVE),
    ];
    for (cause, text) in [
        (Cause::SameCpu, "woken by a message of the same CPU"),
        (Cause::OtherCpu, "woken by a message of the other CPU"),
        (Cause::Timer, "woken by a timer"),
    ] {
        for over in [
            Variant::ThreadPipe,
            Variant::Epoll,
            Variant::Tokio,
            Variant::ThreadRanked,
            Variant::EpollRanked,
        ] {
            claims.push(claim(text, place(cause, Variant::Split), place(cause, over), NOT_ABOVE));
        }
    }
    println!("what must hold");
    for Claim { text, of, over, at_most } in claims {
        let [low, ratio, high] = rows[of].over(&rows[over]);
        let holds = match ratio {
            0.0 => "not measured",
            ratio if ratio <= at_most => "holds",
            _ => "DOES NOT HOLD",
        };
        let over = &rows[over].name;
        println!(
            "  {text:<44} / {over:<58} {ratio:.3} ({low:.3} to {high:.3}), at most {at_most:.2}: {holds}"
        );
    }
    println!();
    println!("{CONTENTS}");
}

const CONTENTS: &str = "\
what a row contains
  /thread               over `thread: read(2), sched_yield(2)`, the paper's `a system call to read
                        the next message and another to switch to the next thread` of 145 us; /145
                        is the paper's own ratio
  the message is there  the reading of one word of it, 64 bytes in place or copied, and the way to
                        the next message. A stream's handler passes a boundary after each message:
                        it reads the clock and looks at all wake words
  woken                 the time taken from an ordinary program that runs on the CPU: interrupt or
                        call, both switches, the reading, going to sleep again. On the same CPU it
                        includes the sender's call
  late                  from before the sending, or from the due time, to the reader (median)
  all readers           SCHED_FIFO, the same priority, the same CPU; readers that are woken are in
                        another process
  priority              handlers and tasks are ranked by the deadline of each message. Threads are
                        only so ranked if they make a call after each message (here
                        sched_setscheduler), as the paper's pure LWPs do: in the rows that say
                        `priority`
  epoll                 epoll_wait and one read; the paper's 384 us are a read in vain, a signal,
                        select, read, and the call";
