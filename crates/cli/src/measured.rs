//! What a run measures, from the progress of one activity to the whole run.
//!
//! `run` and its processes fill these types; `live` and `outcome` read them.

use serde::{Deserialize, Serialize};
use upcall::time::Span;
use upcall::udp::StreamCounters;
use upcall::{Measure, Mode, Notice, NoticeKind};

use crate::output::{self, Offence, Percentiles, Switches, WorkCounts};

/// How one run is done.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    pub mode: Mode,
    pub duration: Span,
    pub soft: bool,
}

/// The progress of a running activity.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Progress {
    /// Position among the plan's activities.
    pub activity: usize,
    pub jobs: u64,
    pub pdus: u64,
    pub misses: u64,
    pub slack_ns_min: Option<i64>,
    /// The lag at its last upcall or return; `None` if the policy has no lag.
    pub lag_ns: Option<i64>,
    /// The stream's counts, if the activity is a stream.
    pub stream: Option<StreamCounts>,
}

/// The counts of a stream, as in [`StreamCounters`].
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
    /// The counts of the stream's named processor, at the end.
    pub work: Option<WorkCounts>,
}

impl StreamCounts {
    pub fn of(counters: &StreamCounters) -> Self {
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

/// The results of the activities of one process.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ActivityResults {
    /// Each with its position among the plan's activities; the same holds for `streams`.
    pub activities: Vec<(usize, output::Activity)>,
    pub streams: Vec<(usize, StreamCounts)>,
    pub switches: Switches,
    /// `None` where no thread measures it.
    pub wakeup_latency_ns: Option<Percentiles>,
    /// CPUs whose handler did not yield at the end.
    pub stuck: Vec<u32>,
    /// What the watchdog did to the process, one line each: since the last report of the process,
    /// or in the results of a whole run in all.
    pub offences: Vec<Offence>,
}

impl From<&upcall::Offence> for Offence {
    fn from(offence: &upcall::Offence) -> Self {
        Offence {
            cpu: offence.cpu,
            domain: None,
            lost_class: offence.measure == Measure::Demoted,
            line: offence.to_string(),
        }
    }
}

/// What the runtimes of a run lack, by their notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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

    /// What at least one of the two lacks.
    pub fn or(self, other: Missing) -> Self {
        Missing {
            real_time_class: self.real_time_class | other.real_time_class,
            memory_lock: self.memory_lock | other.memory_lock,
        }
    }
}

/// Everything that one run measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// The results of all activities, in the plan's order.
    pub part: ActivityResults,
    /// Each with the position of its stream's activity.
    pub senders: Vec<(usize, upcall::load::SenderCounts)>,
    pub background: Vec<output::Background>,
    pub duration: Span,
    pub interrupted: bool,
    pub notices: Vec<String>,
    pub missing: Missing,
    pub interface_drops: u64,
    /// CPU time that the host took from the CPUs during the run.
    pub steal_ns: u64,
    /// Failures other than broken promises.
    pub broken: Vec<String>,
    /// The CPUs that the run used.
    pub cpus: Vec<u32>,
    /// Whether the plan's worst-case responses hold: no other program had a reservation.
    pub alone: bool,
}
