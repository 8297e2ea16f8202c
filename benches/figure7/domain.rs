//! One of the two processes: a domain with half of the handlers.
//!
//! It prints `ready`, reads the time of the first release and that of the end, runs, and prints
//! each record as a line, then its counts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use upcall::activity::ActivityId;
use upcall::record::JobRecord;
use upcall::time::{Instant, Span};
use upcall::work::{Work, WorkKind};
use upcall::{Attach, Config, HandlerId, Runtime, clock};

use crate::set::{Member, members};

/// The environment variable that gives a process started by this one its role.
pub const ROLE: &str = "UPCALL_BENCH_ROLE";
/// The interval between two reads of job records.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The longest period and some time to record the last job.
pub const DRAIN: Span = Span::from_millis(120);

/// A process, as its parent sees it.
pub struct Domain {
    pub process: Child,
    into: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

/// What a process measured.
pub struct Measured {
    /// The ids are places in the whole set.
    pub records: Vec<JobRecord>,
    pub activity_switches: u64,
    pub kernel_switches: u64,
    pub lost: u64,
    pub notices: Vec<String>,
}

impl Domain {
    /// Starts the process with this name. Blocks until it has its handlers.
    ///
    /// # Errors
    /// It cannot be started, or it ended before it was ready.
    pub fn start(
        name: &str,
        socket: &Path,
        utilization_percent: f64,
        unscreened: bool,
    ) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let role = format!("{name}|{}|{utilization_percent}|{unscreened}", socket.display());
        let mut process = Command::new(program)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (Some(into), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a process without pipes".to_owned());
        };
        let mut domain = Domain { process, into, lines: BufReader::new(output).lines() };
        match domain.line()?.as_str() {
            "ready" => Ok(domain),
            other => Err(format!("process {name}: {other}")),
        }
    }

    /// Tells the process when its handlers are released first, and when it ends.
    ///
    /// # Errors
    /// It has ended.
    pub fn begin(&mut self, start: Instant, end: Instant) -> Result<(), String> {
        let line = format!("{} {}\n", start.as_nanos(), end.as_nanos());
        self.into.write_all(line.as_bytes()).map_err(|error| error.to_string())
    }

    /// What it measured. `first` is the place of its first handler in the set. Blocks until its
    /// end.
    ///
    /// # Errors
    /// It ended early, or printed something else.
    pub fn finish(mut self, first: u32) -> Result<Measured, String> {
        let (mut records, mut notices) = (Vec::new(), Vec::new());
        loop {
            let line = self.line()?;
            if let Some(notice) = line.strip_prefix("notice ") {
                notices.push(notice.to_owned());
                continue;
            }
            let numbers: Option<Vec<u64>> =
                line.split(' ').skip(1).map(|word| word.parse().ok()).collect();
            match (line.split(' ').next(), numbers.as_deref()) {
                (Some("job"), Some(numbers)) => {
                    let record = record_of(numbers, first).ok_or("a record of other length")?;
                    records.push(record);
                }
                (Some("end"), Some(&[activity_switches, kernel_switches, lost])) => {
                    let _ = self.process.wait();
                    return Ok(Measured {
                        records,
                        activity_switches,
                        kernel_switches,
                        lost,
                        notices,
                    });
                }
                _ => return Err(format!("a process printed `{line}`")),
            }
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let line = self.lines.next().ok_or("a process ended early")?;
        line.map_err(|error| error.to_string())
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // No effect if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process itself.
///
/// # Panics
/// If it is not attached, or a handler gets no place.
pub fn run(name: &str, socket: &Path, utilization_percent: f64, unscreened: bool) {
    let daemon = Some(Attach { socket: socket.to_owned(), name: name.to_owned() });
    let mut runtime =
        Runtime::start(Config { unscreened, daemon, ..Config::default() }).expect("attached");
    let ids: Vec<HandlerId> = members(utilization_percent)
        .filter(|member| member.name.starts_with(name))
        .map(|member| create(&mut runtime, &member))
        .collect();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent lives");
    let times: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[start, end] = times.as_slice() else { panic!("expected two times, found `{line}`") };
    let (start, end) = (Instant::from_nanos(start), Instant::from_nanos(end) + DRAIN);
    runtime.run_at(&ids, start).expect("the executor runs");
    let mut records = Vec::with_capacity(16 * 1024);
    let mut take = |_: HandlerId, job: &upcall::Job| records.push(job.record);
    while clock::now() < end {
        let left: Duration = end.since(clock::now()).into();
        std::thread::sleep(left.min(POLL_INTERVAL));
        runtime.poll(&mut take);
    }
    let notices: Vec<String> = runtime.notices().iter().map(ToString::to_string).collect();
    let report = runtime.stop(&mut take);
    notices.iter().for_each(|notice| println!("notice {notice}"));
    records.iter().for_each(|record| println!("job {}", line_of(record)));
    let (activities, kernel) = (report.activity_switches, report.kernel_switches);
    println!("end {activities} {kernel} {}", report.jobs_lost);
}

/// Creates a handler that burns its declared cost.
fn create(runtime: &mut Runtime, member: &Member) -> HandlerId {
    let mut work = Work::new(WorkKind::Spin, 1, member.params.pdu_cost, upcall::thread_cpu_ns);
    let created = runtime.handler(&member.name, member.params, move |batch| {
        while batch.proceed() {
            let _ = work.take(&[]);
            // Spinning cannot fail after it took a PDU.
            let _ = work.process();
        }
    });
    created.expect("a place for the handler")
}

fn line_of(record: &JobRecord) -> String {
    let at = [record.release, record.deadline, record.start, record.end].map(Instant::as_nanos);
    let numbers = [
        u64::from(record.id.0),
        record.job,
        at[0],
        at[1],
        at[2],
        at[3],
        record.run.as_nanos(),
        u64::from(record.pdus),
        u64::from(record.preemptions),
        u64::from(record.completed),
    ];
    numbers.map(|number| number.to_string()).join(" ")
}

/// The record in the numbers of [`line_of`].
fn record_of(numbers: &[u64], first: u32) -> Option<JobRecord> {
    let &[id, job, release, deadline, start, end, run, pdus, preemptions, completed] = numbers
    else {
        return None;
    };
    Some(JobRecord {
        id: ActivityId(first + u32::try_from(id).ok()?),
        job,
        release: Instant::from_nanos(release),
        deadline: Instant::from_nanos(deadline),
        start: Instant::from_nanos(start),
        end: Instant::from_nanos(end),
        run: Span::from_nanos(run),
        pdus: u32::try_from(pdus).ok()?,
        preemptions: u32::try_from(preemptions).ok()?,
        completed: completed == 1,
    })
}
