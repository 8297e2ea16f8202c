//! The kernel-level scheduler's thread of a group (split-level-1991 §3.2;
//! docs/decisions/0008).
//!
//! It runs one priority beneath the domains' threads, on their CPU. While a domain
//! has something to do it is ready and does not run; so when it does run, the turn is
//! its own, or who has it is blocked in the kernel, stopped or gone. Without the
//! real-time class it cannot lie beneath: then it is woken by its bell, looks now
//! and then, and looks at `/proc` before it believes that a holder is blocked.
//!
//! ```text
//!        +----------- (1) nothing is ready -----------+
//!        v                                            |
//!     asleep --- (2) bell, or a release --------> choosing <--- (5) the turn is the daemon's
//!                                                     |                    |
//!                                             (3) passes the turn          |
//!                                                     v                    |
//!                                                 beneath ---------- (4) holder blocked,
//!                                                                     stopped, gone
//! ```
//!
//! 1. Until the next release of anyone.
//! 2. Whoever becomes ready rings for the daemon if the daemon has the turn.
//! 3. To the best of this CPU. If that is another user's, it is in the group of that
//!    user, and of no other: of all groups of a CPU, one at most has the CPU, and the
//!    daemon knows which ([`CpuState::is_held`]); what its domains write into the page of
//!    another makes no difference.
//! 4. It is marked, the turn taken from it, and it is passed over until it sleeps on its
//!    bell: then it has come to a boundary. If it is blocked, its thread is raised above
//!    the domains until then ([`Band::returner`]).
//! 5. The holder had nothing left to do, or another user's domain outranks it.
//!
//! It takes no lock that an ordinary thread holds. In the state *choosing* it allocates
//! only where several users share the CPU.

use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;
use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_shm::user_area::Rank;
use upcall_sys::process::{ThreadState, thread_state};
use upcall_sys::schedule::Band;
use upcall_sys::{futex, schedule};

use crate::clock::now;
use crate::cpu::{CpuState, Known};
use crate::group::{DomainGroup, Member};

/// How often a thread that cannot lie beneath looks at the holder.
const LOOK_EVERY: Span = Span::from_millis(2);

/// See the module's head.
pub(crate) struct Kls {
    cpu_state: Arc<CpuState>,
    group: Arc<DomainGroup>,
    /// `None`: without the real-time class.
    band: Option<Band>,
    known: Known,
}

/// What came of choosing.
enum Choice {
    /// The turn was passed to a domain of this group.
    Passed(Arc<DomainGroup>, DomainId),
    /// Nobody has anything to do before then.
    Nothing(Option<Instant>),
    /// Another group has a holder; its own thread sees to it.
    Taken,
    /// It changed meanwhile.
    Again,
}

impl Kls {
    pub(crate) fn new(
        cpu_state: Arc<CpuState>,
        group: Arc<DomainGroup>,
        band: Option<Band>,
    ) -> Self {
        Kls { cpu_state, group, band, known: Known::default() }
    }

    /// Runs until the group is over, in a thread of its own.
    pub(crate) fn run(mut self) {
        self.group.set_kls();
        // A CPU that went away, or a right: it still runs, and is late.
        let _ = schedule::pin_thread(&[self.cpu_state.cpu]);
        let _ = schedule::set_timer_slack_least();
        if let Some(band) = self.band {
            let _ = schedule::set_fifo(band.kernel_level());
        }
        while !self.group.is_over() {
            match self.group.turn_or_reset() {
                Ok(turn) if self.cpu_state.is_held(&self.group) => self.watch(turn),
                // Also if somebody wrote that he has it: nobody gave it to him.
                _ => self.choose_or_sleep(),
            }
        }
    }

    fn choose_or_sleep(&mut self) {
        self.group.turn.take_recheck_idle();
        self.known.refresh(&self.cpu_state);
        match self.choose() {
            Choice::Passed(group, domain) => {
                if !Arc::ptr_eq(&group, &self.group) {
                    // Its thread must lie beneath before the domain runs.
                    group.notify(DomainId::DAEMON);
                }
                group.notify(domain);
            }
            Choice::Nothing(until) => self.group.sleep_until(until),
            Choice::Taken => self.group.sleep_until(None),
            Choice::Again => {}
        }
    }

    fn choose(&self) -> Choice {
        let _alone = self.cpu_state.choosing();
        if self.cpu_state.is_held(&self.group) {
            return Choice::Again;
        }
        let now = now();
        if let Some((group, _)) =
            self.known.groups().find(|(group, _)| self.cpu_state.is_held(group))
        {
            // Its holder looks at its next boundary.
            if self.known.show_others(group, now) {
                let _ = group.turn.request_recheck();
            }
            return Choice::Taken;
        }
        let Some((_, group, domain)) = self.best(now) else {
            self.cpu_state.grant_nobody();
            let releases = self.known.groups().filter_map(|(group, m)| group.next_release(m));
            return Choice::Nothing(releases.min());
        };
        self.known.show_others(group, now);
        self.cpu_state.grant(group);
        // The daemon's to give, whatever a domain has written there.
        if !group.turn.turn().is_ok_and(|seen| group.turn.pass(seen, domain)) {
            group.turn.reset(domain);
        }
        Choice::Passed(group.clone(), domain)
    }

    /// Best of all: its rank, its group, and who it is.
    fn best(&self, now: Instant) -> Option<(Rank, &Arc<DomainGroup>, DomainId)> {
        let bests = self.known.groups().filter_map(|(group, members)| {
            let (rank, member) = group.best(members, now)?;
            Some((rank, group, member.domain))
        });
        bests.min_by_key(|(rank, ..)| *rank)
    }

    /// It runs though a domain has the turn: why?
    fn watch(&mut self, turn: Turn) {
        self.known.refresh(&self.cpu_state);
        let members = self.known.members_of(&self.group).into_iter().flat_map(|m| m.iter());
        let Some(member) = members.clone().find(|member| member.domain == turn.holder()) else {
            // Gone, or not there yet: nobody gave it the turn by the rules.
            self.take(turn);
            return;
        };
        if self.group.is_asleep(member) {
            // Whoever passed it the turn was cut off before it rang.
            self.group.notify(member.domain);
            return;
        }
        match self.why_not_running(member) {
            None => self.wait_a_little(),
            Some(state) if self.group.turn.turn() == Ok(turn) => {
                self.group.pass_over(member, state);
                // Had somebody overwritten its bell, it would sleep for ever.
                futex::wake_shared(self.group.turn.wake_word(member.domain).word(), 1);
                if self.take(turn) && state == State::Blocked {
                    self.raise(member);
                }
            }
            Some(_) => {}
        }
    }

    /// Raises a thread that was blocked in the kernel amid its turn, so that it need not wait
    /// for whoever runs to sleep: it finishes its quantum when it wakes, shows what it has and
    /// sleeps until it has the turn. It was best of all when it began that quantum: who was
    /// released since waits for what is left of it, as had it not been blocked. The watchdog
    /// holds it to that quantum, and lowers it once it sleeps or has the turn. A thread that is
    /// ready and runs elsewhere stays as it is.
    fn raise(&self, member: &Member) {
        let Some(band) = self.band else { return };
        let is_ready = thread_state(member.pid, member.tid) == Ok(ThreadState::Running);
        if is_ready || member.is(State::Demoted) {
            return;
        }
        // Refused only if it has ended.
        let _ = schedule::set_fifo_not_inherited_of(member.tid, band.returner());
        // The watchdog says that it is demoted before it lowers it: if that came between, we see it.
        if member.is(State::Demoted) {
            let _ = schedule::set_ordinary_of(member.tid);
        }
    }

    fn take(&self, turn: Turn) -> bool {
        // The next round chooses.
        self.group.turn.pass(turn, DomainId::DAEMON)
    }

    /// What keeps a holder from running; `None`: nothing, it is about to.
    fn why_not_running(&self, member: &Member) -> Option<State> {
        match thread_state(member.pid, member.tid) {
            Ok(ThreadState::Stopped | ThreadState::Traced | ThreadState::Dead) => {
                Some(State::Stopped)
            }
            Ok(ThreadState::Sleeping | ThreadState::DiskSleep) => Some(State::Blocked),
            // It is ready, and we run: it has left its class or its CPU. Not so if
            // both are ordinary.
            Ok(ThreadState::Running) => self.band.map(|_| State::Blocked),
            Err(_) => None,
        }
    }

    fn wait_a_little(&self) {
        let until = now() + LOOK_EVERY;
        self.group.sleep_until(Some(until));
    }
}

/// Starts the thread of a group.
///
/// # Errors
/// The system has no more threads.
pub(crate) fn start(kls: Kls) -> std::io::Result<std::thread::JoinHandle<()>> {
    let name = format!("upcall-kls{}", kls.cpu_state.cpu);
    std::thread::Builder::new().name(name).spawn(move || kls.run())
}
