//! PS across 2 to 16 real processes under one daemon on one CPU: does each process get its part,
//! and how far is it behind or ahead of it? (docs/decisions/0022)
//!
//! Each process is a domain whose handlers always have work, in quanta of one PDU of 100 us. Some
//! have shares, the others growing weights, and some have two activities. Each set is measured with
//! an idle CPU beside it and with ordinary programs that are always busy on the same CPU.
//!
//! The bench judges, and asserts nothing, because the machine is shared. Each row is repeated until
//! the host is calm ([`Calm`]). Every try is printed and judged, and one is marked.
//! `-- 16` measures only the rows of 16 processes.

#![forbid(unsafe_code)]

mod domain;
mod row;
mod workload;

use std::path::Path;
use std::time::Duration;

use upcall_benches::calm::{Calm, Try, why_none_is_judged};
use upcall_benches::{heading, percentile, smoke};
use upcall_sys::schedule::{self, Band};

use row::{ROLE, Row};
use workload::QUANTUM;

/// Competing threads of ordinary class, in the rows under load.
const LOAD_THREADS: u32 = 2;
/// The most by which the part of a domain may be off, in percent of the CPU.
const DEVIATION_MAX: f64 = 0.5;
/// And as a fraction of that part, which counts for small ones.
const PART_DEVIATION_MAX: f64 = 0.1;
/// 0.2 % of the measured CPU for the 15 seconds of a row. No probe of timers: on the machine of the
/// stored results no try of 15 s had all timers within 1 ms (28 tries on 2026-11-28).
const CALM: Calm = Calm { tries_max: 3, stolen_ms_max: 30, wait_s_max: 10, ..Calm::ONCE };

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split('|').collect::<Vec<_>>()) {
        Err(_) => rows(),
        Ok(role) => match role[..] {
            ["spin"] => upcall::load::spin(LOAD_THREADS),
            [socket, name, claims] => {
                domain::domain(Path::new(socket), name, &workload::parse(claims));
            }
            _ => panic!("unknown role {role:?}"),
        },
    }
}

fn rows() {
    let (sizes, length, calm) = match smoke() {
        true => (vec![2, 4], Duration::from_millis(300), Calm::ONCE),
        false => (vec![2, 4, 8, 16], Duration::from_secs(15), CALM),
    };
    let only = std::env::args().find_map(|word| word.parse::<u32>().ok());
    let sizes = only.map_or(sizes, |only| vec![only.clamp(2, 16)]);
    println!("{}", heading("shares"));
    println!("{} s a try; {HEAD}{}\n", length.as_secs_f64(), calm.describe());
    if schedule::fifo_permission(Band::WHOLE.watchdog()).is_err() {
        println!("SKIPPED: needs the right to the real-time class");
        return;
    }
    let mut total = Total::default();
    for (processes, loaded) in sizes.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let tries = calm.runs(|| row::measure(processes, loaded, length));
        let name = format!("{processes} {}", if loaded { "loaded" } else { "idle" });
        println!("{}", columns());
        for tried in &tries {
            println!("{name:<10} {}", line(tried));
        }
        for tried in &tries {
            print_domains(&tried.result);
        }
        println!();
        total.add(&name, &tries);
    }
    println!("{}", total.text());
}

const HEAD: &str = "\
quanta are PDUs of 100 us; weights 1, 2, 3, .. beside shares of 20 % and 10 %;
some domains have two activities, by weights 1 to 2. Loaded: 2 ordinary threads spin on the same CPU.
parts off: the worst |CPU time - part of what all domains got|, in percent of the CPU.
lags, in quanta, behind or ahead: of domains, sampled by the daemon's status every few ms; of an
activity in its domain, the largest of all upcalls and returns.
bound of a lag at each level: a quantum, by how much the longest PDU was longer, and a hand-off.
Rows hold if also 99 % of the samples are near the bound without longer PDUs, and no domain offended.
above: the samples of domains above 1.5 quanta and a hand-off, in percent. A sample may be taken
while the host has the CPU, or before the accounts follow the CPU clocks, every 10 ms. And late
timers make the turns of ordinary programs longer, most of all on a CPU that idles meanwhile.
hand-off, longest (PDU) in us; long: PDUs of more than 150 us; stolen in ms.
";

/// The names of the columns of [`line`].
fn columns() -> String {
    format!(
        "{:<10} {:>6} {:>9} {:>9} {:>9} {:>8} {:>11} | {:>7} {:>7} {:>7} {:>6} {:>8} {:>8} | {:>7} \
         {:>7} {:>5} {:>8}",
        "processes",
        "stolen",
        "quanta",
        "domains %",
        "parts off",
        "hand-off",
        "hand-offs/s",
        "lag p50",
        "p99",
        "max",
        "above",
        "samples",
        "activity",
        "bound",
        "longest",
        "long",
        "offences"
    )
}

/// The lag in quanta.
fn quanta(ns: u64) -> f64 {
    ns as f64 / QUANTUM.as_nanos() as f64
}

/// What must hold of a try, and whether it does.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    parts: bool,
    lags: bool,
}

impl Verdict {
    fn of(row: &Row) -> Self {
        let worst_ns = row.lags_ns.last().copied().unwrap_or_default();
        let worst_ns = worst_ns.max(row.activity_lag_ns_max());
        let usual_ns = percentile(&mut row.lags_ns.clone(), 99.0);
        let is_bounded = usual_ns <= near_ns(row) && worst_ns <= row.bound_ns();
        Verdict {
            parts: row.worst_deviation() <= DEVIATION_MAX
                && row.worst_part_deviation() <= PART_DEVIATION_MAX
                && row.offences.is_empty(),
            lags: !row.lags_ns.is_empty() && is_bounded,
        }
    }

    fn holds(self) -> bool {
        self.parts && self.lags
    }

    fn words(self) -> String {
        let word = |holds| if holds { "holds" } else { "does not hold" };
        format!("parts: {}; lags: {}", word(self.parts), word(self.lags))
    }
}

fn line(tried: &Try<Row>) -> String {
    let row = &tried.result;
    let sum = |of: fn(&domain::Ended) -> u64| -> u64 {
        row.domains.iter().map(|got| of(&got.ended)).sum()
    };
    let seconds = row.elapsed.as_nanos() as f64 / 1e9;
    let domains = row.cpu_ns() as f64 / seconds / 1e7;
    let lag = |percent| quanta(percentile(&mut row.lags_ns.clone(), percent));
    let above = row.lags_ns.iter().filter(|&&ns| ns > near_ns(row)).count();
    let above = above as f64 * 100.0 / row.lags_ns.len().max(1) as f64;
    format!(
        "{:>6} {:>9} {domains:>9.2} {:>9.3} {:>8.2} {:>11.0} | {:>7.3} {:>7.3} {:>7.3} {above:>6.2} \
         {:>8} {:>8.3} | {:>7.3} {:>7.1} {:>5} {:>8}  {}",
        tried.marked(),
        sum(|of| of.quanta),
        row.worst_deviation(),
        row.hand_off.as_nanos() as f64 / 1e3,
        sum(|of| of.turns) as f64 / seconds,
        lag(50.0),
        lag(99.0),
        lag(100.0),
        row.lags_ns.len(),
        quanta(row.activity_lag_ns_max()),
        quanta(row.bound_ns()),
        row.longest_ns() as f64 / 1e3,
        sum(|of| of.long),
        row.offences.len(),
        Verdict::of(row).words()
    )
}

/// 1.5 quanta and a hand-off: a PDU takes somewhat longer than a quantum.
fn near_ns(row: &Row) -> u64 {
    (QUANTUM + QUANTUM / 2 + row.hand_off).as_nanos()
}

/// The part of each domain, and what it got.
fn print_domains(row: &Row) {
    let all_ns = row.cpu_ns().max(1) as f64;
    println!("  domain claims                expected %     got %    off by  lag of activity");
    for (place, got) in row.domains.iter().enumerate() {
        println!(
            "  d{place:<5} {:<20} {:>11.4} {:>9.4} {:>9.4} {:>16.3}",
            workload::text(&got.claims),
            got.part * 100.0,
            got.cpu_ns as f64 * 100.0 / all_ns,
            row.deviation(got),
            quanta(got.ended.lag_ns_max),
        );
    }
    row.offences.iter().for_each(|offence| println!("  {offence}"));
}

/// What the tries say together.
#[derive(Default)]
struct Total {
    quanta: u64,
    tries: usize,
    held: usize,
    /// The marked tries that do not hold.
    broken: Vec<String>,
    not_judged: Vec<String>,
}

impl Total {
    fn add(&mut self, name: &str, tries: &[Try<Row>]) {
        for tried in tries {
            let verdict = Verdict::of(&tried.result);
            let ended = tried.result.domains.iter().map(|got| got.ended);
            self.quanta += ended.map(|of| of.quanta).sum::<u64>();
            self.tries += 1;
            self.held += usize::from(verdict.holds());
            if tried.judged && !verdict.holds() {
                self.broken.push(format!("{name} ({})", verdict.words()));
            }
        }
        if !tries.iter().any(|tried| tried.judged) {
            self.not_judged.push(format!("{name} ({})", why_none_is_judged(tries)));
        }
    }

    fn text(&self) -> String {
        let Total { quanta, tries, held, broken, not_judged } = self;
        let mut lines = vec![format!(
            "{quanta} quanta in {tries} tries; parts and lags hold in {held} of all tries"
        )];
        if broken.is_empty() {
            lines.push("holds in each marked try".to_owned());
        } else {
            lines.push(format!("DOES NOT HOLD: {}", broken.join(", ")));
        }
        if !not_judged.is_empty() {
            lines.push(format!("SKIPPED: {}", not_judged.join(", ")));
        }
        lines.join("\n")
    }
}
