//! The CPU time that the domains of a group have used together, against their reservations.
//!
//! Each domain has an account of its own, with the grace of [`SHARE_GRACE_PPM`]
//! ([`super::account`]). A user with many domains must not get that grace many times. So the group
//! has one account: the sum of its reservations, and the grace once, in share and in time. If the
//! group owes too much, the domains that are furthest beyond their own reservations pay for it,
//! until the group owes nothing: others go first as soon as one waits. Ticks update the account,
//! and looks do while the group has the CPU and may owe too much.
//!
//! A domain that is out-prioritised or demoted is left out: it pays for itself before it takes
//! turns again. The group also pays for its KLS thread, as far as that exceeds the grace: domains
//! can make that thread run.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::State;

use super::account::{CREDIT_OVER, OWED_BEYOND_NS, SHARE_GRACE_PPM, due_ns, owed_ns_max, signed};
use super::record::Record;
use crate::group::{DomainGroup, Member, Members};

#[cfg(test)]
mod tests;

/// See the module's head.
pub(super) struct GroupAccount {
    group: Arc<DomainGroup>,
    sampled_at: Option<Instant>,
    /// As [`super::account::Account::owed_ns`], of the whole group.
    owed_ns: i64,
    /// What the group might owe at the previous sample.
    owed_max_ns: u64,
    /// CPU time of the KLS thread at the previous sample.
    kls_ns: u64,
    /// What it used between the last two samples.
    kls_used_ns: u64,
    /// CPU time of the KLS thread beyond the grace in share, and within the grace in time.
    kls_owed_ns: u64,
    /// How often the KLS thread had been slowed at the previous sample.
    floods: u64,
}

impl GroupAccount {
    pub(super) fn new(group: Arc<DomainGroup>) -> Self {
        GroupAccount {
            group,
            sampled_at: None,
            owed_ns: 0,
            owed_max_ns: 0,
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

    /// Whether the group may owe more than the limit at `now`, if it has run since the previous
    /// sample.
    pub(super) fn may_owe(&self, now: Instant) -> bool {
        let ran = self.sampled_at.map_or(Span::ZERO, |before| now.since(before));
        let owed_ns = self.owed_ns.saturating_add_unsigned(ran.as_nanos());
        u64::try_from(owed_ns).is_ok_and(|owed_ns| owed_ns > self.owed_max_ns)
    }

    /// Adds what the group used since the previous sample. Called after the samples of its
    /// `members`, whose records are among `records`. O(records times members).
    pub(super) fn add_sample(
        &mut self,
        (records, members): (&mut [Record], &Members),
        now: Instant,
        grace: Span,
    ) {
        let elapsed = self.sampled_at.replace(now).map_or(Span::ZERO, |before| now.since(before));
        let mut used_ns = self.kls_beyond_ns(elapsed, grace);
        let (mut share_ppm, mut most_ns) = (0_u64, grace.as_nanos());
        let mut wants_cpu = false;
        for record in of_members(records, members) {
            let cpu_ns = record.account.cpu_ns;
            let since_ns = cpu_ns - std::mem::replace(&mut record.charged_ns, cpu_ns);
            if record.member.is(State::Demoted) {
                continue;
            }
            let limits = &record.member.limits;
            used_ns = used_ns.saturating_add(since_ns);
            share_ppm = share_ppm.saturating_add(limits.share_ppm.load(Relaxed));
            most_ns = most_ns.saturating_add(jobs_ns(&record.member));
            wants_cpu |= record.wants_cpu;
        }
        let ppm = share_ppm.saturating_add(SHARE_GRACE_PPM);
        let owed = self.owed_ns.saturating_add(signed(used_ns));
        let owed = owed.saturating_sub(due_ns(elapsed, ppm));
        let least = if wants_cpu { -due_ns(CREDIT_OVER, ppm) } else { 0 };
        self.owed_ns = owed.clamp(least, signed(most_ns.saturating_add(OWED_BEYOND_NS)));
        self.owed_max_ns = most_ns;
        if self.owed_ns <= signed(most_ns) {
            return;
        }
        // Not only until the limit is kept: a swarm of domains would stay at its limit.
        while self.owed_ns > 0 {
            let beyond = |record: &&mut Record| {
                let excess_ns = record.account.excess_ns;
                excess_ns.saturating_sub(signed(jobs_ns(&record.member)))
            };
            let takes_turns = |record: &&mut Record| !record.member.is(State::Demoted);
            let first = of_members(records, members).filter(takes_turns).max_by_key(beyond);
            let Some(record) = first.filter(|record| beyond(record) > 0) else { return };
            self.owed_ns = self.owed_ns.saturating_sub(record.account.pay_for_group());
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

/// What a member may owe for the jobs that it has begun.
fn jobs_ns(member: &Member) -> u64 {
    owed_ns_max(&member.limits, Span::ZERO)
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
