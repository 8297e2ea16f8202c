//! What a run measures, from each activity's progress to the whole run.
//!
//! `run` and its processes fill these types, `live` and `outcome` read them.

use serde::{Deserialize, Serialize};
use upcall::Mode;
use upcall::time::Span;
use upcall::udp::StreamCounters;

use crate::output::{self, Percentiles, Switches, WorkCounts};

/// How one run is to be done.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    pub mode: Mode,
    pub duration: Span,
    pub soft: bool,
}

/// An activity while it runs.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Progress {
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

/// What one process did of a plan.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ActivityResults {
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

/// Everything that was measured in one run.
#[derive(Debug, Default)]
pub struct Measured {
    /// All activities of the plan, in its order.
    pub part: ActivityResults,
    /// With the position of the stream's activity.
    pub senders: Vec<(usize, upcall::load::SenderCounts)>,
    pub background: Vec<output::Background>,
    pub duration: Span,
    pub interrupted: bool,
    pub notices: Vec<String>,
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
