//! An executor's virtual processor among the domains of its CPU (docs/decisions/0008).
//!
//! Used by the executor of a domain that is attached to a daemon. It shows the others
//! what the executor's scheduler has, finds out who comes next, and passes the turn
//! on. Nothing here allocates, takes a lock or waits, but for [`VirtualProcessor::sleep_until`];
//! a system call is made only to wake who sleeps.
//!
//! What peers wrote is copied and checked by the shm room. A peer that is at fault
//! counts as having nothing: its own promise may break, nobody else's does.

use rtrb::{Consumer, Producer};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upcall_core::activity::ActivityId;
use upcall_core::policy::Standing;
use upcall_core::scheduler::Scheduler;
use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;
use upcall_shm::kernel_area::{Interrupts, Reader, State};
use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::{
    Counters, LentMask, Mask, NEVER, Owner, Peer, Pending, Rank, Slot, SlotState,
};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::futex;
use upcall_sys::memfd::{ReadOnlyMapping, SharedMapping};

use crate::mailbox::ACTIVITIES_MAX;
use crate::notify::{SharedNotifier, WakeHandle, notify_domain};

#[cfg(test)]
mod tests;

/// The pages of a domain on a CPU, as they come from the daemon.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) turn: Arc<TurnPage<SharedMapping>>,
    pub(crate) user: Owner<SharedMapping>,
    /// Of the own area, for tasks.
    pub(crate) mask: Arc<LentMask<SharedMapping>>,
    pub(crate) kernel: Reader<ReadOnlyMapping>,
}

/// Who is to have the turn now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This domain: its scheduler has the best.
    Own,
    /// Another, or the daemon if nobody has anything to do.
    Other(DomainId),
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct VirtualProcessor {
    pages: Pages,
    me: DomainId,
    notifier: SharedNotifier,
    handle: WakeHandle,
    /// Few: each is looked at in every hand-off.
    peers: Vec<PeerDomain>,
    /// Of each activity its place in the order of admission; `None`: there is none.
    orders: Vec<Option<u32>>,
    /// Activities from this number on never were.
    orders_used: usize,
    /// What was published is not yet told to whoever has the turn.
    asks: Cell<bool>,
    /// Who was found to outrank the handler that was told to yield.
    found: Option<(Rank, DomainId)>,
    /// Whoever passed the turn found this domain to be best of all, and nothing has
    /// changed since.
    is_best: bool,
    /// Set when the daemon has gone: there is nobody to take turns by.
    orphaned: Arc<AtomicBool>,
    /// Domains that were attached since; rung for.
    arrivals: Consumer<PeerDomain>,
    /// The virtual processor to take instead, once there is another daemon; rung for.
    successors: Consumer<Box<VirtualProcessor>>,
    /// Where this one goes then.
    predecessors: Producer<Box<VirtualProcessor>>,
    /// Places of activities that the daemon of this virtual processor does not know.
    unclaimed: Vec<u32>,
    /// Of the kernel area, when the peers were last compared with it; `None`: not yet.
    epoch: Option<u64>,
    /// Requests to yield that there were when it looked last at a boundary.
    heeded: u64,
    /// For so long others may wait that outrank what this domain goes on with (decision 0014).
    defer_preemption: Span,
    counters: Counters,
}

/// Another domain of the CPU.
#[derive(Debug)]
pub(crate) struct PeerDomain {
    pub(crate) domain: DomainId,
    pub(crate) generation: u64,
    pub(crate) area: Peer<ReadOnlyMapping>,
    /// As the kernel area said when it last changed.
    pub(crate) is_there: bool,
}

/// Most domains that may come before the executor looks.
const ARRIVALS_MAX: usize = 2 * upcall_shm::DOMAINS_MAX as usize;

/// The listener's end of a virtual processor: see [`crate::domain`].
pub(crate) struct VirtualProcessorControl {
    handle: WakeHandle,
    notifier: SharedNotifier,
    arrivals: Producer<PeerDomain>,
    successors: Producer<Box<VirtualProcessor>>,
    predecessors: Consumer<Box<VirtualProcessor>>,
}

impl VirtualProcessorControl {
    /// Has the executor look.
    pub(crate) fn notify(&self) {
        self.handle.mark_message();
        self.notifier.notify();
    }

    /// Tells of another domain. Waits if the executor has not looked for dozens of them.
    pub(crate) fn introduce(&mut self, mut peer: PeerDomain) {
        while let Err(rtrb::PushError::Full(back)) = self.arrivals.push(peer) {
            peer = back;
            self.notify();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.notify();
    }

    /// Has the executor take `virtual processor` instead, whose control is `next`; this one is of no
    /// use after.
    pub(crate) fn replace(
        &mut self,
        mut virtual_processor: Box<VirtualProcessor>,
        next: &mut VirtualProcessorControl,
    ) {
        next.handle.clone_from(&self.handle);
        virtual_processor.handle.clone_from(&self.handle);
        self.handle.move_to(next.notifier.clone());
        // There is room: a virtual processor has one successor.
        let pushed = self.successors.push(virtual_processor);
        debug_assert!(pushed.is_ok());
        self.notify();
    }

    /// Unmaps the virtual processor that was given up, if the executor has left it.
    pub(crate) fn clear(&mut self) {
        drop(self.predecessors.pop());
    }
}

impl VirtualProcessor {
    /// The virtual processor of domain `me`, and the other end of it. Allocates.
    pub(crate) fn new(
        pages: Pages,
        me: DomainId,
        defer_preemption: Span,
        orphaned: Arc<AtomicBool>,
    ) -> (Self, VirtualProcessorControl) {
        let (arrivals_in, arrivals) = rtrb::RingBuffer::new(ARRIVALS_MAX);
        let (successors_in, successors) = rtrb::RingBuffer::new(1);
        let (predecessors, predecessors_out) = rtrb::RingBuffer::new(1);
        let peers = Vec::with_capacity(upcall_shm::DOMAINS_MAX as usize + 1);
        let orders = vec![None; ACTIVITIES_MAX as usize];
        let counters = Counters::default();
        let (orders_used, found, is_best, epoch) = (0, None, false, None);
        let notifier = SharedNotifier::new(pages.turn.clone(), me);
        let handle = WakeHandle::new(notifier.clone());
        let control = VirtualProcessorControl {
            handle: handle.clone(),
            notifier: notifier.clone(),
            arrivals: arrivals_in,
            successors: successors_in,
            predecessors: predecessors_out,
        };
        let virtual_processor = VirtualProcessor {
            pages,
            me,
            notifier,
            handle,
            peers,
            orders,
            orders_used,
            asks: Cell::new(false),
            found,
            is_best,
            orphaned,
            arrivals,
            successors,
            predecessors,
            unclaimed: Vec::new(),
            epoch,
            heeded: 0,
            defer_preemption,
            counters,
        };
        (virtual_processor, control)
    }

    /// Its bell, for the executor alone: it is the same as long as this is the virtual processor.
    #[inline]
    pub(crate) fn notifier(&self) -> &SharedNotifier {
        &self.notifier
    }

    /// Whether anything was left for the executor since the last time, which has just heard
    /// its bell. A load, if not.
    #[inline]
    pub(crate) fn take_message(&self) -> bool {
        self.handle.take_message()
    }

    /// Its bell, for all others.
    pub(crate) fn wake_handle(&self) -> WakeHandle {
        self.handle.clone()
    }

    /// The daemon of this virtual processor refused to have these places back. Allocates.
    pub(crate) fn set_unclaimed(&mut self, orders: Vec<u32>) {
        self.unclaimed = orders;
    }

    /// Moves to the next virtual processor, if the listener has found one; whether it has. What the
    /// domain has and has counted goes along. A load, if there is none.
    pub(crate) fn move_on(&mut self) -> bool {
        let Ok(mut next) = self.successors.pop() else { return false };
        std::mem::swap(&mut next.orders, &mut self.orders);
        for order in next.orders.iter_mut().flatten() {
            // Somebody else may have that place: it is the last among equals.
            if next.unclaimed.contains(order) {
                *order = u32::MAX;
            }
        }
        next.orders_used = self.orders_used;
        next.counters = self.counters;
        std::mem::swap(self, &mut *next);
        // There is room: this virtual processor has one predecessor.
        let pushed = self.predecessors.push(next);
        debug_assert!(pushed.is_ok());
        true
    }

    /// Where a task that is polled shows its mask, since the virtual processor is not at hand then.
    pub(crate) fn lent_mask(&self) -> Arc<LentMask<SharedMapping>> {
        self.pages.mask.clone()
    }

    /// Takes up the domains that have come; whether any has.
    pub(crate) fn take_in_peers(&mut self) -> bool {
        let mut any = false;
        while let Ok(peer) = self.arrivals.pop() {
            self.peers.retain(|peer| peer.domain != peer.domain);
            // There is room: one of each number at most.
            self.peers.push(peer);
            // Whether it is there is looked up again.
            self.epoch = None;
            any = true;
        }
        any
    }

    /// Sees who has come and gone. A load, if nobody has.
    #[inline]
    fn see_peers(&mut self) {
        let epoch = self.pages.kernel.epoch();
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            let kernel = &self.pages.kernel;
            for peer in &mut self.peers {
                let entry = kernel.entry(peer.domain).ok().flatten();
                peer.is_there = entry.is_some_and(|of| of.generation.get() == peer.generation);
            }
        }
    }

    /// Gives up its place: it has nothing to do any more.
    pub(crate) fn leave(&mut self, scheduler: &Scheduler) {
        self.orders.fill(None);
        self.publish(scheduler);
        self.ask();
        self.pass(DomainId::DAEMON);
    }

    /// An activity comes, with its place in the order of admission, or goes.
    pub(crate) fn set_order(&mut self, id: ActivityId, order: Option<u32>) {
        self.orders[id.0 as usize] = order;
        self.orders_used = self.orders_used.max(id.0 as usize + 1);
    }

    /// It wakes, and was asked nothing meanwhile: the turn it has was just passed to it.
    pub(crate) fn woken_by_turn(&mut self) {
        self.is_best = self.has_turn();
    }

    /// Whether the domain runs without turns: its daemon has gone, or has put it
    /// into an ordinary class.
    pub(crate) fn is_alone(&self) -> bool {
        // Relaxed: nothing is handed over with it.
        self.orphaned.load(Ordering::Relaxed)
            || self.pages.kernel.state(self.me) == Ok(Some(State::Demoted))
    }

    /// Whether the domain has the turn. A load.
    #[inline]
    pub(crate) fn has_turn(&self) -> bool {
        self.pages.turn.holder() == Ok(self.me)
    }

    /// Whether the handler that runs should look further than at its clock: the
    /// turn was taken, or somebody asks for a look. Three loads.
    #[inline]
    pub(crate) fn wants_a_look(&self) -> bool {
        !self.has_turn()
            || self.pages.turn.is_recheck()
            || self.pages.kernel.yield_requests(self.me) != self.heeded
    }

    /// Shows one level more of `mask`. A store.
    pub(crate) fn raise_mask(&mut self, mask: Mask) {
        self.pages.user.mask(mask);
    }

    /// One level less. A store, and at the last level a fence: a request that came
    /// meanwhile is seen from now on, by [`VirtualProcessor::wants_a_look`] or in
    /// [`VirtualProcessor::interrupts`].
    pub(crate) fn lower_mask(&mut self, mask: Mask) {
        // Not looked for here: the point does.
        let _ = self.pages.user.unmask(mask);
    }

    /// The interrupts that the daemon has raised so far. A load.
    #[inline]
    pub(crate) fn interrupts(&self) -> Interrupts {
        self.pages.kernel.interrupts(self.me)
    }

    /// Shows what `scheduler` has. O(activities there ever were at once).
    pub(crate) fn publish(&mut self, scheduler: &Scheduler) {
        for (number, order) in self.orders[..self.orders_used].iter().enumerate() {
            let id = ActivityId(u32::try_from(number).unwrap_or(u32::MAX));
            let slot = order.map_or(Slot::FREE, |order| slot(scheduler, id, order));
            // As many slots as orders were made.
            let set = self.pages.user.set(number, slot);
            debug_assert!(set.is_ok());
        }
        let ready = scheduler.best().and_then(|standing| {
            let rank = self.rank(standing)?;
            let first = self.order(standing.first).unwrap_or(rank.order);
            Some(Pending { rank, first, since_ns: self.pending_since_ns(scheduler) })
        });
        let changed = self.pages.user.publish(ready);
        // Also if nothing changed: it may have been passed over, and is there again.
        let wanted = changed || ready.is_some();
        if self.has_turn() {
            // It looks itself.
            self.asks.set(false);
            return;
        }
        // What was found is of another turn.
        self.found = None;
        // When it sleeps.
        self.asks.set(wanted || self.asks.get());
    }

    /// Sleeps until it is rung or until `deadline_ns`; `true` if it was rung.
    pub(crate) fn sleep_until(&self, deadline_ns: Option<u64>) -> bool {
        self.sleep(|word| {
            // Whatever ends the wait, the caller looks again.
            let _ = futex::wait_shared_until(word, ASLEEP, deadline_ns);
        })
    }

    /// As [`Self::sleep_until`], or until a word of `others` changes. The own one is then among them.
    pub(crate) fn sleep_among<'a>(
        &'a self,
        others: &mut futex::WaitSet<'a>,
        deadline_ns: Option<u64>,
    ) -> bool {
        self.sleep(|word| {
            others.add_shared(word, ASLEEP);
            let _ = others.wait_until(deadline_ns);
        })
    }

    /// Does `wait` unless it was rung by now; whether it was in the end. Whoever has the turn is asked to
    /// look, if it is to, when the bell says already that this domain sleeps: one that was
    /// blocked in the kernel is taken to be back by that ([`Self::is_back`]), and a holder
    /// that looked before would not look again.
    #[inline]
    fn sleep<'a>(&'a self, wait: impl FnOnce(&'a AtomicU64)) -> bool {
        let wake_word = self.pages.turn.wake_word(self.me);
        if wake_word.prepare_wait() {
            self.ask();
            wait(wake_word.word());
        }
        wake_word.finish_wait()
    }

    /// Has whoever has the turn look at all user areas, if what was published is not told yet.
    fn ask(&self) {
        if self.asks.take() && self.pages.turn.request_recheck() {
            notify_domain(&self.pages.turn, DomainId::DAEMON);
        }
    }

    /// Who is best of all at `now`. O(slots in use of all peers).
    pub(crate) fn next(&mut self, scheduler: &Scheduler, now: Instant) -> Next {
        self.see_peers();
        let own = scheduler.best().and_then(|standing| self.rank(standing));
        let found = self.found.take();
        let asked = self.pages.turn.take_recheck();
        if std::mem::take(&mut self.is_best) && !asked && own.is_some() {
            return Next::Own;
        }
        let by = if own.is_some() { self.deferred_until(now) } else { now };
        // Nobody gets worse while this domain has the turn.
        let other = if asked { None } else { found }.or_else(|| self.best_other(by));
        match (own, other) {
            (Some(own), Some((other, _))) if own < other => Next::Own,
            (_, Some((_, domain))) => Next::Other(domain),
            (Some(_), None) => Next::Own,
            (None, None) => Next::Other(DomainId::DAEMON),
        }
    }

    /// Gives the turn to another; nothing if it was taken meanwhile.
    pub(crate) fn pass(&mut self, to: DomainId) {
        let Ok(turn) = self.pages.turn.turn() else { return };
        if turn.holder() == self.me && self.pages.turn.pass(turn, to) {
            self.counters.handoffs += 1;
            // Before the other runs: nobody may wake this domain again.
            self.pages.user.count(&self.counters);
            notify_domain(&self.pages.turn, to);
        }
    }

    /// Turns passed on so far: to other domains and, with nothing to do, to the daemon.
    pub(crate) fn handoffs(&self) -> u64 {
        self.counters.handoffs
    }

    /// Notes an upcall, and says until when no other domain need be thought of: with
    /// others, until the first boundary. An upcall of one quantum has none, and is
    /// spared the look at their slots.
    pub(crate) fn upcall(&mut self, scheduler: &Scheduler, now: Instant) -> Instant {
        self.counters.upcalls += 1;
        let running = scheduler.running();
        self.pages.user.set_running(running.map(|id| id.0 as usize), now.as_nanos());
        if self.peers.is_empty() { Instant::FAR } else { now }
    }

    /// Notes that the upcall is over.
    pub(crate) fn returned(&mut self, now: Instant) {
        self.pages.user.set_running(None, now.as_nanos());
    }

    /// Shows what was counted, the jobs that the last upcall ended among it. Some stores.
    pub(crate) fn count(&mut self, switches: u64) {
        self.counters.switches = switches;
        self.pages.user.count(&self.counters);
    }

    /// A job ended.
    pub(crate) fn job_done(&mut self, record: &upcall_core::record::JobRecord) {
        let counters = &mut self.counters;
        counters.jobs += 1;
        counters.misses += u64::from(record.missed());
        counters.pdus += u64::from(record.pdus);
        counters.slack_ns_min = counters.slack_ns_min.min(record.slack_ns());
    }

    /// At a boundary: until when the handler may go on as far as other domains are
    /// concerned; `None` if one outranks it, or the turn was taken.
    pub(crate) fn may_go_on(&mut self, scheduler: &Scheduler, now: Instant) -> Option<Instant> {
        self.pages.user.set_asked(now.as_nanos());
        self.heeded = self.pages.kernel.yield_requests(self.me);
        self.see_peers();
        let _ = self.pages.turn.take_recheck();
        let own = scheduler.running_standing(now).and_then(|standing| self.rank(standing))?;
        let by = self.deferred_until(now);
        let (preempted_at, best) = self.rivals(own, by);
        self.found = best.filter(|_| preempted_at <= by);
        (self.has_turn() && preempted_at > by).then(|| preempted_at + self.defer_preemption)
    }

    /// The earliest moment at which something of another domain's preempts `own`, which may be past, and the best of
    /// all others, of what was there by `by`.
    fn rivals(&self, own: Rank, by: Instant) -> (Instant, Option<(Rank, DomainId)>) {
        let mut preempted_at_ns = NEVER;
        let mut best = None;
        for (domain, peer) in self.present() {
            if let Ok(rival) = peer.rival(own, by.as_nanos()) {
                preempted_at_ns = preempted_at_ns.min(rival.preempts_at_ns);
                best = better(best, rival.best, domain);
            }
        }
        (Instant::from_nanos(preempted_at_ns), best)
    }

    /// What was released after this moment may wait at `now`.
    #[inline]
    fn deferred_until(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos().saturating_sub(self.defer_preemption.as_nanos()))
    }

    /// Since when anything that the domain has to run was released; 0: nobody asks.
    fn pending_since_ns(&self, scheduler: &Scheduler) -> u64 {
        if self.defer_preemption.is_zero() {
            return 0;
        }
        let ids = (0u32..).map(ActivityId).take(self.orders_used);
        let since = ids.filter_map(|id| scheduler.pending_since(id)).min();
        since.map_or(0, |since| since.min(scheduler.clock()).as_nanos())
    }

    /// The best of all others, of what was there by `by`.
    fn best_other(&self, by: Instant) -> Option<(Rank, DomainId)> {
        let all = self.present();
        all.fold(None, |best, (domain, peer)| {
            better(best, peer.best(by.as_nanos()).ok().flatten(), domain)
        })
    }

    /// The peers that would run if they had the turn.
    #[inline]
    fn present(&self) -> impl Iterator<Item = (DomainId, &Peer<ReadOnlyMapping>)> {
        let there = self.peers.iter().filter(|peer| peer.is_there);
        there.filter(|peer| self.would_run(peer.domain)).map(|peer| (peer.domain, &peer.area))
    }

    #[inline]
    fn would_run(&self, domain: DomainId) -> bool {
        match self.pages.kernel.state(domain) {
            Ok(Some(State::Attached)) => true,
            state => self.is_back(domain, state.ok().flatten()),
        }
    }

    /// One that was blocked is back when it sleeps on its bell.
    #[cold]
    fn is_back(&self, domain: DomainId, state: Option<State>) -> bool {
        matches!(state, Some(State::Blocked | State::Stopped))
            && self.pages.turn.wake_word(domain).is_asleep()
    }

    fn rank(&self, standing: Standing) -> Option<Rank> {
        Some(rank(standing, self.order(standing.id)?))
    }

    fn order(&self, id: ActivityId) -> Option<u32> {
        self.orders.get(id.0 as usize).copied()?
    }
}

/// The better of the best so far and what `domain` has.
#[inline]
fn better(
    best: Option<(Rank, DomainId)>,
    rank: Option<Rank>,
    domain: DomainId,
) -> Option<(Rank, DomainId)> {
    let rank = rank.filter(|&rank| best.is_none_or(|(least, _)| rank < least));
    rank.map(|rank| (rank, domain)).or(best)
}

/// What it is among all domains. The last event there can be is as good as the one before.
fn rank(standing: Standing, order: u32) -> Rank {
    let event = standing.event.map_or(NEVER, |event| event.min(NEVER - 1));
    Rank { key: standing.key, event, order }
}

fn slot(scheduler: &Scheduler, id: ActivityId, order: u32) -> Slot {
    match scheduler.upcoming(id) {
        Some((at, standing)) => Slot {
            next_release_ns: at.as_nanos(),
            rank: rank(standing, order),
            state: SlotState::Waiting,
        },
        None => Slot {
            next_release_ns: NEVER,
            rank: Rank::new(NEVER, order),
            state: SlotState::Suspended,
        },
    }
}
