//! The CPU time that the domains of a group have used together, against their reservations.
//!
//! Each domain has an account of its own, with the grace of [`SHARE_GRACE_PPM`]
//! ([`super::account`]). A user with many domains must not get that grace many times. So the group
//! has one account: the sum of its reservations, and the grace once, in share and in time. If the
//! group owes too much, the domains that are furthest beyond their own reservations pay for it,
//! until the group owes nothing: others go first as soon as one waits. Ticks update the account,
//! and looks do while the group has the CPU and may owe too much.
//!
//! That limit is two jobs of each domain and the grace, which is longer than many deadlines of
//! others. So there is a second limit, without offences. Admission counts for each domain, in a
//! busy period of length t:
//!
//! ```text
//!   sum of ceil(t / T) C  <=  share t + sum of C
//! ```
//!
//! What a domain uses beyond that while a domain of another user waits, it takes from others. The
//! sum of that over the domains of the group is at most [`BEYOND_MAX`], and for a single domain its
//! longest quantum more. Beyond it, each domain that used more than one job of each activity waits
//! until it has made up for the rest. The others of the group go on, each until its own job is
//! used. Without the real-time class there is no such limit: no domain can be preempted without an
//! offence.
//!
//! Only CPU time counts that was used while a domain of another user waited for time that it has
//! reserved: since the release that it had published ahead, at most since the check before.
//! Admission counts this limit against other users, with a saved job of each activity
//! (docs/decisions/0018). A single domain has the grace in share here too, and a group of several
//! has not. A domain without activities on the CPU has no rank, so it takes nothing from others by
//! its rank, and is left out.
//!
//! The executor of an honest domain never meets this limit, by its budgets (docs/decisions/0016):
//!
//! - It uses at most C in each window of an activity. The windows that begin within t are within
//!   `share t + sum of C`.
//! - A window that began before may be used within t as well: its job waited. While others had the
//!   CPU, or the machine stood still, the domain saved credit at its share, so the job is covered.
//!   Other ways to wait move the windows (a block, a stop) or leave its budget unused.
//! - Each activity may end one quantum over budget, and pays for it in the next window. One such
//!   quantum is within the limit.
//! - Work over budget and work ahead of its time have keys below reserved time. The domain passes
//!   the turn before such work when others wait for reserved time. Before that, nothing counts. So
//!   a domain that the host or other programs delayed catches up without this limit.
//!
//! Two things can make an honest domain wait for a moment: a stall that nothing shows, of nearly a
//! whole period, and quanta longer than declared of several activities at once.
//!
//! A domain that did not run for a while may use its job, and then goes on while `share t` grows: a
//! domain of half the CPU for two jobs and some. Between two of these times it rests as long.
//!
//! A domain that is out-prioritised or demoted is left out: it pays for itself before it takes
//! turns again. The group also pays for its KLS thread, as far as that exceeds the grace: domains
//! can make that thread run.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::State;

use super::account::{OWED_BEYOND_NS, Waited, clip, credit_ns, due_ns, signed};
use super::record::Record;
use super::tick::Rules;
use crate::enforcement::{BEYOND_MAX, SHARE_GRACE_PPM};
use crate::group::{DomainGroup, Member, Members};

#[cfg(test)]
mod tests;

/// See the module's head.
pub(super) struct GroupAccount {
    group: Arc<DomainGroup>,
    sampled_at: Option<Instant>,
    /// As [`super::account::Account::owed_ns`], of the whole group.
    owed_ns: i64,
    clipped_ns: i64,
    /// What the group might owe at the previous sample.
    owed_max_ns: u64,
    /// The sum of what its domains used beyond one job each, and the limit. `None`: without a
    /// limit.
    beyond_ns: Option<(u64, u64)>,
    /// The CPU time after which the first of its domains has used its job.
    job_left_ns: u64,
    /// What a domain of it may use beyond its share while a domain of another user waits.
    grace_ppm: u64,
    /// Since when a domain of another user has waited at each check.
    contested_since: Option<Instant>,
    contest_checked_at: Instant,
    /// CPU time of all domains of the CPU at the previous sample.
    cpu_used_ns: u64,
    /// The time that the host had taken from the CPU at the previous sample.
    pub(super) taken: Span,
    /// CPU time of the KLS thread at the previous sample.
    kls_ns: u64,
    /// What it used between the last two samples.
    kls_used_ns: u64,
    /// CPU time of the KLS thread beyond the grace in share, and within the grace in time.
    kls_owed_ns: u64,
    /// How often the KLS thread had been slowed at the previous sample.
    floods: u64,
}

/// One sample of a group, taken after the samples of its members.
pub(super) struct GroupSample<'s> {
    /// The records of all domains of the CPU.
    pub(super) records: &'s mut [Record],
    pub(super) members: &'s Members,
    pub(super) now: Instant,
    pub(super) rules: &'s Rules,
    /// CPU time that all domains of the CPU have used so far.
    pub(super) cpu_used_ns: u64,
    /// As in [`Waited`].
    pub(super) lost: Span,
    pub(super) taken: Span,
}

/// The limits of some domains of a group, and what they used since the previous sample.
#[derive(Default)]
struct Sum {
    used_ns: u64,
    share_ppm: u64,
    /// The sum over the domains of one job of each activity.
    jobs_ns: u64,
}

impl Sum {
    /// Adds a domain of `group`. Under PS each may use all that the domains have together.
    fn add(&mut self, used_ns: u64, member: &Member, group: &DomainGroup) {
        self.used_ns = self.used_ns.saturating_add(used_ns);
        let share_ppm = member.limits.share_ppm.load(Relaxed);
        self.share_ppm = match group.time_quantum {
            Some(_) => self.share_ppm.max(share_ppm),
            None => self.share_ppm.saturating_add(share_ppm),
        };
        self.jobs_ns = self.jobs_ns.saturating_add(jobs_ns(member));
    }

    /// The debt after the span of the sample, and the credit that it lost lately.
    fn debt_ns(
        &self,
        (before_ns, mut clipped_ns): (i64, i64),
        elapsed: Span,
        waited: Option<Waited>,
    ) -> (i64, i64) {
        let ppm = self.share_ppm.saturating_add(SHARE_GRACE_PPM);
        let least = credit_ns(before_ns, waited, (elapsed, ppm), self.jobs_ns);
        let debt_ns = before_ns.saturating_add(signed(self.used_ns));
        let most = self.jobs_ns.saturating_mul(2).saturating_add(2 * OWED_BEYOND_NS);
        let debt_ns = debt_ns.saturating_sub(due_ns(elapsed, ppm));
        let debt_ns = clip(debt_ns, (least, signed(most)), (waited, ppm), &mut clipped_ns);
        (debt_ns, clipped_ns)
    }
}

impl GroupAccount {
    pub(super) fn new(group: Arc<DomainGroup>, taken: Span) -> Self {
        GroupAccount {
            group,
            taken,
            sampled_at: None,
            owed_ns: 0,
            clipped_ns: 0,
            owed_max_ns: 0,
            beyond_ns: None,
            job_left_ns: 0,
            grace_ppm: SHARE_GRACE_PPM,
            contested_since: None,
            // Nobody is believed for the time before.
            contest_checked_at: Instant::FAR,
            cpu_used_ns: 0,
            kls_ns: 0,
            kls_used_ns: 0,
            kls_owed_ns: 0,
            floods: 0,
        }
    }

    pub(super) fn is_of(&self, group: &DomainGroup) -> bool {
        core::ptr::eq(&*self.group, group)
    }

    /// If the KLS thread has been slowed since the last call, the CPU time that it used lately.
    pub(super) fn newly_slowed(&mut self) -> Option<u64> {
        let floods = self.group.pacing.floods();
        (std::mem::replace(&mut self.floods, floods) != floods).then_some(self.kls_used_ns)
    }

    /// When the group exceeds a limit at the earliest, if it runs from the previous sample on.
    pub(super) fn may_exceed_at(&self) -> Option<Instant> {
        let left_ns = signed(self.owed_max_ns).saturating_sub(self.owed_ns).max(0).unsigned_abs();
        let beyond_left =
            |(ns, max_ns): (u64, u64)| max_ns.saturating_sub(ns).saturating_add(self.job_left_ns);
        let beyond_ns = self.beyond_ns.map_or(u64::MAX, beyond_left);
        Some(self.sampled_at? + Span::from_nanos(left_ns.min(beyond_ns)))
    }

    /// Whether its domains used more beyond their jobs than they may.
    pub(super) fn is_beyond(&self) -> bool {
        self.beyond_ns.is_some_and(|(ns, max_ns)| ns > max_ns)
    }

    /// Notes at this check since when a domain of another user has waited for the CPU. That domain
    /// is believed for the time since the check before.
    pub(super) fn note_contest(&mut self, others_since: Option<Instant>, now: Instant) {
        let checked_at = std::mem::replace(&mut self.contest_checked_at, now);
        let begin = |since: Instant| since.max(checked_at).min(now);
        self.contested_since =
            others_since.map(|since| self.contested_since.unwrap_or_else(|| begin(since)));
    }

    /// For how long a domain of another user has waited.
    pub(super) fn contested_for(&self, now: Instant) -> Span {
        self.contested_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// What a domain of it may use beyond its share while a domain of another user waits, in
    /// millionths of the CPU.
    pub(super) fn contested_grace_ppm(&self) -> u64 {
        self.grace_ppm
    }

    /// Whether the group used more than its reservations and the grace.
    pub(super) fn owes(&self) -> bool {
        self.owed_ns > 0
    }

    /// Whether a domain of another user waited at the last check.
    pub(super) fn is_contested(&self) -> bool {
        self.contested_since.is_some()
    }

    /// Adds what the group used since the previous sample. O(records times members).
    pub(super) fn add_sample(&mut self, sample: GroupSample<'_>) {
        let GroupSample { records, members, now, rules, cpu_used_ns, lost, taken } = sample;
        let elapsed = self.sampled_at.replace(now).map_or(Span::ZERO, |before| now.since(before));
        let (mut all, mut domains_ns, mut beyond_ns) = (Sum::default(), 0_u64, 0_u64);
        let (mut wants_cpu, mut job_left_ns) = (false, u64::MAX);
        for record in of_members(records, members) {
            let cpu_ns = record.account.cpu_ns;
            let used_ns = cpu_ns - std::mem::replace(&mut record.charged_ns, cpu_ns);
            domains_ns = domains_ns.saturating_add(used_ns);
            all.used_ns = all.used_ns.saturating_add(std::mem::take(&mut record.kept_ns));
            if !record.counts_for_group(rules) {
                continue;
            }
            all.add(used_ns, &record.member, &self.group);
            wants_cpu |= record.wants_cpu;
            let limits = &record.member.limits;
            beyond_ns = beyond_ns.saturating_add(record.account.beyond_ns(limits));
            if jobs_ns(&record.member) > 0 {
                job_left_ns = job_left_ns.min(record.account.job_left_ns(limits));
            }
        }
        let others_ns = cpu_used_ns - std::mem::replace(&mut self.cpu_used_ns, cpu_used_ns);
        let others_ns = others_ns.saturating_sub(domains_ns);
        let waited = wants_cpu.then_some(Waited { others_ns, lost, taken });
        all.used_ns = all.used_ns.saturating_add(self.kls_beyond_ns(elapsed, rules.grace));
        let before = (self.owed_ns, self.clipped_ns);
        (self.owed_ns, self.clipped_ns) = all.debt_ns(before, elapsed, waited);
        self.owed_max_ns = (2 * all.jobs_ns).saturating_add(rules.grace.as_nanos());
        if self.owed_ns > signed(self.owed_max_ns) {
            pay(&mut self.owed_ns, of_members(records, members), rules);
        }
        let is_limited = rules.band.is_some() && self.is_contested();
        self.beyond_ns = is_limited.then_some((beyond_ns, beyond_ns_max(members)));
        // The maximum: no domain that takes turns has an activity.
        self.job_left_ns = job_left_ns;
        self.grace_ppm = if members.len() == 1 { SHARE_GRACE_PPM } else { 0 };
        if self.is_beyond() {
            for record in of_members(records, members) {
                let is_beyond = record.account.beyond_ns(&record.member.limits) > 0;
                if is_beyond && !record.member.is(State::Demoted) {
                    record.account.wait_for_group();
                }
            }
        }
    }

    /// What the KLS thread used since the previous sample, beyond the grace in share and in time.
    fn kls_beyond_ns(&mut self, elapsed: Span, grace: Span) -> u64 {
        let kls_ns = self.group.pacing.cpu_ns();
        self.kls_used_ns = kls_ns.saturating_sub(std::mem::replace(&mut self.kls_ns, kls_ns));
        let owed_ns = self.kls_owed_ns.saturating_add(self.kls_used_ns);
        let owed_ns = owed_ns.saturating_sub(due_ns(elapsed, SHARE_GRACE_PPM).unsigned_abs());
        self.kls_owed_ns = owed_ns.min(grace.as_nanos());
        owed_ns - self.kls_owed_ns
    }
}

/// Lets the domains that are furthest beyond two of their jobs pay what the group owes, `debt_ns`.
fn pay<'r>(debt_ns: &mut i64, records: impl Iterator<Item = &'r mut Record>, rules: &Rules) {
    let beyond = |record: &Record| {
        let jobs_ns = jobs_ns(&record.member).saturating_mul(2);
        record.account.excess_ns.saturating_sub(signed(jobs_ns))
    };
    let counts = |record: &&mut Record| record.counts_for_group(rules) && beyond(record) > 0;
    let mut records: Vec<_> = records.filter(counts).collect();
    records.sort_unstable_by_key(|record| std::cmp::Reverse(beyond(record)));
    for record in records {
        // Not only until the limit is kept: a swarm of domains would stay at its limit.
        if *debt_ns <= 0 {
            return;
        }
        *debt_ns -= record.account.pay_for_group();
    }
}

/// What the domains of a group may use beyond one job each, in ns.
fn beyond_ns_max(members: &Members) -> u64 {
    let quantum_ns = match &members[..] {
        [only] => only.limits.quantum_ns_max.load(Relaxed),
        _ => 0,
    };
    BEYOND_MAX.as_nanos().saturating_add(quantum_ns)
}

/// One job of each activity of a domain.
fn jobs_ns(member: &Member) -> u64 {
    member.limits.compute_ns.load(Relaxed)
}

/// The records of a group's members.
fn of_members<'r>(
    records: &'r mut [Record],
    members: &Members,
) -> impl Iterator<Item = &'r mut Record> {
    records
        .iter_mut()
        .filter(|record| members.iter().any(|member| Arc::ptr_eq(member, &record.member)))
}
