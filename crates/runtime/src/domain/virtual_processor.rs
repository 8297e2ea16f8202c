//! A domain's place on a CPU among the other domains there (docs/decisions/0008).
//!
//! The executor of a domain that is attached to a daemon uses it. A virtual processor publishes
//! what the executor's scheduler has to run, finds the domain that comes next, and passes the turn
//! on. It allocates nothing and takes no lock. It waits only in
//! [`VirtualProcessor::sleep_until`] and [`VirtualProcessor::sleep_among`]. It makes a system call
//! only there, to wake a domain that sleeps, to let a woken domain run ([`super::woken_peers`]),
//! and under PS to read the CPU clock of the thread now and then ([`super::accounts`]).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rtrb::{Consumer, Producer};
use upcall_core::activity::{ActivityId, GroupId};
use upcall_core::admission::Share;
use upcall_core::policy::ps::{Choice, request_key};
use upcall_core::policy::{KEY_OVER_BUDGET, Standing};
use upcall_core::scheduler::Scheduler;
use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;
use upcall_shm::kernel_area::{Interrupt, Interrupts, State};
use upcall_shm::user_area::{
    Counters, LentMask, Mask, NEVER, Peer, Pending, Rank, Slot, SlotState, UNRESERVED, order,
};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::futex;
use upcall_sys::memfd::{ReadOnlyMapping, SharedMapping};

use super::accounts::Accounts;
use super::interruptions::Interruptions;
use super::pages::Pages;
use super::peers::{PeerDomain, Peers, best_of, rivals_of};
use super::woken_peers::WokenPeers;
use crate::mailbox::{ACTIVITIES_MAX, Job};
use crate::notify::{SharedNotifier, WakeHandle, notify_domain};

#[cfg(test)]
mod tests;

/// The executor's ends of the rings that lead to and from the controller end.
#[derive(Debug)]
pub(super) struct Mail {
    /// Domains that were attached after this one. A notification follows each.
    pub(super) arrivals: Consumer<PeerDomain>,
    /// The next virtual processor, once there is another daemon. A notification follows.
    pub(super) successors: Consumer<Box<VirtualProcessor>>,
    /// Takes this virtual processor once the executor has left it.
    pub(super) predecessors: Producer<Box<VirtualProcessor>>,
}

/// The domain that is to have the turn now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This domain: its scheduler has the best rank.
    Own,
    /// Another domain.
    Other(DomainId),
    /// The daemon: no domain has anything to run.
    Nobody,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct VirtualProcessor {
    pages: Pages,
    me: DomainId,
    notifier: SharedNotifier,
    handle: WakeHandle,
    mail: Mail,
    peers: Peers,
    /// For each activity, its place in the order of admission; `None`: there is no activity.
    orders: Vec<Option<u32>>,
    /// No activity ever had this number or a higher one, so `publish` stops here.
    orders_used: usize,
    /// The holder of the turn must still be asked to read what was published.
    must_ask: Cell<bool>,
    /// The peer that was found to outrank the handler that was told to yield.
    found: Option<(Rank, DomainId)>,
    /// Lets woken peers run at boundaries.
    woken_peers: WokenPeers,
    /// What others took of the present upcall.
    interruptions: Interruptions,
    /// Whether the user area says that this domain may be woken by words of streams or channels.
    outside_wakes: bool,
    /// The domain that passed the turn found this domain to be best of all, and nothing has changed
    /// since.
    is_best: bool,
    /// Set when the daemon has gone: no turns are passed any more.
    orphaned: Arc<AtomicBool>,
    /// Places of activities that the daemon of this virtual processor does not know.
    unclaimed: Vec<u32>,
    /// Whether its daemon refused the share of the event server.
    ends_event_server: bool,
    /// The count of the daemon's requests to yield, as last seen at a boundary.
    yields_seen: u64,
    /// The interrupts that were raised, as last seen without the turn.
    interrupts_seen: Interrupts,
    /// Whether it was reported that this domain was passed over, and the daemon has not set its
    /// state back since.
    is_passed_over: bool,
    /// `Some`: all that is ready is beyond its budget or has no reservation, and waits until then
    /// (decision 0016).
    surplus_at: Option<Instant>,
    /// Whether debts are forgiven when the CPU idles.
    forgives_debts: bool,
    /// How long a better domain may wait while this domain goes on (decision 0014).
    defer_preemption: Span,
    /// PS: the domains are put in one order by accounts.
    accounts: Option<Accounts>,
    /// PS: the part of the CPU that the scheduler knows; 0: none.
    share_ppm: u32,
    /// PS: the part of each group that the scheduler knows.
    group_parts_ppm: Vec<u32>,
    counters: Counters,
}

impl VirtualProcessor {
    /// The virtual processor of domain `me`, which has this time quantum and so many groups under
    /// PS. Allocates.
    pub(super) fn new(
        pages: Pages,
        me: DomainId,
        real_time: bool,
        defer_preemption: Span,
        orphaned: Arc<AtomicBool>,
        mail: Mail,
        (time_quantum, groups): (Option<Span>, usize),
    ) -> Self {
        let notifier = SharedNotifier::new(pages.turn.clone(), me);
        let handle = WakeHandle::new(notifier.clone());
        let interrupts_seen = pages.kernel.interrupts(me);
        VirtualProcessor {
            pages,
            me,
            notifier,
            handle,
            mail,
            peers: Peers::new(),
            orders: vec![None; ACTIVITIES_MAX as usize],
            orders_used: 0,
            must_ask: Cell::new(false),
            found: None,
            woken_peers: WokenPeers::new(real_time),
            interruptions: Interruptions::default(),
            outside_wakes: false,
            is_best: false,
            orphaned,
            unclaimed: Vec::new(),
            ends_event_server: false,
            yields_seen: 0,
            interrupts_seen,
            is_passed_over: false,
            surplus_at: None,
            forgives_debts: true,
            defer_preemption,
            accounts: time_quantum.map(Accounts::new),
            share_ppm: 0,
            group_parts_ppm: vec![Share::WHOLE.ppm(); groups],
            counters: Counters::default(),
        }
    }

    /// The notifier, for the executor alone. It stays the same for the life of this virtual
    /// processor.
    #[inline]
    pub(crate) fn notifier(&self) -> &SharedNotifier {
        &self.notifier
    }

    /// Whether a message was left for the executor since the last time. For the executor, after it
    /// acknowledged a notification. A load if there is none.
    #[inline]
    pub(crate) fn take_message(&self) -> bool {
        self.handle.take_message()
    }

    /// The handle by which all other threads notify the executor.
    pub(crate) fn wake_handle(&self) -> WakeHandle {
        self.handle.clone()
    }

    /// Other threads use the handle of the previous virtual processor from now on.
    pub(super) fn set_wake_handle(&mut self, handle: &WakeHandle) {
        self.handle.clone_from(handle);
    }

    /// The daemon of this virtual processor refused these places. Allocates.
    pub(crate) fn set_unclaimed(&mut self, orders: Vec<u32>) {
        self.unclaimed = orders;
    }

    /// The daemon of this virtual processor refused the share of the event server.
    pub(crate) fn end_event_server(&mut self) {
        self.ends_event_server = true;
    }

    /// Whether the event server has no share any more. `true` at most once.
    pub(crate) fn takes_event_server(&mut self) -> bool {
        std::mem::take(&mut self.ends_event_server)
    }

    /// Goes over to the next virtual processor, if the listener has sent one. Returns whether it
    /// did. The domain's orders and counters go along. A load if there is none.
    pub(crate) fn move_on(&mut self) -> bool {
        let Ok(mut next) = self.mail.successors.pop() else { return false };
        std::mem::swap(&mut next.orders, &mut self.orders);
        for order in next.orders.iter_mut().flatten() {
            // Another activity may have that place: this one comes after all with a reservation. No
            // other domain uses this place.
            if next.unclaimed.contains(order) {
                *order = u32::MAX - next.me.number();
            }
        }
        next.orders_used = self.orders_used;
        next.counters = self.counters;
        next.share_ppm = self.share_ppm;
        std::mem::swap(&mut next.group_parts_ppm, &mut self.group_parts_ppm);
        std::mem::swap(self, &mut *next);
        // There is room: this virtual processor has one predecessor.
        let pushed = self.mail.predecessors.push(next);
        debug_assert!(pushed.is_ok());
        true
    }

    /// Where a task shows its mask while it is polled: the virtual processor is not at hand then.
    pub(crate) fn lent_mask(&self) -> Arc<LentMask<SharedMapping>> {
        self.pages.mask.clone()
    }

    /// Takes in the domains that have arrived. Returns whether there were any.
    pub(crate) fn take_in_peers(&mut self) -> bool {
        let mut any = false;
        while let Ok(peer) = self.mail.arrivals.pop() {
            self.peers.add(peer);
            any = true;
        }
        any
    }

    /// Gives up its place, because it has nothing to run any more.
    pub(crate) fn leave(&mut self, scheduler: &Scheduler) {
        self.orders.fill(None);
        self.surplus_at = None;
        self.publish(scheduler);
        self.ask_holder();
        self.pass(DomainId::DAEMON);
    }

    /// An activity is created, with its place in the order of admission, or closed.
    pub(crate) fn set_order(&mut self, id: ActivityId, order: Option<u32>) {
        self.orders[id.0 as usize] = order;
        self.orders_used = self.orders_used.max(id.0 as usize + 1);
    }

    /// The executor woke without a message: if this domain has the turn, a peer passed it just now.
    pub(crate) fn woken_by_turn(&mut self) {
        self.is_best = self.has_turn();
    }

    /// Whether the domain runs without turns, because its daemon has gone or has put it into an
    /// ordinary class.
    pub(crate) fn is_alone(&self) -> bool {
        // Relaxed: the flag orders no other data.
        self.orphaned.load(Ordering::Relaxed)
            || self.pages.kernel.state(self.me) == Ok(Some(State::Demoted))
    }

    /// Whether the domain has the turn. A load.
    #[inline]
    pub(crate) fn has_turn(&self) -> bool {
        self.pages.turn.holder() == Ok(self.me)
    }

    /// Whether the running handler must ask although `check_at` has not come: the turn was taken,
    /// or a peer or the daemon has requested it. Three loads.
    #[inline]
    pub(crate) fn must_look(&self) -> bool {
        !self.has_turn()
            || self.pages.turn.need_resched()
            || self.pages.kernel.yield_requests(self.me) != self.yields_seen
    }

    /// Publishes that `mask` is held once more. A store.
    pub(crate) fn raise_mask(&mut self, mask: Mask) {
        self.pages.user.mask(mask);
    }

    /// Publishes that `mask` is held once less. A store, and when the last level goes a fence. From
    /// then on [`VirtualProcessor::must_look`] and [`VirtualProcessor::interrupts`] show a request
    /// that came meanwhile.
    pub(crate) fn lower_mask(&mut self, mask: Mask) {
        // This method ignores requests: the preemption point looks for them.
        let _ = self.pages.user.unmask(mask);
    }

    /// The interrupts that the daemon has raised so far. A load.
    #[inline]
    pub(crate) fn interrupts(&self) -> Interrupts {
        self.pages.kernel.interrupts(self.me)
    }

    /// Whether the daemon has passed over this domain since the last call: the domain blocked in
    /// the kernel or was stopped while it had the turn, and others were served. Such a domain finds
    /// that the turn was taken. So this is a load while the domain has the turn, and three
    /// otherwise.
    #[inline]
    pub(crate) fn take_passed_over(&mut self) -> bool {
        !self.has_turn() && self.is_newly_passed_over()
    }

    fn is_newly_passed_over(&mut self) -> bool {
        let interrupts = self.pages.kernel.interrupts(self.me);
        let seen = std::mem::replace(&mut self.interrupts_seen, interrupts);
        let is_back = interrupts.since(seen).any(|kind| kind == Interrupt::Resume);
        let is_away =
            matches!(self.pages.kernel.state(self.me), Ok(Some(State::Blocked | State::Stopped)));
        // The return of a domain that was reported is no news.
        let was_reported = std::mem::replace(&mut self.is_passed_over, is_away);
        let is_news = if is_back { !was_reported || is_away } else { is_away && !was_reported };
        if let Some(accounts) = self.accounts.as_mut().filter(|_| is_news) {
            accounts.note_passed_over();
        }
        is_news
    }

    /// When no domain had anything to run, at the last time. A load.
    #[inline]
    pub(crate) fn idled_at(&self) -> Instant {
        Instant::from_nanos(self.pages.kernel.idled_ns())
    }

    /// From when on an activity may run that has no reservation; `None`: at once, or it has one.
    /// Under PS nothing waits: the accounts leave a part to ordinary programs. A load.
    #[inline]
    pub(crate) fn unreserved_from(&self, id: ActivityId, now: Instant) -> Option<Instant> {
        let from = Instant::from_nanos(self.pages.kernel.unreserved_from_ns());
        let waits = from > now && !self.has_accounts() && !self.is_reserved(id);
        waits.then_some(from)
    }

    /// Whether the daemon has put the domains into the real-time class.
    pub(crate) fn is_real_time(&self) -> bool {
        self.woken_peers.is_real_time
    }

    /// PS: the part of the CPU that the domain has, if that has changed since the last call. A
    /// load.
    #[inline]
    pub(crate) fn take_share(&mut self) -> Option<Share> {
        self.accounts.as_ref()?;
        let share_ppm = self.pages.kernel.share_ppm(self.me).min(Share::WHOLE.ppm());
        let before_ppm = std::mem::replace(&mut self.share_ppm, share_ppm);
        // A domain without a part has no activity that counts, and is not served.
        (share_ppm != before_ppm).then(|| Share::from_ppm(share_ppm))?
    }

    /// PS: a group whose part has changed since it was taken last, and the part. A load for each
    /// group of the discipline, so none without groups. Call it until there is none.
    #[inline]
    pub(crate) fn take_group_part(&mut self) -> Option<(GroupId, Share)> {
        for (group, before_ppm) in self.group_parts_ppm.iter_mut().enumerate() {
            let part_ppm = self.pages.kernel.group_part_ppm(self.me, group).min(Share::WHOLE.ppm());
            // Without a part the domain has no member that counts.
            let changed = Share::from_ppm(part_ppm).filter(|part| part.ppm() != *before_ppm);
            if let (Some(part), Ok(group)) = (changed, u16::try_from(group)) {
                *before_ppm = part_ppm;
                return Some((GroupId(group), part));
            }
        }
        None
    }

    /// Whether accounts put the domains in one order.
    pub(crate) fn has_accounts(&self) -> bool {
        self.accounts.is_some()
    }

    /// Whether the activity has a reservation.
    pub(crate) fn is_reserved(&self, id: ActivityId) -> bool {
        self.order(id).is_some_and(|order| order < UNRESERVED)
    }

    /// The number of domains of the user on the CPU, this one included, as of the last comparison.
    /// O(peers).
    pub(crate) fn domains(&self) -> u64 {
        self.peers.domains()
    }

    /// What [`Self::next`] and [`Self::publish`] say from now on. `at`: all that is ready is beyond
    /// its budget, or has no reservation, and must not run before that moment. `forgives_debts`:
    /// whether debts are forgiven when the CPU idles, so that the daemon must wake the domain then.
    #[inline]
    pub(crate) fn set_surplus(&mut self, at: Option<Instant>, forgives_debts: bool) {
        (self.surplus_at, self.forgives_debts) = (at, forgives_debts);
    }

    /// Publishes what `scheduler` has to run. Work that waits for credit is shown as ready from
    /// that moment on, and its activity with its rank at the next refill. O(greatest number of
    /// activities that existed at once).
    pub(crate) fn publish(&mut self, scheduler: &Scheduler) {
        for (number, order) in self.orders[..self.orders_used].iter().enumerate() {
            let id = ActivityId(u32::try_from(number).unwrap_or(u32::MAX));
            let slot = match *order {
                Some(order) if self.accounts.is_some() => slot_of_request(scheduler, id, order),
                Some(order) => slot(scheduler, id, order),
                None => Slot::FREE,
            };
            // The area has a slot for each order.
            let set = self.pages.user.set(number, slot);
            debug_assert!(set.is_ok());
        }
        // Work that waits for credit is no idleness: the core keeps the debt of an activity with a
        // job, so the daemon would wake this domain at each idle moment for nothing.
        let may_forgive = self.forgives_debts && self.surplus_at.is_none();
        self.pages.user.set_awaits_idle(scheduler.awaits_idle() && may_forgive);
        let best = if self.has_accounts() { None } else { scheduler.best() };
        let by_rank = best.and_then(|standing| {
            let mut rank = self.rank(standing)?;
            if self.surplus_at.is_some() {
                // The core knows this already, except under DWCS, where the executor meters jobs,
                // and of work without a reservation, which ranks below all anyway.
                rank.key |= KEY_OVER_BUDGET;
            }
            let first = self.order(standing.first).unwrap_or(rank.order);
            let since_ns = match self.surplus_at {
                Some(at) => at.as_nanos(),
                None => self.pending_since_ns(scheduler),
            };
            Some(Pending { rank, first, since_ns })
        });
        let ready = by_rank.or_else(|| self.pending_request(scheduler));
        let changed = self.pages.user.publish(ready);
        // Asks even if nothing changed: the holder may have passed over this domain, which is ready
        // again.
        let wanted = changed || ready.is_some();
        if self.has_turn() {
            // This domain has the turn, and compares the ranks itself.
            self.must_ask.set(false);
            return;
        }
        // The peer was found during an earlier turn.
        self.found = None;
        // The holder is asked when this domain goes to sleep.
        self.must_ask.set(wanted || self.must_ask.get());
    }

    /// Publishes whether this domain may be woken by words of streams or channels, which leaves no
    /// sign in the turn page. The holder is asked to look if that has become so. A store if it
    /// changed.
    #[inline]
    pub(crate) fn set_outside_wakes(&mut self, may_come: bool) {
        if self.outside_wakes != may_come {
            self.outside_wakes = may_come;
            self.pages.user.set_outside_wakes(may_come);
            self.must_ask.set(may_come || self.must_ask.get());
        }
    }

    /// Sleeps until a notification or `deadline_ns`. Returns whether there was a notification.
    pub(crate) fn sleep_until(&self, deadline_ns: Option<u64>) -> bool {
        self.sleep(|word| {
            // Whatever ends the wait, the caller looks again.
            let _ = futex::wait_shared_until(word, ASLEEP, deadline_ns);
        })
    }

    /// As [`Self::sleep_until`], but also wakes when a word of `others` changes. Adds its own word
    /// to `others`.
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

    /// Does `wait` unless there is a notification already. Returns whether there was one in the
    /// end.
    ///
    /// The holder of the turn is asked only after the wake word says that this domain sleeps. By
    /// that word peers see that a domain that was blocked in the kernel is back. If the holder were
    /// asked earlier, it could read the old state, and would not read again.
    #[inline]
    fn sleep<'a>(&'a self, wait: impl FnOnce(&'a AtomicU64)) -> bool {
        let wake_word = self.pages.turn.wake_word(self.me);
        if wake_word.prepare_wait() {
            self.ask_holder();
            wait(wake_word.word());
        }
        wake_word.finish_wait()
    }

    /// Asks the holder of the turn to read all user areas, if it has not been asked since the last
    /// publication.
    fn ask_holder(&self) {
        if self.must_ask.take() && self.pages.turn.set_need_resched() {
            notify_domain(&self.pages.turn, DomainId::DAEMON);
        }
    }

    /// The best domain at `now`. O(slots in use of all peers).
    pub(crate) fn next(&mut self, scheduler: &Scheduler, now: Instant) -> Next {
        self.peers.update(&self.pages.kernel);
        if self.has_accounts() {
            return self.next_by_account(scheduler, now);
        }
        let best = scheduler.best().filter(|_| self.surplus_at.is_none());
        let own = best.and_then(|standing| self.rank(standing));
        let found = self.found.take();
        let is_best = std::mem::take(&mut self.is_best) && own.is_some();
        if is_best && !self.pages.turn.need_resched() {
            return Next::Own;
        }
        // A domain without work passes the turn on and sleeps, so woken peers run then.
        let now = if own.is_some() { self.let_woken_peers_run(now).0 } else { now };
        let asked = self.pages.turn.take_need_resched();
        let by = if own.is_some() { self.deferred_until(now) } else { now };
        // No rank gets worse while this domain has the turn.
        let other = if asked { None } else { found }.or_else(|| best_of(self.ready_peers(), by));
        match order::next(own, other) {
            order::Next::Own => Next::Own,
            order::Next::Other(domain) => Next::Other(domain),
            order::Next::Nothing => Next::Nobody,
        }
    }

    /// The domain that is next by the accounts. Within a request it is this one. O(slots in use of
    /// all peers).
    fn next_by_account(&mut self, scheduler: &Scheduler, now: Instant) -> Next {
        self.found = None;
        let own = self.own_request(scheduler, now);
        // The domain or thread that passed the turn has chosen this domain.
        let is_chosen = std::mem::take(&mut self.is_best) && !self.pages.turn.need_resched();
        if own.is_some() && is_chosen {
            return Next::Own;
        }
        let now = if own.is_some() { self.let_woken_peers_run(now).0 } else { now };
        let _ = self.pages.turn.take_need_resched();
        if own.is_some() && scheduler.is_within_request() {
            return Next::Own;
        }
        let generation = self.pages.generation;
        let Some(accounts) = &mut self.accounts else { return Next::Own };
        accounts.load((self.me, generation), (&self.pages, &self.peers), now);
        accounts.enter_peers((&self.pages, &self.peers), now);
        accounts.enter(self.me, own);
        let choice = accounts.choose(now);
        accounts.store(self.me, &self.pages.turn);
        match choice {
            Choice::Domain(domain) if domain == self.me.number() => Next::Own,
            Choice::Domain(domain) => DomainId::new(domain).map_or(Next::Nobody, Next::Other),
            Choice::Ordinary(_) | Choice::Nothing => Next::Nobody,
        }
    }

    /// At a boundary within a request: domains whose releases have come join the competition.
    /// `None` if the turn was taken.
    fn may_go_on_by_account(&mut self, now: Instant) -> Option<Instant> {
        let (now, look_at) = self.let_woken_peers_run(now);
        let _ = self.pages.turn.take_need_resched();
        if !self.has_turn() {
            return None;
        }
        let generation = self.pages.generation;
        let accounts = self.accounts.as_mut()?;
        accounts.load((self.me, generation), (&self.pages, &self.peers), now);
        accounts.enter_peers((&self.pages, &self.peers), now);
        accounts.store(self.me, &self.pages.turn);
        let next = self.peers.next_shown(&self.pages.kernel, &self.pages.turn, now);
        Some(look_at.min(next))
    }

    /// Gives the turn to another domain; does nothing if the turn was taken meanwhile.
    pub(crate) fn pass(&mut self, to: DomainId) {
        let Ok(turn) = self.pages.turn.turn() else { return };
        if turn.holder() == self.me && self.pages.turn.pass(turn, to) {
            self.counters.handoffs += 1;
            // Published before the other domain runs: this one may never wake again.
            self.pages.user.count(&self.counters);
            notify_domain(&self.pages.turn, to);
        }
    }

    /// How often the turn was passed on: to peers, or to the daemon when there was nothing to run.
    pub(crate) fn handoffs(&self) -> u64 {
        self.counters.handoffs
    }

    /// Notes an upcall. Returns from when on the handler must ask about peers: from its first
    /// boundary if there are any, otherwise never. An upcall of one quantum has no boundary, and so
    /// reads no slots of peers.
    pub(crate) fn upcall(&mut self, scheduler: &Scheduler, now: Instant) -> Instant {
        self.counters.upcalls += 1;
        let running = scheduler.running();
        self.pages.user.set_running(running.map(|id| id.0 as usize), now.as_nanos());
        self.interruptions.begin(Span::from_nanos(self.pages.kernel.interruption_ns_max()));
        if self.peers.is_empty() { Instant::FAR } else { now }
    }

    /// How long domains that came back from the kernel have interrupted the upcall since the last
    /// call. `None` if none did. A comparison if no domain was away when the upcall began, and
    /// otherwise a system call.
    ///
    /// If this domain blocked in the kernel itself, the result counts that too. The caller reports
    /// it before `Input::PassedOver`, which then settles the budget.
    #[inline]
    pub(crate) fn take_interruption(&mut self) -> Option<Span> {
        let length = self.interruptions.take()?;
        if let Some(accounts) = &mut self.accounts {
            accounts.skip(length);
        }
        Some(length)
    }

    /// Notes that the upcall is over.
    pub(crate) fn returned(&mut self, now: Instant) {
        self.pages.user.set_running(None, now.as_nanos());
    }

    /// Publishes the counters, with the jobs that the last upcall ended. Some stores.
    pub(crate) fn count(&mut self, switches: u64) {
        self.counters.switches = switches;
        self.pages.user.count(&self.counters);
    }

    /// Counts a job that ended, and the jobs that were dropped before it.
    pub(crate) fn job_done(&mut self, Job { record, ended, missed, .. }: &Job) {
        let counters = &mut self.counters;
        counters.jobs += ended;
        counters.misses += missed;
        counters.pdus += u64::from(record.pdus);
        counters.slack_ns_min = counters.slack_ns_min.min(record.slack_ns());
    }

    /// Shows the watchdog that a handler has come to a boundary. A store.
    #[inline]
    pub(crate) fn respond(&self, now: Instant) {
        self.pages.user.set_asked(now.as_nanos());
    }

    /// At a boundary, returns until when no peer preempts the handler. `None` if a peer outranks it
    /// now, or the turn was taken.
    pub(crate) fn may_go_on(&mut self, scheduler: &Scheduler, now: Instant) -> Option<Instant> {
        self.peers.update(&self.pages.kernel);
        if self.has_accounts() {
            return self.may_go_on_by_account(now);
        }
        let (now, look_at) = self.let_woken_peers_run(now);
        let _ = self.pages.turn.take_need_resched();
        let own = scheduler.running_standing(now).and_then(|standing| self.rank(standing))?;
        let by = self.deferred_until(now);
        let (preempted_at, best) = rivals_of(self.ready_peers(), own, by);
        self.found = best.filter(|_| preempted_at <= by);
        (self.has_turn() && preempted_at > by)
            .then(|| look_at.min(preempted_at + self.defer_preemption))
    }

    /// Lets domains run that were woken, if there may be any. Returns the time, and when the holder
    /// must look again.
    #[inline]
    fn let_woken_peers_run(&mut self, now: Instant) -> (Instant, Instant) {
        self.yields_seen = self.pages.kernel.yield_requests(self.me);
        let may_be_woken = self.peers.may_be_woken(&self.pages.kernel, &self.pages.turn);
        self.woken_peers.let_run(may_be_woken, now)
    }

    #[inline]
    fn ready_peers(&self) -> impl Iterator<Item = (DomainId, &Peer<ReadOnlyMapping>)> {
        self.peers.ready(&self.pages.kernel, &self.pages.turn)
    }

    /// Releases after the returned moment may still wait at `now`.
    #[inline]
    fn deferred_until(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos().saturating_sub(self.defer_preemption.as_nanos()))
    }

    /// When the activity that has waited longest was released. 0 without deferral, because no peer
    /// uses the value then.
    fn pending_since_ns(&self, scheduler: &Scheduler) -> u64 {
        if self.defer_preemption.is_zero() {
            return 0;
        }
        let ids = (0u32..).map(ActivityId).take(self.orders_used);
        let since = ids.filter_map(|id| scheduler.pending_since(id)).min();
        since.map_or(0, |since| since.min(scheduler.clock()).as_nanos())
    }

    /// PS: what the domain requests at `now`, as other domains and the daemon read it in the user
    /// area: of all requests the longest. O(greatest number of activities that existed at once).
    fn own_request(&self, scheduler: &Scheduler, now: Instant) -> Option<Span> {
        let ids = (0u32..).map(ActivityId).take(self.orders_used);
        let known = ids.filter(|&id| self.order(id).is_some());
        let upcoming = known.filter_map(|id| scheduler.request_at_release(id));
        let released = upcoming.filter(|&(at, _)| at <= now).map(|(_, request)| request);
        scheduler.domain_request().max(released.max())
    }

    /// PS: what the domain requests now, without releases to come.
    fn pending_request(&self, scheduler: &Scheduler) -> Option<Pending> {
        self.accounts.as_ref()?;
        let request = scheduler.domain_request()?;
        // Requests are compared, and not the places of their activities.
        let order = self.orders[..self.orders_used].iter().flatten().min()?;
        Some(Rank::new(request_key(request), *order).into())
    }

    fn rank(&self, standing: Standing) -> Option<Rank> {
        Some(rank(standing, self.order(standing.id)?))
    }

    fn order(&self, id: ActivityId) -> Option<u32> {
        self.orders.get(id.0 as usize).copied()?
    }
}

/// The rank among all domains. Without a reservation the rank is below all others.
fn rank(standing: Standing, order: u32) -> Rank {
    let rank = Rank::of(standing.key, standing.event, order);
    if order >= UNRESERVED { rank.below_all() } else { rank }
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

/// PS: the slot of an activity, whose key is its first request after its next release. No event
/// breaks ties, so that word shows the lag of the activity, in ns of CPU time of its domain.
fn slot_of_request(scheduler: &Scheduler, id: ActivityId, order: u32) -> Slot {
    let lag_ns = scheduler.lag_ns(id, scheduler.clock());
    let event = lag_ns.map_or(NEVER, i64::cast_unsigned);
    match scheduler.request_at_release(id) {
        Some((at, request)) => Slot {
            next_release_ns: at.as_nanos(),
            rank: Rank { event, ..Rank::new(request_key(request), order) },
            state: SlotState::Waiting,
        },
        None => Slot {
            next_release_ns: NEVER,
            rank: Rank { event, ..Rank::new(NEVER, order) },
            state: SlotState::Suspended,
        },
    }
}
