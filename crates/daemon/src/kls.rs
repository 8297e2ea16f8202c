//! The KLS thread of a domain group (split-level-1991 §3.2; docs/decisions/0008).
//!
//! The thread runs on the CPU of the domains. While a domain of its group has the CPU, the thread
//! is one priority below their threads: it is ready, and does not run. So if it runs, one of two
//! things holds: the daemon has the turn, or the domain with the turn is blocked in the kernel,
//! stopped or gone. While another group has the CPU, the thread sleeps with the priority of the
//! domains. A domain of its group that was woken wakes it, and it shows that work to the group of
//! the holder ([`level`], docs/decisions/0017).
//!
//! Without the real-time class the thread cannot run below the domains. Then its wake word wakes
//! it, and it checks the holder at intervals. It asks `/proc` before it treats a holder as blocked.
//!
//! ```text
//!        +----------- (1) nothing is ready -----------+
//!        v                                            |
//!     asleep --- (2) notified, or a release ----> choosing <--- (5) the turn is the daemon's
//!                                                     |                    |
//!                                             (3) passes the turn          |
//!                                                     v                    |
//!                                                 below ------------ (4) holder blocked,
//!                                                                     stopped, gone
//! ```
//!
//! 1. The thread sleeps until the earliest release of any domain on the CPU. Domains can wake it
//!    without end; [`crate::pacing`] bounds what that costs others. With the priority of the
//!    domains it also stands behind the holder for each pass, and pauses if it was notified within
//!    one.
//! 2. A domain that becomes ready wakes the daemon if the daemon has the turn.
//! 3. The turn goes to the best domain of the CPU. In the state *below* the domain runs, and the
//!    thread is ready at its lower priority. If that domain belongs to another user, the turn is
//!    passed in that user's group. At most one group of a CPU has the CPU, and the daemon keeps its
//!    number ([`CpuState::is_held`]). Writes of domains to the turn page of another group have no
//!    effect. The KLS thread of that group is in the state *below* then, and this one sleeps.
//! 4. The thread marks the holder, takes the turn from it, and passes over it until it sleeps on
//!    its wake word. The holder has reached a boundary then. Until then the thread of a blocked
//!    holder is raised above the other domains ([`Band::returner`]).
//! 5. The holder has no work left, or another user's domain outranks it. The KLS thread of the
//!    group that had the CPU chooses. The others leave the choice to it.
//!
//! The thread takes no lock that an ordinary thread holds. In the state *choosing* it reads the
//! user areas of its own group that changed. Of other groups it has copies ([`crate::area_copy`]),
//! so domains of one user cost the choices of another one little, whatever their areas show.

use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_shm::user_area::Rank;
use upcall_sys::clock::thread_cpu_ns;
use upcall_sys::process::ThreadState;
use upcall_sys::schedule::Band;
use upcall_sys::{clock, futex, schedule};

use crate::accounts::{Accounts, Turn as AccountTurn};
use crate::clock::now;
use crate::cpu::{CpuState, CpuView};
use crate::group::{DomainGroup, Member, Members, Shown};
use crate::pacing::PassLimit;
use level::Level;

mod level;
#[cfg(test)]
mod tests;

/// How long a thread with the priority of the domains lets all others run if it was notified again
/// within a pass, or if another thread was showing work at the same moment.
const PAUSE: Span = Span::from_micros(50);
/// How often a thread without the real-time class checks the holder.
const CHECK_INTERVAL: Span = Span::from_millis(2);

/// See the module's head.
pub(crate) struct Kls {
    cpu_state: Arc<CpuState>,
    group: Arc<DomainGroup>,
    /// `None`: without the real-time class.
    band: Option<Band>,
    level: Level,
    view: CpuView,
    limit: PassLimit,
    /// PS: the accounts of the domains of the group.
    accounts: Option<Accounts>,
}

/// The result of choosing.
enum Choice {
    /// The turn was passed to this domain of this group.
    Passed(Arc<DomainGroup>, DomainId),
    /// No domain has work before this time.
    Nothing(Option<Instant>),
    /// Another group has the CPU; its own KLS thread watches the holder. `false`: that group could
    /// not be shown the work of this one.
    HeldElsewhere(bool),
    /// This other group had the CPU, and its KLS thread is about to choose.
    LeftTo(Arc<DomainGroup>),
    /// The state changed meanwhile.
    Retry,
}

impl Kls {
    pub(crate) fn new(
        cpu_state: Arc<CpuState>,
        group: Arc<DomainGroup>,
        band: Option<Band>,
    ) -> Self {
        let (level, view, limit) = (Level::new(band), CpuView::default(), PassLimit::new());
        let accounts = group.time_quantum.map(Accounts::new);
        Kls { cpu_state, group, band, level, view, limit, accounts }
    }

    /// Runs until the group is closed. The body of the KLS thread.
    pub(crate) fn run(mut self) {
        self.group.set_kls();
        // Failures are ignored: if the CPU or a right has gone, the thread still runs, but late.
        let _ = schedule::pin_thread(&[self.cpu_state.cpu]);
        let _ = schedule::set_timer_slack_least();
        self.level.start();
        while !self.group.is_over() {
            match self.group.turn_or_reset() {
                Ok(turn) if self.cpu_state.is_held(&self.group) => self.watch_holder(turn),
                // This applies also if a domain wrote its own number into the turn page, because
                // its group does not have the CPU.
                _ => self.choose_or_sleep(),
            }
            if self.limit.after_pass(&self.group.pacing, clocks) {
                self.rest();
            }
        }
    }

    fn choose_or_sleep(&mut self) {
        // The cause of a notification until now is found below.
        self.group.turn.wake_word(DomainId::DAEMON).acknowledge();
        self.group.turn.take_need_resched_idle();
        self.view.refresh(&self.cpu_state);
        self.level.change(self.has_others());
        match self.choose() {
            Choice::Passed(group, domain) => {
                if !Arc::ptr_eq(&group, &self.group) {
                    // The KLS thread of that group must be ready below the domain before the domain
                    // runs.
                    group.wake_kls();
                    group.notify(domain);
                    // From here on that thread chooses. This one would otherwise choose without
                    // end if a domain of the other group kept returning the turn.
                    self.sleep(None);
                } else {
                    self.level.change(false);
                    group.notify(domain);
                }
            }
            Choice::Nothing(until) => self.sleep(until),
            Choice::HeldElsewhere(true) => self.sleep(None),
            Choice::HeldElsewhere(false) => self.sleep(Some(now() + PAUSE)),
            Choice::LeftTo(group) => {
                group.wake_kls();
                self.sleep(None);
            }
            Choice::Retry => {}
        }
    }

    /// Lets the domains of other users go first for a while. This thread runs, so a domain of this
    /// group that has the turn does not.
    fn rest(&mut self) {
        if let Ok(turn) = self.group.turn.turn()
            && self.cpu_state.is_held(&self.group)
        {
            self.revoke(turn);
        }
        self.group.pacing.begin_rest();
        // Another group gets the CPU next, if any has work.
        self.level.change(self.has_others());
        let others = self.view.groups().filter(|(group, _)| !Arc::ptr_eq(group, &self.group));
        others.for_each(|(group, _)| group.wake_kls());
        self.sleep(None);
    }

    /// Whether other users have groups on the CPU.
    fn has_others(&self) -> bool {
        self.view.groups().any(|(group, _)| !Arc::ptr_eq(group, &self.group))
    }

    fn sleep(&mut self, until: Option<Instant>) {
        let is_done = self.limit.sleep(&self.group.pacing, until, clocks)
            || self.group.sleep_until(until)
            || !self.level.is_raised();
        if !is_done {
            // Without this, domains that notify the thread without end would keep it running: the
            // holder stands behind it, and other KLS threads may be below it.
            clock::sleep_until_ns((now() + PAUSE).as_nanos());
        }
    }

    /// O(slots of the own areas that changed + members of the CPU times [`RELEASES_MAX`]), if few
    /// of the releases that other users show matter. Otherwise the factor is [`RELEASES_MAX`]
    /// squared.
    ///
    /// [`RELEASES_MAX`]: upcall_shm::user_area::RELEASES_MAX
    fn choose(&mut self) -> Choice {
        let cpu_state = self.cpu_state.clone();
        let _choice = cpu_state.lock_choice();
        if self.cpu_state.is_held(&self.group) {
            return Choice::Retry;
        }
        let now = now();
        if let Some(members) = self.view.members_of(&self.group) {
            self.group.refresh(members, now);
        }
        if let Some((group, _)) =
            self.view.groups().find(|(group, _)| self.cpu_state.is_held(group))
        {
            // The holder compares ranks at its next boundary.
            let shown = self.view.publish_others(group, now);
            if shown == Shown::Changed {
                let _ = group.turn.set_need_resched();
            }
            return Choice::HeldElsewhere(shown != Shown::Busy);
        }
        if self.accounts.is_some() {
            return self.choose_by_account(now);
        }
        if let Some(group) = self.chosen_by_other() {
            return Choice::LeftTo(group);
        }
        let Some((_, group, domain)) = self.best(now) else {
            self.cpu_state.grant_none();
            self.note_idle(now);
            let releases = self.choosable().filter_map(|(group, m)| group.next_release(m, now));
            return Choice::Nothing(releases.min());
        };
        self.view.publish_others(group, now);
        group.kernel.set_interruption_max(self.interruption_max().as_nanos());
        self.cpu_state.grant(group);
        // The turn is the daemon's to give, even if a domain has written the page.
        if !group.turn.turn().is_ok_and(|seen| group.turn.pass(seen, domain)) {
            group.turn.reset(domain);
        }
        Choice::Passed(group.clone(), domain)
    }

    /// Chooses by the accounts of the own group. Under PS the activities of a CPU belong to one
    /// user, so the other groups have nothing to run. The caller holds the lock of the choice.
    fn choose_by_account(&mut self, now: Instant) -> Choice {
        let interruption_max = self.interruption_max();
        let Kls { group, view, accounts: Some(accounts), cpu_state, .. } = self else {
            return Choice::Retry;
        };
        let Some(members) = view.members_of(group) else { return Choice::Nothing(None) };
        let next_release = group.next_release_after(members, now);
        match accounts.choose(group, members, now) {
            AccountTurn::Domain(domain) => {
                group.kernel.set_interruption_max(interruption_max.as_nanos());
                cpu_state.grant(group);
                if !group.turn.turn().is_ok_and(|seen| group.turn.pass(seen, domain)) {
                    group.turn.reset(domain);
                }
                Choice::Passed(group.clone(), domain)
            }
            AccountTurn::Ordinary(until) => {
                let wake_at = next_release.map_or(until, |release| release.min(until));
                Choice::Nothing(Some(wake_at))
            }
            AccountTurn::Nothing => {
                if cpu_state.is_granted(group) {
                    cpu_state.grant_none();
                }
                Choice::Nothing(next_release)
            }
        }
    }

    /// No domain has anything to run. Wakes the domains that owe CPU time: they show their next job
    /// only when the debt is paid, or when they know this. A group whose KLS thread rests may have
    /// work.
    fn note_idle(&self, now: Instant) {
        if self.choosable().count() != self.view.groups().count() {
            return;
        }
        for (group, members) in self.view.groups() {
            group.kernel.note_idle(now.as_nanos());
            let awaits = |member: &&Arc<Member>| {
                member.is(State::Attached)
                    && !member.thread.has_ended()
                    && member.area.awaits_idle()
            };
            members.iter().filter(awaits).for_each(|member| group.notify(member.domain));
        }
    }

    /// How long the domains that are away may run in the middle of an upcall. The domain that gets
    /// the turn does not pay for that time. Without the real-time class they do not go first.
    fn interruption_max(&self) -> Span {
        let is_away = |member: &&Arc<Member>| {
            self.band.is_some() && (member.is(State::Blocked) || member.is(State::Stopped))
        };
        let away = self.view.groups().flat_map(|(_, members)| members.iter().filter(is_away));
        away.fold(Span::ZERO, |sum, member| sum + member.limits.response_max())
    }

    /// The best domain of all groups: its rank, its group and its number.
    fn best(&self, now: Instant) -> Option<(Rank, &Arc<DomainGroup>, DomainId)> {
        let bests = self.choosable().filter_map(|(group, members)| {
            let (rank, member) = group.best(members, now)?;
            Some((rank, group, member.domain))
        });
        bests.min_by_key(|(rank, ..)| *rank)
    }

    /// The other group that had the CPU last, if its KLS thread chooses next. That thread is below
    /// the domains. If this one gave the CPU to another group, that thread could not sleep with the
    /// priority of the domains before the next holder runs. Without the real-time class any thread
    /// chooses.
    fn chosen_by_other(&self) -> Option<Arc<DomainGroup>> {
        let had_cpu = |group: &&Arc<DomainGroup>| self.cpu_state.is_granted(group);
        let group = self.view.groups().map(|(group, _)| group).find(had_cpu)?;
        let is_other = !Arc::ptr_eq(group, &self.group) && !group.pacing.is_resting();
        (self.band.is_some() && is_other).then(|| group.clone())
    }

    /// The groups whose domains may get the turn: all but those whose slowed KLS thread sleeps.
    fn choosable(&self) -> impl Iterator<Item = &(Arc<DomainGroup>, Members)> {
        let is_own = |group| Arc::ptr_eq(group, &self.group);
        self.view.groups().filter(move |(group, _)| is_own(group) || !group.pacing.is_resting())
    }

    /// Called if this thread runs although a domain has the turn. Finds the reason, and acts.
    fn watch_holder(&mut self, turn: Turn) {
        if self.level.change(false) {
            // The holder has run meanwhile.
            return;
        }
        self.view.refresh(&self.cpu_state);
        let members = self.view.members_of(&self.group).into_iter().flat_map(|m| m.iter());
        let Some(member) = members.clone().find(|member| member.domain == turn.holder()).cloned()
        else {
            // The holder has gone, or is not attached yet. The daemon did not give it the turn.
            self.revoke(turn);
            return;
        };
        let member = &member;
        if self.group.is_asleep(member) {
            // The domain that passed the turn was interrupted before it woke the new holder.
            self.group.notify(member.domain);
            return;
        }
        match self.why_not_running(member) {
            None => self.sleep(Some(now() + CHECK_INTERVAL)),
            Some(state) if self.group.turn.turn() == Ok(turn) => {
                self.group.mark_passed_over(member, state);
                // A domain may have overwritten the holder's wake word. Without this the holder
                // would sleep for ever.
                futex::wake_shared(self.group.turn.wake_word(member.domain).word(), 1);
                if self.revoke(turn) && state == State::Blocked {
                    self.raise(member);
                }
            }
            Some(_) => {}
        }
    }

    /// Raises the thread of a holder that blocked in the kernel during its turn. When the thread
    /// wakes, it finishes its quantum at once, shows its work and sleeps until it has the turn.
    ///
    /// The holder had the best rank when that quantum began. Work released since then waits for the
    /// rest of the quantum, as it would without the block. The watchdog limits the thread to that
    /// quantum. The watchdog lowers the thread when it sleeps or has the turn. A thread that is
    /// ready on another CPU is left as it is.
    fn raise(&self, member: &Member) {
        let Some(band) = self.band else { return };
        let thread = member.thread.by_kls();
        let is_ready = thread.state() == Ok(ThreadState::Running);
        if is_ready || member.is(State::Demoted) {
            return;
        }
        schedule::at_priority(band.watchdog(), || {
            // Fails only if the thread has ended.
            let _ = thread.set_fifo_not_inherited(band.returner());
            // The watchdog sets the state to demoted before it lowers the thread. If it did so
            // meanwhile, this check sees it.
            if member.is(State::Demoted) {
                let _ = thread.set_ordinary();
            }
        });
    }

    fn revoke(&self, turn: Turn) -> bool {
        // The next iteration of the thread chooses.
        self.group.turn.pass(turn, DomainId::DAEMON)
    }

    /// The state of a holder that cannot run; `None` if it can and is about to run.
    fn why_not_running(&self, member: &Member) -> Option<State> {
        match member.thread.by_kls().state() {
            Ok(ThreadState::Stopped | ThreadState::Traced | ThreadState::Dead) => {
                Some(State::Stopped)
            }
            Ok(ThreadState::Sleeping | ThreadState::DiskSleep) => Some(State::Blocked),
            // The holder is ready, but this thread runs. So the holder has left its class or its
            // CPU. Without the real-time class both threads are ordinary, and this proves nothing.
            Ok(ThreadState::Running) => self.band.map(|_| State::Blocked),
            Err(_) => None,
        }
    }
}

/// The time, and the CPU time of the calling thread in ns.
fn clocks() -> (Instant, u64) {
    (now(), thread_cpu_ns())
}

/// Starts the KLS thread of a group.
///
/// # Errors
/// The system has no more threads.
pub(crate) fn start(kls: Kls) -> std::io::Result<std::thread::JoinHandle<()>> {
    let name = format!("upcall-kls{}", kls.cpu_state.cpu);
    std::thread::Builder::new().name(name).spawn(move || kls.run())
}
