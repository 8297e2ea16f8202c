//! The watchdog's checks of one CPU, from tick to tick.

use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_shm::{DomainId, Measure};
use upcall_sys::process::{ThreadState, cpu_time_of, thread_state};
use upcall_sys::schedule;

use super::account::Sample;
use super::measures::{demote, lower_leader, lower_returner, reinstate, revoke_turn};
use super::record::{Penalty, Record};
use super::tick::Tick;
use crate::cpu::{CpuState, CpuView};
use crate::group::{DomainGroup, Member, Members};

/// At so many successive ticks with a false rank the domain is no longer believed.
const FALSE_RANK_TICKS_MAX: u32 = 2;
/// CPU time that an out-prioritised domain may use before it is demoted.
const DEMOTED_AFTER: Span = Span::from_millis(50);
/// From this number of offences on, a domain is demoted at once.
const OFFENCES_MAX: u64 = 3;
/// The shortest time for which an offender stays below the other domains.
const PENALTY_MIN: Span = Span::from_millis(50);

/// One CPU and the records of its domains.
pub(super) struct CpuWatch {
    cpu_state: Arc<CpuState>,
    view: CpuView,
    yield_request: Option<YieldRequest>,
    records: Vec<Record>,
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
        CpuWatch { cpu_state, view: CpuView::default(), yield_request: None, records: Vec::new() }
    }

    /// All checks of one tick.
    pub(super) fn check(&mut self, tick: &mut Tick<'_>) {
        let mut view = std::mem::take(&mut self.view);
        view.refresh(&self.cpu_state);
        for record in &mut self.records {
            record.seen = false;
        }
        let (mut waits, mut others_wait, mut holder) = (false, false, None);
        let mut has_others = false;
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
            has_others = has_others || (!is_held && !members.is_empty());
        }
        self.records.retain(|record| record.seen);
        if let Some((group, member, turn)) = holder.filter(|_| others_wait) {
            // The domains of that group cannot see work of other users that came after it got the
            // CPU.
            if view.publish_others(group, now) {
                let _ = group.turn.set_need_resched();
            }
            self.check_idle_holder(group, member, turn, tick);
        }
        if let Some((group, member, _)) = holder.filter(|_| has_others) {
            // Domains of other users may have been woken, and publish their work only once they
            // run (docs/decisions/0017).
            group.kernel.request_yield(member.domain);
        }
        match holder.filter(|_| waits) {
            Some((group, member, turn)) => self.check_holder(group, member, turn, tick),
            None => self.yield_request = None,
        }
        if waits && holder.is_none_or(|(_, member, _)| self.has_not_run(member)) {
            // The KLS threads should be awake by now. This helps if a domain overwrote a wake word.
            view.groups().for_each(|(group, _)| group.wake_kls());
        }
        self.view = view;
    }

    /// The checks of a group's members that do not depend on the holder of the turn.
    fn check_members(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        let holder = group.turn.turn().ok().map(Turn::holder);
        for member in members.iter() {
            let wants_cpu = member.wants_cpu(tick.now) || holder == Some(member.domain);
            self.update_record(member, tick, wants_cpu);
        }
        self.review_penalties(group, members, tick);
        self.check_memory(group, members, tick);
        self.check_ranks(group, members, tick);
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
        let running = thread_state(member.pid, member.tid) == Ok(ThreadState::Running);
        if record.account.has_run || running || tick.rules.band.is_none() {
            return;
        }
        if record.count_idle_tick(group.kls_usage()) {
            self.act_against(group, member, (Measure::OutPrioritised, 0), tick);
            revoke_turn(group, turn);
        }
    }

    /// Updates the record of a domain, mainly its CPU time.
    fn update_record(&mut self, member: &Arc<Member>, tick: &Tick<'_>, wants_cpu: bool) {
        let count_ns = cpu_time_of(member.pid, member.tid).unwrap_or_else(|_| {
            // The process has ended, or has executed another program.
            lower_leader(member, tick.rules.band);
            0
        });
        let found = self.records.iter_mut().find(|record| Arc::ptr_eq(&record.member, member));
        let record = match found {
            Some(record) => record,
            None => {
                self.records.push(Record::new(member.clone()));
                let Some(record) = self.records.last_mut() else { return };
                record
            }
        };
        record.seen = true;
        let Tick { now, stalled, kernel_tick, .. } = *tick;
        let sample = Sample { now, count_ns, wants_cpu, stalled, kernel_tick };
        record.account.add_sample(sample, &member.limits, tick.rules.grace);
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
    fn act_against(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        (measure, held_ns): (Measure, u64),
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        record.offences += 1;
        record.penalty =
            Some(Penalty { cpu_ns: record.account.cpu_ns, at: tick.now, is_ordinary: false });
        group.count_offence(member);
        if record.offences >= OFFENCES_MAX {
            record.penalty = None;
            demote(group, member, held_ns, tick);
            return;
        }
        // The state changes first, because the KLS thread may raise the thread now and checks the
        // state afterwards.
        group.set_state(member, State::Demoted);
        if let Some(band) = tick.rules.band {
            // Fails only if the thread has ended.
            let _ = schedule::set_fifo_not_inherited_of(member.tid, band.offender());
        }
        tick.report_offence(group, member, measure, held_ns);
        // The domain sees that it takes no turns when it wakes.
        group.notify(member.domain);
    }

    /// Reinstates domains that responded and owe nothing. Demotes those that run on.
    fn review_penalties(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        for member in members.iter() {
            let Some(record) = self.record_of(member) else { continue };
            let Some(penalty) = record.penalty else { continue };
            let ran_ns = record.account.cpu_ns.saturating_sub(penalty.cpu_ns);
            let responded = group.is_asleep(member) || has_responded(member, penalty.at, tick.now);
            let is_over = record.account.owed_ns <= 0 && tick.now.since(penalty.at) >= PENALTY_MIN;
            if responded && is_over && !member.shows_false_rank(tick.now) {
                record.penalty = None;
                reinstate(group, member, tick.rules);
            } else if !penalty.is_ordinary && ran_ns > DEMOTED_AFTER.as_nanos() {
                // This applies even if the domain responds: an offender gets no more CPU time in
                // the real-time class.
                record.penalty = Some(Penalty { is_ordinary: true, ..penalty });
                group.count_offence(member);
                demote(group, member, ran_ns, tick);
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
        let is_well = has_turn == member.domain || group.is_asleep(member) || responded;
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

    fn record_of(&mut self, member: &Member) -> Option<&mut Record> {
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

/// Whether a domain has responded since `asked_at`. A time in the future is false and does not
/// count.
fn has_responded(member: &Member, asked_at: Instant, now: Instant) -> bool {
    let Ok(running) = member.area.running() else { return false };
    let within = asked_at.as_nanos()..=now.as_nanos();
    within.contains(&running.upcalled_at_ns) || within.contains(&running.asked_at_ns)
}
