//! Sees to it that a domain that should yield does.
//!
//! One thread above all domains, on a CPU that has none of them if there is one. Every
//! 5 ms it looks at whoever has the turn on each CPU while somebody else waits for it, and
//! at what each domain has used.
//!
//! ```text
//!   keeps to the rules -- (1) somebody waits --> asked -- (2) sign of life --+
//!     ^           ^                               |                          |
//!     |           +-------------------------------|--------------------------+
//!     |                                           | (3) its quantum and the grace used up
//!     +------- (4) a sign, and nothing owed ---- out-prioritised
//!     |                                           | (5) runs on, or did so too often
//!     |                                           v
//!     +----------------- (4) ----------------- demoted ---- (6) if so configured ---> killed
//! ```
//!
//! 1. A yield request in the kernel area: at its next boundary the domain looks at the others.
//! 2. It asked whether it may go on, made an upcall, or passed the turn.
//! 3. In CPU time of its thread, so that neither a wait nor a stopped process counts, and
//!    less what the host took of it and did not say (`meter`). A domain that runs without
//!    having the turn is not asked first. Its thread sinks beneath the KLS thread and takes
//!    no turns, and the others go on.
//! 4. Its thread is raised again, and it takes turns.
//! 5. In the ordinary class it may run on, without turns, so that the real-time class
//!    stays under what Linux grants it; the way back is (4), but not after too many
//!    offences.
//! 6. The server sends SIGKILL.
//!
//! A domain may lie about signs of life. A rank that it was not admitted with is found at
//! the second look (`ranks`): then it is out-prioritised, and has nothing until it
//! shows the right ones. What it cannot lie about is CPU time: whatever it uses beyond what was reserved for it, it owes; who owes more than two
//! jobs of each of its activities and the grace, and has the turn while somebody waits,
//! has offended too, unless it has activities that admission refused.

use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;
pub use upcall_shm::Measure;
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_sys::process::{ThreadState, cpu_time_of, thread_id, thread_state, wait_time_of};
use upcall_sys::schedule::Band;
use upcall_sys::{clock, schedule};

use crate::clock::now;
use crate::cpu::{CpuState, Known};
use crate::group::{DomainGroup, Member, Members};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

mod account;
mod meter;
#[cfg(test)]
mod tests;

use account::{Account, Look};

/// How often it looks.
pub(crate) const TICK: Span = Span::from_millis(5);
/// So many ticks may a domain have the turn, not run, and keep another user waiting.
const IDLE_TICKS_MAX: u32 = 3;
/// At so many ticks in succession a false rank is a lie.
const LIES_MAX: u32 = 2;
/// CPU time that one who was out-prioritised may use before it is demoted.
const DEMOTED_AFTER: Span = Span::from_millis(50);
/// The offence at which a domain is demoted at once.
const OFFENCES_MAX: u64 = 3;
/// For so long at least an offender is beneath the others.
const SUNK_MIN: Span = Span::from_millis(50);

/// The watchdog had to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offence {
    pub(crate) cpu: u32,
    pub(crate) generation: u64,
    pub(crate) measure: Measure,
    /// How long it had kept the CPU, in ns.
    pub(crate) held_ns: u64,
}

/// How it is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// `None`: without the real-time class.
    pub(crate) band: Option<Band>,
    /// Added to the longest quantum.
    pub(crate) grace: Span,
    pub(crate) kill: bool,
}

/// See the module's head.
pub(crate) struct Watchdog<R> {
    rules: Rules,
    /// Where it may run itself; empty: anywhere.
    cpus: Vec<u32>,
    cpu_states: Vec<Watch>,
    report: R,
    quit: Arc<AtomicBool>,
}

/// One look at one CPU: when it is, by which rules, and whom to tell.
struct Tick<'t> {
    now: Instant,
    /// For so long at least the machine stood still before it.
    still: Span,
    kernel_tick: Span,
    rules: &'t Rules,
    report: &'t mut dyn FnMut(Offence),
}

/// One CPU, as the watchdog remembers it.
struct Watch {
    cpu_state: Arc<CpuState>,
    known: Known,
    asked: Option<Asked>,
    records: Vec<Record>,
}

/// A holder that was asked to yield.
#[derive(Clone, Copy)]
struct Asked {
    turn: Turn,
    at: Instant,
    /// Of its thread, then.
    cpu_ns: u64,
}

/// A domain, as the watchdog remembers it.
struct Record {
    member: Arc<Member>,
    offences: u64,
    account: Account,
    /// CPU time as it was when it was first seen awake without the turn, and when; `None`: it
    /// is not, or has given a sign since.
    stray: Option<(u64, Instant)>,
    /// `None`: it takes turns, or has offended too often to do so again.
    sunk: Option<Sunk>,
    /// Ticks at which it had the turn and made nothing of it, since it ran last.
    idle_ticks: u32,
    /// CPU time of its KLS thread at the last of them.
    kls_ns: u64,
    /// Ticks in succession at which it showed a rank that it was not admitted with.
    lies: u32,
    seen: bool,
}

/// A domain that was put beneath the others.
#[derive(Clone, Copy)]
struct Sunk {
    /// CPU time of its thread then.
    cpu_ns: u64,
    at: Instant,
    /// It was put into the ordinary class since.
    is_ordinary: bool,
}

impl<R: FnMut(Offence)> Watchdog<R> {
    pub(crate) fn new(
        (cpu_states, allowed): (&[Arc<CpuState>], &[u32]),
        rules: Rules,
        quit: Arc<AtomicBool>,
        report: R,
    ) -> Self {
        let watch = |cpu_state: &Arc<CpuState>| {
            let (cpu_state, known) = (cpu_state.clone(), Known::default());
            Watch { cpu_state, known, asked: None, records: Vec::new() }
        };
        let cpus = beside(cpu_states, allowed);
        Watchdog { rules, cpus, cpu_states: cpu_states.iter().map(watch).collect(), report, quit }
    }

    /// Runs until told to quit, in a thread of its own.
    pub(crate) fn run(mut self) {
        if !self.cpus.is_empty() {
            // A CPU that went away: then it preempts those it guards.
            let _ = schedule::pin_thread(&self.cpus);
        }
        if let Some(band) = self.rules.band {
            let _ = schedule::set_fifo(band.watchdog());
        }
        let _ = schedule::set_timer_slack_least();
        let kernel_tick = Span::from_nanos(clock::kernel_tick_ns());
        let (mut woke, mut waited) = (now(), own_wait());
        // Relaxed: nothing is handed over with it.
        while !self.quit.load(Relaxed) {
            // After a late one too there is a tick between two looks.
            let at = (woke + TICK).max(now());
            clock::sleep_until_ns(at.as_nanos());
            woke = now();
            let before = std::mem::replace(&mut waited, own_wait());
            let since = before.zip(waited).map(|(before, now)| now.saturating_sub(before));
            let still = meter::stood_still(woke.since(at), since);
            for watch in &mut self.cpu_states {
                let (rules, report) = (&self.rules, &mut self.report);
                watch.look(&mut Tick { now: now(), still, kernel_tick, rules, report });
            }
        }
    }
}

/// How long the calling thread waited for others so far, where the kernel counts that.
fn own_wait() -> Option<Span> {
    wait_time_of(std::process::id(), thread_id()).ok().map(Span::from_nanos)
}

/// The CPUs of `allowed` that have no domains: there it preempts none at each tick, and
/// none that took a higher priority keeps it from looking. Without such a CPU, none.
fn beside(cpu_states: &[Arc<CpuState>], allowed: &[u32]) -> Vec<u32> {
    let is_free = |cpu: &u32| cpu_states.iter().all(|cpu_state| cpu_state.cpu != *cpu);
    allowed.iter().copied().filter(is_free).collect()
}

impl Watch {
    fn look(&mut self, tick: &mut Tick<'_>) {
        let mut known = std::mem::take(&mut self.known);
        known.refresh(&self.cpu_state);
        for record in &mut self.records {
            record.seen = false;
        }
        let (mut waits, mut elsewhere, mut holder) = (false, false, None);
        let now = tick.now;
        for (group, members) in known.groups() {
            let turn = group.turn.turn().ok().map(Turn::holder);
            for member in members.iter() {
                let wants_cpu = member.wants_cpu(now) || turn == Some(member.domain);
                self.see(member, tick, wants_cpu);
            }
            self.see_to_offenders(group, members, tick);
            self.see_to_scribblers(group, members, tick);
            self.see_to_liars(group, members, tick);
            let Ok(turn) = group.turn_or_reset() else { continue };
            // Who wrote that he has it, where no domain has it, has not.
            let is_held = self.cpu_state.is_held(group);
            let has_turn = if is_held { turn.holder() } else { DomainId::DAEMON };
            for member in members.iter() {
                self.see_to_stray(group, member, has_turn, tick);
                see_to_returner(group, member, has_turn, tick.rules);
            }
            if let Some(member) = members.iter().find(|member| member.domain == has_turn) {
                holder = Some((group, member, turn));
            }
            let somebody = somebody_waits(group, members, has_turn, now);
            waits = waits || somebody;
            elsewhere = elsewhere || (somebody && !is_held);
        }
        self.records.retain(|record| record.seen);
        if let Some((group, member, turn)) = holder.filter(|_| elsewhere) {
            // Its domains cannot see who became ready since it got the CPU.
            if known.show_others(group, now) {
                let _ = group.turn.request_recheck();
            }
            self.see_to_idler(group, member, turn, tick);
        }
        match holder.filter(|_| waits) {
            Some((group, member, turn)) => self.hold(group, member, turn, tick),
            None => self.asked = None,
        }
        if waits && holder.is_none_or(|(_, member, _)| self.is_idle(member)) {
            // By the rules its thread is awake, or about to be.
            known.groups().for_each(|(group, _)| group.rouse());
        }
        self.known = known;
    }

    /// Whether a domain used no CPU time since the last look.
    fn is_idle(&mut self, member: &Member) -> bool {
        self.record_of(member).is_some_and(|record| !record.account.has_run)
    }

    /// `member` has the turn, uses no CPU time, and does not run; another user waits. If
    /// it is blocked, its KLS thread passes over it at once; it goes on so only where
    /// somebody writes all the while that it sleeps on its bell, and is to be woken.
    fn see_to_idler(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        turn: Turn,
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        // Without the real-time class it may only be kept from running.
        let running = thread_state(member.pid, member.tid) == Ok(ThreadState::Running);
        if record.account.has_run || running || tick.rules.band.is_none() {
            return;
        }
        if record.idled_too_long(group.kls_account()) {
            self.offended(group, member, (Measure::OutPrioritised, 0), tick);
            take(group, turn);
        }
    }

    /// Keeps the record of a domain, its use of CPU time above all.
    fn see(&mut self, member: &Arc<Member>, tick: &Tick<'_>, wants_cpu: bool) {
        let count_ns = cpu_time_of(member.pid, member.tid).unwrap_or_else(|_| {
            // The process has ended, or become another program.
            lower_leader(member, tick.rules.band);
            0
        });
        let known = self.records.iter_mut().find(|record| Arc::ptr_eq(&record.member, member));
        let record = match known {
            Some(record) => record,
            None => {
                self.records.push(Record::new(member.clone()));
                let Some(record) = self.records.last_mut() else { return };
                record
            }
        };
        record.seen = true;
        let Tick { now, still, kernel_tick, .. } = *tick;
        let look = Look { now, count_ns, wants_cpu, still, kernel_tick };
        record.account.enter(look, &member.limits, tick.rules.grace);
        if record.account.has_run {
            record.idle_ticks = 0;
        }
    }

    /// `member` has the turn while somebody waits.
    fn hold(&mut self, group: &DomainGroup, member: &Member, turn: Turn, tick: &mut Tick<'_>) {
        let asked = self.asked.filter(|asked| asked.turn == turn);
        let Some(record) = self.record_of(member) else { return };
        let cpu_ns = record.account.cpu_ns;
        let mut held_ns = record.account.overuse_ns(&member.limits, tick.rules.grace);
        match asked {
            None => {
                group.kernel.request_yield(member.domain);
                self.asked = Some(Asked { turn, at: tick.now, cpu_ns });
            }
            Some(asked) if gave_a_sign(member, asked.at, tick.now) => {
                self.asked = None;
            }
            Some(asked) => {
                let since = cpu_ns.saturating_sub(asked.cpu_ns);
                held_ns = tick.rules.is_too_long(member, since).then_some(since).or(held_ns);
            }
        }
        if let Some(held_ns) = held_ns {
            self.asked = None;
            self.offended(group, member, (Measure::OutPrioritised, held_ns), tick);
            take(group, turn);
        }
    }

    /// Acts, and tells it as that, or as what is harder where it has offended too often.
    fn offended(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        (measure, held_ns): (Measure, u64),
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        record.offences += 1;
        record.sunk =
            Some(Sunk { cpu_ns: record.account.cpu_ns, at: tick.now, is_ordinary: false });
        group.count_offence(member);
        if record.offences >= OFFENCES_MAX {
            record.sunk = None;
            demote(group, member, held_ns, tick);
            return;
        }
        // First of all: the KLS thread, which may just raise it, looks at that afterwards.
        group.set_state(member, State::Demoted);
        if let Some(band) = tick.rules.band {
            // Refused only if it has ended.
            let _ = schedule::set_fifo_not_inherited_of(member.tid, band.offender());
        }
        tick.tell(group, member, measure, held_ns);
        // It sees that it takes no turns when it wakes.
        group.notify(member.domain);
    }

    /// Raises who gave a sign and owes nothing, and demotes who runs on.
    fn see_to_offenders(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        for member in members.iter() {
            let Some(record) = self.record_of(member) else { continue };
            let Some(sunk) = record.sunk else { continue };
            let ran_ns = record.account.cpu_ns.saturating_sub(sunk.cpu_ns);
            let sign = group.is_asleep(member) || gave_a_sign(member, sunk.at, tick.now);
            let is_over = record.account.owed_ns <= 0 && tick.now.since(sunk.at) >= SUNK_MIN;
            if sign && is_over && !member.shows_false_rank(tick.now) {
                record.sunk = None;
                raise(group, member, tick.rules);
            } else if !sunk.is_ordinary && ran_ns > DEMOTED_AFTER.as_nanos() {
                // Signs or not: so much of the real-time class is not for it.
                record.sunk = Some(Sunk { is_ordinary: true, ..sunk });
                group.count_offence(member);
                demote(group, member, ran_ns, tick);
            }
        }
    }

    /// Puts the turn page right. Who wrote where it has nothing to write, and nobody else
    /// can, is told by its own area.
    fn see_to_scribblers(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        if group.turn.audit().is_err() {
            group.turn.repair();
        }
        for member in members.iter() {
            if member.is(State::Demoted) || member.area.audit().is_ok() {
                continue;
            }
            let Some(record) = self.record_of(member) else { continue };
            // No second chance: it is broken.
            record.offences = record.offences.max(OFFENCES_MAX - 1);
            let used_ns = record.account.used_ns;
            self.offended(group, member, (Measure::OutPrioritised, used_ns), tick);
        }
    }

    /// A rank that it was not admitted with. At one look it may be that the domain is just
    /// coming to know of what it was granted.
    fn see_to_liars(&mut self, group: &DomainGroup, members: &Members, tick: &mut Tick<'_>) {
        for member in members.iter() {
            let lies = !member.is(State::Demoted) && member.shows_false_rank(tick.now);
            let Some(record) = self.record_of(member) else { continue };
            record.lies = if lies { record.lies + 1 } else { 0 };
            if record.lies >= LIES_MAX {
                record.lies = 0;
                let used_ns = record.account.used_ns;
                self.offended(group, member, (Measure::Disbelieved, used_ns), tick);
            }
        }
    }

    /// Who has not got the turn should sleep, but for what is left of a quantum in which
    /// it was blocked.
    fn see_to_stray(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        has_turn: DomainId,
        tick: &mut Tick<'_>,
    ) {
        let Some(record) = self.record_of(member) else { return };
        let sign = record.stray.is_some_and(|(_, at)| gave_a_sign(member, at, tick.now));
        let is_well = has_turn == member.domain || group.is_asleep(member) || sign;
        if member.is(State::Demoted) || is_well {
            record.stray = None;
            // Signs may be false; what it used is not.
            if sign
                && !member.is(State::Demoted)
                && let Some(used_ns) = record.account.overuse_ns(&member.limits, tick.rules.grace)
            {
                self.offended(group, member, (Measure::OutPrioritised, used_ns), tick);
            }
            return;
        }
        let (since_cpu_ns, _) = *record.stray.get_or_insert((record.account.cpu_ns, tick.now));
        let ran_ns = record.account.cpu_ns.saturating_sub(since_cpu_ns);
        if tick.rules.is_too_long(member, ran_ns) {
            self.offended(group, member, (Measure::OutPrioritised, ran_ns), tick);
        }
    }

    fn record_of(&mut self, member: &Member) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| core::ptr::eq(&*record.member, member))
    }
}

impl Rules {
    /// Whether `ran_ns` of CPU time is more than `member` may run without asking.
    fn is_too_long(&self, member: &Member, ran_ns: u64) -> bool {
        let quantum = Span::from_nanos(member.limits.quantum_ns_max.load(Relaxed));
        ran_ns > (quantum + self.grace).as_nanos()
    }
}

impl Tick<'_> {
    fn tell(&mut self, group: &DomainGroup, member: &Member, measure: Measure, held_ns: u64) {
        let generation = member.generation.get();
        (self.report)(Offence { cpu: group.cpu, generation, measure, held_ns });
    }
}

impl Record {
    fn new(member: Arc<Member>) -> Self {
        Record {
            member,
            offences: 0,
            account: Account::default(),
            stray: None,
            sunk: None,
            idle_ticks: 0,
            kls_ns: 0,
            lies: 0,
            seen: true,
        }
    }

    /// At another look it had the turn and made nothing of it; whether that was once too often. Such
    /// a look does not count if its KLS thread, which is to wake it or to pass over it, is ready and has
    /// not run since the last: the machine keeps it from that, or somebody who is found in other ways.
    fn idled_too_long(&mut self, (kls_is_ready, kls_ns): (bool, u64)) -> bool {
        let kls_has_run = std::mem::replace(&mut self.kls_ns, kls_ns) != kls_ns;
        if kls_is_ready && !kls_has_run {
            return false;
        }
        self.idle_ticks += 1;
        let is_too_long = self.idle_ticks > IDLE_TICKS_MAX;
        if is_too_long {
            self.idle_ticks = 0;
        }
        is_too_long
    }
}

fn raise(group: &DomainGroup, member: &Member, rules: &Rules) {
    if let Some(band) = rules.band {
        // Refused only if it has ended.
        let _ = schedule::set_fifo_not_inherited_of(member.tid, band.handlers());
    }
    group.set_state(member, State::Attached);
    // So that it shows what it has.
    group.notify(member.domain);
}

/// Who was blocked amid its turn and has come to a boundary, or has the turn again, is no
/// longer above the others. Until a tick later it may still be, which costs nobody a
/// quantum: without the turn it only shows what it has.
fn see_to_returner(group: &DomainGroup, member: &Member, has_turn: DomainId, rules: &Rules) {
    let Some(band) = rules.band else { return };
    let is_back = group.is_present(member) || has_turn == member.domain;
    let is_raised = || {
        let raised = schedule::Class::Fifo { priority: band.returner() };
        schedule::class_of(member.tid).is_ok_and(|class| class == raised)
    };
    if is_back && is_raised() {
        // Refused only if it has ended.
        let _ = schedule::set_fifo_not_inherited_of(member.tid, band.handlers());
    }
}

fn demote(group: &DomainGroup, member: &Member, held_ns: u64, tick: &mut Tick<'_>) {
    group.set_state(member, State::Demoted);
    if tick.rules.band.is_some() {
        let _ = schedule::set_ordinary_of(member.tid);
    }
    tick.tell(group, member, Measure::Demoted, held_ns);
    if tick.rules.kill {
        tick.tell(group, member, Measure::Killed, held_ns);
    }
    // It sees that it is alone when it wakes.
    group.notify(member.domain);
}

/// Somebody of the group but the holder has something to do.
fn somebody_waits(
    group: &DomainGroup,
    members: &Members,
    has_turn: DomainId,
    now: Instant,
) -> bool {
    let others = members.iter().filter(|member| member.domain != has_turn);
    let mut present = others.filter(|member| group.is_present(member));
    present.any(|member| member.wants_cpu(now))
}

/// Whether a domain said something since it was asked. A time that has not come yet is
/// a lie.
fn gave_a_sign(member: &Member, asked_at: Instant, now: Instant) -> bool {
    let Ok(running) = member.area.running() else { return false };
    let within = asked_at.as_nanos()..=now.as_nanos();
    within.contains(&running.upcalled_at_ns) || within.contains(&running.asked_at_ns)
}

/// After an exec it is the process's first thread that has the class of ours.
pub(crate) fn lower_leader(member: &Member, band: Option<Band>) {
    let Some(band) = band else { return };
    let ours = [band.handlers(), band.returner(), band.offender()];
    if let Ok(schedule::Class::Fifo { priority }) = schedule::class_of(member.pid)
        && ours.contains(&priority)
    {
        let _ = schedule::set_ordinary_of(member.pid);
    }
}

fn take(group: &DomainGroup, turn: Turn) {
    if group.turn.pass(turn, DomainId::DAEMON) {
        group.notify(DomainId::DAEMON);
    }
}
