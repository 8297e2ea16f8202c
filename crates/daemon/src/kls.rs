//! The kernel-level scheduler's thread of a hall (split-level-1991 §3.2;
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
//! 3. To the best of this CPU. If that is another user's, it is in the hall of that
//!    user, and of no other: of all halls of a CPU, one at most has the CPU, and the
//!    daemon knows which ([`Site::is_held`]); what its domains write into the page of
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
use crate::hall::{Hall, Member};
use crate::site::{Known, Site};

/// How often a thread that cannot lie beneath looks at the holder.
const LOOK_EVERY: Span = Span::from_millis(2);

/// See the module's head.
pub(crate) struct Kls {
    site: Arc<Site>,
    hall: Arc<Hall>,
    /// `None`: without the real-time class.
    band: Option<Band>,
    known: Known,
}

/// What came of choosing.
enum Choice {
    /// The turn was passed to a domain of this hall.
    Passed(Arc<Hall>, DomainId),
    /// Nobody has anything to do before then.
    Nothing(Option<Instant>),
    /// Another hall has a holder; its own thread sees to it.
    Taken,
    /// It changed meanwhile.
    Again,
}

impl Kls {
    pub(crate) fn new(site: Arc<Site>, hall: Arc<Hall>, band: Option<Band>) -> Self {
        Kls { site, hall, band, known: Known::default() }
    }

    /// Runs until the hall is over, in a thread of its own.
    pub(crate) fn run(mut self) {
        self.hall.set_kls();
        // A CPU that went away, or a right: it still runs, and is late.
        let _ = schedule::pin_thread(&[self.site.cpu]);
        let _ = schedule::set_timer_slack_least();
        if let Some(band) = self.band {
            let _ = schedule::set_fifo(band.kernel_level());
        }
        while !self.hall.is_over() {
            match self.hall.turn_or_reset() {
                Ok(turn) if self.site.is_held(&self.hall) => self.watch(turn),
                // Also if somebody wrote that he has it: nobody gave it to him.
                _ => self.choose_or_sleep(),
            }
        }
    }

    fn choose_or_sleep(&mut self) {
        self.hall.turn.take_recheck_idle();
        self.known.refresh(&self.site);
        match self.choose() {
            Choice::Passed(hall, domain) => {
                if !Arc::ptr_eq(&hall, &self.hall) {
                    // Its thread must lie beneath before the domain runs.
                    hall.ring(DomainId::DAEMON);
                }
                hall.ring(domain);
            }
            Choice::Nothing(until) => self.hall.sleep_until(until),
            Choice::Taken => self.hall.sleep_until(None),
            Choice::Again => {}
        }
    }

    fn choose(&self) -> Choice {
        let _alone = self.site.choosing();
        if self.site.is_held(&self.hall) {
            return Choice::Again;
        }
        let now = now();
        if let Some((hall, _)) = self.known.halls().find(|(hall, _)| self.site.is_held(hall)) {
            // Its holder looks at its next boundary.
            if self.known.show_others(hall, now) {
                let _ = hall.turn.request_recheck();
            }
            return Choice::Taken;
        }
        let Some((_, hall, domain)) = self.best(now) else {
            self.site.grant_nobody();
            let releases = self.known.halls().filter_map(|(hall, m)| hall.next_release(m));
            return Choice::Nothing(releases.min());
        };
        self.known.show_others(hall, now);
        self.site.grant(hall);
        // The daemon's to give, whatever a domain has written there.
        if !hall.turn.turn().is_ok_and(|seen| hall.turn.pass(seen, domain)) {
            hall.turn.reset(domain);
        }
        Choice::Passed(hall.clone(), domain)
    }

    /// Best of all: its rank, its hall, and who it is.
    fn best(&self, now: Instant) -> Option<(Rank, &Arc<Hall>, DomainId)> {
        let bests = self.known.halls().filter_map(|(hall, members)| {
            let (rank, member) = hall.best(members, now)?;
            Some((rank, hall, member.domain))
        });
        bests.min_by_key(|(rank, ..)| *rank)
    }

    /// It runs though a domain has the turn: why?
    fn watch(&mut self, turn: Turn) {
        self.known.refresh(&self.site);
        let members = self.known.members_of(&self.hall).into_iter().flat_map(|m| m.iter());
        let Some(member) = members.clone().find(|member| member.domain == turn.holder()) else {
            // Gone, or not there yet: nobody gave it the turn by the rules.
            self.take(turn);
            return;
        };
        if self.hall.is_asleep(member) {
            // Whoever passed it the turn was cut off before it rang.
            self.hall.ring(member.domain);
            return;
        }
        match self.why_not_running(member) {
            None => self.wait_a_little(),
            Some(state) if self.hall.turn.turn() == Ok(turn) => {
                self.hall.pass_over(member, state);
                // Had somebody overwritten its bell, it would sleep for ever.
                futex::wake_shared(self.hall.turn.bell(member.domain), 1);
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
        self.hall.turn.pass(turn, DomainId::DAEMON)
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
        self.hall.sleep_until(Some(until));
    }
}

/// Starts the thread of a hall.
///
/// # Errors
/// The system has no more threads.
pub(crate) fn start(kls: Kls) -> std::io::Result<std::thread::JoinHandle<()>> {
    let name = format!("upcall-kls{}", kls.site.cpu);
    std::thread::Builder::new().name(name).spawn(move || kls.run())
}
