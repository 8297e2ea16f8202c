//! What the domains of one user share on one CPU: their pages, and who they are.
//!
//! Made by the server for a user's first domain, and over when the last has gone; used by
//! it, by the group's [`crate::kls`] thread and by the [`crate::watchdog`]. The two real-time threads never wait for the server: they
//! take what it last said of the members, or what it said before.

use core::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use upcall_core::time::Instant;
use upcall_shm::kernel_area::{self, Interrupt, State, Writer};
use upcall_shm::turn_page::{self, Turn, TurnPage};
use upcall_shm::user_area::{self, NEVER, Owner, Peer, Pending, Rank, Slot, SlotState};
use upcall_shm::wake_word::ASLEEP;
use upcall_shm::{DomainId, PeerFault};
use upcall_sys::memfd::{MapError, SharedMapping};
use upcall_sys::process::{ThreadState, cpu_time_of, thread_id, thread_state};
use upcall_sys::{OsError, futex};

use crate::ranks::Ranks;

#[cfg(test)]
pub(crate) mod tests;

/// What the daemon itself is called in a group, and stays.
pub(crate) const PROXY_GENERATION: NonZeroU64 = NonZeroU64::MIN;

/// How many groups there have been in this process.
static HALLS_EVER: AtomicU64 = AtomicU64::new(0);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct DomainGroup {
    /// From 1 on. No two groups have the same, nor one of a user and the next of that user.
    pub(crate) number: u64,
    pub(crate) cpu: u32,
    pub(crate) uid: u32,
    pub(crate) turn: TurnPage<SharedMapping>,
    pub(crate) kernel: Writer<SharedMapping>,
    /// For reading, to be handed out.
    pub(crate) kernel_fd: OwnedFd,
    /// What other users' domains have: domain 0's area. By the KLS threads and the watchdog.
    proxy: Mutex<Owner<SharedMapping>>,
    /// Whether there is something in it.
    shows_others: AtomicBool,
    pub(crate) proxy_fd: OwnedFd,
    members: Mutex<Members>,
    /// Of its KLS thread; 0 before that runs. Relaxed throughout: nothing is handed over with it.
    kls_tid: AtomicU32,
    quit: AtomicBool,
}

/// Who is attached.
pub(crate) type Members = Arc<[Arc<Member>]>;

/// A domain in a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) domain: DomainId,
    pub(crate) generation: NonZeroU64,
    pub(crate) pid: u32,
    /// Its virtual processor here.
    pub(crate) tid: u32,
    pub(crate) area: Peer<SharedMapping>,
    pub(crate) limits: Limits,
    /// As in the kernel area, which only others read.
    state: AtomicU8,
    /// As in the kernel area.
    offences: AtomicU64,
}

/// What a domain may do here, as admitted: set by the server, held by the watchdog.
/// Relaxed throughout: each number counts for itself.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// Longest quantum.
    pub(crate) quantum_ns_max: AtomicU64,
    /// Millionths of the CPU.
    pub(crate) share_ppm: AtomicU64,
    /// Of one job of each activity together.
    pub(crate) compute_ns: AtomicU64,
    /// It has activities that admission refused: nothing is promised to anybody.
    pub(crate) unscreened: AtomicBool,
    /// What it may show.
    pub(crate) ranks: Mutex<Ranks>,
}

impl Member {
    pub(crate) fn new(
        (domain, generation): (DomainId, NonZeroU64),
        (pid, tid): (u32, u32),
        memory: SharedMapping,
    ) -> Result<Self, upcall_shm::LayoutError> {
        let area = Peer::attach(memory, domain, generation.get())?;
        let (limits, state) = (Limits::default(), AtomicU8::new(State::Attached as u8));
        let offences = AtomicU64::new(0);
        Ok(Member { domain, generation, pid, tid, area, limits, state, offences })
    }

    /// How it is taken to be. For the server.
    pub(crate) fn state(&self) -> State {
        let states = [State::Blocked, State::Stopped, State::Demoted];
        states.into_iter().find(|&state| self.is(state)).unwrap_or(State::Attached)
    }

    /// How often the watchdog had to act. For the server.
    pub(crate) fn offences(&self) -> u64 {
        // Relaxed: counts for itself.
        self.offences.load(Ordering::Relaxed)
    }

    /// Whether it has something to run at `now`, as it says. One that is at fault has not.
    pub(crate) fn wants_cpu(&self, now: Instant) -> bool {
        self.area.best(now.as_nanos()).is_ok_and(|best| best.is_some())
    }

    /// Whether it shows a rank that it was not admitted with. Not while the server is just
    /// changing what that is: waits for nobody. For the watchdog.
    pub(crate) fn shows_false_rank(&self, now: Instant) -> bool {
        let ranks = match self.limits.ranks.try_lock() {
            Ok(ranks) => ranks,
            Err(TryLockError::Poisoned(ranks)) => ranks.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        ranks.is_lied_about(&self.area, now)
    }

    /// Relaxed: nothing is handed over with it.
    pub(crate) fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Relaxed) == state as u8
    }
}

impl DomainGroup {
    /// A group without members. The daemon has the turn.
    ///
    /// # Errors
    /// No memory or descriptors.
    pub(crate) fn new(cpu: u32, uid: u32) -> Result<Self, DomainGroupError> {
        let turn = SharedMapping::create("upcall-turn", turn_page::PAGE_BYTES)?;
        let kernel = SharedMapping::create_to_seal("upcall-kernel", kernel_area::PAGE_BYTES)?;
        let proxy = SharedMapping::create_to_seal("upcall-others", user_area::AREA_BYTES)?;
        for pages in [&turn, &kernel, &proxy] {
            // Refused is as good as before: such a page may be slow once.
            let _ = pages.lock();
            pages.dont_fork()?;
        }
        kernel.seal_future_writes()?;
        proxy.seal_future_writes()?;
        let (kernel_fd, proxy_fd) = (kernel.read_only_fd()?, proxy.read_only_fd()?);
        let layout = |_| DomainGroupError::Layout;
        let kernel = Writer::create(kernel, cpu).map_err(layout)?;
        let proxy = Owner::create(proxy, DomainId::DAEMON, PROXY_GENERATION.get());
        kernel.attach(DomainId::DAEMON, PROXY_GENERATION, 0, std::process::id());
        Ok(DomainGroup {
            // Relaxed: a count.
            number: HALLS_EVER.fetch_add(1, Ordering::Relaxed) + 1,
            cpu,
            uid,
            turn: TurnPage::create(turn, cpu).map_err(layout)?,
            kernel,
            kernel_fd,
            proxy: Mutex::new(proxy.map_err(layout)?),
            shows_others: AtomicBool::new(false),
            proxy_fd,
            members: Mutex::default(),
            kls_tid: AtomicU32::new(0),
            quit: AtomicBool::new(false),
        })
    }

    /// Takes a member up, or another list of them. By the server.
    pub(crate) fn set_members(&self, change: impl FnOnce(&mut Vec<Arc<Member>>)) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = members.to_vec();
        change(&mut list);
        *members = list.into();
    }

    /// Who is attached. For the server.
    pub(crate) fn members(&self) -> Members {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts who is attached into `known`, unless the server is just changing it.
    /// Waits for nobody.
    pub(crate) fn look_at_members(&self, known: &mut Members) {
        match self.members.try_lock() {
            Ok(members) => known.clone_from(&members),
            Err(TryLockError::Poisoned(members)) => known.clone_from(&members.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// The group is over, for good: it is not given the CPU any more. Tells the KLS thread to
    /// end; again and again, until it has.
    pub(crate) fn quit(&self) {
        // Release pairs with the Acquire in `is_over`; the bell comes after it.
        self.quit.store(true, Ordering::Release);
        // Somebody may have overwritten the bell.
        self.rouse();
    }

    /// Whether [`DomainGroup::quit`] was called.
    pub(crate) fn is_over(&self) -> bool {
        self.quit.load(Ordering::Acquire)
    }

    /// The calling thread is its KLS thread.
    pub(crate) fn set_kls(&self) {
        self.kls_tid.store(thread_id(), Ordering::Relaxed);
    }

    /// Whether its KLS thread is ready to run, and the CPU time that it has used in ns, as far as the
    /// kernel counted that: a kernel tick behind.
    pub(crate) fn kls_account(&self) -> (bool, u64) {
        let (pid, tid) = (std::process::id(), self.kls_tid.load(Ordering::Relaxed));
        let is_ready = thread_state(pid, tid) == Ok(ThreadState::Running);
        (is_ready, cpu_time_of(pid, tid).unwrap_or(0))
    }

    /// Wakes `domain`, if it sleeps.
    pub(crate) fn notify(&self, domain: DomainId) {
        let wake_word = self.turn.wake_word(domain);
        if wake_word.notify() {
            futex::wake_shared(wake_word.word(), 1);
        }
    }

    /// Wakes the KLS thread, whatever its bell says.
    pub(crate) fn rouse(&self) {
        self.notify(DomainId::DAEMON);
        futex::wake_shared(self.turn.wake_word(DomainId::DAEMON).word(), 1);
    }

    /// Sleeps on the daemon's bell.
    pub(crate) fn sleep_until(&self, deadline: Option<Instant>) {
        let wake_word = self.turn.wake_word(DomainId::DAEMON);
        if wake_word.prepare_wait() {
            let deadline_ns = deadline.map(Instant::as_nanos);
            // Whatever ends the wait, the caller looks again.
            let _ = futex::wait_shared_until(wake_word.word(), ASLEEP, deadline_ns);
        }
        wake_word.finish_wait();
    }

    /// Who has the turn; a turn that cannot be is the daemon's from now on.
    pub(crate) fn turn_or_reset(&self) -> Result<Turn, PeerFault> {
        self.turn.turn().inspect_err(|_| {
            self.turn.reset(DomainId::DAEMON);
            self.notify(DomainId::DAEMON);
        })
    }

    /// Whether a member sleeps on its bell: it is in no handler.
    pub(crate) fn is_asleep(&self, member: &Member) -> bool {
        self.turn.wake_word(member.domain).is_asleep()
    }

    /// Says how a member stands, here and to the others. One that is back hears of it
    /// when it next has the turn (`INT_RESUME`, split-level-1991 §3.2.1).
    pub(crate) fn set_state(&self, member: &Member, state: State) {
        // Relaxed: nothing is handed over with it.
        let before = member.state.swap(state as u8, Ordering::Relaxed);
        self.kernel.set_state(member.domain, state);
        if state == State::Attached && before != state as u8 {
            self.kernel.interrupt(member.domain, Interrupt::Resume);
        }
    }

    /// As [`DomainGroup::set_state`], unless the watchdog has put the member out of turns. By
    /// the KLS thread.
    pub(crate) fn pass_over(&self, member: &Member, state: State) {
        if !member.is(State::Demoted) {
            self.set_state(member, state);
        }
    }

    /// Counts an offence of a member, here and for the domain itself.
    pub(crate) fn count_offence(&self, member: &Member) {
        let offences = self.kernel.count_offence(member.domain);
        // Relaxed: counts for itself.
        member.offences.store(offences, Ordering::Relaxed);
    }

    /// Whether a member would run if it had the turn. One that was blocked or stopped
    /// is back once it sleeps on its bell.
    pub(crate) fn is_present(&self, member: &Member) -> bool {
        if member.is(State::Attached) {
            return true;
        }
        let back = !member.is(State::Demoted) && self.is_asleep(member);
        if back {
            self.set_state(member, State::Attached);
        }
        back
    }

    /// Who of `members` is best at `now`. O(slots in use).
    pub(crate) fn best<'m>(
        &self,
        members: &'m Members,
        now: Instant,
    ) -> Option<(Rank, &'m Arc<Member>)> {
        let present = members.iter().filter(|member| self.is_present(member));
        let bests = present.filter_map(|member| {
            // One that is at fault has nothing.
            let rank = member.area.best(now.as_nanos()).ok()??;
            Some((rank, member))
        });
        bests.min_by_key(|(rank, _)| *rank)
    }

    /// The earliest release of `members`; `None`: there is none.
    pub(crate) fn next_release(&self, members: &Members) -> Option<Instant> {
        let present = members.iter().filter(|member| self.is_present(member));
        let releases = present.filter_map(|member| member.area.next_release().ok());
        releases.min().filter(|&at| at != NEVER).map(Instant::from_nanos)
    }

    /// Whether it was shown what other users have.
    pub(crate) fn shows_others(&self) -> bool {
        // Relaxed: only spares work; who writes holds the lock of the area.
        self.shows_others.load(Ordering::Relaxed)
    }

    /// Shows the group what `others`, members of other groups, have at `now`. By the KLS
    /// threads and the watchdog, when no domain of those groups runs; nothing if another of
    /// them is just at it: who reads waits for nobody. `true` if it says something else
    /// than before. Allocates.
    pub(crate) fn publish_others<'m>(
        &self,
        others: impl Iterator<Item = &'m Arc<Member>>,
        now: Instant,
    ) -> bool {
        let Ok(mut proxy) = self.proxy.try_lock() else { return false };
        let mut ready: Option<Pending> = None;
        let mut upcoming = Vec::new();
        for member in others {
            if let Ok(Some(more)) = member.area.pending(now.as_nanos()) {
                ready = Some(ready.map_or(more, |all| all.and(more)));
            }
            let slots = (0..member.area.slots()).map_while(|slot| member.area.slot(slot).ok());
            upcoming.extend(slots.filter(|slot| slot.next_release_ns != NEVER));
        }
        // With more than fit, those that come first.
        upcoming.sort_unstable_by_key(|slot| (slot.next_release_ns, slot.rank));
        self.shows_others.store(ready.is_some() || !upcoming.is_empty(), Ordering::Relaxed);
        for index in 0..user_area::PAGE_SLOTS {
            let slot = upcoming.get(index).copied().unwrap_or(Slot::FREE);
            let _ = proxy.set(index, Slot { state: SlotState::Waiting, ..slot });
        }
        // What waits there now is not kept waiting for ours any longer.
        proxy.publish(ready)
    }
}

/// Why a group cannot be made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DomainGroupError {
    /// No memory, or no descriptors.
    Map(Arc<MapError>),
    /// The kernel refused.
    Os(OsError),
    /// New memory was not blank.
    Layout,
}

impl core::fmt::Display for DomainGroupError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DomainGroupError::Map(error) => error.fmt(f),
            DomainGroupError::Os(error) => error.fmt(f),
            DomainGroupError::Layout => f.write_str("new memory is not blank"),
        }
    }
}

impl core::error::Error for DomainGroupError {}

impl From<MapError> for DomainGroupError {
    fn from(error: MapError) -> Self {
        DomainGroupError::Map(Arc::new(error))
    }
}

impl From<OsError> for DomainGroupError {
    fn from(error: OsError) -> Self {
        DomainGroupError::Os(error)
    }
}
