//! What a domain has used of a CPU against what was reserved for it there.
//!
//! Kept by the watchdog, from the kernel's count of the thread's CPU time, less what the
//! host took of it ([`super::meter`]).

use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};

use super::meter::{Elapsed, Meter};
use crate::group::Limits;

/// More than so much beyond what is too much is not remembered: a domain that has come to
/// its senses is not shut out for long.
const OWED_BEYOND_NS: u64 = 100_000_000;
/// For how long a domain that is kept waiting is given credit.
const CREDIT_OVER: Span = Span::from_secs(1);
/// What a domain may use beyond what is reserved, in millionths of the CPU: hand-offs,
/// waking, the runtime's own work.
const SHARE_GRACE_PPM: u64 = 50_000;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Account {
    meter: Meter,
    /// CPU time that its thread has used from the first look to this.
    pub(super) cpu_ns: u64,
    /// Since the look before.
    pub(super) used_ns: u64,
    /// The kernel counted something since the look before, be it the thread's own or not.
    pub(super) has_run: bool,
    /// When CPU time was looked at last.
    sampled_at: Option<Instant>,
    /// Used beyond what is reserved, and not made up for since. Below 0: what it may
    /// catch up with, for it was kept waiting.
    pub(super) owed_ns: i64,
}

/// One look of the watchdog at one domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Instant,
    /// CPU time of the thread in all, as the kernel counts it.
    pub(super) count_ns: u64,
    /// Who wants the CPU meanwhile is given credit.
    pub(super) wants_cpu: bool,
    /// So long at least the machine stood still since the look before.
    pub(super) stalled: Span,
    pub(super) kernel_tick: Span,
}

impl Account {
    /// Enters what was used up to now.
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
        // Who wants nothing saves nothing up.
        let least = if wants_cpu { -due(CREDIT_OVER) } else { 0 };
        // Above what is too much, else nobody with long jobs could ever owe too much.
        let most = owed_ns_max(limits, grace).saturating_add(OWED_BEYOND_NS);
        self.owed_ns = owed.clamp(least, signed(most));
    }

    /// What it owes, if that is too much and something was promised to it.
    pub(super) fn overuse_ns(&self, limits: &Limits, grace: Span) -> Option<u64> {
        let owed_ns = u64::try_from(self.owed_ns).unwrap_or_default();
        let is_too_much = owed_ns > owed_ns_max(limits, grace);
        (is_too_much && !limits.unscreened.load(Relaxed)).then_some(owed_ns)
    }
}

/// What a domain may owe: a job begun before it was looked at first, and one that has come
/// since, are within its rights.
fn owed_ns_max(limits: &Limits, grace: Span) -> u64 {
    let jobs_ns = limits.compute_ns.load(Relaxed).saturating_mul(2);
    jobs_ns.saturating_add(grace.as_nanos())
}

fn signed(span_ns: u64) -> i64 {
    i64::try_from(span_ns).unwrap_or(i64::MAX)
}
