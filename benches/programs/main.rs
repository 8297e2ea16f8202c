//! proportional-share-1998 §5, Table 2, with programs that know nothing of Upcall: three receivers
//! that `upcall exec` starts with their shares, and a program that only computes, on one CPU.
//!
//! | program | messages | computes | share |
//! |---|---|---|---|
//! | audio | 50/s of 100 bytes | 1 ms | 5 % |
//! | video | 90/s of 1,470 bytes | 5 ms | 45 % |
//! | file | 200/s of 1,470 bytes | 1 ms | 20 % |
//!
//! The senders are threads on another CPU: constant, bursty (exponential times between messages),
//! or with a file sender that sends 1,000/s. The rows add a hog or a fork bomb on the CPU, and
//! handlers of 20 % of it, in a process of their own. The kernel's trace begins before them and
//! ends after them. Each row is repeated until the host is calm ([`Calm`]), and all tries are
//! printed. A row holds if all of this is true:
//!
//! - Each receiver processed what it was sent, or as much as its share computes, less 1 %.
//! - No job of a handler missed.
//! - The lag of the programs is 1.5 ms at most in 99 % of the switches (`lag`).
//! - Jobs of the constant senders are done within `cost / f + 2 q / f + B`. Bursts queue, and then
//!   nothing is promised to a single message.
//!
//! Over all judged rows, the greatest lag of a second is at most two quanta in 99 of 100 seconds.
//! Without tracefs there are no lags, and the rows are SKIPPED. A share equal to the demand has no
//! slack: the rows are as hard as the paper's.

#![forbid(unsafe_code)]

mod handlers;
mod lag;
mod row;
mod sender;
mod trace;

use std::process::ExitCode;

use upcall_benches::calm::{Calm, Try, why_none_is_judged};
use upcall_benches::{heading, measured_cpu, percentile, smoke};

use row::{Beside, Outcome, Row, Senders, Trouble};

/// 0.5 % of the measured CPU for the 10 s of a row.
const CALM: Calm = Calm { tries_max: 3, stolen_ms_max: 50, wait_s_max: 10, ..Calm::ONCE };
const LAG_P99_NS_MAX: u64 = 1_500_000;
const QUANTUM_NS: u64 = 1_000_000;
/// One of so many seconds may have a greater lag than two quanta.
const SECONDS_PER_LATE: usize = 100;

fn main() -> ExitCode {
    if let Ok(socket) = std::env::var(handlers::ROLE) {
        handlers::play(&socket);
        return ExitCode::SUCCESS;
    }
    println!("{}", heading("programs"));
    if let Err(why) = row::build_commands() {
        println!("SKIPPED: all rows: {why}");
        return ExitCode::SUCCESS;
    }
    let calm = if smoke() { Calm::ONCE } else { CALM };
    let seconds = if smoke() { 1 } else { 10 };
    println!("CPU {}, {seconds} s a row, a quantum of 1 ms", measured_cpu());
    println!("{}\n\n{HEADING}", calm.describe());
    let mut verdict = Verdict::default();
    for row in rows() {
        let tries = calm.runs(|| row::run(&row, seconds));
        for tried in &tries {
            print_try(&row, tried);
        }
        verdict.add(&row, &tries);
    }
    let holds = verdict.print();
    if holds || smoke() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for handlers in [false, true] {
        for beside in [Beside::Nothing, Beside::Hog, Beside::ForkBomb] {
            for senders in [Senders::Constant, Senders::Bursty, Senders::Misbehaving] {
                rows.push(Row { beside, senders, handlers });
            }
        }
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    rows.retain(|row| wanted.iter().all(|word| row.name().contains(word)));
    if smoke() {
        rows.retain(|row| row.senders == Senders::Constant);
    }
    rows
}

const HEADING: &str = " stolen  beside    senders      handlers  audio of sent  video of sent   file of sent  lag p99 max ms  wake p99 max ms  job/bound audio video file  missed";

fn print_try(row: &Row, tried: &Try<Result<Outcome, Trouble>>) {
    let outcome = match &tried.result {
        Ok(outcome) => outcome,
        Err(Trouble::Missing(why)) => {
            return println!("{:>7} {}  SKIPPED: {why}", tried.marked(), row.name());
        }
        Err(Trouble::Starved(why)) => {
            return println!("{:>7} {}  STARVED: {why}", tried.marked(), row.name());
        }
        Err(Trouble::Handlers(why)) => {
            return println!("{:>7} {}  NO HANDLERS: {why}", tried.marked(), row.name());
        }
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    let (mut samples, mut wakes) = outcome.samples_ns();
    let counts = outcome.receivers.iter().map(|it| format!("{:>6} {:>6}  ", it.processed, it.sent));
    let jobs = outcome.receivers.iter().map(|it| format!(" {:.2}", it.job_of_bound()));
    println!(
        "{:>7} {} {} {:>6.2} {:>7.2}  {:>7.2} {:>7.2}          {}  {} of {}",
        tried.marked(),
        row.name(),
        counts.collect::<String>(),
        ms(percentile(&mut samples, 99.0)),
        ms(percentile(&mut samples, 100.0)),
        ms(percentile(&mut wakes, 99.0)),
        ms(percentile(&mut wakes, 100.0)),
        jobs.collect::<String>(),
        outcome.handled.missed,
        outcome.handled.jobs,
    );
    outcome.handled.misses.iter().for_each(|miss| println!("        {miss}"));
    if percentile(&mut samples, 100.0) > 2 * QUANTUM_NS {
        println!("        ran while a program was ready: {}", outcome.beside());
    }
}

/// What breaks the promise of a row.
fn faults(row: &Row, outcome: &Outcome) -> Vec<String> {
    let mut faults = Vec::new();
    for it in &outcome.receivers {
        let due = it.sent.min(it.affordable) as f64 * 0.99;
        if (it.processed as f64) < due {
            faults.push(format!("{} processed {} of {}", it.name, it.processed, it.sent));
        }
        let judges_jobs = row.senders == Senders::Constant;
        if judges_jobs && it.job_of_bound() > 1.0 {
            faults.push(format!("{}: a job took {:.2} of its bound", it.name, it.job_of_bound()));
        }
    }
    let (mut samples, _) = outcome.samples_ns();
    if percentile(&mut samples, 99.0) > LAG_P99_NS_MAX {
        faults.push("the lag".to_owned());
    }
    let handlers::Ended { jobs, missed, .. } = outcome.handled;
    if row.handlers && jobs == 0 {
        faults.push("no job of the handlers".to_owned());
    }
    if missed > 0 {
        faults.push(format!("{missed} of {jobs} jobs of handlers missed"));
    }
    faults
}

#[derive(Default)]
struct Verdict {
    rows: usize,
    tries: usize,
    broken: Vec<String>,
    skipped: Vec<String>,
    /// The greatest lag of each judged second.
    seconds_ns: Vec<u64>,
}

impl Verdict {
    fn add(&mut self, row: &Row, tries: &[Try<Result<Outcome, Trouble>>]) {
        self.rows += 1;
        self.tries += tries.len();
        let name = row.name().split_whitespace().collect::<Vec<_>>().join(" ");
        match tries.iter().find(|tried| tried.judged).map(|tried| &tried.result) {
            None => self.skipped.push(format!("{name} ({})", why_none_is_judged(tries))),
            Some(Err(Trouble::Missing(why))) => self.skipped.push(format!("{name} ({why})")),
            Some(Err(Trouble::Starved(why) | Trouble::Handlers(why))) => {
                self.broken.push(format!("{name} ({why})"))
            }
            Some(Ok(outcome)) => {
                self.seconds_ns.extend(outcome.of_seconds_ns());
                let faults = faults(row, outcome);
                if !faults.is_empty() {
                    self.broken.push(format!("{name} ({})", faults.join("; ")));
                }
            }
        }
    }

    /// Prints what holds. Returns whether all does.
    fn print(&self) -> bool {
        let (broken, skipped) = (self.broken.len(), self.skipped.len());
        println!(
            "\nheld: {} rows of {}, in {} tries",
            self.rows - broken - skipped,
            self.rows,
            self.tries
        );
        if broken > 0 {
            println!("DOES NOT HOLD: {broken} rows: {}", self.broken.join(", "));
        }
        if skipped > 0 {
            println!("SKIPPED: {skipped} rows: {}", self.skipped.join(", "));
        }
        let late = self.seconds_ns.iter().filter(|&&ns| ns > 2 * QUANTUM_NS).count();
        let is_kept = late * SECONDS_PER_LATE <= self.seconds_ns.len();
        let word = match self.seconds_ns.is_empty() {
            true => "not measured",
            false if is_kept => "holds",
            false => "DOES NOT HOLD",
        };
        let seconds = self.seconds_ns.len();
        println!("{word}: the lag was above two quanta in {late} of {seconds} judged seconds");
        broken == 0 && (is_kept || self.seconds_ns.is_empty())
    }
}
