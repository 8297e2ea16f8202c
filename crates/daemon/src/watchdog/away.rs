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
//!   present --- (1) stands still ---> woken --- (2) waits on ---> away --- (3) --> charged
//!      ^                                |                           |                 |
//!      +--------- it ran ---------------+                           |                 |
//!      +---- (4) it runs, or nobody was kept from the CPU ----------+                 |
//!      +------------------- (5) it runs, and owes nothing too much -------------------+
//! ```
//!
//! 1. Work waits, and for some time neither the holder nor a KLS thread has run. The cause is
//!    unknown: such a lock, the host, or a loop of the holder that the kernel has not counted yet.
//!    The watchdog wakes each sleeping thread by its wake word. It believes no wake word.
//! 2. [`LOOK_MIN`] later a thread that slept on its wake word is ready, or has run. A thread that
//!    still sleeps and has used no CPU time waits for something else. If that may be a futex, it
//!    gets the ordinary class, and no turns. This is no offence: it may wait for a mutex of its
//!    own.
//! 3. At the next look the kernel's count shows for how long the holder, or the KLS threads, were
//!    ready and did not run. That time counts as CPU time of each domain that is away, and of its
//!    group. The domain takes turns again when both owe nothing too much. So a user that does so
//!    again and again, with one domain or many, gets no more than its reservations and the grace.
//! 4. The kernel counts no such time if the holder itself looped, or if the host had the CPU.
//! 5. The review of preempted domains gives the class back (`cpu_watch`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_sys::futex;
use upcall_sys::process::ThreadState;

use super::arming::LOOK_MIN;
use super::cpu_watch::{CpuWatch, last_response};
use super::measures::{put_into_ordinary_class, revoke_turn};
use super::record::{Penalty, is_ready};
use super::standstill::{Ask, CHOICE_MAX, Lowered, Progress, Standstill};
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
            let waited_ns = ready_time_ns(view, lowered.holder.as_deref());
            let kept_ns = waited_ns.saturating_sub(lowered.waited_ns);
            // A KLS thread waits rightly while a domain runs.
            let kept_ns = kept_ns.min(tick.now.since(lowered.since).as_nanos());
            self.settle(kept_ns);
            self.asks.push(Ask::Settle(kept_ns));
        }
        let is_wanted = is_contested || holder.is_some_and(|(_, of, _)| of.wants_cpu(tick.now));
        if !self.has_several_users(view) || !is_wanted || tick.stalled > Span::ZERO {
            self.standstill = None;
            return false;
        }
        let ready = holder.filter(|(_, member, _)| is_ready(member));
        let response = ready.map(|(_, member, _)| last_response(member, tick.now));
        let silent_since = response.zip(ready).filter(|&(at, (_, member, _))| {
            is_contested && tick.now.since(at) >= tick.rules.limit(member)
        });
        if let Some((_, (group, member, _))) = silent_since {
            self.sample(group, member, tick);
        }
        let silent_since = silent_since.map(|(at, _)| at);
        // Looks need not read the count of a holder that responds. The last tick may be as long ago
        // as a count is out of date, so the holder would seem not to run.
        let since = self.standstill.as_ref().map_or(tick.now, |known| known.since);
        if let Some((group, member, _)) = ready
            && tick.now.since(since) >= tick.kernel_tick
        {
            self.sample(group, member, tick);
        }
        self.check_progress(view, (holder, ready.map(|(_, member, _)| member)), silent_since, tick)
    }

    /// (1) and (2) of the module's head. `silent_since` is the last response of a holder that is
    /// silent for longer than it may.
    fn check_progress(
        &mut self,
        view: &CpuView,
        (holder, ready): (Holder<'_>, Option<&Arc<Member>>),
        silent_since: Option<Instant>,
        tick: &mut Tick<'_>,
    ) -> bool {
        let progress = Progress {
            turn: holder.map(|(.., turn)| turn),
            is_ready: ready.is_some(),
            holder_ns: holder.map_or(0, |(_, of, _)| of.last_sample.count_ns.load(Relaxed)),
            choices: self.cpu_state.choices(),
        };
        let known = self.standstill.take().filter(|known| known.progress == progress);
        let new = Standstill { progress, since: tick.now, waited_ns: None };
        if known.is_none() {
            self.records.iter_mut().for_each(|record| record.woken_ns = None);
        }
        let Standstill { since, waited_ns, .. } = known.unwrap_or(new);
        let back = self.time_of_others(view, holder, tick);
        let silent_since = silent_since
            .zip(ready)
            .filter(|&(at, member)| tick.now.since(at) >= tick.rules.limit(member) + back)
            .map(|(at, _)| at);
        // A response may be false. The kernel counts the CPU time of a thread at each of its ticks.
        // So a ready holder whose count stands still for longer does not run.
        let span = ready.map_or(CHOICE_MAX, |_| tick.kernel_tick + KEPT_MIN) + back;
        let left = span.saturating_sub(tick.now.since(since));
        if silent_since.is_none() && !left.is_zero() {
            self.standstill = Some(Standstill { progress, since, waited_ns: None });
            // A ready holder has looks of its own.
            if ready.is_none() {
                self.look_again_after(left, tick);
            }
            return false;
        }
        if let Some(waited_ns) = waited_ns {
            self.look_again_after(LOOK_MIN, tick);
            let since = silent_since.map_or(since, |at| at.min(since));
            self.lowered = Some(Lowered { holder: ready.cloned(), waited_ns, since });
            self.asks.push(Ask::Lower);
            return self.lower_away(view, tick);
        }
        // A KLS thread that sleeps has nothing to choose, or is slowed.
        if ready.is_some() || view.groups().any(|(group, _)| group.kls_usage().0) {
            self.look_again_after(LOOK_MIN, tick);
            self.wake_sleepers(view, tick);
            self.asks.push(Ask::Wake);
            let waited_ns = Some(ready_time_ns(view, ready.map(|member| &**member)));
            self.standstill = Some(Standstill { progress, since, waited_ns });
        }
        false
    }

    /// How long domains that are ready without the turn may keep the holder and the KLS threads
    /// from the CPU: one that came back from the kernel finishes its quantum. The threads that this
    /// module has woken do not count.
    fn time_of_others(&mut self, view: &CpuView, holder: Holder<'_>, tick: &Tick<'_>) -> Span {
        let mut longest = Span::ZERO;
        for (group, members) in view.groups() {
            for member in members.iter() {
                let is_holder = holder.is_some_and(|(_, of, _)| Arc::ptr_eq(of, member));
                let may_run = !is_holder && !member.is(State::Demoted) && !group.is_asleep(member);
                let is_woken = self.record_of(member).is_some_and(|of| of.woken_ns.is_some());
                if may_run && !is_woken && is_ready(member) {
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
                let may_wait = || member.thread.by_watchdog().may_wait_for_lock();
                if member.is(State::Demoted) || !sleeps(member) || !may_wait() {
                    continue;
                }
                self.sample(group, member, tick);
                let Some(record) = self.record_of(member) else { continue };
                if member.last_sample.count_ns.load(Relaxed) != woken_ns {
                    continue;
                }
                any = true;
                (record.suspicion, record.passed_over) = (None, None);
                let penalty = record.penalty_from(tick.now, false);
                record.penalty = Some(Penalty { is_ordinary: true, ..penalty });
                (record.away_ns, record.is_unsettled) = (Some(woken_ns), true);
                put_into_ordinary_class(group, member, tick.rules);
                let turn = group.turn.turn().ok().filter(|of| of.holder() == member.domain);
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
                record.account.charge(kept_ns);
                record.kept_ns = record.kept_ns.saturating_add(kept_ns);
                record.awaits_group = true;
            } else if record.away_ns.take().is_some()
                && let Some(penalty) = &mut record.penalty
            {
                penalty.is_ordinary = false;
            }
        }
    }
}

/// For how long the holder, or the KLS threads of the CPU, were ready so far and did not run. The
/// kernel adds a wait when it ends.
fn ready_time_ns(view: &CpuView, holder: Option<&Member>) -> u64 {
    match holder {
        Some(member) => member.thread.by_watchdog().wait_time().unwrap_or(0),
        None => view.groups().map(|(group, _)| group.kls_wait_ns()).sum(),
    }
}

/// Whether the thread waits in the kernel. A stopped thread waits for no lock.
fn sleeps(member: &Member) -> bool {
    let state = member.thread.by_watchdog().state();
    matches!(state, Ok(ThreadState::Sleeping | ThreadState::DiskSleep))
}
