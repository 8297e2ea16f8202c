//! Domains that wait in the kernel while no domain gets the CPU.
//!
//! A thread that waits for a priority-inheritance lock gives its priority to the owner of that lock
//! (futex(2), `FUTEX_LOCK_PI`). The owner is an ordinary thread that the daemon does not know. If
//! it loops, no domain and no KLS thread runs. The waiting thread has the priority from the daemon.
//! So the watchdog takes that priority away until the thread runs again: then the owner has no
//! priority either. The thread may belong to another CPU than the owner's. Nothing is checked while
//! all domains are of one user: they trust each other. A look of the watchdog calls this module.
//!
//! ```text
//!   the CPU:     goes on -- (1) silent, ready --> holder raised -- it waited --+
//!                   ^  |                              |                        v
//!                   |  +-- (1) no grant, none ready --|---> (6) others raised, if any are ready
//!                   |                                 |                        v
//!                   +------------- it ran ------------+                  sleepers woken
//!
//!   a sleeper:   present --> woken --- (2) waits on ---> away --- (3) --> charged
//!                   ^          |                           |                 |
//!                   +- it ran -+                           |                 |
//!                   +---- (4) nobody was kept -------------+                 |
//!                   +-------- (5) it runs, and owes nothing too much --------+
//! ```
//!
//! 1. The holder is ready and silent beyond its limit, whether another domain waits or not. The
//!    kernel's count does not tell whether it runs, so the watchdog raises it above all domains:
//!    then it runs. The kernel then counts for how long it was ready before. A holder that ran is
//!    not kept from the CPU, and nothing follows. The same is done for a ready domain without the
//!    turn while nobody shows work: one that was preempted, finishes its quantum, or is about to
//!    publish work. If no holder is ready, work waits, and no KLS thread has given the CPU away for
//!    some time, the cause is unknown: such a lock, or the host. The watchdog wakes each sleeping
//!    thread by its wake word. It believes no wake word.
//! 2. [`LOOK_MIN`] later a thread that slept on its wake word is ready, or has run. A thread that
//!    still sleeps and has used no CPU time waits for something else. If that may be a lock with
//!    priority inheritance, it gets the ordinary class, and no turns.
//! 3. It is known for how long the holder was ready and did not run. For the KLS threads the
//!    kernel's count shows that at the next look. That time counts as CPU time of each domain that
//!    is away, and of its group. The domain takes turns again when both owe nothing too much. So a
//!    user that does so again and again, with one domain or many, gets no more than its
//!    reservations and the grace.
//! 4. The kernel counts no such time of a KLS thread if the host had the CPU.
//! 5. The review of preempted domains gives the class back (`cpu_watch`).
//! 6. A thread whose wait for a lock has timed out must run before the kernel takes its priority
//!    from the owner. If the owner loops at that priority on the same CPU, that thread is ready and
//!    never runs. So the watchdog also raises each thread that is ready without the turn, for
//!    [`LOOK_MIN`], before it wakes the sleepers. If the thread waits for the lock again, it sleeps
//!    then.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_sys::futex;
use upcall_sys::process::LockWait;

use super::arming::LOOK_MIN;
use super::cpu_watch::{CpuWatch, last_response};
use super::measures::{let_run, lower_again, put_into_ordinary_class, revoke_turn};
use super::record::{is_awake, is_ready, sleeps};
use super::standstill::{Ask, CHOICE_MAX, Kept, Lowered, Progress, Standstill};
use super::tick::Tick;
use crate::cpu::CpuView;
use crate::group::{DomainGroup, Member};

/// Waits that are shorter do not show that a thread was kept from the CPU: the watchdog itself may
/// have had it.
const KEPT_MIN: Span = Span::from_micros(500);

/// The holder of the CPU with its group and turn.
pub(super) type Holder<'v> = Option<(&'v Arc<DomainGroup>, &'v Arc<Member>, Turn)>;

impl CpuWatch {
    /// Finds domains that wait in the kernel while no domain gets the CPU, and puts them into the
    /// ordinary class. Returns whether it found one at this look.
    pub(super) fn look_for_away(
        &mut self,
        view: &CpuView,
        holder: Holder<'_>,
        is_contested: bool,
        tick: &mut Tick<'_>,
    ) -> bool {
        if let Some(lowered) = self.lowered.take() {
            let kept_ns = kls_wait_ns(view).saturating_sub(lowered.waited_ns);
            // A KLS thread waits rightly while a domain runs.
            let kept_ns = kept_ns.min(tick.now.since(lowered.since).as_nanos());
            self.settle(kept_ns);
            self.asks.push(Ask::Settle(kept_ns));
        }
        if let Some(kept) = self.kept.take() {
            return self.go_on_with(kept, view, tick);
        }
        if !self.has_several_users(view) || tick.stalled > Span::ZERO {
            self.standstill = None;
            return false;
        }
        let ready = holder.filter(|(_, member, _)| is_ready(member));
        let is_wanted = is_contested
            || ready.is_some()
            || holder.is_some_and(|(_, of, _)| of.wants_cpu(tick.now));
        // A domain that cannot show that it wants the CPU, while nobody else wants it.
        let without_turn = if is_wanted { None } else { self.ready_without_turn(view, tick.now) };
        if !is_wanted && without_turn.is_none() {
            self.standstill = None;
            return false;
        }
        let ready = ready.map(|(group, member, _)| (group, member));
        match ready.or(without_turn) {
            Some(ready) => self.check_ready(view, ready, tick),
            None => self.check_kls(view, holder, tick),
        }
    }

    /// A domain without the turn that is ready to run: it was preempted, it finishes its quantum,
    /// or it was woken and is about to publish work. Of several, the one that has been silent and
    /// was not raised for longest. A response may be false, so no domain is left out.
    fn ready_without_turn<'v>(
        &mut self,
        view: &'v CpuView,
        now: Instant,
    ) -> Option<(&'v Arc<DomainGroup>, &'v Arc<Member>)> {
        let mut may_run = |group: &DomainGroup, member: &Member| match member.is(State::Demoted) {
            true => {
                let penalty = self.record_of(member).and_then(|record| record.penalty);
                penalty.is_some_and(|of| !of.is_ordinary)
            }
            false => !group.is_asleep(member),
        };
        let groups = view.groups();
        let all = groups.flat_map(|(group, of)| of.iter().map(move |member| (group, member)));
        let ready = all.filter(|(group, member)| may_run(group, member) && is_ready(member));
        let ready: Vec<_> = ready.collect();
        ready.into_iter().min_by_key(|(_, member)| {
            let raised_at = self.record_of(member).and_then(|record| record.raised_at);
            raised_at.unwrap_or_default().max(last_response(member, now))
        })
    }

    /// (1) and (2) of the module's head, for a domain that is ready to run: the holder, or one
    /// without the turn while nobody else wants the CPU.
    fn check_ready(
        &mut self,
        view: &CpuView,
        (group, member): (&Arc<DomainGroup>, &Arc<Member>),
        tick: &mut Tick<'_>,
    ) -> bool {
        let back = self.time_of_others(view, Some(member), tick);
        let limit = tick.rules.limit(member) + back;
        let since = self.note_progress_of(member, tick);
        let raised_at = self.record_of(member).and_then(|record| record.raised_at);
        let again = raised_at.map_or(Instant::ZERO, |at| at + limit);
        let silent_from = again.max(last_response(member, tick.now) + limit);
        if tick.now < silent_from {
            self.look_again_after(silent_from.since(tick.now).max(LOOK_MIN), tick);
            // A response may be false. The kernel counts the CPU time of a thread at each of its
            // ticks. So a ready holder whose count stands still for longer does not run.
            let stands_from = since + tick.kernel_tick + KEPT_MIN + back;
            if tick.now < stands_from.max(again) {
                return false;
            }
            self.sample(group, member, tick);
            if self.note_progress_of(member, tick) == tick.now {
                return false;
            }
        }
        let kept_max = tick.now.since(since) + limit;
        let waited_ns = member.thread.by_watchdog().wait_time().unwrap_or(u64::MAX);
        self.raise(member, |member| let_run(member, tick.rules));
        self.asks.push(Ask::CheckCpus);
        if let Some(record) = self.record_of(member) {
            record.raised_at = Some(tick.now);
        }
        self.kept =
            Some(Kept::Raised { holder: member.clone(), waited_ns, kept_max, at: tick.now });
        self.look_again_after(LOOK_MIN, tick);
        false
    }

    /// What follows when a ready holder was raised, and when the threads that sleep were woken.
    fn go_on_with(&mut self, kept: Kept, view: &CpuView, tick: &mut Tick<'_>) -> bool {
        let (Kept::Raised { at, .. } | Kept::LetRun { at, .. } | Kept::Woken { at, .. }) = kept;
        if tick.now.since(at) < LOOK_MIN {
            self.look_again_after((at + LOOK_MIN).since(tick.now), tick);
            self.kept = Some(kept);
            return false;
        }
        match kept {
            Kept::Raised { holder, waited_ns, kept_max, .. } => {
                let waited = holder.thread.by_watchdog().wait_time().unwrap_or(0);
                // It waited rightly before it had the turn.
                let kept_ns = waited.saturating_sub(waited_ns).min(kept_max.as_nanos());
                if kept_ns < KEPT_MIN.as_nanos() || tick.stalled > Span::ZERO {
                    lower_again(&holder, tick.rules);
                    return false;
                }
                if !self.let_others_run(view, Some((&holder, kept_ns)), tick) {
                    self.wake_beside(holder, kept_ns, view, tick);
                }
                true
            }
            Kept::LetRun { kept, ready, .. } => {
                ready.iter().for_each(|member| lower_again(member, tick.rules));
                let is_kept = kept.is_some();
                match kept {
                    Some((holder, kept_ns)) => self.wake_beside(holder, kept_ns, view, tick),
                    None => self.wake_for_kls(view, tick),
                }
                is_kept
            }
            Kept::Woken { holder, kept_ns, .. } => {
                self.lower_away(view, tick);
                lower_again(&holder, tick.rules);
                self.settle(kept_ns);
                self.asks.extend([Ask::Lower, Ask::Settle(kept_ns)]);
                true
            }
        }
    }

    /// Wakes the sleeping threads of all CPUs. The holder, which was kept from the CPU for so long,
    /// stays raised meanwhile.
    fn wake_beside(
        &mut self,
        holder: Arc<Member>,
        kept_ns: u64,
        view: &CpuView,
        tick: &mut Tick<'_>,
    ) {
        self.wake_all_sleepers(view, tick);
        self.kept = Some(Kept::Woken { holder, kept_ns, at: tick.now });
    }

    /// Wakes the sleeping threads of all CPUs, if the KLS threads still have given the CPU to
    /// nobody.
    fn wake_for_kls(&mut self, view: &CpuView, tick: &mut Tick<'_>) {
        let grants = self.cpu_state.grants();
        let is_same = |known: &Standstill| known.progress.grants == grants;
        if !self.standstill.as_ref().is_some_and(is_same) {
            return;
        }
        self.wake_all_sleepers(view, tick);
        if let Some(standstill) = &mut self.standstill {
            standstill.waited_ns = Some(kls_wait_ns(view));
        }
    }

    /// Wakes the sleeping threads of all CPUs, and looks again soon.
    fn wake_all_sleepers(&mut self, view: &CpuView, tick: &mut Tick<'_>) {
        self.wake_sleepers(view, tick);
        self.asks.push(Ask::Wake);
        self.look_again_after(LOOK_MIN, tick);
    }

    /// (6) of the module's head. Returns whether there are such threads.
    fn let_others_run(
        &mut self,
        view: &CpuView,
        kept: Option<(&Arc<Member>, u64)>,
        tick: &Tick<'_>,
    ) -> bool {
        let ready = ready_beside(view, kept.map(|(holder, _)| holder));
        if ready.is_empty() {
            return false;
        }
        for member in &ready {
            self.raise(member, |member| let_run(member, tick.rules));
        }
        let kept = kept.map(|(holder, kept_ns)| (holder.clone(), kept_ns));
        self.kept = Some(Kept::LetRun { kept, ready, at: tick.now });
        self.look_again_after(LOOK_MIN, tick);
        true
    }

    /// As [`Self::note_progress`], for a domain that is ready.
    fn note_progress_of(&mut self, ready: &Member, tick: &Tick<'_>) -> Instant {
        self.note_progress(true, ready.last_sample.count_ns.load(Relaxed), tick)
    }

    /// Notes what does not change while no domain gets the CPU. Returns since when.
    fn note_progress(&mut self, is_ready: bool, used_ns: u64, tick: &Tick<'_>) -> Instant {
        let progress = Progress { is_ready, used_ns, grants: self.cpu_state.grants() };
        if self.standstill.as_ref().is_none_or(|known| known.progress != progress) {
            self.standstill = Some(Standstill { progress, since: tick.now, waited_ns: None });
            self.records.iter_mut().for_each(|record| record.woken_ns = None);
        }
        self.standstill.as_ref().map_or(tick.now, |known| known.since)
    }

    /// (1) and (2) of the module's head, while no holder is ready: a KLS thread should choose.
    fn check_kls(&mut self, view: &CpuView, holder: Holder<'_>, tick: &mut Tick<'_>) -> bool {
        let used_ns = self.used_ns_beside_kls(view, holder, tick);
        let since = self.note_progress(false, used_ns, tick);
        let holder = holder.map(|(_, member, _)| member);
        let due = since + CHOICE_MAX + self.time_of_others(view, holder, tick);
        if tick.now < due {
            self.look_again_after(due.since(tick.now), tick);
            return false;
        }
        if let Some(waited_ns) = self.standstill.take_if(|of| of.waited_ns.is_some()) {
            self.look_again_after(LOOK_MIN, tick);
            let waited_ns = waited_ns.waited_ns.unwrap_or(0);
            self.lowered = Some(Lowered { waited_ns, since });
            self.asks.push(Ask::Lower);
            return self.lower_away(view, tick);
        }
        // A KLS thread that sleeps has nothing to choose, or is slowed.
        if !view.groups().any(|(group, _)| group.kls_usage().0) {
            self.standstill = None;
            return false;
        }
        self.asks.push(Ask::CheckCpus);
        if !self.let_others_run(view, None, tick) {
            self.wake_for_kls(view, tick);
        }
        false
    }

    /// The CPU time of all domains of the group that has the CPU: they can pass the turn among them
    /// without a KLS thread. Once the sleepers were woken, it is that of before: what they use then
    /// shows nothing.
    fn used_ns_beside_kls(
        &mut self,
        view: &CpuView,
        holder: Holder<'_>,
        tick: &mut Tick<'_>,
    ) -> u64 {
        let woken = self.standstill.as_ref().filter(|known| known.waited_ns.is_some());
        if let Some(known) = woken {
            return known.progress.used_ns;
        }
        let Some((group, ..)) = holder else { return 0 };
        let members = view.members_of(group).into_iter().flat_map(|members| members.iter());
        let used_ns = members.map(|member| {
            self.sample(group, member, tick);
            member.last_sample.count_ns.load(Relaxed)
        });
        used_ns.sum()
    }

    /// How long domains that are ready without the turn may keep the holder and the KLS threads
    /// from the CPU: one that came back from the kernel finishes its quantum. The threads that this
    /// module has woken do not count.
    fn time_of_others(
        &mut self,
        view: &CpuView,
        holder: Option<&Arc<Member>>,
        tick: &Tick<'_>,
    ) -> Span {
        let mut longest = Span::ZERO;
        for (group, members) in view.groups() {
            for member in members.iter() {
                let is_holder = holder.is_some_and(|of| Arc::ptr_eq(of, member));
                let is_woken = self.record_of(member).is_some_and(|of| of.woken_ns.is_some());
                if !is_holder && !is_woken && is_awake(group, member) {
                    longest = longest.max(tick.rules.limit(member));
                }
            }
        }
        longest
    }

    /// Does what a look at another CPU asks.
    pub(super) fn answer(&mut self, ask: Ask, tick: &mut Tick<'_>) {
        let view = std::mem::take(&mut self.view);
        match ask {
            Ask::CheckCpus => self.end_absences(&view, tick),
            Ask::Wake => self.wake_sleepers(&view, tick),
            Ask::Lower => {
                self.lower_away(&view, tick);
            }
            Ask::Settle(kept_ns) => self.settle(kept_ns),
        }
        self.view = view;
    }

    /// Whether other users have domains, on this CPU or on others.
    pub(super) fn has_several_users(&self, view: &CpuView) -> bool {
        self.others_elsewhere || view.groups().nth(1).is_some()
    }

    /// (1) of the module's head.
    fn wake_sleepers(&mut self, view: &CpuView, tick: &mut Tick<'_>) {
        for (group, members) in view.groups() {
            for member in members.iter() {
                let is_due = !member.is(State::Demoted) && sleeps(member);
                if is_due {
                    self.sample(group, member, tick);
                }
                let Some(record) = self.record_of(member) else { continue };
                let count_ns = member.last_sample.count_ns.load(Relaxed);
                record.woken_ns = is_due.then_some(count_ns);
                if is_due {
                    group.notify(member.domain);
                    // The domain can write its wake word.
                    futex::wake_shared(group.turn.wake_word(member.domain).word(), 1);
                }
            }
        }
    }

    /// (2) of the module's head. Returns whether a domain is away.
    fn lower_away(&mut self, view: &CpuView, tick: &mut Tick<'_>) -> bool {
        let mut any = false;
        for (group, members) in view.groups() {
            for member in members.iter() {
                let Some(record) = self.record_of(member) else { continue };
                let Some(woken_ns) = record.woken_ns.take() else { continue };
                let may_wait = || member.thread.by_watchdog().lock_wait() != LockWait::No;
                if member.is(State::Demoted) || !sleeps(member) || !may_wait() {
                    continue;
                }
                self.sample(group, member, tick);
                let Some(record) = self.record_of(member) else { continue };
                if member.last_sample.count_ns.load(Relaxed) != woken_ns {
                    continue;
                }
                any = true;
                record.put_away(tick.now, false);
                (record.away_ns, record.is_unsettled) = (Some(woken_ns), true);
                put_into_ordinary_class(group, member, tick.rules);
                let turn = group.turn_of(member);
                turn.into_iter().for_each(|turn| revoke_turn(group, turn));
            }
        }
        any
    }

    /// (3) and (4) of the module's head: others were ready for `kept_ns` and did not run.
    pub(super) fn settle(&mut self, kept_ns: u64) {
        for record in &mut self.records {
            if !std::mem::take(&mut record.is_unsettled) {
                continue;
            }
            if kept_ns >= KEPT_MIN.as_nanos() {
                record.charge_kept(kept_ns);
            } else if record.away_ns.take().is_some()
                && let Some(penalty) = &mut record.penalty
            {
                penalty.is_ordinary = false;
            }
        }
    }
}

/// The members beside the holder that are ready to run with the priority of the domains, or above.
fn ready_beside(view: &CpuView, holder: Option<&Arc<Member>>) -> Vec<Arc<Member>> {
    let members = view.groups().flat_map(|(_, members)| members.iter());
    let is_holder = |member: &Arc<Member>| holder.is_some_and(|of| Arc::ptr_eq(of, member));
    let others = members.filter(|of| !is_holder(of) && !of.is(State::Demoted));
    others.filter(|member| is_ready(member)).cloned().collect()
}

/// For how long the KLS threads of the CPU were ready so far and did not run. The kernel adds a
/// wait when it ends.
fn kls_wait_ns(view: &CpuView) -> u64 {
    view.groups().map(|(group, _)| group.kls_wait_ns()).sum()
}
