//! The accounts of the domains of one CPU: PS among processes that have schedulers of their own.
//!
//! A domain is a client of one account, and its scheduler divides what the domain gets ([`super`],
//! *Several processes*). The driver keeps the accounts: the simulator for all domains of a CPU, a
//! runtime in memory that the domains of a user share ([`super::TurnAccounts`]). At each choice the
//! driver enters what every domain requests, asks which domain is next, and charges it when it
//! gives the CPU back.
//!
//! ```text
//!   driver                          accounts            schedulers of the domains
//!   set_request, for each domain -> ready or idle   <-- domain_request, request_at_release
//!   next_domain                  -> domain d        --> d: upcall ... return
//!   charge d, the time           -> lags move
//! ```
//!
//! A domain may have several activities ready, of which the accounts see one request. That request
//! is never shorter than what the scheduler of the domain then serves: it is the request of the
//! activity that goes next, or the longest of the activities that were released since, whichever is
//! longer. So no domain is charged more than it requested, as the bound on lags needs it.
//!
//! Nobody tells a domain the time while another one runs. It joins the competition when the driver
//! first finds that one of its releases has come: at the next boundary, like a release in one
//! scheduler.
//!
//! Hand-offs between domains are charged to the domain that gets the CPU. Its scheduler does not
//! count them: an activity is due a part of what is left.

use crate::share::Share;
use crate::time::Span;

/// The accounts of the domains of one CPU ([`super`], *Several processes*). The driver numbers the
/// domains from 0. A call with the number of a domain that has no share does nothing. Nothing
/// allocates after creation, and each call is O(domains).
///
/// This is EEVDF as in [`super::Instance::of_shares`], with the lag of each domain in place of the
/// virtual time. `u` of service to domain `d` changes all lags, with `p` the part of a domain in
/// the sum of all shares:
///
/// ```text
///   lag of d += p u - u      lag of another += p u      deadline of a request r: (r - lag) / p
/// ```
///
/// So the whole state of a domain between two choices is one number, which processes can share. A
/// domain without a request gains no lag. If no domain with a request has a lag of 0 or more, all
/// get `p j` with the smallest `j` that gives one of them a lag of 0: service is never withheld.
#[derive(Clone, Debug)]
pub struct DomainAccounts {
    accounts: Vec<Account>,
    /// The sum of all shares, in millionths.
    total_ppm: u64,
}

/// The account of one domain.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// 0: no share.
    share_ppm: u32,
    /// In [`LAG_PER_NS`]ths of a nanosecond of CPU time.
    lag: i64,
    /// Whether it requests anything now.
    is_ready: bool,
    /// What it requests.
    request: Span,
}

/// Units of an account's lag in one nanosecond. Sums of parts then round by less than 1 ns in a
/// million charges.
const LAG_PER_NS: i64 = 1 << 20;
/// The longest service that is charged or requested at once, 18 minutes. It keeps lags in an `i64`.
const SERVICE_NS_MAX: u64 = 1 << 40;
/// The greatest lag, 73 minutes of CPU time.
const LAG_MAX: i64 = (1 << 42) * LAG_PER_NS;
/// Fractional bits of a domain's part of the sum of all shares.
const PART_BITS: u32 = 32;

impl Account {
    /// Its part of `total_ppm`, with [`PART_BITS`] fractional bits, rounded down.
    fn part(&self, total_ppm: u64) -> i128 {
        i128::from((u64::from(self.share_ppm) << PART_BITS) / total_ppm.max(1))
    }

    fn add(&mut self, lag: i128) {
        let sum = (i128::from(self.lag) + lag).clamp(-i128::from(LAG_MAX), i128::from(LAG_MAX));
        self.lag = i64::try_from(sum).unwrap_or(0);
        if !self.is_ready {
            // A domain that requests nothing is due nothing.
            self.lag = self.lag.min(0);
        }
    }

    fn is_eligible(&self) -> bool {
        self.is_ready && self.lag >= 0
    }

    /// The deadline of its request times its share.
    fn distance(&self) -> i128 {
        service(self.request) - i128::from(self.lag)
    }
}

fn service(length: Span) -> i128 {
    i128::from(length.as_nanos().min(SERVICE_NS_MAX)) * i128::from(LAG_PER_NS)
}

impl DomainAccounts {
    /// Accounts for domains numbered `0..capacity`. Allocates.
    pub fn new(capacity: u32) -> Self {
        let accounts = vec![Account::default(); capacity as usize];
        DomainAccounts { accounts, total_ppm: 0 }
    }

    /// Sets the part of the CPU of a domain. A domain that has a share keeps its lag. `None`: the
    /// domain has left, and its debt is written off.
    pub fn set_share(&mut self, domain: u32, share: Option<Share>) {
        let ppm = share.map_or(0, Share::ppm);
        let Some(account) = self.accounts.get_mut(domain as usize) else { return };
        self.total_ppm = self.total_ppm + u64::from(ppm) - u64::from(account.share_ppm);
        if ppm == 0 || account.share_ppm == 0 {
            *account = Account::default();
        }
        self.accounts[domain as usize].share_ppm = ppm;
    }

    /// Enters what a domain requests: the length of its next service, or `None` if it has nothing
    /// to run or cannot run.
    pub fn set_request(&mut self, domain: u32, request: Option<Span>) {
        let Some(account) = self.of(domain) else { return };
        (account.is_ready, account.request) = (request.is_some(), request.unwrap_or_default());
    }

    /// The domain that is served next. `None` if no domain requests anything: all debts are
    /// forgiven then.
    pub fn next_domain(&mut self) -> Option<u32> {
        if !self.accounts.iter().any(|account| account.is_ready) {
            self.accounts.iter_mut().for_each(|account| account.lag = 0);
            return None;
        }
        self.jump();
        let mut best: Option<(u32, &Account)> = None;
        for (domain, account) in (0..).zip(&self.accounts) {
            let is_earlier = |&(_, best): &(u32, &Account)| {
                let (own, other) = (i128::from(account.share_ppm), i128::from(best.share_ppm));
                account.distance() * other < best.distance() * own
            };
            if account.is_eligible() && best.as_ref().is_none_or(is_earlier) {
                best = Some((domain, account));
            }
        }
        best.map(|(domain, _)| domain)
    }

    /// Whether another domain than `domain` requests anything.
    pub fn any_requests_beside(&self, domain: u32) -> bool {
        let mut all = (0..).zip(&self.accounts);
        all.any(|(number, account)| number != domain && account.is_ready)
    }

    /// Charges the domain `used`: in its turn, or out of turn, because a handler came back from the
    /// kernel and finished its quantum.
    pub fn charge(&mut self, domain: u32, used: Span) {
        if self.of(domain).is_none() {
            return;
        }
        let (used, total_ppm) = (service(used), self.total_ppm);
        for (number, account) in (0..).zip(&mut self.accounts) {
            let due = (account.part(total_ppm) * used) >> PART_BITS;
            if number == domain {
                if !account.is_ready {
                    account.lag = account.lag.min(0);
                }
                account.add(due - used);
            } else {
                account.add(due);
            }
        }
    }

    /// Takes back a part of what [`Self::charge`] charged: the domain did not have that time.
    /// Others that request nothing were due nothing, so they give nothing back.
    pub fn refund(&mut self, domain: u32, length: Span) {
        if self.of(domain).is_none() {
            return;
        }
        let (length, total_ppm) = (service(length), self.total_ppm);
        for (number, account) in (0..).zip(&mut self.accounts) {
            let due = (account.part(total_ppm) * length) >> PART_BITS;
            if number == domain {
                account.add(length - due);
            } else if account.is_ready {
                account.add(-due);
            }
        }
    }

    /// How far the domain is behind its part of the service of all domains, in nanoseconds of CPU
    /// time; negative if ahead. `None` without a share. O(1).
    pub fn lag_ns(&self, domain: u32) -> Option<i64> {
        let account = self.accounts.get(domain as usize).filter(|account| account.share_ppm > 0)?;
        let lag = if account.is_ready { account.lag } else { account.lag.min(0) };
        Some(lag / LAG_PER_NS)
    }

    /// The account of a domain as it stands in memory that processes share: its lag, and in the
    /// lowest bit whether it requests anything. 0 without a share. O(1).
    pub fn state(&self, domain: u32) -> i64 {
        let account = self.accounts.get(domain as usize).filter(|account| account.share_ppm > 0);
        account.map_or(0, |account| (account.lag & !1) | i64::from(account.is_ready))
    }

    /// Sets the account of a domain to what [`Self::state`] returned elsewhere. An impossible value
    /// counts as 0. The length of its request is not known until [`Self::set_request`]. O(1).
    pub fn set_state(&mut self, domain: u32, state: i64) {
        if let Some(account) = self.of(domain) {
            let is_possible = (-LAG_MAX..=LAG_MAX).contains(&(state & !1));
            let state = if is_possible { state } else { 0 };
            (account.lag, account.is_ready) = (state & !1, state & 1 == 1);
        }
    }

    /// Makes a domain with a request eligible, if there is one.
    fn jump(&mut self) {
        let ready = self.accounts.iter().filter(|account| account.is_ready);
        let steps = ready.map(|account| {
            // In units of lag for a part of 1 in 2^PART_BITS, rounded up.
            let part = account.part(self.total_ppm).max(1);
            (((-i128::from(account.lag)).max(0) << PART_BITS) + part - 1) / part
        });
        let Some(step) = steps.min().filter(|step| *step > 0) else { return };
        let total_ppm = self.total_ppm;
        for account in &mut self.accounts {
            let due = (account.part(total_ppm) * step) >> PART_BITS;
            account.add(due);
        }
    }

    fn of(&mut self, domain: u32) -> Option<&mut Account> {
        self.accounts.get_mut(domain as usize).filter(|account| account.share_ppm > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_get_their_parts_in_requests_of_any_length() {
        let us = Span::from_micros;
        let mut accounts = DomainAccounts::new(3);
        let shares = [500_000, 300_000, 200_000];
        let lengths = [us(1_000), us(150), us(400)];
        let mut got = [Span::ZERO; 3];
        for (domain, ppm) in (0..).zip(shares) {
            accounts.set_share(domain, Share::from_ppm(ppm));
        }
        for _ in 0..10_000 {
            for (domain, length) in (0..).zip(lengths) {
                accounts.set_request(domain, Some(length));
            }
            let domain = accounts.next_domain().unwrap();
            accounts.charge(domain, lengths[domain as usize]);
            got[domain as usize] += lengths[domain as usize];
            for domain in 0..3 {
                let lag_ns = accounts.lag_ns(domain).unwrap();
                assert!(lag_ns.unsigned_abs() <= 1_000_000, "domain {domain}: {lag_ns} ns");
            }
        }
        let all: Span = got.iter().copied().sum();
        for (got, ppm) in got.into_iter().zip(shares) {
            let due_ns = all.as_nanos() * u64::from(ppm) / 1_000_000;
            assert!(got.as_nanos().abs_diff(due_ns) <= 1_000_000, "{got} of {due_ns} ns");
        }
    }

    #[test]
    fn a_domain_that_was_away_is_due_nothing_for_that_time() {
        let ms = Span::from_millis;
        let mut accounts = DomainAccounts::new(2);
        accounts.set_share(0, Share::from_ppm(500_000));
        accounts.set_share(1, Share::from_ppm(500_000));
        let serve = |accounts: &mut DomainAccounts| {
            let domain = accounts.next_domain().unwrap();
            accounts.charge(domain, ms(1));
            accounts.set_request(domain, Some(ms(1)));
            domain
        };
        accounts.set_request(0, Some(ms(1)));
        assert!((0..10).all(|_| serve(&mut accounts) == 0));
        accounts.set_request(1, Some(ms(1)));
        // One quantum that was served before was in advance.
        let order: Vec<_> = (0..6).map(|_| serve(&mut accounts)).collect();
        assert_eq!(order.iter().filter(|domain| **domain == 1).count(), 3, "{order:?}");
        // The debt counts until no domain has anything to run.
        (0..2).for_each(|domain| accounts.set_request(domain, None));
        assert_eq!(accounts.next_domain(), None);
        assert_eq!((accounts.lag_ns(0), accounts.lag_ns(1)), (Some(0), Some(0)));
        // What a domain has out of turn counts too.
        accounts.set_request(1, Some(ms(1)));
        accounts.charge(0, ms(2));
        assert_eq!((accounts.lag_ns(0), accounts.lag_ns(1)), (Some(-1_000_000), Some(1_000_000)));
        // What is taken back counts as if it had not been charged.
        accounts.charge(0, ms(4));
        accounts.refund(0, ms(4));
        assert_eq!((accounts.lag_ns(0), accounts.lag_ns(1)), (Some(-1_000_000), Some(1_000_000)));
        // An idle domain has no debt by that.
        accounts.set_request(1, None);
        accounts.charge(0, ms(4));
        accounts.refund(0, ms(4));
        assert_eq!(accounts.lag_ns(1), Some(0));
        // A domain without a share is not served.
        accounts.set_share(1, None);
        accounts.set_request(1, Some(ms(1)));
        assert_eq!((accounts.next_domain(), accounts.lag_ns(1)), (None, None));
    }
}
