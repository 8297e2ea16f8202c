//! The CPU time that a domain has used on a CPU, against its reservation there.
//!
//! The watchdog computes it from the kernel's count of the thread's CPU time, minus the time that
//! the host took ([`super::meter`]).

use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};

use super::meter::{Elapsed, Meter};
use crate::enforcement::SHARE_GRACE_PPM;
use crate::group::Limits;

/// The largest debt beyond the limit that the account keeps. So a domain that keeps its limits
/// again is not excluded for long.
pub(super) const OWED_BEYOND_NS: u64 = 100_000_000;
/// The time for which a domain that waits for the CPU collects credit at most.
const CREDIT_OVER: Span = Span::from_secs(1);

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
    /// that had to wait ([`credit_ns`]).
    pub(super) owed_ns: i64,
    /// As `owed_ns`, but without the grace.
    pub(super) excess_ns: i64,
    /// As `excess_ns`, but only what was used while a domain of another user waited. With the grace
    /// if the domain is alone in its group.
    pub(super) contested_ns: i64,
    /// One job of each activity at the previous sample.
    jobs_ns: u64,
    /// What these three lost of their credit: [`clip`].
    clipped_ns: [i64; 3],
    /// Whether its group owed too much, and it was the domain to pay.
    pays_for_group: bool,
    /// Whether its group used more than admission counts, and it must wait until it has made up for
    /// its part.
    waits_for_group: bool,
}

/// One sample of a domain's CPU time, taken at a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Instant,
    /// The thread's CPU time in all, as the kernel counts it.
    pub(super) count_ns: u64,
    /// How long the domain may have waited for the CPU since the previous sample. `None`: it does
    /// not wait, and loses its credit.
    pub(super) waited: Option<Waited>,
    /// How long the machine stood still since the previous sample, at least.
    pub(super) stalled: Span,
    /// For how long before the sample a domain of another user has waited.
    pub(super) contested: Span,
    /// What it may use beyond its share in such time, in millionths of the CPU.
    pub(super) contested_grace_ppm: u64,
    pub(super) kernel_tick: Span,
}

/// The CPU time that a domain or a group could not use, although it had work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited {
    /// CPU time that the others used.
    pub(super) others_ns: u64,
    /// Time that nobody used: the machine stood still, or the domains have the ordinary class.
    pub(super) lost: Span,
    /// Time that the host took from the CPU, as reported since the previous sample. It may lie
    /// before that sample.
    pub(super) taken: Span,
}

/// The least debt after a sample: the credit of a domain that waits, as a number below 0.
///
/// A domain that waits for others falls behind its reservation, by as much as they use and no more.
/// In a set that keeps its deadlines, one job of each activity waits at most: `jobs_ns`. Work of
/// more jobs is late, and runs at ranks below all that keep their reservations
/// (docs/decisions/0016), so it needs no credit. Otherwise a domain that shows work and does not
/// take its turn, or shows a worse rank than it has, could save credit and then run at its rank for
/// longer than admission counted. Nobody can make the machine stand still, so that time counts in
/// full.
pub(super) fn credit_ns(
    owed_before_ns: i64,
    waited: Option<Waited>,
    (elapsed, ppm): (Span, u64),
    jobs_ns: u64,
) -> i64 {
    let Some(Waited { others_ns, lost, .. }) = waited else { return 0 };
    let saved_ns = owed_before_ns.min(0).saturating_neg();
    let more_ns = due_ns(elapsed, ppm).min(signed(others_ns));
    let saved_ns = saved_ns.max(saved_ns.saturating_add(more_ns).min(signed(jobs_ns)));
    let saved_ns = saved_ns.saturating_add(due_ns(lost.min(elapsed), ppm));
    -saved_ns.min(due_ns(CREDIT_OVER, ppm))
}

/// Keeps a debt within its limits. `clipped_ns` is the credit that a domain lost by that while it
/// waited, because nobody was known to keep it from running. The host's report of the time that it
/// took comes later. Then the domain gets the credit of that time back.
pub(super) fn clip(
    debt_ns: i64,
    (least_ns, most_ns): (i64, i64),
    (waited, ppm): (Option<Waited>, u64),
    clipped_ns: &mut i64,
) -> i64 {
    let within_ns = debt_ns.clamp(least_ns, most_ns);
    let Some(Waited { taken, .. }) = waited else {
        *clipped_ns = 0;
        return within_ns;
    };
    let lost_ns = within_ns.saturating_sub(debt_ns).max(0);
    *clipped_ns = clipped_ns.saturating_add(lost_ns).min(due_ns(CREDIT_OVER, ppm));
    let back_ns = due_ns(taken, ppm).min(*clipped_ns);
    *clipped_ns -= back_ns;
    within_ns.saturating_sub(back_ns)
}

impl Account {
    /// Begins when the thread is attached at `at`. The kernel counted `count_ns` then.
    pub(super) fn begin(&mut self, at: Instant, count_ns: u64, kernel_tick: Span) {
        self.meter.begin(count_ns, kernel_tick);
        self.sampled_at = Some(at);
    }

    /// Adds what was used since the previous sample.
    pub(super) fn add_sample(&mut self, sample: Sample, limits: &Limits, grace: Span) {
        let Sample { now, count_ns, waited, stalled, kernel_tick, .. } = sample;
        let Some(before) = self.sampled_at.replace(now) else {
            self.meter.begin(count_ns, kernel_tick);
            self.has_run = count_ns > 0;
            return;
        };
        let elapsed = Elapsed { time: now.since(before), stalled };
        self.has_run = self.meter.has_run_since(count_ns);
        self.used_ns = self.meter.used_ns(count_ns, elapsed, kernel_tick);
        self.cpu_ns += self.used_ns;
        let share_ppm = limits.share_ppm.load(Relaxed);
        // The cap is above the limit. Otherwise a domain with long jobs could never exceed the
        // limit.
        let most = signed(owed_ns_max(limits, grace).saturating_add(OWED_BEYOND_NS));
        let jobs_ns = limits.compute_ns.load(Relaxed);
        let after = |before_ns: i64, used_ns, ppm, clipped_ns| {
            let least = credit_ns(before_ns, waited, (elapsed.time, ppm), jobs_ns);
            let owed_ns = before_ns.saturating_add(signed(used_ns));
            let owed_ns = owed_ns.saturating_sub(due_ns(elapsed.time, ppm));
            clip(owed_ns, (least, most), (waited, ppm), clipped_ns)
        };
        let [of_owed, of_excess, of_contested] = &mut self.clipped_ns;
        let with_grace_ppm = share_ppm.saturating_add(SHARE_GRACE_PPM);
        self.owed_ns = after(self.owed_ns, self.used_ns, with_grace_ppm, of_owed);
        self.excess_ns = after(self.excess_ns, self.used_ns, share_ppm, of_excess);
        let contested_ns = self.used_ns.min(sample.contested.as_nanos());
        let contested_ppm = share_ppm.saturating_add(sample.contested_grace_ppm);
        self.contested_ns = after(self.contested_ns, contested_ns, contested_ppm, of_contested);
        // The credit of an activity ends with it: admission counts saved jobs of present ones.
        let closed_ns =
            signed(std::mem::replace(&mut self.jobs_ns, jobs_ns).saturating_sub(jobs_ns));
        let without_closed_ns = self.contested_ns.saturating_add(closed_ns).min(0);
        self.contested_ns = self.contested_ns.max(without_closed_ns);
        self.pays_for_group &= self.owed_ns > 0;
        self.waits_for_group &= self.beyond_ns(limits) > 0;
    }

    /// Adds time that the domain took from others without running: they were kept from the CPU
    /// while it waited (`away`).
    pub(super) fn charge(&mut self, span_ns: u64) {
        for owed_ns in [&mut self.owed_ns, &mut self.excess_ns, &mut self.contested_ns] {
            *owed_ns = owed_ns.saturating_add(signed(span_ns));
        }
    }

    /// From now on the domain owes all that it used beyond its reservation, in ns. Returns that.
    pub(super) fn pay_for_group(&mut self) -> i64 {
        let excess_ns = std::mem::take(&mut self.excess_ns);
        self.owed_ns = self.owed_ns.max(excess_ns);
        self.pays_for_group = true;
        excess_ns
    }

    /// The CPU time in ns beyond its reservation and one job of each activity that the domain used
    /// while a domain of another user waited, and that it has not made up for yet. 0 for a domain
    /// without activities.
    pub(super) fn beyond_ns(&self, limits: &Limits) -> u64 {
        let jobs_ns = limits.compute_ns.load(Relaxed);
        let beyond_ns = self.contested_ns.saturating_sub(signed(jobs_ns));
        u64::try_from(beyond_ns).ok().filter(|_| jobs_ns > 0).unwrap_or_default()
    }

    /// The CPU time in ns after which the domain has used one job of each activity beyond its
    /// reservation, if others wait meanwhile.
    pub(super) fn job_left_ns(&self, limits: &Limits) -> u64 {
        let left_ns = signed(limits.compute_ns.load(Relaxed)).saturating_sub(self.contested_ns);
        u64::try_from(left_ns).unwrap_or_default()
    }

    /// From now on the domain takes no turns while it is more than one job beyond its reservation.
    pub(super) fn wait_for_group(&mut self) {
        self.waits_for_group = true;
    }

    /// Whether the domain must not take turns because of its group.
    pub(super) fn waits_for_group(&self) -> bool {
        self.waits_for_group
    }

    /// What the domain owes, if it pays for its group.
    pub(super) fn owed_for_group_ns(&self) -> Option<u64> {
        u64::try_from(self.owed_ns).ok().filter(|_| self.pays_for_group)
    }

    /// Notes that the CPU time is unknown at this tick. The next sample covers the time since the
    /// previous one.
    pub(super) fn skip_sample(&mut self) {
        (self.used_ns, self.has_run) = (0, true);
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
pub(super) fn owed_ns_max(limits: &Limits, grace: Span) -> u64 {
    let jobs_ns = limits.compute_ns.load(Relaxed).saturating_mul(2);
    jobs_ns.saturating_add(grace.as_nanos())
}

/// The CPU time in ns that a share of `ppm` is in `span`.
pub(super) fn due_ns(span: Span, ppm: u64) -> i64 {
    let due = u128::from(span.as_nanos()) * u128::from(ppm) / 1_000_000;
    i64::try_from(due).unwrap_or(i64::MAX)
}

pub(super) fn signed(span_ns: u64) -> i64 {
    i64::try_from(span_ns).unwrap_or(i64::MAX)
}
