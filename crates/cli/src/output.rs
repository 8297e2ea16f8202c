//! The JSON objects of docs/contract.md, field by field.
//!
//! Other programs rely on these names, units and meanings: add fields freely, but never change one.
//! `plan` and `run` fill the objects, `main` prints them. The tables are drawn from the same
//! objects and so always agree with the JSON.

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
    /// The switch cost in force; measured if the spec says "auto".
    pub switch_cost_ns: u64,
    pub wakeup_latency_ns: u64,
}

impl Plan {
    /// Notes that an activity was refused after admission.
    pub fn refuse(&mut self, refusal: &Refusal) {
        self.admitted = false;
        let refused = self.activities.iter_mut().filter(|each| each.name == refusal.name);
        refused.for_each(|each| each.cpu = None);
        self.refusals.push(refusal.clone());
    }
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
    /// Null if the activity was refused.
    pub cpu: Option<u32>,
    pub period_ns: u64,
    pub deadline_ns: u64,
    pub batch: u32,
    pub quantum: u32,
    pub pdu_cost_ns: u64,
    pub compute_ns: u64,
    pub response_ns_max: Option<u64>,
    /// Zero for a task, which has no stream.
    pub buffer_bytes: u64,
    pub bandwidth_bps: u64,
    /// Whether the cost was measured. Not in the contract's list.
    pub cost_measured: bool,
    /// Buffers in PDUs.
    pub buffers: u32,
    /// The delay that the mapping keeps; null for a task.
    pub delay_ns_max: Option<u64>,
    /// The group that the task belongs to; null for a stream, and without groups.
    pub group: Option<String>,
    /// The activity whose CPU the spec asks for; null if it asks for none.
    pub same_cpu_as: Option<String>,
    /// The address at which a stream receives, as in the spec; else null.
    pub receive: Option<String>,
    /// The address to which a stream sends, as in the spec; else null.
    pub send: Option<String>,
    /// What may arrive by `xdp://`; null if there is no limit.
    pub packet_quota: Option<PacketQuota>,
}

/// The limit of the packets of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct PacketQuota {
    /// Time between the eligible times of two packets.
    pub interval_ns: u64,
    /// Packets that may be ahead of their eligible times.
    pub depth: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct Test {
    pub name: &'static str,
    pub cpu: u32,
    pub passed: bool,
    /// Null if the test found no number (a response without bound).
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
    /// `optional` in the spec: a run continues without the activity.
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
    /// The seed of the random numbers, in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether Upcall promised anything. It does in mode upcall with the real-time class and
    /// without `--soft`, and in virtual time if admission accepted the set.
    pub promised: bool,
    /// Whether every promise was kept; the exit status follows it. If nothing was promised: the
    /// result of the same checks.
    pub kept: bool,
    /// Broken promises and failures, one line each.
    pub broken: Vec<String>,
    /// Optional activities that admission refused and that did not run.
    pub refusals: Vec<Refusal>,
    /// Whether Ctrl-C ended the run early.
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
    /// Null if no job has ended.
    pub slack_ns_min: Option<i64>,
    pub preemptions: u64,
    pub pdus: u64,
    pub period_ns: u64,
    pub deadline_ns: u64,
    /// The worst case by analysis, as in `plan`. Null where the analysis does not apply: in the
    /// baseline modes, without the real-time class, and beside other domains of a daemon.
    pub response_ns_max: Option<u64>,
    /// Completed jobs with a longer response; null where the analysis does not apply.
    pub responses_above_max: Option<u64>,
    /// Jobs that were dropped before they began, because they waited too long.
    pub skipped: u64,
    /// Releases at which the previous job was unfinished.
    pub overruns: u64,
    /// Quanta that took longer than declared; in mode upcall only.
    pub quantum_overruns: u64,
    pub pdu_cost_ns: Cost,
    /// Time from release to first upcall.
    pub wakeup_latency_ns: Percentiles,
    pub faulted: bool,
    /// How far service was behind (positive) or ahead of the ideal share at its upcalls and
    /// returns; under `ps`, in mode upcall and in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ns: Option<Range>,
    /// What was promised, and so is judged.
    pub promise: Promise,
    /// The window `x/y`, if windows are promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// Windows with more misses than allowed; under `dwcs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_violations: Option<u64>,
}

/// What admission promises to an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Promise {
    /// Every job ends by its deadline.
    Deadlines,
    /// At most `x` of the `y` periods of each window are missed.
    Windows,
    /// No deadline.
    Nothing,
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
    /// Smoothed mean; null before the first job.
    pub measured: Option<u64>,
    /// The largest mean of any one job.
    pub max: u64,
}

#[derive(Debug, Serialize)]
pub struct Stream {
    pub name: String,
    /// Datagrams sent to the stream if Upcall is the sender; otherwise those that reached the host.
    pub offered: u64,
    pub received: u64,
    pub processed: u64,
    pub dropped: Dropped,
    pub throughput_bps: u64,
    /// "receive" or "send".
    pub direction: &'static str,
    /// Datagrams that had arrived and were not processed when the run ended.
    pub unread: u64,
    /// PDUs processed later than the requested delay; null in virtual time. The same holds for
    /// `delay_ns_max`.
    pub late: Option<u64>,
    pub delay_ns_max: Option<u64>,
    pub errors: u64,
    /// The counts of the named processor; absent for `spin`, which ignores its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkCounts>,
}

/// The fields of `upcall::work::WorkCounters`.
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
    /// Lost before the socket: sent but never received.
    pub interface: u64,
    /// Dropped by the stream itself: malformed, too long, or part of a broken frame.
    pub queue: u64,
    /// Dropped by the kernel because the socket buffer was full.
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
    /// From its start before the first release to its end after the drain.
    pub lifetime_ns: u64,
}

impl Background {
    /// CPU time divided by lifetime; 1 is a whole CPU.
    pub fn share(&self) -> f64 {
        self.cpu_ns as f64 / self.lifetime_ns.max(1) as f64
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Switches {
    /// Switches between activities; 0 in the baseline modes, where only the kernel counts.
    pub activity: u64,
    /// Turns that domains passed on, to another domain or, when idle, to the daemon. 0 if all
    /// activities run in one process.
    pub domain: u64,
    /// Context switches of the scheduling threads, counted by the kernel.
    pub kernel: u64,
}

/// Where the run took place.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Platform {
    Machine(Box<Machine>),
    /// In virtual time, on no machine.
    Virtual {
        simulated: bool,
        /// Domains that were simulated as processes, each with a scheduler of its own on each CPU.
        /// 0: one scheduler on each CPU had all activities.
        domains: usize,
        /// How long one of these domains could go on while better activities of others waited.
        defer_preemption_ns: u64,
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
    /// How late the scheduling threads woke when a release found them asleep. Null where it is not
    /// measured. In the baseline modes a thread that wakes may wait for other threads. Among
    /// domains the daemon's thread wakes.
    pub wakeup_latency_ns: Option<Percentiles>,
    /// CPU time that the host of a virtual machine took from `cpus`, counted by the kernel.
    pub steal_ns: u64,
    pub date: String,
    /// Rights and buffers that were not granted, and what watchdogs did, one line each.
    pub notices: Vec<String>,
    /// Those of the notices that say what watchdogs did.
    #[serde(skip)]
    pub offences: Vec<Offence>,
}

/// What a watchdog did to a process of the run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Offence {
    pub cpu: u32,
    /// `None`: the run has one process.
    pub domain: Option<String>,
    /// Whether the thread is in the ordinary class since then, at least for a while.
    pub lost_class: bool,
    pub line: String,
}

impl Offence {
    /// Whether an activity ran in the ordinary class because of this.
    pub fn lowered(&self, activity: &Activity) -> bool {
        let is_there = self.domain.as_ref().is_none_or(|domain| *domain == activity.domain);
        self.lost_class && self.cpu == activity.cpu && is_there
    }
}

/// Outcome of `upcall sim --replay`.
#[derive(Debug, Serialize)]
pub struct Replay {
    pub mode: &'static str,
    pub policy: &'static str,
    /// The clock of the trace's times: "monotonic" or "virtual".
    pub clock: &'static str,
    pub cpus: Vec<ReplayedCpu>,
    pub inputs: u64,
    pub commands: u64,
    /// How often the core was asked and had no command.
    pub silences: u64,
    /// Records missing in the trace. What follows the first gap was not compared.
    pub lost: u64,
    /// Whether every command is as recorded, and none is missing.
    pub same: bool,
    /// The first different command, on the first CPU that has one.
    pub divergence: Option<Divergence>,
}

#[derive(Debug, Serialize)]
pub struct ReplayedCpu {
    pub cpu: u32,
    /// The domain of this scheduler, if each domain has its own.
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
    /// Index among the scheduler's records, from 0.
    pub record: usize,
    pub at_ns: u64,
    pub text: String,
}

/// Outcome of `upcall sim --vopr`.
#[derive(Debug, Serialize)]
pub struct Vopr {
    pub mode: &'static str,
    /// What passed, one entry a policy; the last one up to the failed seed.
    pub policies: Vec<Checked>,
    /// The first seed that failed.
    pub failed: Option<FailedSeed>,
}

#[derive(Debug, Serialize)]
pub struct Checked {
    pub policy: &'static str,
    pub seeds: u64,
    /// Jobs completed in these seeds.
    pub jobs: u64,
    pub events: u64,
}

#[derive(Debug, Serialize)]
pub struct FailedSeed {
    pub seed: u64,
    pub policy: &'static str,
    /// The checker, the time, and what failed.
    pub what: String,
}

/// Outcome of `upcall sweep`: sums over all sets of each point.
#[derive(Debug, Serialize)]
pub struct Sweep {
    pub mode: &'static str,
    /// Fingerprint of the sweep; the first column of the rows.
    pub sweep: String,
    pub sets: u64,
    /// How many sets are in the file; fewer than `sets` after an interruption.
    pub done: u64,
    /// How many sets were in the file at the start.
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
    /// Sets whose simulation missed a deadline, admitted or not.
    pub with_misses: u64,
    pub admitted_with_misses: u64,
    pub jobs: u64,
    pub switches: u64,
    /// CPU time used out of `duration_ns`, hand-offs included.
    pub busy_ns: u64,
    pub duration_ns: u64,
}
