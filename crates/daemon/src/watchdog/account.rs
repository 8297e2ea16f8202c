//! The CPU time that a domain has used on a CPU, against its reservation there.
//!
//! The watchdog computes it from the kernel's count of the thread's CPU time, minus the time that
//! the host took ([`super::meter`]).

use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};

use super::meter::{Elapsed, Meter};
use crate::group::Limits;

/// The largest debt beyond the limit that the account keeps. So a domain that keeps its limits
/// again is not excluded for long.
const OWED_BEYOND_NS: u64 = 100_000_000;
/// The time for which a domain that waits for the CPU collects credit.
const CREDIT_OVER: Span = Span::from_secs(1);
/// The CPU time that a domain may use beyond its reservation, in millionths of the CPU. It covers
/// hand-offs, wake-ups and the runtime's own work.
const SHARE_GRACE_PPM: u64 = 50_000;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Account {
    meter: Meter,
    /// CPU time that the thread has used from the first sample to this one.
    pub(super) cpu_ns: u64,
    /// CPU time used since the previous sample.
    pub(super) used_ns: u64,
    /// Whether the kernel's count has grown since the previous sample, even by time that the host
    /// took.
    pub(super) has_run: bool,
    /// The time of the previous sample.
    sampled_at: Option<Instant>,
    /// CPU time used beyond the reservation and not made up for yet. Negative: credit of a domain
    /// that had to wait.
    pub(super) owed_ns: i64,
}

/// One sample of a domain's CPU time, taken at a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Instant,
    /// The thread's CPU time in all, as the kernel counts it.
    pub(super) count_ns: u64,
    /// Whether the domain wants the CPU. Otherwise it collects no credit.
    pub(super) wants_cpu: bool,
    /// How long the machine stood still since the previous sample, at least.
    pub(super) stalled: Span,
    pub(super) kernel_tick: Span,
}

impl Account {
    /// Adds what was used since the previous sample.
    pub(super) fn add_sample(&mut self, sample: Sample, limits: &Limits, grace: Span) {
        let Sample { now, count_ns, wants_cpu, stalled, kernel_tick } = sample;
        let Some(before) = self.sampled_at.replace(now) else {
            self.meter.begin(count_ns, kernel_tick);
            self.has_run = count_ns > 0;
            return;
        };
        let elapsed = Elapsed { time: now.since(before), stalled };
        self.has_run = self.meter.has_run_since(count_ns);
        self.used_ns = self.meter.used_ns(count_ns, elapsed, kernel_tick);
        self.cpu_ns += self.used_ns;
        let ppm = limits.share_ppm.load(Relaxed).saturating_add(SHARE_GRACE_PPM);
        let due = |span: Span| {
            let due = u128::from(span.as_nanos()) * u128::from(ppm) / 1_000_000;
            i64::try_from(due).unwrap_or(i64::MAX)
        };
        let owed = self.owed_ns.saturating_add(signed(self.used_ns));
        let owed = owed.saturating_sub(due(now.since(before)));
        // A domain without work collects no credit.
        let least = if wants_cpu { -due(CREDIT_OVER) } else { 0 };
        // The cap is above the limit. Otherwise a domain with long jobs could never exceed the
        // limit.
        let most = owed_ns_max(limits, grace).saturating_add(OWED_BEYOND_NS);
        self.owed_ns = owed.clamp(least, signed(most));
    }

    /// The time that the domain owes, if that is above the limit. Activities that admission refused
    /// count like all others: the domain reserved their time, too.
    pub(super) fn overuse_ns(&self, limits: &Limits, grace: Span) -> Option<u64> {
        let owed_ns = u64::try_from(self.owed_ns).unwrap_or_default();
        (owed_ns > owed_ns_max(limits, grace)).then_some(owed_ns)
    }
}

/// The limit for a domain's debt. It covers a job that began before the first sample, and one that
/// has come since.
fn owed_ns_max(limits: &Limits, grace: Span) -> u64 {
    let jobs_ns = limits.compute_ns.load(Relaxed).saturating_mul(2);
    jobs_ns.saturating_add(grace.as_nanos())
}

fn signed(span_ns: u64) -> i64 {
    i64::try_from(span_ns).unwrap_or(i64::MAX)
}
