//! The accounts of the domains of a CPU under PS, as the domain that has the turn keeps them
//! (docs/decisions/0022).
//!
//! [`super::virtual_processor`] uses it. The state stands in the turn page: it is loaded before
//! each choice, and stored before the turn is passed on. The parts of the domains are the daemon's,
//! and stand in the kernel area. No call waits, and only [`Accounts::new`] allocates.

use upcall_core::admission::Share;
use upcall_core::policy::ps::{Choice, ORDINARY, TurnAccounts, TurnState, request_of_key};
use upcall_core::time::{Instant, Span};
use upcall_shm::turn_page::{Service, TurnPage};
use upcall_shm::{DOMAINS_MAX, DomainId};
use upcall_sys::clock::thread_cpu_ns;
use upcall_sys::memfd::SharedMapping;

use super::pages::Pages;
use super::peers::Peers;

/// The daemon, which stands for ordinary programs, and the domains.
const CLIENTS: usize = DOMAINS_MAX as usize + 1;
/// The generation of the daemon's account.
const ORDINARY_GENERATION: u64 = 1;

/// How often the CPU clock of the thread is read: after so much service.
const SETTLE_AFTER: Span = Span::from_millis(10);

/// See the module's head.
#[derive(Debug)]
pub(super) struct Accounts {
    of: TurnAccounts,
    quantum: Span,
    /// What was charged to this domain since the CPU clock of its thread was read, and what that
    /// showed.
    charged: Span,
    cpu_ns: Option<u64>,
    /// The generation of each client at the last load; 0: it takes no part.
    generations: [u64; CLIENTS],
    /// CPU time of the turn that was no service to this domain, and is not charged.
    skipped: Span,
    /// Whether the domain may have run out of turn since its CPU clock was read.
    ran_out_of_turn: bool,
}

impl Accounts {
    /// Accounts by this time quantum.
    pub(super) fn new(quantum: Span) -> Self {
        let of = TurnAccounts::new(DOMAINS_MAX + 1, quantum);
        let (generations, skipped, charged) = ([0; CLIENTS], Span::ZERO, Span::ZERO);
        let ran_out_of_turn = false;
        Accounts { of, quantum, charged, cpu_ns: None, generations, skipped, ran_out_of_turn }
    }

    /// The daemon passed over this domain: it blocked in its turn, and finished its quantum out of
    /// turn.
    pub(super) fn note_passed_over(&mut self) {
        self.ran_out_of_turn = true;
    }

    /// Others ran for `length` in the middle of an upcall of this domain.
    pub(super) fn skip(&mut self, length: Span) {
        self.skipped += length;
    }

    /// Loads all accounts, and charges the domain `me`, which has the turn, up to `now`.
    /// O(domains).
    pub(super) fn load(
        &mut self,
        (me, generation): (DomainId, u64),
        (pages, peers): (&Pages, &Peers),
        now: Instant,
    ) {
        self.generations = [0; CLIENTS];
        self.generations[ORDINARY as usize] = ORDINARY_GENERATION;
        self.generations[me.number() as usize] = generation;
        for (domain, generation) in peers.present() {
            if domain != DomainId::DAEMON {
                self.generations[domain.number() as usize] = generation;
            }
        }
        let Service { charged_ns, served, allowance_ns } = pages.turn.service();
        self.of.load(TurnState { charged_ns, served, allowance_ns });
        for (client, &generation) in (0..).zip(&self.generations) {
            let Some(domain) = DomainId::new(client) else { continue };
            let ppm = if generation == 0 { 0 } else { pages.kernel.share_ppm(domain) };
            let share = Share::from_ppm(ppm.min(Share::WHOLE.ppm()));
            self.of.set_share(client, share);
            if share.is_some() {
                self.of.set_account_state(client, pages.turn.lag(domain, generation));
            }
        }
        let is_own = self.of.is_served(me.number());
        let skipped = std::mem::take(&mut self.skipped);
        if is_own {
            self.of.skip(skipped, now);
        }
        let length = self.of.advance(now);
        self.settle(me, if is_own { length } else { Span::ZERO });
    }

    /// The domain was charged `length` by the clock. Takes back what its thread did not have of
    /// that: the host or another thread of the real-time class had the CPU. Charges what the thread
    /// had beyond that: it ran out of turn. A system call after each [`SETTLE_AFTER`] of service,
    /// after a turn of several quanta, and after the domain was passed over.
    fn settle(&mut self, me: DomainId, length: Span) {
        self.charged += length;
        let is_long = length > self.quantum * 4;
        let out_of_turn = std::mem::take(&mut self.ran_out_of_turn);
        let is_due = self.charged >= SETTLE_AFTER || is_long || out_of_turn;
        if !is_due && self.cpu_ns.is_some() {
            return;
        }
        let cpu_ns = thread_cpu_ns();
        let charged = std::mem::take(&mut self.charged);
        if let Some(before_ns) = self.cpu_ns.replace(cpu_ns) {
            let had = Span::from_nanos(cpu_ns.saturating_sub(before_ns));
            self.of.refund(me.number(), charged.saturating_sub(had));
            self.of.charge(me.number(), had.saturating_sub(charged));
        }
    }

    /// Enters what a domain requests, by the best key that it shows.
    #[inline]
    pub(super) fn enter(&mut self, domain: DomainId, request: Option<Span>) {
        self.of.set_request(domain.number(), request.filter(|request| !request.is_zero()));
    }

    /// Enters what each peer requests at `now`, or nothing for one that would not run. O(slots in
    /// use of all peers).
    pub(super) fn enter_peers(&mut self, (pages, peers): (&Pages, &Peers), now: Instant) {
        for (domain, _) in peers.present() {
            self.enter(domain, None);
        }
        for (domain, area) in peers.ready(&pages.kernel, &pages.turn) {
            let best = area.best(now.as_nanos()).ok().flatten();
            self.enter(domain, best.map(|rank| request_of_key(rank.key)));
        }
    }

    /// Chooses what is served from `now` on.
    pub(super) fn choose(&mut self, now: Instant) -> Choice {
        self.of.choose(now)
    }

    /// Stores all accounts, if the domain `me` still has the turn. O(domains).
    pub(super) fn store(&self, me: DomainId, page: &TurnPage<SharedMapping>) {
        if page.holder() != Ok(me) {
            // The daemon has taken the turn since, and others have charged what they had.
            return;
        }
        let TurnState { charged_ns, served, allowance_ns } = self.of.state();
        page.set_service(Service { charged_ns, served, allowance_ns });
        for (client, &generation) in (0..).zip(&self.generations) {
            if let Some(domain) = DomainId::new(client).filter(|_| generation != 0) {
                page.set_lag(domain, generation, self.of.account_state(client));
            }
        }
    }
}
