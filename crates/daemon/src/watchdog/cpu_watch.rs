//! The watchdog's checks of one CPU, from tick to tick.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_shm::{DomainId, Measure};
use upcall_sys::process::ThreadState;
use upcall_sys::schedule;

use super::account::{Sample, Waited};
use super::arming::Contender;
use super::group_account::{GroupAccount, GroupSample};
use super::kept_free::KeptFree;
use super::measures::{
    demote, let_finish_quantum, lower, lower_returner, put_below_others, put_into_ordinary_class,
    reinstate, revoke_turn, update_cpu_count,
};
use super::record::{Penalty, Raised, Record, is_asleep, is_ready, waits_for_lock};
use super::standstill::{Ask, Kept, Lowered, Standstill};
use super::tick::{Rules, Tick};
use crate::cpu::{CpuState, CpuView};
use crate::enforcement::{OFFENCES_MAX, SHARE_GRACE_PPM};
use crate::group::{DomainGroup, Member, Members, Shown};

/// At so many successive ticks with a false rank the domain is no longer believed.
const FALSE_RANK_TICKS_MAX: u32 = 2;
/// CPU time that a domain may use below the others, or alone beyond its limits, before its thread
/// is put into the ordinary class.
const DEMOTED_AFTER: Span = Span::from_millis(50);
/// A thread that does not run is checked for its end each time after so many ticks, 100 ms.
const STILL_TICKS: u32 = 20;
/// The shortest time for which an offender stays below the other domains.
const PENALTY_MIN: Span = Span::from_millis(50);

/// One CPU and the records of its domains.
pub(super) struct CpuWatch {
    pub(super) cpu_state: Arc<CpuState>,
    pub(super) view: CpuView,
    yield_request: Option<YieldRequest>,
    pub(super) records: Vec<Record>,
    /// CPU time that all its domains have used so far.
    used_ns: u64,
    /// The part of it in the real-time class.
    real_time_ns: u64,
    kept_free: KeptFree,
    /// The time that the host has taken from the CPU so far.
    pub(super) taken: Span,
    /// Whether it was reported that a thread's CPU time cannot be read.
    told_unseen: bool,
    group_accounts: Vec<GroupAccount>,
    /// Scratch of [`CpuWatch::look`].
    pub(super) contenders: Vec<Contender>,
    pub(super) next_look: Option<Instant>,
    /// Whether the last look found a thread that kept the holder from running.
    pub(super) is_holder_kept: bool,
    /// The last look that found such a thread, or the one after it.
    pub(super) kept_until: Instant,
    /// Since when no domain gets the CPU, and what the last look did about that.
    pub(super) standstill: Option<Standstill>,
    pub(super) lowered: Option<Lowered>,
    /// What the last look did for a ready holder that may be kept from the CPU.
    pub(super) kept: Option<Kept>,
    /// The domains that the last look raised (`lock_waits`).
    pub(super) raised: Vec<Raised>,
    /// What the last look asks of the other CPUs.
    pub(super) asks: Vec<Ask>,
    /// Whether the domains of all CPUs are of several users.
    pub(super) others_elsewhere: bool,
}

/// A yield request to the holder of a turn.
#[derive(Clone, Copy)]
struct YieldRequest {
    turn: Turn,
    at: Instant,
    /// CPU time of the holder's thread at that time.
    cpu_ns: u64,
}

impl CpuWatch {
    pub(super) fn new(cpu_state: Arc<CpuState>) -> Self {
        CpuWatch {
            cpu_state,
            view: CpuView::default(),
            yield_request: None,
            records: Vec::new(),
            used_ns: 0,
            real_time_ns: 0,
            kept_free: KeptFree::of(schedule::rt_runtime()),
            taken: Span::ZERO,
            told_unseen: false,
            group_accounts: Vec::new(),
            contenders: Vec::new(),
            next_look: None,
            is_holder_kept: false,
            kept_until: Instant::ZERO,
            standstill: None,
            lowered: None,
            kept: None,
            raised: Vec::new(),
            asks: Vec::new(),
            others_elsewhere: false,
        }
    }

    /// When to look at the CPU before the next tick, if at all.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// The users who have domains on the CPU.
    pub(super) fn uids(&self) -> impl Iterator<Item = u32> + Clone {
        let groups = self.view.groups().filter(|(_, members)| !members.is_empty());
        groups.map(|(group, _)| group.uid)
    }

    /// All checks of one tick, and those of a look.
    pub(super) fn check(&mut self, tick: &mut Tick<'_>) {
        self.check_all(tick);
        self.look(tick);
    }

    fn check_all(&mut self, tick: &mut Tick<'_>) {
        let mut view = std::mem::take(&mut self.view);
        view.refresh(&self.cpu_state);
        let all = view.groups().flat_map(|(_, members)| members.iter());
        all.for_each(|member| member.try_refresh(tick.now));
        self.note_contest(&view, tick.now);
        for record in &mut self.records {
            record.seen = false;
        }
        let (mut waits, mut others_wait, mut holder) = (false, false, None);
        let now = tick.now;
        for (group, members) in view.groups() {
            self.check_members(group, members, tick);
            let Ok(turn) = group.turn_or_reset() else { continue };
            // If no domain of the group has the CPU, the number in the turn page is false.
            let is_held = self.cpu_state.is_held(group);
            let has_turn = if is_held { turn.holder() } else { DomainId::DAEMON };
            for member in members.iter() {
                self.check_without_turn(group, member, has_turn, tick);
                lower_returner(group, member, has_turn, tick.rules);
            }
            if let Some(member) = members.iter().find(|member| member.domain == has_turn) {
                holder = Some((group, member, turn));
            }
            let is_waiting = has_waiting_member(group, members, has_turn, now);
            waits = waits || is_waiting;
            others_wait = others_wait || (is_waiting && !is_held);
        }
        self.records.retain(|record| record.seen);
        self.group_accounts.retain(|account| view.groups().any(|(group, _)| account.is_of(group)));
        if let Some((group, member, turn)) = holder {
            // The domains of that group cannot see domains of other users that came after it got
            // the CPU. The KLS threads show work of known ones (docs/decisions/0017).
            if view.publish_others(group, now) == Shown::Changed {
                let _ = group.turn.set_need_resched();
            }
            if others_wait {
                self.check_idle_holder(group, member, turn, tick);
            }
        }
        match holder.filter(|_| waits) {
            Some((group, member, turn)) => self.check_holder(group, member, turn, tick),
            None => self.yield_request = None,
        }
        if waits && holder.is_none_or(|(_, member, _)| self.has_not_run(member)) {
            // The KLS threads should be awake by now. This helps if a domain overwrote a wake word.
            view.groups().for_each(|(group, _)| group.wake_kls());
        }
        for (group, members) in view.groups() {
            self.check_group((group, members), waits, tick);
        }
        self.keep_free(&view, tick);
        self.view = view;
    }

    /// Lets work without a reservation wait while real-time threads leave too little of the CPU.
    fn keep_free(&mut self, view: &CpuView, tick: &Tick<'_>) {
        if tick.rules.band.is_none() {
            return;
        }
        // Under PS the accounts leave a part to ordinary programs, and nothing waits.
        let from = self.kept_free.update(tick.now, self.real_time_ns);
        for (group, members) in view.groups() {
            group.kernel.set_unreserved_from(from.map_or(0, Instant::as_nanos));
            if from.is_some() && self.cpu_state.is_held(group) {
                // The holder looks at its next boundary. At each tick: the holder may be new.
                let _ = group.turn.set_need_resched();
            }
            for member in members.iter() {
                let Some(record) = self.record_of(member) else { continue };
                let is_to_wait = from.is_some() && group.time_quantum.is_none();
                if record.runs_on_while_waiting(is_to_wait, tick.rules) {
                    record.put_away(tick.now, false);
                    let turn = group.turn_of(member);
                    put_into_ordinary_class(group, member, tick.rules);
                    turn.into_iter().for_each(|turn| revoke_turn(group, turn));
                    // The domain sees that it takes no turns when it wakes.
                    group.notify(member.domain);
                }
            }
        }
    }

    /// The checks of a group's members that do not depend on the holder of the turn.
    fn check_members(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        let holder = group.turn.turn().ok().map(Turn::holder);
        for member in members.iter() {
            let wants_cpu = member.wants_cpu(tick.now) || holder == Some(member.domain);
            self.update_record(group, member, tick, wants_cpu);
            self.check_end(member);
            if member.thread.is_news() {
                tick.report_ended(group, member);
                group.notify(DomainId::DAEMON);
            }
        }
        self.check_alone(group, members, tick);
        for member in members.iter() {
            self.review_penalty(group, member, tick);
        }
        self.check_memory(group, members, tick);
        self.check_ranks(group, members, tick);
    }

    /// Finds a thread that has ended but whose files can still be read: the first thread of a
    /// process that has other threads, or for which its parent has not waited.
    fn check_end(&mut self, member: &Member) {
        let Some(record) = self.record_of(member) else { return };
        let has_run = record.account.has_run;
        record.still_ticks = if has_run { 0 } else { record.still_ticks.wrapping_add(1) };
        let is_due = !has_run && record.still_ticks.is_multiple_of(STILL_TICKS);
        if is_due && member.thread.by_watchdog().state() == Ok(ThreadState::Dead) {
            member.thread.set_ended();
        }
    }

    /// Notes for each group whether a domain of another one waits for time that it has reserved.
    /// Work beyond a reservation waits for what nobody else wants, so nobody takes that from it.
    pub(super) fn note_contest(&mut self, view: &CpuView, now: Instant) {
        let mut waiting = Vec::new();
        for (group, members) in view.groups() {
            let present = members.iter().filter(|member| group.is_present(member));
            let since = present.filter_map(|member| member.wants_reserved_time_since(now)).min();
            waiting.extend(since.map(|since| (group, since)));
        }
        for account in &mut self.group_accounts {
            let others = waiting.iter().filter(|(group, _)| !account.is_of(group));
            account.note_contest(others.map(|&(_, since)| since).min(), now);
        }
    }

    /// Updates the account of a group. Acts against the domains that pay for it, if another domain
    /// waits. Preempts those that must wait for it, if a domain of another user waits. Reports a
    /// group whose KLS thread was slowed to each of its domains.
    pub(super) fn check_group(
        &mut self,
        (group, members): (&Arc<DomainGroup>, &Members),
        waits: bool,
        tick: &mut Tick<'_>,
    ) {
        let found = self.group_accounts.iter().position(|account| account.is_of(group));
        let at = found.unwrap_or(self.group_accounts.len());
        if found.is_none() {
            self.group_accounts.push(GroupAccount::new(group.clone(), self.taken));
        }
        let account = &mut self.group_accounts[at];
        let taken = self.taken.saturating_sub(std::mem::replace(&mut account.taken, self.taken));
        account.add_sample(GroupSample {
            records: &mut self.records,
            members,
            now: tick.now,
            rules: tick.rules,
            cpu_used_ns: self.used_ns,
            lost: tick.lost(),
            taken,
        });
        let others_wait = account.is_contested();
        if let Some(kls_used_ns) = account.newly_slowed() {
            for member in members.iter() {
                group.count_offence(member);
                tick.report_offence(group, member, Measure::Slowed, kls_used_ns);
            }
        }
        for member in members.iter().filter(|_| waits) {
            let Some(record) = self.record_of(member) else { continue };
            let owed_ns = record.account.owed_for_group_ns();
            let must_wait =
                others_wait && record.account.waits_for_group() && !member.is(State::Demoted);
            let owed_ns = owed_ns.filter(|_| record.counts_for_group(tick.rules));
            let turn = group.turn_of(member);
            match owed_ns {
                Some(owed_ns) => {
                    self.act_against(group, member, (Measure::OutPrioritised, owed_ns), tick);
                    turn.into_iter().for_each(|turn| revoke_turn(group, turn));
                }
                None if must_wait && tick.rules.band.is_some() => {
                    self.preempt(group, member, turn, tick);
                }
                None => {}
            }
        }
    }

    /// The account of a group, if a domain of another user waits.
    pub(super) fn contested_account(&self, group: &DomainGroup) -> Option<&GroupAccount> {
        self.group_accounts.iter().find(|account| account.is_of(group) && account.is_contested())
    }

    /// Whether a domain used no CPU time since the previous tick.
    fn has_not_run(&mut self, member: &Member) -> bool {
        self.record_of(member).is_some_and(|record| !record.account.has_run)
    }

    /// Counts a tick of a holder that uses no CPU time and does not run while another user waits.
    ///
    /// The KLS thread passes over a blocked holder at once. So this state lasts only if a domain
    /// keeps overwriting the wake word of the holder, so that the holder seems to sleep and to be
    /// woken.
    fn check_idle_holder(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        turn: Turn,
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        // Without the real-time class, other threads may keep the holder from running.
        let running = member.thread.by_watchdog().state() == Ok(ThreadState::Running);
        if record.account.has_run || running || tick.rules.band.is_none() {
            return;
        }
        if record.count_idle_tick(group.kls_usage()) {
            self.act_against(group, member, (Measure::OutPrioritised, 0), tick);
            revoke_turn(group, turn);
        }
    }

    /// Keeps the record of a domain whose CPU time is unknown at this tick.
    fn keep_record(&mut self, member: &Member) {
        if let Some(record) = self.record_of(member) {
            record.seen = true;
            record.account.skip_sample();
        }
    }

    /// Updates the record of a domain, mainly its CPU time.
    pub(super) fn update_record(
        &mut self,
        group: &DomainGroup,
        member: &Arc<Member>,
        tick: &mut Tick<'_>,
        wants_cpu: bool,
    ) {
        let of_group = self.group_accounts.iter().find(|account| account.is_of(group));
        let is_contested = of_group.is_some_and(GroupAccount::is_contested);
        let contested = of_group.map_or(Span::ZERO, |account| account.contested_for(tick.now));
        let contested_grace_ppm =
            of_group.map_or(SHARE_GRACE_PPM, GroupAccount::contested_grace_ppm);
        // Only a running thread's count is out of date.
        let has_turn = self.cpu_state.is_held(group) && group.turn.holder() == Ok(member.domain);
        if is_contested && has_turn && member.is(State::Attached) {
            update_cpu_count(member, tick.rules);
        }
        let count_ns = match member.thread.by_watchdog().cpu_time() {
            Ok(count_ns) => count_ns,
            Err(error) => {
                // The thread has ended, or its process has executed another program.
                if error.is_not_found() {
                    member.thread.set_ended();
                } else if !std::mem::replace(&mut self.told_unseen, true) {
                    tick.report_unseen(self.cpu_state.cpu, member, error);
                }
                return self.keep_record(member);
            }
        };
        let found = self.records.iter_mut().find(|record| Arc::ptr_eq(&record.member, member));
        let record = match found {
            Some(record) => record,
            None => {
                let (cpu_used_ns, taken) = (self.used_ns, self.taken);
                let offences = self.cpu_state.departed.offences(group.uid, tick.now);
                let new = Record::newcomer(member.clone(), offences.min(OFFENCES_MAX - 1), tick);
                self.records.push(Record { cpu_used_ns, taken, ..new });
                let Some(record) = self.records.last_mut() else { return };
                record
            }
        };
        (record.seen, record.wants_cpu) = (true, wants_cpu);
        let Tick { now, stalled, kernel_tick, .. } = *tick;
        // The domain itself has added to the sum only at its samples.
        let others_ns = self.used_ns - record.cpu_used_ns;
        let waits = wants_cpu && member.is(State::Attached);
        let taken = self.taken.saturating_sub(std::mem::replace(&mut record.taken, self.taken));
        let waited = waits.then_some(Waited { others_ns, lost: tick.lost(), taken });
        let sample =
            Sample { now, count_ns, waited, stalled, contested, contested_grace_ppm, kernel_tick };
        record.sampled_at = now;
        let before_ns = record.account.cpu_ns;
        record.account.add_sample(sample, &member.limits, tick.rules.grace);
        self.used_ns += record.account.cpu_ns - before_ns;
        if !record.is_ordinary() {
            self.real_time_ns += record.account.cpu_ns - before_ns;
        }
        record.cpu_used_ns = self.used_ns;
        let owed_ns = u64::try_from(record.account.owed_ns).unwrap_or_default();
        // Relaxed: see `LastSample`.
        member.last_sample.owed_ns.store(owed_ns, Relaxed);
        member.last_sample.count_ns.store(count_ns, Relaxed);
        member.last_sample.at_ns.store(now.as_nanos(), Relaxed);
        record.account.has_run |= std::mem::take(&mut record.ran_before_look);
        record.note_response(last_response(member, now), before_ns);
        if record.account.has_run {
            record.idle_ticks = 0;
        }
    }

    /// Checks `member`, which has the turn while another domain waits.
    fn check_holder(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        turn: Turn,
        tick: &mut Tick<'_>,
    ) {
        let request = self.yield_request.filter(|request| request.turn == turn);
        let Some(record) = self.record_of(member) else { return };
        let cpu_ns = record.account.cpu_ns;
        let mut held_ns = record.account.overuse_ns(&member.limits, tick.rules.grace);
        match request {
            None => {
                group.kernel.request_yield(member.domain);
                self.yield_request = Some(YieldRequest { turn, at: tick.now, cpu_ns });
            }
            Some(request) if has_responded(member, request.at, tick.now) => {
                self.yield_request = None;
            }
            Some(request) => {
                let since = cpu_ns.saturating_sub(request.cpu_ns);
                held_ns = tick.rules.is_too_long(member, since).then_some(since).or(held_ns);
            }
        }
        if let Some(held_ns) = held_ns {
            self.yield_request = None;
            self.act_against(group, member, (Measure::OutPrioritised, held_ns), tick);
            revoke_turn(group, turn);
        }
    }

    /// Takes `measure` against a domain, or demotes it after too many offences. Reports the
    /// measure.
    pub(super) fn act_against(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        (measure, held_ns): (Measure, u64),
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        let raised = record.member.clone();
        record.offences += 1;
        record.penalty = Some(record.penalty_from(tick.now, true));
        group.count_offence(member);
        if record.offences >= OFFENCES_MAX {
            record.penalty = None;
            demote(group, member, held_ns, tick);
            return;
        }
        // This raises a thread in the ordinary class.
        self.raise(&raised, |member| put_below_others(group, member, tick.rules));
        tick.report_offence(group, member, measure, held_ns);
        // The domain sees that it takes no turns when it wakes.
        group.notify(member.domain);
    }

    /// Acts against domains that run away although no other domain waits.
    fn check_alone(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        for member in members.iter().filter(|member| !member.is(State::Demoted)) {
            let Some(record) = self.record_of(member) else { continue };
            if is_asleep(group, member, record.account.has_run) {
                record.response.rest(record.account.cpu_ns);
            }
            let ran_ns = *record.response.used_ns_since(record.account.cpu_ns).start();
            let far = Rules { grace: tick.rules.grace + DEMOTED_AFTER, ..*tick.rules };
            if far.is_too_long(member, ran_ns) {
                record.offences += 1;
                let penalty = Penalty { is_ordinary: true, ..record.penalty_from(tick.now, true) };
                record.penalty = Some(penalty).filter(|_| record.offences < OFFENCES_MAX);
                group.count_offence(member);
                demote(group, member, ran_ns, tick);
            } else if let Some(owed_ns) = record.account.overuse_ns(&member.limits, far.grace) {
                let penalty = Penalty { is_ordinary: true, ..record.penalty_from(tick.now, false) };
                record.penalty = Some(penalty);
                lower(group, member, owed_ns, tick);
            }
        }
    }

    /// Reinstates a domain that responded and owes nothing. Takes further measures against one that
    /// runs on.
    ///
    /// A domain that ran on though another one should run may claim to respond. Without the turn it
    /// should sleep, so it takes turns again when it does. With its priority back it would run on
    /// beside the same job of the other domain, and would keep the KLS threads from choosing. An
    /// honest domain with work without end runs on below the others and never sleeps: the host had
    /// its CPU, for example. So it takes turns again after [`PENALTY_MIN`] at the latest. One that
    /// runs on again then offends the third time.
    pub(super) fn review_penalty(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        tick: &mut Tick<'_>,
    ) {
        let is_held = self.cpu_state.departed.may_hold(group.uid, tick.now);
        let of_group = self.group_accounts.iter().find(|account| account.is_of(group));
        let group_owes = of_group.is_some_and(GroupAccount::owes);
        let is_only_user = self.group_accounts.iter().all(|account| account.is_of(group));
        let Some(record) = self.record_of(member) else { return };
        record.awaits_group &= group_owes || record.kept_ns > 0;
        if let Some(count_ns) = record.away_ns {
            // Relaxed: see `LastSample`.
            if member.last_sample.count_ns.load(Relaxed) == count_ns && !is_ready(member) {
                return;
            }
            record.away_ns = None;
            // From now on it is treated as one that was preempted.
            if let Some(penalty) = &mut record.penalty {
                penalty.is_ordinary = false;
            }
        }
        if let Some(cpu_ns) = record.lock_wait_ns {
            if record.account.cpu_ns == cpu_ns || waits_for_lock(member) {
                return;
            }
            // It stays ordinary for a while. Otherwise waits in turn would add up within one job of
            // another domain.
            record.lock_wait_ns = None;
        }
        let Some(penalty) = record.penalty else { return };
        let ran_ns = record.account.cpu_ns.saturating_sub(penalty.cpu_ns);
        let sleeps = is_asleep(group, member, true);
        let responded = sleeps || has_responded(member, penalty.at, tick.now);
        let is_past = tick.now.since(penalty.at) >= PENALTY_MIN;
        let is_over = match penalty {
            Penalty { is_offence: false, is_ordinary: false, .. } => {
                let waits = record.account.waits_for_group() || (record.is_held && is_held);
                !owes_beyond(record, tick) && !waits && !record.awaits_group
            }
            _ => record.account.owed_ns <= 0 && is_past,
        };
        let is_over = is_over && (!penalty.is_inversion || sleeps || is_past);
        // Its user owes, not the domain itself: it may run below the others.
        let may_run = record.is_held && responded && !owes_beyond(record, tick);
        let used = record.response.used_ns_since(record.account.cpu_ns);
        // Below domains that use the whole CPU it cannot respond, whatever it owes.
        let got_no_time = !responded && ran_ns < tick.rules.limit(member).as_nanos();
        // Without other users only domains of the same user lose, and they trust each other.
        let finishes_soon = is_only_user && !penalty.is_offence;
        let waits_for = if finishes_soon { tick.rules.limit(member) } else { PENALTY_MIN };
        let has_waited = got_no_time && is_over && tick.now.since(penalty.at) >= waits_for;
        let may_finish = has_waited && !penalty.is_ordinary && !penalty.is_inversion;
        if responded && is_over && !member.shows_false_rank(tick.now) {
            (record.penalty, record.is_held) = (None, false);
            let raised = record.member.clone();
            self.raise(&raised, |member| reinstate(group, member, tick.rules));
        } else if !penalty.is_ordinary && ran_ns > DEMOTED_AFTER.as_nanos() && !may_run {
            // This applies even if the domain responds: it gets no more CPU time in the real-time
            // class.
            record.penalty = Some(Penalty { is_ordinary: true, ..penalty });
            if penalty.is_offence {
                group.count_offence(member);
                demote(group, member, ran_ns, tick);
            } else {
                lower(group, member, ran_ns, tick);
            }
        } else if penalty.is_offence && may_finish && !member.shows_false_rank(tick.now) {
            record.penalty = None;
            let raised = record.member.clone();
            self.raise(&raised, |member| let_finish_quantum(group, member, tick.rules));
        } else if !penalty.is_offence && !responded && !record.is_held {
            if tick.rules.is_too_long(member, *used.start()) {
                let measure = (Measure::OutPrioritised, *used.start());
                self.act_against(group, member, measure, tick);
            } else if may_finish || is_over && *used.end() < tick.rules.limit(member).as_nanos() {
                record.penalty = None;
                let raised = record.member.clone();
                self.raise(&raised, |member| let_finish_quantum(group, member, tick.rules));
            }
        }
    }

    /// Repairs the turn page. Punishes domains that wrote invalid values into their own area, which
    /// no other domain can write.
    fn check_memory(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        if group.turn.audit().is_err() {
            group.turn.repair();
        }
        for member in members.iter() {
            if member.is(State::Demoted) || member.area.audit().is_ok() {
                continue;
            }
            let Some(record) = self.record_of(member) else { continue };
            // The domain is broken, so it is demoted at once.
            record.offences = record.offences.max(OFFENCES_MAX - 1);
            let used_ns = record.account.used_ns;
            self.act_against(group, member, (Measure::OutPrioritised, used_ns), tick);
        }
    }

    /// Checks for ranks that were not granted. One such tick is no offence: the domain may not know
    /// yet what it was granted.
    fn check_ranks(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        for member in members.iter() {
            let is_false = !member.is(State::Demoted) && member.shows_false_rank(tick.now);
            let Some(record) = self.record_of(member) else { continue };
            record.false_rank_ticks = if is_false { record.false_rank_ticks + 1 } else { 0 };
            if record.false_rank_ticks >= FALSE_RANK_TICKS_MAX {
                record.false_rank_ticks = 0;
                let used_ns = record.account.used_ns;
                self.act_against(group, member, (Measure::Disbelieved, used_ns), tick);
            }
        }
    }

    /// Checks a domain without the turn. It should sleep, except for the rest of a quantum in which
    /// it was blocked.
    fn check_without_turn(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        has_turn: DomainId,
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        let responded =
            record.awake_without_turn.is_some_and(|(_, at)| has_responded(member, at, tick.now));
        let sleeps = is_asleep(group, member, record.account.has_run);
        let is_well = has_turn == member.domain || sleeps || responded;
        if member.is(State::Demoted) || is_well {
            record.awake_without_turn = None;
            // A response may be fake; the CPU time is not.
            if responded
                && !member.is(State::Demoted)
                && let Some(used_ns) = record.account.overuse_ns(&member.limits, tick.rules.grace)
            {
                self.act_against(group, member, (Measure::OutPrioritised, used_ns), tick);
            }
            return;
        }
        let (since_cpu_ns, _) =
            *record.awake_without_turn.get_or_insert((record.account.cpu_ns, tick.now));
        let ran_ns = record.account.cpu_ns.saturating_sub(since_cpu_ns);
        if tick.rules.is_too_long(member, ran_ns) {
            self.act_against(group, member, (Measure::OutPrioritised, ran_ns), tick);
        }
    }

    pub(super) fn record_of(&mut self, member: &Member) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| core::ptr::eq(&*record.member, member))
    }
}

/// Whether a member of the group other than the holder has work.
fn has_waiting_member(
    group: &DomainGroup,
    members: &Members,
    has_turn: DomainId,
    now: Instant,
) -> bool {
    let others = members.iter().filter(|member| member.domain != has_turn);
    let mut present = others.filter(|member| group.is_present(member));
    present.any(|member| member.wants_cpu(now))
}

/// Whether a domain owes more than one that takes turns may.
fn owes_beyond(record: &Record, tick: &Tick<'_>) -> bool {
    record.account.overuse_ns(&record.member.limits, tick.rules.debt_max()).is_some()
}

/// When a domain last responded. A time in the future is false and does not count.
pub(super) fn last_response(member: &Member, now: Instant) -> Instant {
    let Ok(running) = member.area.running() else { return Instant::ZERO };
    let times = [running.upcalled_at_ns, running.asked_at_ns].map(Instant::from_nanos);
    // The domain may have responded since `now` was read.
    let now = if times.iter().any(|&at| at > now) { crate::clock::now().max(now) } else { now };
    times.into_iter().filter(|&at| at <= now).max().unwrap_or(Instant::ZERO)
}

/// Whether a domain has responded since `asked_at`.
fn has_responded(member: &Member, asked_at: Instant, now: Instant) -> bool {
    last_response(member, now) >= asked_at
}
