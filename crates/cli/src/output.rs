//! The JSON objects of the contract, field by field.
//!
//! Outside programs rely on these names, units and meanings: add freely, but
//! never change one. Filled by `plan` and `run`, printed by `main`; the tables
//! a person sees are drawn from the same objects, so both tell the same.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Outcome of `upcall plan`.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub admitted: bool,
    pub policy: &'static str,
    pub cpus: Vec<Cpu>,
    pub activities: Vec<PlannedActivity>,
    pub tests: Vec<Test>,
    pub refusals: Vec<Refusal>,
    /// In force, measured if the spec says "auto".
    pub switch_cost_ns: u64,
    pub wakeup_latency_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Cpu {
    pub cpu: u32,
    pub utilization: f64,
    pub limit: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedActivity {
    pub name: String,
    pub domain: String,
    /// Null if it was refused.
    pub cpu: Option<u32>,
    pub period_ns: u64,
    pub deadline_ns: u64,
    pub batch: u32,
    pub quantum: u32,
    pub pdu_cost_ns: u64,
    pub compute_ns: u64,
    pub response_ns_max: Option<u64>,
    /// Zero for a task: it has no stream.
    pub buffer_bytes: u64,
    pub bandwidth_bps: u64,
    /// Not in the contract's list: how the cost came to be.
    pub cost_measured: bool,
    /// Buffers in PDUs.
    pub buffers: u32,
    /// Delay the mapping keeps; null for a task.
    pub delay_ns_max: Option<u64>,
    /// Whose part it shares in; null for a stream, and outside of groups.
    pub group: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Test {
    pub name: &'static str,
    pub cpu: u32,
    pub passed: bool,
    /// Null where the test found no number (a response without bound).
    pub value: Option<f64>,
    pub bound: f64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deciding: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    pub name: String,
    pub reason: String,
    pub hint: Option<String>,
    /// `optional` in the spec: a run goes on without it.
    pub optional: bool,
}

/// Outcome of one run in one mode.
#[derive(Debug, Serialize)]
pub struct Run {
    pub mode: &'static str,
    pub policy: &'static str,
    pub duration_ns: u64,
    pub activities: Vec<Activity>,
    pub streams: Vec<Stream>,
    pub background: Vec<Background>,
    pub switches: Switches,
    pub platform: Platform,
    /// What chance began with, in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether Upcall promised anything: in mode upcall with the real-time class, and in virtual
    /// time; in neither if admission refused the set and `--soft` ran it all the same.
    pub promised: bool,
    /// Whether every promise was kept; what the exit status says. Where nothing was promised,
    /// what the same judgement says.
    pub kept: bool,
    /// What was not kept, one line each.
    pub broken: Vec<String>,
    /// Optional activities that admission refused, and that did not run.
    pub refusals: Vec<Refusal>,
    /// Whether Ctrl-C ended it before its time.
    pub interrupted: bool,
}

/// All modes of `--compare`.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub runs: Vec<Run>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Activity {
    pub name: String,
    pub domain: String,
    pub cpu: u32,
    pub jobs: u64,
    pub completed: u64,
    pub misses: u64,
    pub response_ns: Percentiles,
    /// Null before the first job ended.
    pub slack_ns_min: Option<i64>,
    pub preemptions: u64,
    pub pdus: u64,
    pub period_ns: u64,
    pub deadline_ns: u64,
    /// Analytic worst case, as `plan` has it; null where it does not apply: in the baseline
    /// modes, without the real-time class, and beside other domains of a daemon.
    pub response_ns_max: Option<u64>,
    /// Completed jobs whose response was longer; null where it does not apply.
    pub responses_above_max: Option<u64>,
    /// Releases that found the job before unfinished.
    pub overruns: u64,
    /// Quanta longer than declared; upcall mode only.
    pub quantum_overruns: u64,
    pub pdu_cost_ns: Cost,
    /// From release to first upcall.
    pub wakeup_latency_ns: Percentiles,
    pub faulted: bool,
    /// Service behind (positive) or ahead of the ideal share; `ps` in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ns: Option<Range>,
    /// Windows with more misses than allowed; `dwcs` in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_violations: Option<u64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Range {
    pub min: i64,
    pub max: i64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cost {
    pub declared: u64,
    /// Smoothed; null before the first job.
    pub measured: Option<u64>,
    /// Largest of any job's mean.
    pub max: u64,
}

#[derive(Debug, Serialize)]
pub struct Stream {
    pub name: String,
    /// Datagrams sent to it, where the sender is ours; else those that reached
    /// the host.
    pub offered: u64,
    pub received: u64,
    pub processed: u64,
    pub dropped: Dropped,
    pub throughput_bps: u64,
    /// "receive" or "send".
    pub direction: &'static str,
    /// Arrived but not processed when the run ended.
    pub unread: u64,
    /// PDUs processed later than the delay that was asked for; null in virtual
    /// time, as the next one.
    pub late: Option<u64>,
    pub delay_ns_max: Option<u64>,
    pub errors: u64,
    /// What the named processor saw; absent for `spin`, which looks at nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkCounts>,
}

/// As `upcall::work::WorkCounters`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct WorkCounts {
    pub kind: Cow<'static, str>,
    pub processed: u64,
    pub rejected: u64,
    pub decode_errors: u64,
    pub lost: u64,
    pub reordered: u64,
    pub duplicates: u64,
    pub frames_dropped: u64,
    pub peak: u16,
    pub width: u16,
    pub height: u16,
}

#[derive(Debug, Serialize)]
pub struct Dropped {
    /// Before the socket: sent but never there.
    pub interface: u64,
    /// By the stream itself: malformed, too long, or of a broken frame.
    pub queue: u64,
    /// By the kernel, for a full socket buffer.
    pub socket: u64,
}

impl Dropped {
    pub fn total(&self) -> u64 {
        self.interface + self.queue + self.socket
    }
}

#[derive(Debug, Serialize)]
pub struct Background {
    pub name: String,
    pub cpu_ns: u64,
    /// From its start, before the first release, to its end, after the drain.
    pub lifetime_ns: u64,
}

impl Background {
    /// CPU time by lifetime: 1 is a whole CPU.
    pub fn share(&self) -> f64 {
        self.cpu_ns as f64 / self.lifetime_ns.max(1) as f64
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Switches {
    /// From one activity to another; 0 in the baseline modes, where only the
    /// kernel knows.
    pub activity: u64,
    /// Turns that domains passed on: to another, or with nothing to do to the daemon;
    /// 0 where all run in one process.
    pub domain: u64,
    /// Context switches of the scheduling threads, by the kernel's count.
    pub kernel: u64,
}

/// Where it ran.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Platform {
    Machine(Box<Machine>),
    /// Nowhere: in virtual time.
    Virtual {
        simulated: bool,
    },
}

#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu_model: String,
    pub kernel: String,
    pub cpus_online: u32,
    pub cpus: Vec<u32>,
    pub real_time: bool,
    pub memory_locked: bool,
    pub switch_cost_ns: u64,
    /// How late the scheduling threads woke when a release found them asleep. Null where
    /// nobody measures it: in the baseline modes a thread that wakes may wait for others, and
    /// among domains the daemon's thread wakes.
    pub wakeup_latency_ns: Option<Percentiles>,
    /// CPU time that the host of a virtual machine took from `cpus`, by the kernel's count.
    pub steal_ns: u64,
    pub date: String,
    /// What was not granted, one line each.
    pub notices: Vec<String>,
}

/// Outcome of `upcall sim --replay`.
#[derive(Debug, Serialize)]
pub struct Replay {
    pub mode: &'static str,
    pub policy: &'static str,
    /// Whose nanoseconds the trace has: "monotonic" or "virtual".
    pub clock: &'static str,
    pub cpus: Vec<ReplayedCpu>,
    pub inputs: u64,
    pub commands: u64,
    /// Times the core was asked and had nothing.
    pub silences: u64,
    /// Records that are not in the trace; what is behind the first was not compared.
    pub lost: u64,
    /// Every command is as recorded, and none is missing.
    pub same: bool,
    /// The first that differs, of the first CPU where one does.
    pub divergence: Option<Divergence>,
}

#[derive(Debug, Serialize)]
pub struct ReplayedCpu {
    pub cpu: u32,
    /// Whose scheduler, where each domain has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    pub inputs: u64,
    pub commands: u64,
    pub silences: u64,
    pub lost: u64,
}

#[derive(Debug, Serialize)]
pub struct Divergence {
    pub cpu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Place among the scheduler's records, from 0.
    pub record: usize,
    pub at_ns: u64,
    pub text: String,
}

/// Outcome of `upcall sim --vopr`.
#[derive(Debug, Serialize)]
pub struct Vopr {
    pub mode: &'static str,
    /// What passed, a policy each; the last one up to the seed that failed.
    pub policies: Vec<Checked>,
    /// The first seed that failed.
    pub failed: Option<FailedSeed>,
}

#[derive(Debug, Serialize)]
pub struct Checked {
    pub policy: &'static str,
    pub seeds: u64,
    /// Jobs completed in them.
    pub jobs: u64,
    pub events: u64,
}

#[derive(Debug, Serialize)]
pub struct FailedSeed {
    pub seed: u64,
    pub policy: &'static str,
    /// Checker, moment, and how.
    pub what: String,
}

/// Outcome of `upcall sweep`: sums over all sets of each point.
#[derive(Debug, Serialize)]
pub struct Sweep {
    pub mode: &'static str,
    /// Fingerprint of what was asked for; the first column of the rows.
    pub sweep: String,
    pub sets: u64,
    /// How many of them are in the file; fewer if it was interrupted.
    pub done: u64,
    /// How many were in it at the start.
    pub resumed: u64,
    pub curve: Vec<SweepPoint>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub struct SweepPoint {
    pub policy: String,
    pub utilization: f64,
    pub activities: u64,
    pub quantum: u64,
    pub switch_cost_ns: u64,
    pub sets: u64,
    pub admitted: u64,
    /// Sets with a deadline missed in their simulation, admitted or not.
    pub with_misses: u64,
    pub admitted_with_misses: u64,
    pub jobs: u64,
    pub switches: u64,
    /// CPU time used, hand-offs included, of `duration_ns`.
    pub busy_ns: u64,
    pub duration_ns: u64,
}
