//! What `upcall run` and the process of a domain say to each other: a line of JSON a
//! message, over the child's standard input and output.
//!
//! ```text
//!   parent                                child
//!   Setup        ------------------->
//!                <-------------------     Ready: its sockets are bound
//!   Start        ------------------->
//!                <-------------------     Started: attached to the daemon, if there is one
//!   Create       ------------------->                               for each of its activities
//!                <-------------------     Created, or Refused
//!   Elsewhere    ------------------->                               for each of the others, amid them
//!   Run          ------------------->
//!                <-------------------     Running, then State ten times a second
//!   Stop         ------------------->
//!   Hurry        ------------------->                               after Ctrl-C
//!                <-------------------     Done
//! ```
//!
//! In place of any answer the child may say that it Failed. It ends when its input
//! does. Both ends are one program, so nothing here is versioned.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Missing, Part, Row};
use crate::csv::Line;

/// From the parent.
#[derive(Debug, Deserialize, Serialize)]
pub enum ToDomain {
    Setup(Setup),
    Start {
        /// None where the kernel decides.
        daemon: Option<PathBuf>,
    },
    /// Position among the activities of the plan.
    Create {
        activity: usize,
    },
    /// Another process creates it.
    Elsewhere {
        activity: usize,
    },
    /// When the first period begins, on the monotonic clock.
    Run {
        at_ns: u64,
    },
    /// What has arrived may be processed for so long.
    Stop {
        drain_ns: u64,
    },
    /// No longer.
    Hurry,
}

/// All that makes the child's plan the parent's.
#[derive(Debug, Deserialize, Serialize)]
pub struct Setup {
    /// Name and text of the spec.
    pub name: String,
    pub text: String,
    pub domain: String,
    pub mode: String,
    pub soft: bool,
    /// Activities of the spec that do not run.
    pub left_out: Vec<String>,
    /// Of each activity's PDU, as declared or measured by the parent.
    pub pdu_costs_ns: Vec<u64>,
    /// The longest response of each activity by the parent's analysis.
    pub responses_ns_max: Vec<Option<u64>>,
    /// The platform's numbers, where there is no daemon that has its own.
    pub cpus: Vec<u32>,
    pub cpu_limit_ppm: u32,
    pub switch_cost_ns: u64,
    pub wakeup_latency_ns: u64,
    /// Whether jobs are to be told of one by one.
    pub log: bool,
    /// If there is to be a trace: which process in it this one is.
    pub traced: Option<u16>,
}

/// From a domain's process.
#[derive(Debug, Deserialize, Serialize)]
pub enum FromDomain {
    Ready {
        notices: Vec<String>,
    },
    Started {
        /// The daemon's, if there is one.
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
        notices: Vec<String>,
        missing: Missing,
    },
    State {
        rows: Vec<Row>,
        /// Jobs that ended since the last one, with the positions of their activities.
        jobs: Vec<(usize, Line)>,
        /// What the daemon's watchdog did about it since, a line each.
        offences: Vec<String>,
        /// What the trace has since, in whole packets.
        trace: Vec<u8>,
    },
    Done(Box<Part>),
    Failed {
        message: String,
    },
}
