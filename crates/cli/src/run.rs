//! `upcall run`: carries out a plan for real, once, in one mode.
//!
//! | module | what |
//! |---|---|
//! | [`here`] | all of a plan in this process |
//! | [`parent`] | each domain in a process of its own, in mode upcall under a daemon |
//! | [`domain`] | that process |
//! | [`process`], [`message`] | its handle, and what is said |
//! | [`daemon`] | the daemon, if nobody else has started one |
//! | [`activities`] | what a process runs |
//! | [`load`] | senders, and what competes |
//! | [`steal`] | what the host of a virtual machine takes |
//!
//! Sockets are bound before anything is started, so a port in use stops the run
//! while there is nothing to undo. Whatever was started is ended on every path
//! out: processes by the drop of their handles, threads by `Runtime::stop`.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use upcall::time::Span;
use upcall::udp::StreamCounters;
use upcall::{Mode, Notice, NoticeKind, RealTime};
use upcall_cli::standard_error::say;

use crate::csv::JobLog;
use crate::exit::Failure;
use crate::output::{self, Percentiles, Switches, WorkCounts};
use crate::plan::{Plan, Planned};
use crate::spec::Spec;
use crate::trace::TraceFile;

mod activities;
mod daemon;
pub mod domain;
mod here;
mod load;
mod message;
mod parent;
mod process;
mod steal;

/// From the last preparation to the first release.
const LEAD: Span = Span::from_millis(100);
/// Longest drain after the senders stopped.
const DRAIN_MAX: Span = Span::from_secs(2);
/// How often job records are taken in and the live table drawn.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// How one run is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub mode: Mode,
    pub duration: Span,
    pub soft: bool,
}

/// An activity while it runs.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Row {
    /// Position among the plan's activities.
    pub activity: usize,
    pub jobs: u64,
    pub pdus: u64,
    pub misses: u64,
    pub slack_ns_min: Option<i64>,
    /// If it is a stream.
    pub stream: Option<StreamCounts>,
}

/// What a stream counted, as [`StreamCounters`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct StreamCounts {
    pub received: u64,
    pub processed: u64,
    pub processed_bytes: u64,
    pub dropped_queue: u64,
    pub dropped_socket: u64,
    pub unread: u64,
    pub late: u64,
    pub delay_ns_max: u64,
    pub errors: u64,
    /// Of the named processor, at the end.
    pub work: Option<WorkCounts>,
}

impl StreamCounts {
    fn of(counters: &StreamCounters) -> Self {
        StreamCounts {
            received: counters.received.value(),
            processed: counters.processed.value(),
            processed_bytes: counters.processed_bytes.value(),
            dropped_queue: counters.dropped_queue.value(),
            dropped_socket: counters.dropped_socket.value(),
            unread: counters.unread.value(),
            late: counters.late.value(),
            delay_ns_max: counters.delay_ns_max.value(),
            errors: counters.errors.value(),
            work: None,
        }
    }
}

/// What one process did of a plan.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Part {
    /// With their positions among the plan's activities; so the streams.
    pub activities: Vec<(usize, output::Activity)>,
    pub streams: Vec<(usize, StreamCounts)>,
    pub switches: Switches,
    /// `None` where nobody measures it.
    pub wakeup_latency_ns: Option<Percentiles>,
    /// CPUs whose handler did not yield at the end.
    pub stuck: Vec<u32>,
    /// What the daemon's watchdog did about it in the end, a line each.
    pub offences: Vec<String>,
}

/// What the runtimes of a run lack, by their notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Missing {
    pub real_time_class: bool,
    pub memory_lock: bool,
}

impl Missing {
    pub fn of(notices: &[Notice]) -> Self {
        let has = |kind| notices.iter().any(|notice| notice.kind() == kind);
        Missing {
            real_time_class: has(NoticeKind::RealTimeClass),
            memory_lock: has(NoticeKind::MemoryLock),
        }
    }

    /// What one of the two lacks.
    pub fn or(self, other: Missing) -> Self {
        Missing {
            real_time_class: self.real_time_class | other.real_time_class,
            memory_lock: self.memory_lock | other.memory_lock,
        }
    }
}

/// Everything that was measured in one run.
#[derive(Debug, Default)]
pub struct Measured {
    /// All activities of the plan, in its order.
    pub part: Part,
    /// With the position of the stream's activity.
    pub senders: Vec<(usize, upcall::load::SenderCounts)>,
    pub background: Vec<output::Background>,
    pub duration: Span,
    pub interrupted: bool,
    pub notices: Vec<String>,
    pub missing: Missing,
    pub interface_drops: u64,
    /// What the host took of the CPUs meanwhile.
    pub steal_ns: u64,
    /// What went wrong beside the promises.
    pub broken: Vec<String>,
    /// CPUs that were used.
    pub cpus: Vec<u32>,
    /// The plan's worst-case responses hold: nobody else was admitted beside it.
    pub alone: bool,
}

/// The domains of a plan, in the order in which the file names them first.
pub fn domains<'s>(plan: &Plan<'s>) -> Vec<&'s str> {
    let mut domains = Vec::new();
    for domain in plan.activities.iter().map(Planned::domain) {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    domains
}

/// Whether each domain gets a process of its own. Where the kernel decides, ranks need
/// not compare.
pub fn is_across_processes(plan: &Plan<'_>, mode: Mode) -> bool {
    domains(plan).len() > 1 && (mode != Mode::Upcall || plan.discipline.compares_across_domains())
}

/// Runs `plan` and says how it went. `started` is called when all is set up and
/// nothing released yet.
///
/// # Errors
/// Something could not be set up; nothing is left running.
pub fn run(
    spec: &Spec,
    plan: &Plan<'_>,
    order: Order,
    (log, trace): (&mut Option<JobLog>, &mut Option<TraceFile>),
    interrupted: &AtomicBool,
    started: impl FnOnce() -> Result<(), Failure>,
) -> Result<output::Run, Failure> {
    if is_across_processes(plan, order.mode) {
        parent::run(spec, plan, order, (log, trace), interrupted, started)
    } else {
        here::run(spec, plan, order, (log, trace), interrupted, started)
    }
}

/// Tells on standard error, before work begins, by which right handlers have the real-time
/// class, and what was not granted.
fn say_class(mode: Mode, class: Option<RealTime>, notices: &[String]) {
    match class {
        // Each thread has a priority of its own.
        Some(RealTime { right, band, .. }) if mode == Mode::Fifo => {
            let highest = band.handlers();
            say(format_args!(
                "upcall: real-time class, threads at rate-monotonic priorities from {highest} \
                 down, by {right}"
            ));
        }
        Some(class) => say(format_args!("upcall: {class}")),
        None => {}
    }
    for notice in with_one_remedy(notices) {
        say(format_args!("upcall: {notice}"));
    }
}

/// The notices for a person: a remedy that stands in an earlier line is not told again.
fn with_one_remedy(notices: &[String]) -> Vec<String> {
    let short = |(at, notice): (usize, &String)| {
        let is_told = |&(behind, _): &(usize, &str)| {
            let remedy = &notice[behind..];
            remedy.contains("grant it with")
                && notices[..at].iter().any(|earlier| earlier.ends_with(remedy))
        };
        match notice.match_indices("; ").find(is_told) {
            Some((behind, _)) => format!("{}; granted as told above", &notice[..behind]),
            None => notice.clone(),
        }
    };
    notices.iter().enumerate().map(short).collect()
}

/// How long what has arrived may be processed after the senders stopped: the longest
/// delay that was promised; in every mode alike.
fn drain_time(plan: &Plan<'_>) -> Span {
    let delays = plan.activities.iter().filter_map(|planned| Some(planned.mapping?.delay_max));
    delays.max().unwrap_or_default().min(DRAIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::with_one_remedy;

    #[test]
    fn a_remedy_is_told_once() {
        let remedy = "; setcap cannot grant it (nosuid); grant it with the lines `a` and `b`";
        let told = |heads: &[&str]| heads.iter().map(|head| format!("{head}{remedy}")).collect();
        let both: Vec<String> = told(&["no right to the class", "memory is not locked"]);
        let said = with_one_remedy(&both);
        assert_eq!(said, [&both[0], "memory is not locked; granted as told above"]);
        // Each alone says how to grant it, and other remedies are no repetition.
        assert_eq!(with_one_remedy(&both[1..]), both[1..]);
        let others = ["video: a small buffer; raise it", "audio: a small buffer; raise it"];
        assert_eq!(with_one_remedy(&others.map(str::to_owned)), others);
    }
}
