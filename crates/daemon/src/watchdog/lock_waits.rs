//! Domains that wait for priority-inheritance locks.
//!
//! A thread that waits for such a lock gives its priority to the owner of that lock (futex(2),
//! `FUTEX_LOCK_PI`). The owner is an ordinary thread that the daemon does not know, and may loop.
//! So no domain may lend its priority while domains of several users are attached. A domain that
//! waits for such a lock is put into the ordinary class, until it has run again and waits no more,
//! and for 50 ms at least. The kernel then takes the priority from the owner, too. The third time
//! within a second is an offence.
//!
//! ```text
//!   idle --- (1) a boost, or several users from now on ---> scanning ---+
//!    ^                                                       |   ^      |
//!    +------------- three scans found none ------------------+   +-(2)--+
//! ```
//!
//! 1. The kernel records each boost to the priority of a domain or above ([`Boosts`]). The thread
//!    that ran then began to wait, and no process can forge that. If it is a domain's, that domain
//!    is put away. While all domains are of one user, they trust each other, and nothing follows.
//! 2. A record may name another thread: one that requeued the wait, or one of the daemon, which
//!    raised a thread that waits. A second thread that waits for the lock causes no record. So each
//!    boost also begins scans: the watchdog asks the kernel of each domain that sleeps for what it
//!    waits. Each domain that waits for such a lock is put away. The next scan follows.
//!
//! A thread whose wait has timed out lends on until it runs. It is ready, and a scan does not find
//! it. The module `away` raises such a thread. The kernel's record of that moment names the
//! watchdog, so the thread that it raised then lends.
//!
//! Threads that relieve each other may hide from scans. So each tick checks some domains more.

use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::Measure;
use upcall_shm::kernel_area::State;
use upcall_sys::clock;
use upcall_sys::inheritance::{Boost, Boosts};
use upcall_sys::process::{LockWait, thread_id};

use super::arming::LOOK_MIN;
use super::cpu_watch::CpuWatch;
use super::measures::{demote, put_into_ordinary_class, revoke_turn};
use super::record::{Raised, sleeps};
use super::tick::Tick;
use crate::clock::now;
use crate::cpu::CpuView;
use crate::enforcement::OFFENCES_MAX;
use crate::group::{DomainGroup, Member};

/// Scans without a find after which there are no more.
const SCANS: u32 = 3;
/// After these scans, the least time until others begin. Other real-time programs may cause boosts,
/// too, and would occupy the watchdog.
const CALM: Span = Span::from_micros(500);
/// The least pause between two scans, in durations of a scan.
const PAUSE_SCANS: u32 = 4;
/// Domains that a tick checks on each CPU without a boost.
const CHECKED_AT_TICK: usize = 4;

/// See the module's head.
pub(super) struct LockWaits {
    boosts: Boosts,
    /// Scratch.
    causes: Vec<Boost>,
    /// Whether all domains are of one user.
    is_alone: bool,
    looked_at: Instant,
    /// The next scan, and how many without a find are due from then on.
    next_scan: Option<Instant>,
    scans_due: u32,
    /// The boost for which these scans began, and the first one since the first of them.
    scanned_from: Option<Instant>,
    boosted_at: Option<Instant>,
    calm_until: Instant,
    ticks: usize,
}

/// What to do at a look.
#[derive(Clone, Copy)]
struct Look {
    is_tick: bool,
    is_scan: bool,
    /// For how long an owner may have run unseen.
    since: Span,
}

impl LockWaits {
    pub(super) fn new(boosts: Boosts) -> Self {
        LockWaits {
            boosts,
            causes: Vec::new(),
            is_alone: true,
            looked_at: Instant::ZERO,
            next_scan: None,
            scans_due: 0,
            scanned_from: None,
            boosted_at: None,
            calm_until: Instant::ZERO,
            ticks: 0,
        }
    }

    /// When to scan next, if at all.
    pub(super) fn next_scan(&self) -> Option<Instant> {
        self.next_scan
    }

    /// Blocks until that moment, or until a boost. Boosts within [`LOOK_MIN`] of the last look
    /// wait, so that they cannot occupy the watchdog.
    pub(super) fn sleep_until(&mut self, at: Instant) {
        let first = if self.is_alone { at } else { self.looked_at + LOOK_MIN };
        clock::sleep_until_ns(first.min(at).as_nanos());
        if first < at {
            self.boosts.wait_until_ns(at.as_nanos());
        }
    }

    /// Puts away the domains that wait for locks: those that a boost names, and if a scan is due,
    /// those that it finds.
    pub(super) fn look(
        &mut self,
        watches: &mut [CpuWatch],
        (is_tick, several_users): (bool, bool),
        tick: &mut Tick<'_>,
    ) {
        self.causes.clear();
        self.boosts.take(&mut self.causes);
        let since = tick.now.since(std::mem::replace(&mut self.looked_at, tick.now));
        let was_alone = std::mem::replace(&mut self.is_alone, !several_users);
        if self.is_alone {
            (self.next_scan, self.boosted_at) = (None, None);
            watches.iter_mut().for_each(|watch| watch.raised.clear());
            return;
        }
        if was_alone {
            // The domains were all of one user then.
            self.causes.clear();
        }
        let first_ns = self.causes.iter().map(|boost| boost.at_ns).min();
        self.boosted_at = self.boosted_at.or(first_ns.map(Instant::from_nanos));
        self.ticks = self.ticks.wrapping_add(usize::from(is_tick));
        if self.next_scan.is_none() && (was_alone || self.boosted_at.is_some()) {
            self.begin_scans(self.calm_until.max(tick.now));
        }
        let is_scan = self.next_scan.is_some_and(|at| at <= tick.now);
        let since = match self.scanned_from.filter(|_| is_scan) {
            Some(at) => since.max(tick.now.since(at)),
            None => since,
        };
        let found = self.end_lock_waits(watches, Look { is_tick, is_scan, since }, tick);
        let end = now();
        let next = end + (end.since(tick.now) * PAUSE_SCANS).max(LOOK_MIN);
        if found {
            self.begin_scans(next);
        } else if is_scan {
            self.scans_due -= 1;
            self.next_scan = Some(next).filter(|_| self.scans_due > 0);
            if self.scans_due == 0 {
                self.calm_until = end + CALM;
                if self.boosted_at.is_some() {
                    self.begin_scans(self.calm_until);
                }
            }
        }
    }

    fn begin_scans(&mut self, at: Instant) {
        (self.next_scan, self.scans_due) = (Some(at), SCANS);
        self.scanned_from = self.boosted_at.take();
    }

    /// Returns whether there were any.
    fn end_lock_waits(&self, watches: &mut [CpuWatch], look: Look, tick: &mut Tick<'_>) -> bool {
        let mut found = false;
        for watch in watches {
            let part = match look {
                Look { is_scan: true, .. } => 0..usize::MAX,
                Look { is_tick: true, .. } => watch.part_of_members(self.ticks),
                _ => 0..0,
            };
            if look.is_scan {
                watch.take_up_newcomers(tick);
            }
            found |= watch.end_waits(&self.causes, (part, look), tick);
        }
        found
    }
}

impl CpuWatch {
    /// Begins the records of the domains that were attached since the last tick.
    fn take_up_newcomers(&mut self, tick: &mut Tick<'_>) {
        let mut view = std::mem::take(&mut self.view);
        view.refresh(&self.cpu_state);
        for (group, members) in view.groups() {
            for member in members.iter() {
                if self.record_of(member).is_none() {
                    self.update_record(group, member, tick, member.wants_cpu(tick.now));
                }
            }
        }
        self.view = view;
    }

    /// The places of the domains that a tick checks.
    fn part_of_members(&self, ticks: usize) -> std::ops::Range<usize> {
        let count: usize = self.view.groups().map(|(_, members)| members.len()).sum();
        let parts = count.div_ceil(CHECKED_AT_TICK).max(1);
        let first = ticks % parts * CHECKED_AT_TICK;
        first..first + CHECKED_AT_TICK
    }

    /// Raises a domain by `act`. If it lends, the kernel records that.
    pub(super) fn raise(&mut self, member: &Arc<Member>, act: impl FnOnce(&Member)) {
        let from = now();
        act(member);
        self.raised.push(Raised { member: member.clone(), from, to: now() });
    }

    /// Puts away the domains that `causes` name, those that lent when they were raised, and those
    /// of the places in `part` that wait for a lock. Returns whether there were any.
    fn end_waits(
        &mut self,
        causes: &[Boost],
        (part, look): (std::ops::Range<usize>, Look),
        tick: &mut Tick<'_>,
    ) -> bool {
        let (view, raised) = (std::mem::take(&mut self.view), std::mem::take(&mut self.raised));
        let (own, mut found) = (thread_id(), false);
        for (place, (group, member)) in members_of(&view).enumerate() {
            if !self.has_priority(member) {
                continue;
            }
            let lent_when_raised = raised.iter().any(|of| {
                let when = of.from.as_nanos()..=of.to.as_nanos();
                Arc::ptr_eq(&of.member, member)
                    && causes.iter().any(|boost| boost.by == own && when.contains(&boost.at_ns))
            });
            let is_named = causes.iter().any(|boost| boost.by == member.thread.tid());
            let waits = || part.contains(&place) && may_lend(member, look.is_scan);
            if lent_when_raised || is_named || waits() {
                found = true;
                // The owner may have had the CPU since the last look. A thread was raised because
                // others were kept from the CPU for longer.
                let limit = tick.rules.limit(member);
                let kept = if lent_when_raised { limit } else { look.since.max(LOOK_MIN) };
                self.end_lock_wait(group, member, kept.min(limit), tick);
            }
        }
        self.view = view;
        found
    }

    /// Whether the thread of a domain has a real-time class.
    pub(super) fn has_priority(&mut self, member: &Member) -> bool {
        let is_demoted = member.is(State::Demoted);
        let Some(record) = self.record_of(member) else { return false };
        record.penalty.map_or(!is_demoted, |penalty| !penalty.is_ordinary)
    }

    /// Puts a domain away. The owner of its lock may have kept others from the CPU for `kept`.
    fn end_lock_wait(
        &mut self,
        group: &DomainGroup,
        member: &Arc<Member>,
        kept: Span,
        tick: &mut Tick<'_>,
    ) {
        let turn = group.turn_of(member);
        self.sample(group, member, tick);
        let Some(record) = self.record_of(member) else { return };
        record.charge_kept(kept.as_nanos());
        let is_offence = record.lock_waits.is_one_too_many(tick.now);
        record.offences += u64::from(is_offence);
        let is_last = is_offence && record.offences >= OFFENCES_MAX;
        record.put_away(tick.now, is_offence);
        record.penalty = record.penalty.filter(|_| !is_last);
        record.lock_wait_ns = (!is_last).then_some(record.account.cpu_ns);
        put_into_ordinary_class(group, member, tick.rules);
        turn.into_iter().for_each(|turn| revoke_turn(group, turn));
        if is_offence {
            group.count_offence(member);
            tick.report_offence(group, member, Measure::LockWait, kept.as_nanos());
        }
        if is_last {
            demote(group, member, kept.as_nanos(), tick);
        }
        // The domain sees that it takes no turns when it wakes.
        group.notify(member.domain);
    }
}

fn members_of(view: &CpuView) -> impl Iterator<Item = (&Arc<DomainGroup>, &Arc<Member>)> {
    view.groups().flat_map(|(group, of)| of.iter().map(move |member| (group, member)))
}

/// Whether the thread of a domain waits for such a lock. In a scan, a boost makes that likely. So
/// the first thread of a process, for which the kernel cannot be asked, may wait for no futex then.
fn may_lend(member: &Member, is_scan: bool) -> bool {
    let wait = || member.thread.by_watchdog().lock_wait();
    sleeps(member) && matches!((wait(), is_scan), (LockWait::Yes, _) | (LockWait::Futex, true))
}
