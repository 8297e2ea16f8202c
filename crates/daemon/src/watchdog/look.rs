//! A look at one CPU, at a tick or between two ticks: finds the domains that do not yield.
//!
//! A look reads the pages that the domains share. It reads `/proc` only for the domain that holds
//! the CPU while another one waits, and for domains that the watchdog has preempted or suspects. It
//! uses the lists of domains of the last tick.

use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::Measure;
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;

use super::arming::{Contender, LOOK_MIN, next_look};
use super::cpu_watch::{CpuWatch, last_response};
use super::measures::{put_below_others, put_into_ordinary_class, revoke_turn, update_cpu_count};
use super::record::{Beside, Suspicion, is_awake, is_ready};
use super::standstill::CHOICE_MAX;
use super::tick::Tick;
use crate::cpu::CpuView;
use crate::group::{DomainGroup, Member, Members};

/// How soon a preempted domain is looked at again, and for how long. Later it is reviewed at ticks.
const REVIEW_EVERY: Span = Span::from_micros(500);
const REVIEW_FOR: Span = Span::from_millis(20);

/// The shortest time between two looks at the account of a group. Within it a domain of the group
/// may exceed its job unseen.
pub(super) const GROUP_EVERY: Span = Span::from_micros(200);

impl CpuWatch {
    /// Finds domains that do not yield, and computes the next look.
    pub(super) fn look(&mut self, tick: &mut Tick<'_>) {
        self.next_look = None;
        // Without the real-time class other programs keep a domain from responding.
        if tick.rules.band.is_none() {
            return;
        }
        let view = std::mem::take(&mut self.view);
        let held = view.groups().filter(|(group, _)| self.cpu_state.is_held(group));
        // The KLS thread of that group does not run, and those of others have copied their areas.
        held.flat_map(|(_, members)| members.iter())
            .for_each(|member| member.try_refresh(tick.now));
        self.note_contest(&view, tick.now);
        self.review_preempted(&view, tick);
        self.contenders.clear();
        let mut holder = None;
        for (group, members) in view.groups() {
            let Ok(turn) = group.turn_or_reset() else { continue };
            let is_held = self.cpu_state.is_held(group);
            for member in members.iter().filter(|member| group.is_present(member)) {
                if is_held && turn.holder() == member.domain {
                    holder = Some((group, member, turn));
                    continue;
                }
                let limit = tick.rules.limit(member);
                let from = match member.wants_cpu(tick.now) {
                    true => Instant::ZERO,
                    false => member.next_release(tick.now).unwrap_or(Instant::FAR),
                };
                if from != Instant::FAR {
                    self.contenders.push(Contender { is_holder: false, from, limit });
                }
            }
        }
        let is_contested = self.contenders.iter().any(|contender| contender.from <= tick.now);
        let found_away = self.look_for_away(&view, holder, is_contested, tick);
        if found_away {
            self.kept_until = tick.now;
        }
        if holder.is_none() && self.has_several_users(&view) {
            // The KLS thread should have given the CPU to a domain by then.
            let first = self.contenders.iter().map(|of| of.from.max(tick.now)).min();
            if let Some(at) = first {
                self.look_again_after(at.since(tick.now) + CHOICE_MAX, tick);
            }
        }
        // The holder was lowered, and has lost the turn.
        let holder = holder.filter(|(_, member, _)| !(found_away && member.is(State::Demoted)));
        // A thread that runs without the turn keeps the holder from running.
        let holder_member = holder.map(|(_, member, _)| &**member);
        let turn = holder.map(|(_, _, turn)| turn);
        let is_kept = self.look_without_turn(&view, (holder_member, turn), is_contested, tick);
        // The moment at which that thread ended its quantum lies between two looks.
        if std::mem::replace(&mut self.is_holder_kept, is_kept) || is_kept {
            self.kept_until = tick.now;
        }
        if let Some((group, member, turn)) = holder {
            let from = match is_contested {
                true if !is_kept && self.keeps_turn(&view, (group, member, turn), tick) => tick.now,
                // A kept holder may be silent, but owe nothing: the other thread may only wait for
                // the CPU behind it.
                true => self.look_at_holder(group, member, turn, tick),
                false => last_response(member, tick.now),
            };
            let limit = tick.rules.limit(member);
            self.contenders.push(Contender { is_holder: true, from, limit });
            if self.has_several_users(&view)
                && let Some(at) = member.next_release(tick.now).filter(|&at| at > tick.now)
            {
                // It should run by then, although no other domain waits (`away`).
                self.look_again_after(at.since(tick.now) + limit, tick);
            }
            if is_contested {
                self.look_at_group(&view, (group, member), tick);
            }
            self.look_at_better_release(&view, (group, member), tick);
        }
        let next = next_look(tick.now, &self.contenders);
        self.next_look = self.next_look.into_iter().chain(next).min();
        self.view = view;
    }

    pub(super) fn look_again_after(&mut self, span: Span, tick: &Tick<'_>) {
        let at = tick.now + span;
        self.next_look = Some(self.next_look.map_or(at, |known| known.min(at)));
    }

    /// Checks the holder while another domain waits. Returns from when on its next limit counts.
    fn look_at_holder(
        &mut self,
        group: &DomainGroup,
        member: &Arc<Member>,
        turn: Turn,
        tick: &mut Tick<'_>,
    ) -> Instant {
        let Some(record) = self.record_of(member) else { return tick.now };
        let response = last_response(member, tick.now);
        let limit = tick.rules.limit(member);
        let is_silent = tick.now.since(response) >= limit;
        // The CPU time is read only if the domain may owe too much by now. The kernel's own count
        // is as old as its last tick, which a late timer delays.
        if is_silent || record.may_owe(tick) {
            self.sample_exactly(group, member, tick);
        }
        let kept_until = self.kept_until;
        let Some(record) = self.record_of(member) else { return tick.now };
        // Another domain came back from the kernel and kept the holder from running. The holder has
        // the whole limit again, unless it is known to have used that much.
        let used_ns = *record.response.used_ns_since(record.account.cpu_ns).start();
        let got_no_time = record.kept_since == Some(response);
        let kept_until = if got_no_time { tick.now } else { kept_until };
        let is_excused = tick.now.since(kept_until) < limit && used_ns < limit.as_nanos();
        let is_silent = is_silent && !is_excused;
        let responded_at = response;
        let response = if is_excused { response.max(kept_until) } else { response };
        let owes = record.account.overuse_ns(&member.limits, tick.rules.debt_max()).is_some();
        if !(owes || is_silent) || tick.stalled > Span::ZERO || !is_ready(member) {
            record.suspicion = None;
            return if is_silent { tick.now } else { response };
        }
        let suspicion = Suspicion { response, turn: Some(turn), holder_response: None };
        // A thread that has not noticed yet that it has the turn cannot have responded.
        let is_new = group.turn.wake_word(member.domain).is_notified();
        let span = if is_new { limit } else { LOOK_MIN };
        // Another hand-off does not pay a debt.
        let is_confirmed = record.confirms(suspicion, tick.now, span);
        if is_confirmed && !owes && !record.ran_since_suspicion() {
            // Other programs or the host have its CPU. From now on its limit is in CPU time.
            (record.suspicion, record.kept_since) = (None, Some(responded_at));
            return tick.now;
        }
        if owes || is_confirmed {
            self.preempt(group, member, Some(turn), tick);
            return tick.now;
        }
        self.look_again_after(span, tick);
        tick.now
    }

    /// Checks the account of the group that has the CPU while a domain of another user waits. Each
    /// domain of a swarm keeps its own limit. Reads the CPU time of all members only if the group
    /// may exceed a limit by now, and that of the holder alone while the group exceeds one. Looks
    /// again when it may do so next.
    fn look_at_group(
        &mut self,
        view: &CpuView,
        (group, holder): (&Arc<DomainGroup>, &Arc<Member>),
        tick: &mut Tick<'_>,
    ) {
        let Some(account) = self.contested_account(group) else { return };
        let (Some(at), is_beyond) = (account.may_exceed_at(), account.is_beyond()) else { return };
        if at > tick.now {
            return self.look_again_after(at.since(tick.now).max(GROUP_EVERY), tick);
        }
        let Some((group, members)) = view.groups().find(|(it, _)| Arc::ptr_eq(it, group)) else {
            return;
        };
        for member in members.iter().filter(|of| !is_beyond || Arc::ptr_eq(of, holder)) {
            self.sample(group, member, tick);
        }
        self.check_group((group, members), true, tick);
        self.look_again_after(GROUP_EVERY, tick);
    }

    /// Checks the domains that do not have the turn: they should sleep. One that is ready but waits
    /// behind the holder does not run while the holder responds. Returns whether one is suspected.
    fn look_without_turn(
        &mut self,
        view: &CpuView,
        (holder, turn): (Option<&Member>, Option<Turn>),
        is_contested: bool,
        tick: &mut Tick<'_>,
    ) -> bool {
        let mut any = false;
        let holder_response = holder.map(|holder| last_response(holder, tick.now));
        let holder_limit = holder.map_or(Span::ZERO, |holder| tick.rules.limit(holder));
        // Its members can renew the turn between them.
        let outranked = view.groups().find(|(group, _)| {
            self.cpu_state.is_held(group) && is_outranked(view, group, tick.now)
        });
        let is_shared = turn.is_some() || is_contested || several_users_are_awake(view);
        let grant = Beside::Grant(self.cpu_state.grants());
        let beside = |group: &Arc<DomainGroup>| match (turn, outranked) {
            (_, Some((held, _))) if Arc::ptr_eq(held, group) => grant,
            (Some(turn), _) => Beside::Turn(turn),
            (None, _) => grant,
        };
        for (group, members) in view.groups() {
            let is_holder = |member: &Member| holder.is_some_and(|of| core::ptr::eq(of, member));
            for member in members.iter().filter(|member| !is_holder(member)) {
                let runs = is_awake(group, member);
                let Some(record) = self.record_of(member) else { continue };
                if !runs || tick.stalled > Span::ZERO {
                    (record.suspicion, record.passed_over) = (None, None);
                    continue;
                }
                if is_shared && self.ran_without_turn((group, member), beside(group), tick) {
                    continue;
                }
                let limit = tick.rules.limit(member).max(holder_limit);
                let Some(record) = self.record_of(member) else { continue };
                if !is_contested {
                    // A silent holder for which nobody waits proves nothing.
                    record.suspicion = None;
                    if is_shared && turn.is_none() {
                        self.look_again_after(limit, tick);
                    }
                    continue;
                }
                let response = last_response(member, tick.now);
                let found = Suspicion { response, turn: None, holder_response };
                if record.confirms(found, tick.now, limit) {
                    self.sample(group, member, tick);
                    let Some(record) = self.record_of(member) else { continue };
                    if record.ran_since_suspicion() {
                        self.preempt(group, member, None, tick);
                        continue;
                    }
                    // It waits for the CPU as the holder does, or the kernel's count is old.
                    record.suspicion = None;
                    record.confirms(found, tick.now, limit);
                }
                any = true;
                self.look_again_after(limit, tick);
            }
        }
        any
    }

    /// Whether a domain has used its quantum and 1 ms of CPU time while nothing changed `beside`
    /// it. Then the others go first: a response may be false, and its CPU time is not.
    ///
    /// A domain that was blocked in its turn may finish its quantum. Then it sleeps. A domain that
    /// was woken publishes its work and sleeps. While it only waits for the CPU, it uses none.
    fn ran_without_turn(
        &mut self,
        (group, member): (&DomainGroup, &Arc<Member>),
        beside: Beside,
        tick: &mut Tick<'_>,
    ) -> bool {
        self.sample(group, member, tick);
        let Some(record) = self.record_of(member) else { return false };
        let since = record.pass_over(beside, tick.now);
        let used_ns = record.account.cpu_ns.saturating_sub(since.cpu_ns);
        let is_too_long = used_ns > member.limits.response_max().as_nanos();
        if is_too_long {
            self.put_in_order(group, member, (None, used_ns), tick);
        } else if tick.now.since(since.at) >= REVIEW_EVERY {
            // The next kernel tick may bring the count up to date.
            self.look_again_after(REVIEW_EVERY, tick);
        }
        is_too_long
    }

    /// Lets the others go before a domain that ran for so long though it was not its turn, or no
    /// more its turn. The third time within a short time is an offence. The first two are none: the
    /// kernel's count may be out of date, and a new domain may take its time to start.
    ///
    /// A domain of which admission refused all activities has a limit of 1 ms here, and its PDUs
    /// may be longer: it has said so. So it does not offend. From the third time on it runs in the
    /// ordinary class for a while, so that it costs others no more than an offender does.
    pub(super) fn put_in_order(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        (turn, used_ns): (Option<Turn>, u64),
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        record.passed_over = None;
        if record.inversions.is_one_too_many(tick.now) {
            if member.limits.is_refused() {
                record.put_away(tick.now, false);
                put_into_ordinary_class(group, member, tick.rules);
            } else {
                self.act_against(group, member, (Measure::OutPrioritised, used_ns), tick);
            }
            turn.into_iter().for_each(|turn| revoke_turn(group, turn));
        } else {
            self.preempt(group, member, turn, tick);
        }
        if let Some(penalty) = self.record_of(member).and_then(|of| of.penalty.as_mut()) {
            penalty.is_inversion = true;
        }
    }

    /// Lets the others go first, without an offence.
    pub(super) fn preempt(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        turn: Option<Turn>,
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        record.suspicion = None;
        record.penalty = Some(record.penalty_from(tick.now, false));
        put_below_others(group, member, tick.rules);
        if let Some(turn) = turn {
            revoke_turn(group, turn);
        }
        self.look_again_after(REVIEW_EVERY, tick);
    }

    /// Reviews the domains that were preempted a short time ago.
    fn review_preempted(&mut self, view: &CpuView, tick: &mut Tick<'_>) {
        for (group, members) in view.groups() {
            for member in members.iter() {
                let penalty = self.record_of(member).and_then(|record| record.penalty);
                let is_new = |since| tick.now.since(since) <= REVIEW_FOR;
                if penalty.is_some_and(|of| !of.is_offence && !of.is_ordinary && is_new(of.at)) {
                    self.sample(group, member, tick);
                    self.review_penalty(group, member, tick);
                    self.look_again_after(REVIEW_EVERY, tick);
                }
            }
        }
    }

    /// Adds a sample of the CPU time of a holder that is up to date.
    pub(super) fn sample_exactly(
        &mut self,
        group: &DomainGroup,
        member: &Arc<Member>,
        tick: &mut Tick<'_>,
    ) {
        if self.contested_account(group).is_some() {
            // All samples of it are.
            return self.sample(group, member, tick);
        }
        update_cpu_count(member, tick.rules);
        self.update_record(group, member, tick, true);
    }

    /// Adds a sample of the CPU time of a domain, unless this tick has done so.
    pub(super) fn sample(
        &mut self,
        group: &DomainGroup,
        member: &Arc<Member>,
        tick: &mut Tick<'_>,
    ) {
        if self.record_of(member).is_some_and(|record| record.sampled_at == tick.now) {
            return;
        }
        let has_turn = group.turn.holder() == Ok(member.domain);
        self.update_record(group, member, tick, has_turn || member.wants_cpu(tick.now));
        if let Some(record) = self.record_of(member) {
            record.ran_before_look = record.account.has_run;
        }
    }
}

/// Whether domains of several users are ready to run and not demoted, so that one waits for the
/// other, whether they show work or not: one that finishes its quantum or is about to publish work
/// has no turn.
fn several_users_are_awake(view: &CpuView) -> bool {
    let any_is_awake = |(group, members): &&(Arc<DomainGroup>, Members)| {
        members.iter().any(|member| is_awake(group, member))
    };
    view.groups().filter(any_is_awake).nth(1).is_some()
}

/// Whether a domain of another user has a rank that preempts all those of a group, by the copies of
/// their areas.
fn is_outranked(view: &CpuView, group: &Arc<DomainGroup>, now: Instant) -> bool {
    let best_of = |(group, members): &(Arc<DomainGroup>, Members)| {
        group.best(members, now).map(|(rank, _)| rank)
    };
    let own = view.groups().find(|(own, _)| Arc::ptr_eq(own, group)).and_then(best_of);
    let best = view.choosable_beside(group).filter_map(best_of).min();
    best.is_some_and(|best| own.is_none_or(|own| best.preempts(&own)))
}
