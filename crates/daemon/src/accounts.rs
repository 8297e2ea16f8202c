//! The accounts of a group's domains under PS, as the daemon keeps them (docs/decisions/0022).
//!
//! The KLS thread uses them when it chooses. Between two choices the state stands in the turn page,
//! which the domains of the user can write: an impossible value counts as 0. The parts are the
//! daemon's. [`shares`] has them for the KLS thread, and the kernel area for the domains.
//!
//! ```text
//!   choosing -- (1) a domain is next --> passes the turn
//!      |  ^
//!      |  +---- (3) its time is over, or a domain came or went ----+
//!      +------- (2) ordinary programs are next --------------> ordinary turn
//! ```
//!
//! 1. The domain charges itself from now on, and chooses what comes after it.
//! 2. All domains wait, and the thread sleeps. Releases that come meanwhile join the competition.
//! 3. Ordinary programs are charged for the time that they had.

use upcall_core::admission::Share;
use upcall_core::policy::ps::{Choice, ORDINARY, TurnAccounts, TurnState, request_of_key};
use upcall_core::time::{Instant, Span};
use upcall_shm::turn_page::Service;
use upcall_shm::{DOMAINS_MAX, DomainId};

use crate::group::{DomainGroup, Members, PROXY_GENERATION};

pub(crate) mod shares;
#[cfg(test)]
mod tests;

/// What the KLS thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It passes the turn to this domain.
    Domain(DomainId),
    /// It sleeps up to this time: ordinary programs run.
    Ordinary(Instant),
    /// It sleeps until a domain has something to run.
    Nothing,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Accounts {
    of: TurnAccounts,
    quantum: Span,
    /// The end of the present turn of ordinary programs.
    ordinary_until: Option<Instant>,
}

impl Accounts {
    /// Accounts by this time quantum. Allocates.
    pub(crate) fn new(quantum: Span) -> Self {
        let of = TurnAccounts::new(DOMAINS_MAX + 1, quantum);
        Accounts { of, quantum, ordinary_until: None }
    }

    /// Chooses what is served from `now` on, by the copies of the members' areas. The daemon has
    /// the turn. O(members).
    pub(crate) fn choose(&mut self, group: &DomainGroup, members: &Members, now: Instant) -> Turn {
        self.load(group, members);
        self.skip_turn_that_was_taken(now);
        self.of.advance(now);
        for member in members.iter() {
            let key = group.is_present(member).then(|| member.best(now)).flatten();
            let request = key.map(|rank| request_of_key(rank.key)).filter(|of| !of.is_zero());
            self.of.set_request(member.domain.number(), request);
        }
        let ordinary_until = match self.ordinary_until.take() {
            // A domain has chosen ordinary programs, and passed the turn.
            None => Some(now + self.quantum),
            // A thread woke this one before the end, or not.
            Some(until) => Some(until).filter(|until| *until > now),
        };
        let turn = match ordinary_until {
            Some(until) if self.of.is_served(ORDINARY) => {
                self.ordinary_until = Some(until);
                Turn::Ordinary(until)
            }
            _ => match self.of.choose(now) {
                Choice::Domain(domain) => DomainId::new(domain).map_or(Turn::Nothing, Turn::Domain),
                Choice::Ordinary(until) => {
                    self.ordinary_until = Some(until);
                    Turn::Ordinary(until)
                }
                Choice::Nothing => Turn::Nothing,
            },
        };
        self.store(group, members);
        turn
    }

    /// The turn was taken from a domain that blocked, was stopped or kept silent. The time since
    /// its last boundary is not charged here: the host may have had it. The domain charges itself
    /// by its CPU clock when it has the turn again.
    fn skip_turn_that_was_taken(&mut self, now: Instant) {
        if self.of.served().is_some_and(|client| client != ORDINARY) {
            self.of.skip(self.of.uncharged(now), now);
        }
    }

    fn load(&mut self, group: &DomainGroup, members: &Members) {
        let Service { charged_ns, served, allowance_ns } = group.turn.service();
        self.of.load(TurnState { charged_ns, served, allowance_ns });
        for client in 0..=DOMAINS_MAX {
            let Some(domain) = DomainId::new(client) else { continue };
            let generation = match client {
                ORDINARY => Some(PROXY_GENERATION),
                _ => {
                    let member = members.iter().find(|member| member.domain == domain);
                    member.map(|member| member.generation)
                }
            };
            let share = generation.and_then(|_| Share::from_ppm(group.shares.ppm(domain)));
            self.of.set_share(client, share);
            if let Some(generation) = generation.filter(|_| share.is_some()) {
                self.of.set_account_state(client, group.turn.lag(domain, generation.get()));
            }
        }
    }

    fn store(&self, group: &DomainGroup, members: &Members) {
        let TurnState { charged_ns, served, allowance_ns } = self.of.state();
        group.turn.set_service(Service { charged_ns, served, allowance_ns });
        let ordinary = (DomainId::DAEMON, PROXY_GENERATION);
        let domains = members.iter().map(|member| (member.domain, member.generation));
        for (domain, generation) in domains.chain([ordinary]) {
            let state = self.of.account_state(domain.number());
            group.turn.set_lag(domain, generation.get(), state);
        }
    }
}

/// How far a domain is behind its part, in nanoseconds of CPU time, as of the last choice; negative
/// if ahead. `None`: it has no part. For the server: the value is what the domains of the user
/// state.
pub(crate) fn lag_ns(group: &DomainGroup, domain: DomainId, generation: u64) -> Option<i64> {
    let mut of = TurnAccounts::new(DOMAINS_MAX + 1, Span::ZERO);
    of.set_share(domain.number(), Some(Share::from_ppm(group.shares.ppm(domain))?));
    of.set_account_state(domain.number(), group.turn.lag(domain, generation));
    of.lag_ns(domain.number())
}
