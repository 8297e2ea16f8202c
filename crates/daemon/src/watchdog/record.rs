//! The record of a domain that the watchdog keeps from tick to tick.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_sys::process::{LockWait, ThreadState};

use super::account::Account;
use super::tick::{Rules, Tick};
use crate::group::{DomainGroup, Member};

/// The number of ticks for which a domain may have the turn without running while another user
/// waits.
pub(super) const IDLE_TICKS_MAX: u32 = 3;

/// The number of times that something must happen, each within this time of the one before, to be
/// an offence.
const REPEATS_MAX: u32 = 3;
const REPEATS_WITHIN: Span = Span::from_secs(1);
/// The longest job of work without a reservation that may end while such work is to wait.
const JOB_MAX: Span = Span::from_millis(10);

/// A domain and its record.
pub(super) struct Record {
    pub(super) member: Arc<Member>,
    pub(super) offences: u64,
    pub(super) account: Account,
    /// The CPU time of it that the account of its group contains.
    pub(super) charged_ns: u64,
    /// The time for which others were kept from the CPU while it was away, which the account of its
    /// group does not contain yet.
    pub(super) kept_ns: u64,
    /// When the last sample was added to the account, and what all domains of the CPU had used.
    pub(super) sampled_at: Instant,
    pub(super) cpu_used_ns: u64,
    /// What the host had taken from the CPU then.
    pub(super) taken: Span,
    /// The CPU time and the time at which it was first seen awake without the turn. `None`: it
    /// sleeps, has the turn, or has responded since.
    pub(super) awake_without_turn: Option<(u64, Instant)>,
    /// `None`: it takes turns, or has offended too often to do so again.
    pub(super) penalty: Option<Penalty>,
    /// Whether it began below the others because its user owes ([`crate::departed`]).
    pub(super) is_held: bool,
    pub(super) response: Response,
    /// `Some`, with the time: a look found that it does not yield.
    pub(super) suspicion: Option<(Suspicion, Instant)>,
    /// CPU time of its thread at that look.
    pub(super) suspected_ns: u64,
    /// The response since which a look found that its thread was ready and got no CPU time.
    pub(super) kept_since: Option<Instant>,
    /// Since when it has kept a turn, or has run beside a turn, that it should not.
    pub(super) passed_over: Option<PassedOver>,
    /// How often it ran on so lately.
    pub(super) inversions: Repeats,
    /// How often its thread might have run on another CPU lately (`left_cpu`).
    pub(super) absences: Repeats,
    /// How often it waited for a priority-inheritance lock lately (`lock_waits`).
    pub(super) lock_waits: Repeats,
    /// It was put away for such a wait, and had used this CPU time by then.
    pub(super) lock_wait_ns: Option<u64>,
    /// Whether it has run between the last tick and the last look.
    pub(super) ran_before_look: bool,
    /// The number of ticks since it last ran at which it had the turn and did not run.
    pub(super) idle_ticks: u32,
    /// The number of ticks since it last ran.
    pub(super) still_ticks: u32,
    /// CPU time of its KLS thread at the last of these ticks.
    pub(super) kls_ns: u64,
    /// Successive ticks at which it showed a rank that it was not admitted with.
    pub(super) false_rank_ticks: u32,
    /// When it was last raised because it was ready and silent (`away`).
    pub(super) raised_at: Option<Instant>,
    /// It was woken because no domain got the CPU, and the kernel counted this CPU time then.
    pub(super) woken_ns: Option<u64>,
    /// What it had used when work without a reservation began to wait (`kept_free`).
    pub(super) waiting_ns: Option<u64>,
    /// It waits in the kernel, and is ordinary until the kernel counts more CPU time than this.
    pub(super) away_ns: Option<u64>,
    /// Whether it is unknown yet for how long others were kept from the CPU meanwhile.
    pub(super) is_unsettled: bool,
    /// Whether it takes turns again only when its group owes nothing: it was away, and others were
    /// kept from the CPU. Otherwise each domain of a swarm would pay at its own rate.
    pub(super) awaits_group: bool,
    /// Whether it wanted the CPU at this tick.
    pub(super) wants_cpu: bool,
    pub(super) seen: bool,
}

/// Why a domain runs below the others, without turns, and since when.
#[derive(Clone, Copy)]
pub(super) struct Penalty {
    /// CPU time of its thread at the measure.
    pub(super) cpu_ns: u64,
    pub(super) at: Instant,
    /// Whether its thread is in the ordinary class.
    pub(super) is_ordinary: bool,
    /// Whether it is for an offence. Otherwise the domain was preempted, or owes.
    pub(super) is_offence: bool,
    /// Whether the domain ran for its quantum and 1 ms of CPU time though another one should run.
    /// Its responses may be false.
    pub(super) is_inversion: bool,
}

/// The last response of a domain, and the CPU time of its thread around it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Response {
    pub(super) at: Instant,
    /// At the last sample before it, and at the first one after it.
    before_ns: u64,
    after_ns: u64,
}

impl Response {
    /// The domain sleeps: CPU time used so far does not count.
    pub(super) fn rest(&mut self, cpu_ns: u64) {
        self.after_ns = cpu_ns;
    }

    /// The least and the most CPU time used since the response, which the thread has now used in
    /// all.
    pub(super) fn used_ns_since(&self, cpu_ns: u64) -> std::ops::RangeInclusive<u64> {
        cpu_ns.saturating_sub(self.after_ns)..=cpu_ns.saturating_sub(self.before_ns)
    }
}

/// How often something has happened lately, and when last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeats {
    count: u32,
    last: Instant,
}

impl Repeats {
    /// Counts that it happens now. Returns whether that is one too many within a short time.
    pub(super) fn is_one_too_many(&mut self, now: Instant) -> bool {
        let is_repeated = now.since(self.last) < REPEATS_WITHIN;
        self.count = if is_repeated { self.count.saturating_add(1) } else { 1 };
        self.last = now;
        self.count >= REPEATS_MAX
    }
}

/// A domain that the watchdog raised between two moments.
#[derive(Debug)]
pub(super) struct Raised {
    pub(super) member: Arc<Member>,
    pub(super) from: Instant,
    pub(super) to: Instant,
}

/// What is the same at some looks, so that a domain should not have run between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// The turn of the domain that should run instead.
    Turn(Turn),
    /// The choice of a KLS thread ([`crate::cpu::CpuState::grants`]). The domain's own user has the
    /// turn, and another user's domain should have it. Domains of that user can renew their turn.
    /// Or no domain has the turn, because the KLS thread cannot run.
    Grant(u64),
}

/// A domain that should not run, at the first of some looks at which nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassedOver {
    pub(super) beside: Beside,
    pub(super) at: Instant,
    /// CPU time of its thread at the first look.
    pub(super) cpu_ns: u64,
}

/// What two looks must show alike before a domain is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// The last response of the domain itself.
    pub(super) response: Instant,
    /// The domain has this turn.
    pub(super) turn: Option<Turn>,
    /// It runs without the turn. The holder last responded then.
    pub(super) holder_response: Option<Instant>,
}

impl Record {
    pub(super) fn new(member: Arc<Member>) -> Self {
        Record {
            member,
            offences: 0,
            account: Account::default(),
            charged_ns: 0,
            kept_ns: 0,
            sampled_at: Instant::ZERO,
            cpu_used_ns: 0,
            taken: Span::ZERO,
            awake_without_turn: None,
            penalty: None,
            is_held: false,
            response: Response::default(),
            suspicion: None,
            suspected_ns: 0,
            kept_since: None,
            passed_over: None,
            inversions: Repeats::default(),
            absences: Repeats::default(),
            lock_waits: Repeats::default(),
            lock_wait_ns: None,
            ran_before_look: false,
            idle_ticks: 0,
            still_ticks: 0,
            kls_ns: 0,
            false_rank_ticks: 0,
            raised_at: None,
            woken_ns: None,
            waiting_ns: None,
            away_ns: None,
            is_unsettled: false,
            awaits_group: false,
            wants_cpu: false,
            seen: true,
        }
    }

    /// The record of a domain that is seen for the first time. Former domains of its user on the
    /// CPU offended so often.
    pub(super) fn newcomer(member: Arc<Member>, offences: u64, tick: &Tick<'_>) -> Self {
        let mut record = Record { offences, ..Record::new(member) };
        let sample = &record.member.last_sample;
        let at = Instant::from_nanos(sample.at_ns.load(Relaxed));
        record.account.begin(at, sample.count_ns.load(Relaxed), tick.kernel_tick);
        record.is_held = record.member.is(State::Demoted);
        record.penalty = record.is_held.then(|| record.penalty_from(tick.now, false));
        record
    }

    /// A penalty that begins now.
    pub(super) fn penalty_from(&self, now: Instant, is_offence: bool) -> Penalty {
        let cpu_ns = self.account.cpu_ns;
        Penalty { cpu_ns, at: now, is_ordinary: false, is_offence, is_inversion: false }
    }

    /// The domain is in the ordinary class from now on. What it is in for already stays.
    pub(super) fn put_away(&mut self, now: Instant, is_offence: bool) {
        (self.suspicion, self.passed_over) = (None, None);
        let before = self.penalty;
        self.penalty = Some(Penalty {
            is_ordinary: true,
            is_inversion: before.is_some_and(|of| of.is_inversion),
            ..self.penalty_from(now, is_offence || before.is_some_and(|of| of.is_offence))
        });
    }

    /// Whether its thread is in the ordinary class by a measure.
    pub(super) fn is_ordinary(&self) -> bool {
        self.member.is(State::Demoted) && self.penalty.is_none_or(|of| of.is_ordinary)
    }

    /// Whether a domain with activities, none of which has a reservation, has used one job, at most
    /// [`JOB_MAX`], and the grace since such work is to wait (`kept_free`). The domain declares the
    /// job itself.
    pub(super) fn runs_on_while_waiting(&mut self, is_waiting: bool, rules: &Rules) -> bool {
        // Relaxed: each limit is used on its own.
        let limits = &self.member.limits;
        let job_ns = limits.compute_ns.load(Relaxed);
        let has_limit = limits.reserves.load(Relaxed) || job_ns == 0;
        if !is_waiting || has_limit || self.is_ordinary() {
            self.waiting_ns = None;
            return false;
        }
        let since_ns = *self.waiting_ns.get_or_insert(self.account.cpu_ns);
        self.account.cpu_ns - since_ns > job_ns.min(JOB_MAX.as_nanos()) + rules.grace.as_nanos()
    }

    /// Whether the account of its group contains its use: it takes turns, or waits for its group
    /// and keeps its own limit. Otherwise it pays for itself.
    pub(super) fn counts_for_group(&self, rules: &Rules) -> bool {
        let waits = || {
            self.account.waits_for_group()
                && self.penalty.is_some_and(|of| !of.is_offence && !of.is_ordinary)
                && self.account.overuse_ns(&self.member.limits, rules.debt_max()).is_none()
        };
        !self.member.is(State::Demoted) || waits()
    }

    /// Others were kept from the CPU for `kept_ns` by a wait of the domain: it pays for that time,
    /// and its group does.
    pub(super) fn charge_kept(&mut self, kept_ns: u64) {
        self.account.charge(kept_ns);
        self.kept_ns = self.kept_ns.saturating_add(kept_ns);
        self.awaits_group = true;
        let owed_ns = u64::try_from(self.account.owed_ns).unwrap_or_default();
        // Relaxed: see `LastSample`. It may detach before the next sample.
        self.member.last_sample.owed_ns.store(owed_ns, Relaxed);
    }

    /// Whether it may owe more than the limit, if it has run since the last sample. The kernel's
    /// count was out of date by up to a kernel tick.
    pub(super) fn may_owe(&self, tick: &Tick<'_>) -> bool {
        let ran = tick.now.since(self.sampled_at) + tick.kernel_tick;
        let limit = tick.rules.debt_max();
        u64::try_from(self.account.owed_ns.saturating_add_unsigned(ran.as_nanos()))
            .is_ok_and(|owed_ns| owed_ns > limit.as_nanos())
    }

    /// Notes the response that the domain shows at the present sample. At the previous one its
    /// thread had used `before_ns`.
    pub(super) fn note_response(&mut self, at: Instant, before_ns: u64) {
        if at != self.response.at {
            self.response = Response { at, before_ns, after_ns: self.account.cpu_ns };
        }
    }

    /// Whether `found` was found for at least `span` before `now`. Notes it.
    pub(super) fn confirms(&mut self, found: Suspicion, now: Instant, span: Span) -> bool {
        match self.suspicion {
            Some((known, since)) if known == found => now.since(since) >= span,
            _ => {
                self.suspicion = Some((found, now));
                self.suspected_ns = self.account.cpu_ns;
                false
            }
        }
    }

    /// Whether its thread used CPU time between the look that suspected it and the last sample.
    pub(super) fn ran_since_suspicion(&self) -> bool {
        self.account.cpu_ns != self.suspected_ns
    }

    /// Notes that the domain should not run now. Returns what the first of the looks found.
    pub(super) fn pass_over(&mut self, beside: Beside, now: Instant) -> PassedOver {
        let known = self.passed_over.filter(|known| known.beside == beside);
        let cpu_ns = self.account.cpu_ns;
        *self.passed_over.insert(known.unwrap_or(PassedOver { beside, at: now, cpu_ns }))
    }

    /// Counts a tick at which the domain had the turn and did not run. Returns whether that was one
    /// tick too many.
    ///
    /// A tick does not count if the KLS thread is ready and has not run since the last one. That
    /// thread should wake the domain or pass over it. If it cannot run, the cause is the machine,
    /// or a domain that the other checks find.
    pub(super) fn count_idle_tick(&mut self, (kls_is_ready, kls_ns): (bool, u64)) -> bool {
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

/// Whether a domain sleeps on its wake word. The domain can write that word. So a thread that may
/// have run lately must not be ready, either: a system call then.
pub(super) fn is_asleep(group: &DomainGroup, member: &Member, may_have_run: bool) -> bool {
    group.is_asleep(member) && !(may_have_run && is_ready(member))
}

/// Whether a domain that is not demoted is awake, and runs or is ready to run. A system call if it
/// does not sleep on its wake word.
pub(super) fn is_awake(group: &DomainGroup, member: &Member) -> bool {
    !group.is_asleep(member) && !member.is(State::Demoted) && is_ready(member)
}

/// Whether the thread of a domain runs or is ready to run.
pub(super) fn is_ready(member: &Member) -> bool {
    member.thread.by_watchdog().state() == Ok(ThreadState::Running)
}

/// Whether the thread waits in the kernel. A stopped thread waits for no lock.
pub(super) fn sleeps(member: &Member) -> bool {
    let state = member.thread.by_watchdog().state();
    matches!(state, Ok(ThreadState::Sleeping | ThreadState::DiskSleep))
}

/// Whether the kernel shows that the thread of a domain waits for a priority-inheritance lock.
pub(super) fn waits_for_lock(member: &Member) -> bool {
    sleeps(member) && member.thread.by_watchdog().lock_wait() == LockWait::Yes
}
