//! The messages between `upcall run` and the process of a domain: each a line of JSON over the
//! child's standard input and output.
//!
//! ```text
//!   parent                                child
//!   Setup        ------------------->
//!                <-------------------     Ready: its sockets are bound, its flows open
//!   Start        ------------------->
//!                <-------------------     Started: attached to the daemon, if there is one
//!   Create       ------------------->     for each of its activities, in the plan's order
//!                <-------------------     Created, or Refused
//!   ReserveRemote ------------------>     for each activity of another process, in the same order
//!   Run          ------------------->
//!                <-------------------     Running, then State ten times a second
//!   Stop         ------------------->
//!   EndDrain     ------------------->     after Ctrl-C
//!                <-------------------     Done
//! ```
//!
//! The child may answer Failed in place of any reply. It ends when its input ends. Both ends are
//! the same program, so the messages carry no version.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::notices::RunNotice;
use crate::csv::CsvRow;
use crate::measured::{ActivityResults, Missing, Progress};
use crate::output::Offence;

/// From the parent to the child.
#[derive(Debug, Deserialize, Serialize)]
pub enum ParentMessage {
    Setup(Box<Setup>),
    Start {
        /// None in the baseline modes, where the kernel decides.
        daemon: Option<PathBuf>,
    },
    /// Create the activity at this position of the plan.
    Create {
        activity: usize,
    },
    /// Another process creates this activity; reserve its share.
    ReserveRemote {
        activity: usize,
    },
    /// When the first period begins, on the monotonic clock.
    Run {
        at_ns: u64,
    },
    /// How long the child may still process what has arrived.
    Stop {
        drain_ns: u64,
    },
    /// End the drain at once.
    EndDrain,
}

/// All that the child needs to make the same plan as its parent.
#[derive(Debug, Deserialize, Serialize)]
pub struct Setup {
    /// Name and text of the spec.
    pub name: String,
    pub text: String,
    pub domain: String,
    /// The name of the process at the daemon.
    pub daemon_name: String,
    /// The socket of the daemon of the flows, if streams have some.
    pub flows: Option<PathBuf>,
    pub mode: String,
    pub soft: bool,
    /// Activities of the spec that do not run.
    pub left_out: Vec<String>,
    /// The cost of a PDU of each activity, as declared or measured by the parent.
    pub pdu_costs_ns: Vec<u64>,
    /// The longest response of each activity by the parent's analysis.
    pub responses_ns_max: Vec<Option<u64>>,
    /// The platform's numbers, for a run without a daemon. A daemon has its own.
    pub cpus: Vec<u32>,
    pub cpu_limit_ppm: u32,
    pub switch_cost_ns: u64,
    pub wakeup_latency_ns: u64,
    /// Whether the child reports each job.
    pub log: bool,
    /// If a trace is written: this process's number in it.
    pub traced: Option<u16>,
}

/// From the child to the parent.
#[derive(Debug, Deserialize, Serialize)]
pub enum ChildMessage {
    Ready {
        notices: Vec<String>,
    },
    Started {
        /// The daemon's CPUs, if there is a daemon.
        cpus: Vec<u32>,
    },
    Created {
        cpu: u32,
    },
    Refused {
        reason: String,
        hint: String,
    },
    Running {
        notices: Vec<RunNotice>,
        missing: Missing,
    },
    State {
        rows: Vec<Progress>,
        /// Jobs that ended since the last message, with the positions of their activities.
        jobs: Vec<(usize, CsvRow)>,
        /// What the daemon's watchdog did since the last message.
        offences: Vec<Offence>,
        /// The trace since the last message, in whole packets.
        trace: Vec<u8>,
    },
    Done(Box<ActivityResults>),
    Failed {
        message: String,
    },
}
