//! A domain group: the domains of one user on one CPU, and the pages that they share.
//!
//! The server makes a group for a user's first domain on a CPU, and closes it when the last has
//! gone. The server, the group's [`crate::kls`] thread and the [`crate::watchdog`] use it. The two
//! real-time threads never wait for the server: if the list of members is locked, they use the list
//! that they saw last.

use core::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use upcall_core::admission::Share;
use upcall_core::time::{Instant, Span};
use upcall_shm::kernel_area::{self, GROUPS_MAX, Interrupt, State, Writer};
use upcall_shm::turn_page::{self, Turn, TurnPage};
use upcall_shm::user_area::{
    self, NEVER, Owner, PAGE_SLOTS, Peer, Pending, Rank, Release, Slot, SlotState, Summary,
};
use upcall_shm::wake_word::ASLEEP;
use upcall_shm::{DomainId, PeerFault};
use upcall_sys::memfd::{MapError, SharedMapping};
use upcall_sys::process::{
    ThreadHandle, ThreadState, cpu_time_of, thread_id, thread_state, wait_time_of,
};
use upcall_sys::{OsError, futex};

use crate::accounts::shares::SharesOfDomains;
use crate::area_copy::{AreaCopy, Copied};
use crate::member_thread::MemberThread;
use crate::pacing::Pacing;
use crate::ranks::Ranks;
use crate::registry::Parts;

#[cfg(test)]
pub(crate) mod tests;

/// The generation of domain 0, the daemon itself, in every group. It never changes.
pub(crate) const PROXY_GENERATION: NonZeroU64 = NonZeroU64::MIN;

/// The time beyond its longest quantum within which a domain responds while another one waits.
const RESPONSE_SLACK: Span = Span::from_millis(1);

/// Keys from this one on promise no deadline: under RMDP and RM work over budget, under DWS all
/// levels below critical work (docs/decisions/0016). Without a reservation all keys are above it.
const UNPROMISED_KEYS: u64 = 1 << 61;

/// The number of groups made in this process so far.
static GROUPS_EVER: AtomicU64 = AtomicU64::new(0);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct DomainGroup {
    /// From 1 on. Unique among all groups of the process, also among successive groups of one user.
    pub(crate) number: u64,
    pub(crate) cpu: u32,
    pub(crate) uid: u32,
    pub(crate) turn: TurnPage<SharedMapping>,
    pub(crate) kernel: Writer<SharedMapping>,
    /// A read-only descriptor of the kernel area, for the domains.
    pub(crate) kernel_fd: OwnedFd,
    /// The area of domain 0, which shows the work of other users' domains. The KLS threads and the
    /// watchdog write it.
    proxy: Mutex<Proxy>,
    /// Whether the area of domain 0 shows that other users have domains on the CPU.
    shows_others: AtomicBool,
    pub(crate) proxy_fd: OwnedFd,
    members: Mutex<Members>,
    /// The thread id of the group's KLS thread; 0 before that thread runs. Relaxed everywhere: the
    /// word publishes no other data.
    kls_tid: AtomicU32,
    pub(crate) pacing: Pacing,
    /// PS: the time quantum. `None`: ranks put the domains in one order.
    pub(crate) time_quantum: Option<Span>,
    /// PS: the part of each domain.
    pub(crate) shares: SharesOfDomains,
    is_over: AtomicBool,
}

/// The attached domains of a group.
pub(crate) type Members = Arc<[Arc<Member>]>;

/// A domain in a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) domain: DomainId,
    pub(crate) generation: NonZeroU64,
    /// The thread that is its virtual processor on this CPU.
    pub(crate) thread: MemberThread,
    pub(crate) area: Peer<SharedMapping>,
    copy: AreaCopy,
    pub(crate) limits: Limits,
    /// A copy of the state in the kernel area. The daemon reads this copy alone.
    state: AtomicU8,
    /// A copy of the count in the kernel area.
    offences: AtomicU64,
    pub(crate) last_sample: LastSample,
}

/// The CPU time of a member's thread when the watchdog read it last, or when it was attached. The
/// watchdog writes it. The server reads it when the member leaves. Relaxed everywhere: a word of
/// the previous sample does no harm.
#[derive(Debug, Default)]
pub(crate) struct LastSample {
    pub(crate) at_ns: AtomicU64,
    /// What the kernel counted.
    pub(crate) count_ns: AtomicU64,
    /// CPU time used beyond the reservation and not made up for.
    pub(crate) owed_ns: AtomicU64,
}

/// The limits that admission sets for a domain on this CPU. The server stores them and the watchdog
/// enforces them. Relaxed everywhere: each number is used on its own.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// The longest quantum.
    pub(crate) quantum_ns_max: AtomicU64,
    /// The reserved share with its hand-offs, in millionths of the CPU.
    pub(crate) share_ppm: AtomicU64,
    /// The part of that share for hand-offs.
    pub(crate) hand_offs_ppm: AtomicU64,
    /// The sum over its activities of the time of one job and its hand-offs.
    pub(crate) compute_ns: AtomicU64,
    /// Whether any of its activities has a reservation, or its event server.
    pub(crate) reserves: AtomicBool,
    /// The ranks that it may show.
    pub(crate) ranks: Mutex<Ranks>,
}

impl Limits {
    /// How long the domain may run without a response while others wait.
    pub(crate) fn response_max(&self) -> Span {
        Span::from_nanos(self.quantum_ns_max.load(Ordering::Relaxed)) + RESPONSE_SLACK
    }

    /// Whether the domain has activities, and admission refused all of them, so that not even one
    /// quantum of them fits: it has no quantum, and its jobs are what it declared.
    pub(crate) fn is_refused(&self) -> bool {
        let [quantum_ns, job_ns] =
            [&self.quantum_ns_max, &self.compute_ns].map(|limit| limit.load(Ordering::Relaxed));
        quantum_ns == 0 && job_ns > 0
    }
}

impl Member {
    pub(crate) fn new(
        (domain, generation): (DomainId, NonZeroU64),
        thread: MemberThread,
        memory: SharedMapping,
    ) -> Result<Self, upcall_shm::LayoutError> {
        let area = Peer::attach(memory, domain, generation.get())?;
        let (copy, limits) = (AreaCopy::default(), Limits::default());
        let state = AtomicU8::new(State::Attached as u8);
        let offences = AtomicU64::new(0);
        let last_sample = LastSample {
            at_ns: AtomicU64::new(crate::clock::now().as_nanos()),
            // If it cannot be read, the thread has ended.
            count_ns: AtomicU64::new(thread.by_watchdog().cpu_time().unwrap_or(0)),
            owed_ns: AtomicU64::new(0),
        };
        Ok(Member { domain, generation, thread, area, copy, limits, state, offences, last_sample })
    }

    /// The state that the daemon assumes for it. For the server.
    pub(crate) fn state(&self) -> State {
        let states = [State::Blocked, State::Stopped, State::Demoted];
        states.into_iter().find(|&state| self.is(state)).unwrap_or(State::Attached)
    }

    /// How often the watchdog acted against it. For the server.
    pub(crate) fn offences(&self) -> u64 {
        // Relaxed: the count is used on its own.
        self.offences.load(Ordering::Relaxed)
    }

    /// Whether the copy of its user area shows work that is ready at `now`. A domain with an
    /// invalid area shows none, and one whose thread has ended has none.
    pub(crate) fn wants_cpu(&self, now: Instant) -> bool {
        !self.thread.has_ended() && self.read(now, |copy| copy.best(now.as_nanos()).is_some())
    }

    /// Since when the copy of its user area shows work that is ready at `now` and within its
    /// reservation, and not since before the copy: a domain may state any moment. A release that it
    /// published ahead counts from its moment. `None`: it shows no such work.
    pub(crate) fn wants_reserved_time_since(&self, now: Instant) -> Option<Instant> {
        let since = |copy: &Copied| {
            let since_ns = copy.summary.waits_since_ns(UNPROMISED_KEYS, now.as_nanos())?;
            Some(Instant::from_nanos(since_ns).max(copy.at))
        };
        self.copy.read(&self.area, now, since).filter(|_| !self.thread.has_ended())
    }

    /// The best rank in the copy of its user area at `now`.
    pub(crate) fn best(&self, now: Instant) -> Option<Rank> {
        self.read(now, |copy| copy.best(now.as_nanos()))
    }

    /// The earliest release in the copy of its user area, which may be past. `None`: there is none.
    pub(crate) fn next_release(&self, now: Instant) -> Option<Instant> {
        let at_ns = self.read(now, Summary::next_release_ns);
        (at_ns != NEVER).then(|| Instant::from_nanos(at_ns))
    }

    /// The earliest release after `now` in the copy of its user area.
    pub(crate) fn next_release_after(&self, now: Instant) -> Option<Instant> {
        self.read(now, |copy| {
            let mut releases = copy.releases().iter().map(|release| release.0);
            releases.find(|&at_ns| at_ns > now.as_nanos()).map(Instant::from_nanos)
        })
    }

    /// The earliest release after `now` in the copy of its user area whose rank preempts `rank`.
    pub(crate) fn next_release_before(&self, rank: Rank, now: Instant) -> Option<Instant> {
        self.read(now, |copy| {
            let mut releases = copy.releases().iter();
            let better = |of: &&Release| of.0 > now.as_nanos() && of.1.preempts(&rank);
            releases.find(better).map(|&(at_ns, _)| Instant::from_nanos(at_ns))
        })
    }

    /// Copies its user area if that changed since the last copy. For the watchdog.
    pub(crate) fn try_refresh(&self, now: Instant) {
        self.copy.try_refresh(&self.area, now);
    }

    fn read<T>(&self, now: Instant, look: impl FnOnce(&Summary) -> T) -> T {
        self.copy.read(&self.area, now, |copy| look(&copy.summary))
    }

    /// Whether the copy of its user area shows a rank that admission did not grant, or the area was
    /// invalid. Returns `false` while the
    /// server changes the granted ranks: the watchdog does not wait.
    pub(crate) fn shows_false_rank(&self, now: Instant) -> bool {
        let ranks = match self.limits.ranks.try_lock() {
            Ok(ranks) => ranks,
            Err(TryLockError::Poisoned(ranks)) => ranks.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.copy.read(&self.area, now, |copy| {
            copy.is_invalid || ranks.is_violated_by(&copy.summary, now)
        })
    }

    /// Relaxed: the state publishes no other data.
    pub(crate) fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Relaxed) == state as u8
    }
}

impl DomainGroup {
    /// Makes a group without members. The daemon has the turn.
    ///
    /// # Errors
    /// There is no memory, or there are no descriptors.
    pub(crate) fn new(cpu: u32, uid: u32) -> Result<Self, DomainGroupError> {
        let turn = SharedMapping::create("upcall-turn", turn_page::PAGE_BYTES)?;
        let kernel = SharedMapping::create_to_seal("upcall-kernel", kernel_area::AREA_BYTES)?;
        let proxy = SharedMapping::create_to_seal("upcall-others", user_area::AREA_BYTES)?;
        for pages in [&turn, &kernel, &proxy] {
            // A refused lock is ignored: the first access to such a page may then be slow.
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
            number: GROUPS_EVER.fetch_add(1, Ordering::Relaxed) + 1,
            cpu,
            uid,
            turn: TurnPage::create(turn, cpu).map_err(layout)?,
            kernel,
            kernel_fd,
            proxy: Mutex::new(Proxy::new(proxy.map_err(layout)?)),
            shows_others: AtomicBool::new(false),
            proxy_fd,
            members: Mutex::default(),
            kls_tid: AtomicU32::new(0),
            pacing: Pacing::default(),
            time_quantum: None,
            shares: SharesOfDomains::none(),
            is_over: AtomicBool::new(false),
        })
    }

    /// The same group. `Some`: its domains have accounts, by this time quantum.
    pub(crate) fn by_time_quantum(self, time_quantum: Option<Span>) -> Self {
        DomainGroup { time_quantum, ..self }
    }

    /// Sets the part of the CPU of each domain that is named, its parts of groups, and the part of
    /// ordinary programs; all others have none. Returns whether a part of the CPU has changed. For
    /// the server.
    pub(crate) fn set_shares(&self, parts: &Parts) -> bool {
        let Parts { of_domains, of_groups, ordinary } = parts;
        let mut has_changed = false;
        // The parts of groups come first: they count from the turn in which the domain finds that
        // its part of the CPU has changed.
        for domain in DomainId::all() {
            let mut ppm = [0; GROUPS_MAX];
            for (_, group, part) in of_groups.iter().filter(|(of, ..)| *of == domain) {
                ppm[*group] = part.ppm();
            }
            for (group, ppm) in ppm.into_iter().enumerate() {
                self.kernel.set_group_part(domain, group, ppm);
            }
        }
        for domain in (0..=upcall_shm::DOMAINS_MAX).filter_map(DomainId::new) {
            let named = of_domains.iter().find(|(of, _)| *of == domain).map(|(_, share)| *share);
            let share = if domain == DomainId::DAEMON { *ordinary } else { named };
            let ppm = share.map_or(0, Share::ppm);
            has_changed |= self.shares.ppm(domain) != ppm;
            self.shares.set(domain, ppm);
            self.kernel.set_share(domain, ppm);
        }
        has_changed
    }

    /// Changes the list of members. For the server.
    pub(crate) fn set_members(&self, change: impl FnOnce(&mut Vec<Arc<Member>>)) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = members.to_vec();
        change(&mut list);
        *members = list.into();
    }

    /// Allows the KLS thread the CPU time that admission counts for hand-offs of the members. For
    /// the server, after it changed the members or their limits.
    pub(crate) fn allow_hand_offs(&self) {
        let members = self.members();
        let of_each = members.iter().map(|of| of.limits.hand_offs_ppm.load(Ordering::Relaxed));
        self.pacing.allow_hand_offs(of_each.sum());
    }

    /// The attached domains. For the server.
    pub(crate) fn members(&self) -> Members {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Copies the list of members into `known`, unless the server is changing it. Does not wait.
    pub(crate) fn refresh_members(&self, known: &mut Members) {
        match self.members.try_lock() {
            Ok(members) => known.clone_from(&members),
            Err(TryLockError::Poisoned(members)) => known.clone_from(&members.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Closes the group for good: it never gets the CPU again. Also wakes the KLS thread so that it
    /// ends. The caller repeats this until the thread has ended.
    pub(crate) fn quit(&self) {
        // Release pairs with the Acquire in `is_over`. The wake word is written after it.
        self.is_over.store(true, Ordering::Release);
        // A domain may have overwritten the wake word, so the thread is woken in any case.
        self.wake_kls();
    }

    /// Whether [`DomainGroup::quit`] was called.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Records the calling thread as the KLS thread of the group.
    pub(crate) fn set_kls(&self) {
        self.set_kls_of(thread_id());
    }

    /// Records the KLS thread of the group. Elsewhere only for tests.
    pub(crate) fn set_kls_of(&self, tid: u32) {
        self.kls_tid.store(tid, Ordering::Relaxed);
    }

    /// Whether the KLS thread is ready to run, and the CPU time that it has used in ns. The
    /// kernel's count is up to one kernel tick behind.
    pub(crate) fn kls_usage(&self) -> (bool, u64) {
        let (pid, tid) = (std::process::id(), self.kls_tid.load(Ordering::Relaxed));
        let is_ready = thread_state(pid, tid) == Ok(ThreadState::Running);
        (is_ready, cpu_time_of(pid, tid).unwrap_or(0))
    }

    /// How long the KLS thread was ready so far and did not run, in ns; 0 if that is unknown.
    pub(crate) fn kls_wait_ns(&self) -> u64 {
        wait_time_of(std::process::id(), self.kls_tid.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// A handle of the KLS thread; `None` if that thread does not run yet, or has ended.
    pub(crate) fn kls_thread(&self) -> Option<ThreadHandle> {
        ThreadHandle::open(std::process::id(), self.kls_tid.load(Ordering::Relaxed)).ok()
    }

    /// Wakes `domain` if it sleeps. [`DomainId::DAEMON`] is the KLS thread.
    pub(crate) fn notify(&self, domain: DomainId) {
        if domain == DomainId::DAEMON {
            self.pacing.notify();
        }
        let wake_word = self.turn.wake_word(domain);
        if wake_word.notify() {
            futex::wake_shared(wake_word.word(), 1);
        }
    }

    /// Wakes the KLS thread, even if its wake word does not show a sleeping thread.
    pub(crate) fn wake_kls(&self) {
        self.notify(DomainId::DAEMON);
        futex::wake_shared(self.turn.wake_word(DomainId::DAEMON).word(), 1);
    }

    /// Sleeps on the daemon's wake word. Returns `false` if the thread was notified before it
    /// slept.
    pub(crate) fn sleep_until(&self, deadline: Option<Instant>) -> bool {
        let wake_word = self.turn.wake_word(DomainId::DAEMON);
        let mut slept = false;
        if wake_word.prepare_wait() {
            let deadline_ns = deadline.map(Instant::as_nanos);
            // The caller checks its condition after every wake-up.
            let wake = futex::wait_shared_until(wake_word.word(), ASLEEP, deadline_ns);
            slept = wake != futex::Wake::Changed;
        }
        wake_word.finish_wait();
        slept
    }

    /// The current turn. Resets an invalid turn page, so that the daemon has the turn.
    pub(crate) fn turn_or_reset(&self) -> Result<Turn, PeerFault> {
        self.turn.turn().inspect_err(|_| {
            self.turn.reset(DomainId::DAEMON);
            self.notify(DomainId::DAEMON);
        })
    }

    /// The current turn, if the page is valid and the member holds the turn.
    pub(crate) fn turn_of(&self, member: &Member) -> Option<Turn> {
        self.turn.turn().ok().filter(|turn| turn.holder() == member.domain)
    }

    /// Whether a member sleeps on its wake word. If so, it runs no handler.
    pub(crate) fn is_asleep(&self, member: &Member) -> bool {
        self.turn.wake_word(member.domain).is_asleep()
    }

    /// Sets the state of a member, in this struct and in the kernel area. Also raises
    /// [`Interrupt::Resume`] in a member that returns to `Attached`. The paper calls it
    /// `INT_RESUME` (split-level-1991 §3.2.1). The member finds it when it next has the turn.
    pub(crate) fn set_state(&self, member: &Member, state: State) {
        // Relaxed: the state publishes no other data.
        let before = member.state.swap(state as u8, Ordering::Relaxed);
        self.show_state(member, (before, state));
    }

    /// As [`Self::set_state`], unless the watchdog has demoted the member, also at this moment.
    fn set_state_unless_demoted(&self, member: &Member, state: State) {
        let unless_demoted = |before| (before != State::Demoted as u8).then_some(state as u8);
        // Relaxed: as above.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        if let Ok(before) = member.state.fetch_update(set, fetch, unless_demoted) {
            self.show_state(member, (before, state));
            if member.is(State::Demoted) {
                self.kernel.set_state(member.domain, State::Demoted);
            }
        }
    }

    fn show_state(&self, member: &Member, (before, state): (u8, State)) {
        self.kernel.set_state(member.domain, state);
        if state == State::Attached && before != state as u8 {
            self.kernel.interrupt(member.domain, Interrupt::Resume);
        }
    }

    /// Sets the state of a member that the KLS thread passes over. Does nothing if the watchdog has
    /// demoted the member: a demoted member gets no turns anyway.
    pub(crate) fn mark_passed_over(&self, member: &Member, state: State) {
        self.set_state_unless_demoted(member, state);
    }

    /// Counts an offence of a member, in this struct and in the kernel area.
    pub(crate) fn count_offence(&self, member: &Member) {
        let offences = self.kernel.count_offence(member.domain);
        // Relaxed: the count is used on its own.
        member.offences.store(offences, Ordering::Relaxed);
    }

    /// Whether a member would run if it had the turn. A blocked or stopped member is set to
    /// `Attached` here once it sleeps on its wake word.
    pub(crate) fn is_present(&self, member: &Member) -> bool {
        if member.thread.has_ended() {
            return false;
        }
        if member.is(State::Attached) {
            return true;
        }
        let back = !member.is(State::Demoted) && self.is_asleep(member);
        if back {
            self.set_state_unless_demoted(member, State::Attached);
        }
        back
    }

    /// Copies the areas of `members` that changed since their last copies. For the KLS thread of
    /// the group. O(members), and O(slots) for each area that changed.
    pub(crate) fn refresh(&self, members: &Members, now: Instant) {
        members.iter().for_each(|member| member.copy.refresh(&member.area, now));
    }

    /// The member of `members` with the best rank at `now`, by the copies of their areas.
    /// O(members times [`RELEASES_MAX`](user_area::RELEASES_MAX)), and O(members) if no release has
    /// come since the copies.
    pub(crate) fn best<'m>(
        &self,
        members: &'m Members,
        now: Instant,
    ) -> Option<(Rank, &'m Arc<Member>)> {
        let present = members.iter().filter(|member| self.is_present(member));
        let bests = present.filter_map(|member| {
            let rank = member.best(now)?;
            Some((rank, member))
        });
        bests.min_by_key(|(rank, _)| *rank)
    }

    /// The earliest release of `members`; `None` if there is none. O(members).
    pub(crate) fn next_release(&self, members: &Members, now: Instant) -> Option<Instant> {
        let present = members.iter().filter(|member| self.is_present(member));
        present.filter_map(|member| member.next_release(now)).min()
    }

    /// The earliest release of `members` after `now`; `None` if there is none. O(members times
    /// [`RELEASES_MAX`](user_area::RELEASES_MAX)).
    pub(crate) fn next_release_after(&self, members: &Members, now: Instant) -> Option<Instant> {
        let present = members.iter().filter(|member| self.is_present(member));
        present.filter_map(|member| member.next_release_after(now)).min()
    }

    /// Whether the area of domain 0 shows that other users have domains on the CPU.
    pub(crate) fn shows_others(&self) -> bool {
        // Relaxed: a wrong answer costs only unnecessary work. Writers hold the lock of the area.
        self.shows_others.load(Ordering::Relaxed)
    }

    /// Publishes the work of `others`, groups with their members, at `now` in the area of domain 0.
    /// That area also shows whether there are any members: they may be woken, and their wake words
    /// stand in another turn page.
    ///
    /// Each user has an equal share of one page of slots, and at most R =
    /// [`RELEASES_MAX`](user_area::RELEASES_MAX) releases: the earliest of those that matter
    /// ([`Summary`]). O(members of others times R squared), and O(members) if each has few releases
    /// that matter. Reads no slots of others, and allocates nothing.
    ///
    /// The KLS threads and the watchdog call this while no domain of the other groups runs. If
    /// another of these threads is publishing, the call does nothing: readers of the area never
    /// wait.
    pub(crate) fn publish_others<'g>(
        &self,
        others: impl Iterator<Item = &'g (Arc<DomainGroup>, Members)> + Clone,
        now: Instant,
    ) -> Shown {
        let Ok(mut proxy) = self.proxy.try_lock() else { return Shown::Busy };
        let users = others.clone().filter(|(_, members)| !members.is_empty()).count();
        let share = PAGE_SLOTS / users.clamp(1, PAGE_SLOTS);
        proxy.upcoming.clear();
        let mut ready: Option<Pending> = None;
        let mut any = false;
        for (group, members) in others {
            let mut user = Summary::EMPTY;
            for member in members.iter().filter(|member| group.is_present(member)) {
                any = true;
                if group.pacing.is_resting() {
                    // It cannot be chosen meanwhile. Shown work would only stop the holder.
                    continue;
                }
                member.read(now, |copy| {
                    if let Some(more) = copy.pending(now.as_nanos()) {
                        ready = Some(ready.map_or(more, |all| all.and(more)));
                    }
                    user.add_upcoming(copy, now.as_nanos());
                });
            }
            proxy.upcoming.extend(user.releases().iter().take(share));
        }
        // Relaxed: writers hold the lock of the area.
        let are_new = self.shows_others.swap(any, Ordering::Relaxed) != any;
        // Its `since_ns` is 0, so preemption by ready work of other users is not deferred.
        if proxy.publish(any, ready) || are_new { Shown::Changed } else { Shown::Same }
    }
}

/// The area of domain 0 of a group.
#[derive(Debug)]
struct Proxy {
    owner: Owner<SharedMapping>,
    /// The releases that the next publication shows.
    upcoming: Vec<Release>,
    /// The slots from this one on were never used. Domains read the slots before it.
    slots_used: usize,
}

impl Proxy {
    fn new(owner: Owner<SharedMapping>) -> Self {
        Proxy { owner, upcoming: Vec::with_capacity(PAGE_SLOTS), slots_used: 0 }
    }

    /// Publishes `ready`, `upcoming`, and whether other users have domains on the CPU. Returns
    /// whether the work changed.
    fn publish(&mut self, has_others: bool, ready: Option<Pending>) -> bool {
        self.owner.set_outside_wakes(has_others);
        self.upcoming.truncate(PAGE_SLOTS);
        // Each thread has the groups in an order of its own.
        self.upcoming.sort_unstable();
        self.slots_used = self.slots_used.max(self.upcoming.len());
        for index in 0..self.slots_used {
            let slot = self.upcoming.get(index).map_or(Slot::FREE, |&(next_release_ns, rank)| {
                Slot { next_release_ns, rank, state: SlotState::Waiting }
            });
            let _ = self.owner.set(index, slot);
        }
        self.owner.publish(ready)
    }
}

/// Whether the area of domain 0 shows the work of other users' domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It shows something new.
    Changed,
    /// It showed the same before.
    Same,
    /// Another thread writes the area, and may have read the work too early.
    Busy,
}

/// Why a group cannot be made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DomainGroupError {
    /// There is no memory, or there are no descriptors.
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

impl core::error::Error for DomainGroupError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            DomainGroupError::Map(error) => Some(error),
            DomainGroupError::Os(error) => Some(error),
            DomainGroupError::Layout => None,
        }
    }
}

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
