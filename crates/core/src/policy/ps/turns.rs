//! The accounts of a CPU whose domains pass a turn among themselves, and of ordinary programs.
//!
//! The domain that has the turn uses them to choose the next one, and so does the KLS thread of
//! the daemon. The state between two choices is [`TurnState`], a few numbers that stand in a page
//! of shared memory (docs/decisions/0022). The caller loads them, with the time as an argument, and
//! stores them before it passes the turn on.
//!
//! ```text
//!   load -> advance(now) -> set_request, for each domain -> choose(now) -> store -> pass the turn
//! ```
//!
//! **Ordinary programs.** The parts of the domains add up to the whole CPU if one of them has a
//! weight, and a domain may always be busy. So client [`ORDINARY`] has the part above the limit of
//! the CPU. Ordinary programs get all time in which no domain has anything to run. Their
//! *allowance* is what they are owed: it grows by their part of the passing time, and falls by the
//! time that they had. They request a quantum once they are owed one. So they cost the domains
//! nothing on a CPU that idles for longer than their part.

use super::domains::DomainAccounts;
use crate::share::Share;
use crate::time::{Instant, Span};

/// The client of ordinary programs. The domains have the numbers from 1 on.
pub const ORDINARY: u32 = 0;

/// The most by which ordinary programs may be ahead or behind, if the quantum is not longer. Linux
/// stops the real-time class for 50 ms once it had 950 ms of a second: sched(7),
/// `sched_rt_runtime_us`.
const ALLOWANCE_NS_MAX: i64 = 20_000_000;

/// The longest time that is charged at once.
const UNCHARGED_MAX: Span = Span::from_millis(100);
/// A chooser may have read the clock so much later than the next one.
const AHEAD_MAX: Span = Span::from_millis(100);

/// What stands in shared memory between two choices, beside the lag of each domain
/// ([`DomainAccounts::state`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnState {
    /// The time until which all service is charged, in ns; 0 before the first choice.
    pub charged_ns: u64,
    /// The client that is served, plus 1. 0: none.
    pub served: u64,
    /// CPU time that ordinary programs are owed, in ns; negative if they had more than their part.
    pub allowance_ns: i64,
}

/// The client that is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This domain.
    Domain(u32),
    /// Ordinary programs, up to this time: all domains wait.
    Ordinary(Instant),
    /// No domain has anything to run.
    Nothing,
}

/// The accounts of the domains of one CPU and of ordinary programs, for the domain or thread that
/// chooses what is served next. The state between two choices stands elsewhere: [`TurnState`], and
/// a number for each domain. No call allocates but [`TurnAccounts::new`], and each is O(domains).
#[derive(Clone, Debug)]
pub struct TurnAccounts {
    accounts: DomainAccounts,
    state: TurnState,
    quantum: Span,
    ordinary_ppm: u32,
    allowance_ns_max: i64,
}

impl TurnAccounts {
    /// Accounts for domains numbered `1..capacity`. Ordinary programs request `quantum` at a time.
    /// Allocates.
    pub fn new(capacity: u32, quantum: Span) -> Self {
        let accounts = DomainAccounts::new(capacity.max(1));
        // Ordinary programs must be able to be owed a quantum.
        let two_quanta_ns = i64::try_from((quantum * 2).as_nanos()).unwrap_or(i64::MAX);
        let allowance_ns_max = ALLOWANCE_NS_MAX.max(two_quanta_ns);
        let state = TurnState::default();
        TurnAccounts { accounts, state, quantum, ordinary_ppm: 0, allowance_ns_max }
    }

    /// Sets the part of a client. `None`: it has left.
    pub fn set_share(&mut self, client: u32, share: Option<Share>) {
        if client == ORDINARY {
            self.ordinary_ppm = share.map_or(0, Share::ppm);
        }
        self.accounts.set_share(client, share);
    }

    /// Takes over the state that another chooser stored. Impossible values count as 0. The lags
    /// follow ([`Self::set_account_state`]).
    pub fn load(&mut self, state: TurnState) {
        let allowance_ns = state.allowance_ns.clamp(-self.allowance_ns_max, self.allowance_ns_max);
        self.state = TurnState { allowance_ns, ..state };
    }

    /// The state for the next chooser.
    pub fn state(&self) -> TurnState {
        self.state
    }

    /// As [`DomainAccounts::state`].
    pub fn account_state(&self, client: u32) -> i64 {
        self.accounts.state(client)
    }

    /// As [`DomainAccounts::set_state`].
    pub fn set_account_state(&mut self, client: u32, state: i64) {
        self.accounts.set_state(client, state);
    }

    /// As [`DomainAccounts::lag_ns`].
    pub fn lag_ns(&self, client: u32) -> Option<i64> {
        self.accounts.lag_ns(client)
    }

    /// Charges the client that is served for the time up to `now`, and returns that time. Time
    /// without one was ordinary programs'.
    pub fn advance(&mut self, now: Instant) -> Span {
        let from = Instant::from_nanos(self.state.charged_ns);
        // A time far ahead is none that a chooser stored.
        let is_false = from > now + AHEAD_MAX;
        let is_first = self.state.charged_ns == 0 || is_false;
        self.state.charged_ns = now.as_nanos().max(if is_false { 0 } else { from.as_nanos() });
        if is_first {
            return Span::ZERO;
        }
        // No honest turn is that long. A holder that was stopped may have stored an old time.
        let length = now.since(from).min(UNCHARGED_MAX);
        let client = self.served();
        if let Some(client) = client {
            self.accounts.charge(client, length);
        }
        let length_ns = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX).min(1 << 40);
        let due_ns = length_ns * i64::from(self.ordinary_ppm) / i64::from(Share::WHOLE.ppm());
        let had_ns = if client.is_none_or(|of| of == ORDINARY) { length_ns } else { 0 };
        let allowance_ns = self.state.allowance_ns + due_ns - had_ns;
        let most_ns = self.allowance_ns_max;
        self.state.allowance_ns = allowance_ns.clamp(-most_ns, most_ns);
        length
    }

    /// The client that is served. `None`: none is, or the word has an impossible value.
    pub fn served(&self) -> Option<u32> {
        u32::try_from(self.state.served.checked_sub(1)?).ok()
    }

    /// The time that [`Self::advance`] would charge.
    pub fn uncharged(&self, now: Instant) -> Span {
        now.since(Instant::from_nanos(self.state.charged_ns))
    }

    /// Whether a client is served.
    pub fn is_served(&self, client: u32) -> bool {
        self.served() == Some(client)
    }

    /// Charges service that a client had out of turn.
    pub fn charge(&mut self, client: u32, length: Span) {
        self.accounts.charge(client, length);
    }

    /// As [`DomainAccounts::refund`]: time that the host or other threads had.
    pub fn refund(&mut self, client: u32, length: Span) {
        self.accounts.refund(client, length);
    }

    /// Leaves the time up to `now` uncharged, if nothing after that time is charged: it was no
    /// service to the domain that has the turn.
    pub fn skip(&mut self, length: Span, now: Instant) {
        let until = Instant::from_nanos(self.state.charged_ns) + length;
        if self.state.charged_ns > 0 {
            self.state.charged_ns = until.min(now).as_nanos().max(self.state.charged_ns);
        }
    }

    /// Enters what a domain requests. `None`: it has nothing to run, or cannot run.
    pub fn set_request(&mut self, domain: u32, request: Option<Span>) {
        if domain != ORDINARY {
            self.accounts.set_request(domain, request);
        }
    }

    /// Chooses the client that is served from `now` on. Call [`Self::advance`] before.
    pub fn choose(&mut self, now: Instant) -> Choice {
        let owed_ns = self.state.allowance_ns;
        let is_owed = owed_ns >= i64::try_from(self.quantum.as_nanos()).unwrap_or(i64::MAX);
        let any = self.accounts.any_requests_beside(ORDINARY);
        self.accounts.set_request(ORDINARY, (any && is_owed).then_some(self.quantum));
        if !any {
            let _ = self.accounts.next_domain();
            self.state.served = 0;
            return Choice::Nothing;
        }
        let next = self.accounts.next_domain().unwrap_or(ORDINARY);
        self.state.served = u64::from(next) + 1;
        match next {
            ORDINARY => Choice::Ordinary(now + self.quantum),
            domain => Choice::Domain(domain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_millis(1);

    fn accounts(shares: &[u32]) -> TurnAccounts {
        let mut accounts = TurnAccounts::new(8, MS);
        for (client, &ppm) in (0..).zip(shares) {
            accounts.set_share(client, Share::from_ppm(ppm));
        }
        accounts
    }

    /// Two domains that are always busy, for `rounds` choices. Returns the time of each client.
    fn run(rounds: u32, hand_over: bool) -> [Span; 3] {
        let shares = [100_000, 600_000, 300_000];
        let mut of = accounts(&shares);
        let mut now = Instant::from_nanos(1);
        let mut got = [Span::ZERO; 3];
        for _ in 0..rounds {
            of.advance(now);
            (1..3).for_each(|domain| of.set_request(domain, Some(MS)));
            let client = match of.choose(now) {
                Choice::Domain(domain) => domain,
                Choice::Ordinary(until) => {
                    assert_eq!(until, now + MS);
                    ORDINARY
                }
                Choice::Nothing => unreachable!("both domains are busy"),
            };
            got[client as usize] += MS;
            now += MS;
            if hand_over {
                let mut next = accounts(&shares);
                next.load(of.state());
                (0..3).for_each(|client| next.set_account_state(client, of.account_state(client)));
                of = next;
            }
        }
        got
    }

    #[test]
    fn ordinary_programs_get_what_is_above_the_limit_and_domains_their_parts() {
        // They ask once they are owed a quantum, so they begin later than the domains.
        let late = Span::from_millis(23);
        let got = run(10_000, false);
        for (got, part) in got.into_iter().zip([1_000, 6_000, 3_000]) {
            let off_ns = got.as_nanos().abs_diff((MS * part).as_nanos());
            assert!(off_ns <= late.as_nanos(), "{got} of {part} ms");
        }
    }

    #[test]
    fn the_state_is_all_that_a_chooser_needs() {
        assert_eq!(run(1_000, true), run(1_000, false));
    }

    #[test]
    fn ordinary_programs_ask_for_nothing_while_the_cpu_idles_enough() {
        let mut of = accounts(&[100_000, 900_000]);
        let mut now = Instant::from_nanos(1);
        for round in 0..1_000 {
            of.advance(now);
            let is_busy = round % 2 == 0;
            of.set_request(1, is_busy.then_some(MS));
            let expected = if is_busy { Choice::Domain(1) } else { Choice::Nothing };
            assert_eq!(of.choose(now), expected);
            now += MS;
        }
    }

    #[test]
    fn time_that_is_skipped_is_charged_to_no_domain() {
        let mut of = accounts(&[0, 500_000, 500_000]);
        let mut now = Instant::from_nanos(1);
        of.advance(now);
        (1..3).for_each(|domain| of.set_request(domain, Some(MS)));
        assert_eq!(of.choose(now), Choice::Domain(1));
        now += MS * 3;
        of.skip(MS * 2, now);
        of.advance(now);
        assert_eq!((of.lag_ns(1), of.lag_ns(2)), (Some(-500_000), Some(500_000)));
    }

    #[test]
    fn impossible_state_does_no_lasting_harm() {
        let mut of = accounts(&[100_000, 900_000]);
        of.load(TurnState { charged_ns: 5, served: u64::MAX, allowance_ns: i64::MIN });
        of.set_account_state(1, i64::MIN);
        of.advance(Instant::from_nanos(10));
        of.set_request(1, Some(MS));
        assert_eq!(of.choose(Instant::from_nanos(10)), Choice::Domain(1));
        assert_eq!(of.lag_ns(1), Some(0));
    }
}
