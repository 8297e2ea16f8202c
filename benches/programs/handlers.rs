//! A process with handlers of 20 % of the measured CPU, beside the programs.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use upcall::activity::ActivityParams;
use upcall::time::{Instant, Span};
use upcall::{Attach, Config, Runtime, clock};

/// The environment variable that gives a process started by this one its role: the socket.
pub(crate) const ROLE: &str = "UPCALL_BENCH_ROLE";

/// A cost of 1 ms in each 5 ms.
pub(crate) const UTILIZATION: f64 = 0.2;
const PERIOD: Span = Span::from_millis(5);
const COST: Span = Span::from_millis(1);
/// Misses that are printed at most.
const MISSES_MAX: usize = 8;

/// What the handlers did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) jobs: u64,
    pub(crate) missed: u64,
    /// The first misses, in words.
    pub(crate) misses: Vec<String>,
}

/// The process. It ends when this is dropped.
pub(crate) struct Handlers {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Handlers {
    /// Starts the process. Blocks until its handlers are delivered.
    ///
    /// # Errors
    /// Why they are not, in one line.
    pub(crate) fn start(socket: &Path) -> Result<Handlers, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        let command = command.env(ROLE, socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("the handlers: {error}"))?;
        let output = child.stdout.take().ok_or("the handlers have no output")?;
        let mut handlers = Handlers { child, lines: BufReader::new(output).lines() };
        match handlers.line()?.as_str() {
            "ready" => Ok(handlers),
            why => Err(why.to_owned()),
        }
    }

    /// Ends the delivery, and returns what it did.
    ///
    /// # Errors
    /// The process did not answer.
    pub(crate) fn end(mut self) -> Result<Ended, String> {
        let input = self.child.stdin.as_mut().ok_or("the handlers have no input")?;
        writeln!(input, "end").map_err(|error| format!("the handlers: {error}"))?;
        let counts = self.line()?;
        let Some((jobs, missed)) = counts.split_once(' ') else { return Err(counts) };
        let number = |word: &str| word.parse().map_err(|_| format!("the handlers: `{counts}`"));
        let (jobs, missed) = (number(jobs)?, number(missed)?);
        Ok(Ended { jobs, missed, misses: self.lines.by_ref().map_while(Result::ok).collect() })
    }

    fn line(&mut self) -> Result<String, String> {
        let line = self.lines.next().ok_or("the handlers ended")?;
        line.map_err(|error| format!("the handlers: {error}"))
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// The process itself: runs handlers until a line comes, and prints what they did.
pub(crate) fn play(socket: &str) {
    let runtime = match deliver(Path::new(socket)) {
        Ok(runtime) => runtime,
        Err(why) => return println!("{why}"),
    };
    println!("ready");
    let begun = clock::now();
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    let mut misses = Vec::new();
    let report = runtime.stop(|_, job| {
        if job.record.slack_ns() < 0 && misses.len() < MISSES_MAX {
            misses.push(describe(job, begun));
        }
    });
    let counters = report.activities.iter().filter_map(|activity| activity.counters);
    let (jobs, missed) =
        counters.fold((0, 0), |(jobs, missed), of| (jobs + of.jobs, missed + of.misses));
    println!("{jobs} {missed}");
    misses.iter().for_each(|miss| println!("{miss}"));
}

fn describe(job: &upcall::Job, begun: Instant) -> String {
    let ms = |span: Span| span.as_nanos() as f64 / 1e6;
    let record = &job.record;
    format!(
        "a job at {:.3} s began after {:.2} ms, ran for {:.2} ms, and ended after {:.2} ms",
        ms(record.release.since(begun)) / 1e3,
        ms(record.wakeup_latency()),
        ms(record.run),
        ms(record.response())
    )
}

fn deliver(socket: &Path) -> Result<Runtime, String> {
    let daemon = Some(Attach { socket: socket.to_owned(), name: "handlers".to_owned() });
    let started = Runtime::start(Config { daemon, ..Config::default() });
    let mut runtime = started.map_err(|error| format!("no runtime: {error}"))?;
    let work = COST.as_nanos() * 9 / 10;
    let handler = runtime.handler("work", ActivityParams::new(PERIOD, COST), move |batch| {
        while batch.proceed() {
            let until = clock::now() + Span::from_nanos(work);
            while clock::now() < until {}
        }
    });
    let id = handler.map_err(|error| format!("no handler: {error}"))?;
    runtime.run_at(&[id], clock::now()).map_err(|error| error.to_string())?;
    Ok(runtime)
}
