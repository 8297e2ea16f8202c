//! The link addresses of neighbors, for ARP (RFC 826) and neighbor discovery (RFC 4861 §7).
//!
//! [`super::Host`] alone calls it. It keeps no packets: the caller keeps or drops what cannot be
//! sent yet.
//!
//! ```text
//!          a packet for it (1)             it answers (2)              30 s (3)
//!  (none) -------------------> Incomplete ---------------> Reachable ----------+
//!    |                          |      ^                     ^                 |
//!    |        3 requests,       |      | a packet for it,    |                 v
//!    |        no answer (8)     v      | 3 s later (9)       |               Stale
//!    |                         Failed -+                     |                 |
//!    |                                        it answers (6) |                 | a packet for
//!    +------ it asks for us (7) ---> Stale                   |                 v it (4)
//!  (none) <------------------------------------------------ Probe <-----------+
//!            3 requests, no answer (8)         5 s after (4) the requests begin (5)
//! ```
//!
//! 1. A request goes to all (ARP) or to the solicited-node group, each second, three at most
//!    (RFC 4861 §7.2.2; RFC 1122 §2.3.2.1 wants at most one a second).
//! 2. An ARP reply to us, or an advertisement that was asked for (§7.2.5).
//! 3. ReachableTime, drawn from 15 to 45 s (§6.3.2). It is looked at when a packet goes there.
//! 4. Packets go on to the old link address (§7.3.3).
//! 5. DELAY and PROBE are one state here, with no requests sent during the delay. The requests go
//!    to the link address alone (§7.3.3; the unicast poll of RFC 1122 §2.3.2.1).
//! 6. As (2). Without an answer to a request, a link address that is stated changes the entry to
//!    Stale (§7.2.3, §7.2.5; RFC 826 "merge").
//! 7. A request for one of our addresses. No other packet of a peer makes an entry.
//! 8. The packets that wait are the caller's to drop (§7.2.2), or the next hop is asked for anew.
//! 9. So an address that does not answer gets three requests in six seconds.
//!
//! A static entry stays as its owner made it.
//!
//! Who may evict whom, once [`NEIGHBORS_MAX`] entries are there:
//!
//! | entry | for a peer that asks for us | for a packet that the host sends |
//! |---|---|---|
//! | Failed, then Stale or Reachable that no packet ever used, the oldest first | yes | yes |
//! | Stale or Reachable whose last packet went out 30 s ago or more, the oldest first | no | yes |
//! | used within 30 s, Incomplete, Probe, static | no | no |
//!
//! So neither peers on the link nor forged senders evict what is in use. Entries without a link
//! address are half of the table at most: packets to addresses that nobody has do not keep out
//! those who ask for us. An Incomplete entry is not evicted, so that the limit of requests holds.

use super::chance::Chance;
use super::error::{NeighborError, RouteError};
use crate::packet::LinkAddress;
use core::net::IpAddr;
use upcall_core::time::{Instant, Span};

/// The most neighbors: the hosts of a network with a prefix of 24 bits.
pub const NEIGHBORS_MAX: usize = 256;

/// `RETRANS_TIMER` of RFC 4861 §10.
const REQUEST_INTERVAL: Span = Span::from_secs(1);
/// `MAX_MULTICAST_SOLICIT` and `MAX_UNICAST_SOLICIT` of RFC 4861 §10.
const REQUESTS_MAX: u8 = 3;
/// `DELAY_FIRST_PROBE_TIME` of RFC 4861 §10.
const PROBE_DELAY: Span = Span::from_secs(5);
/// `REACHABLE_TIME` times `MIN_RANDOM_FACTOR`, and the rest up to `MAX_RANDOM_FACTOR`.
const REACHABLE_MIN: Span = Span::from_secs(15);
const REACHABLE_DRAWN: Span = Span::from_secs(30);
/// As long as the requests took.
const FAILED_FOR: Span = Span::from_secs(3);
/// `REACHABLE_TIME`: a longer pause ends a use.
const USED_FOR: Span = Span::from_secs(30);

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) asked: IpAddr,
    /// Where the neighbor was; `None`: ask all.
    pub(super) link: Option<LinkAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `at`: the next request, or the end.
    Incomplete {
        sent: u8,
        at: Instant,
    },
    Reachable {
        until: Instant,
    },
    Stale,
    /// As `Incomplete`, and the delay while none was sent.
    Probe {
        sent: u8,
        at: Instant,
    },
    Failed {
        until: Instant,
    },
    Static,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// Not valid in `Incomplete` and `Failed`.
    link: LinkAddress,
    state: State,
    /// Whether a packet of the host ever went there.
    is_used: bool,
    /// The last packet, or else the beginning.
    touched: Instant,
}

impl Entry {
    fn lacks_link(&self) -> bool {
        matches!(self.state, State::Incomplete { .. } | State::Failed { .. })
    }

    /// The order of eviction; `None`: it stays.
    fn rank(&self, for_packet: bool, now: Instant) -> Option<u8> {
        match self.state {
            State::Static | State::Incomplete { .. } | State::Probe { .. } => None,
            State::Failed { .. } => Some(0),
            _ if !self.is_used => Some(1),
            _ => (for_packet && self.touched + USED_FOR <= now).then_some(2),
        }
    }
}

#[derive(Debug)]
pub(super) struct Neighbors {
    /// Ordered by address. Never longer than its first capacity.
    entries: Vec<Entry>,
    chance: Chance,
    /// Not later than the first timer.
    wake: Instant,
    /// Neighbors that got no entry.
    pub(super) refused: u64,
    /// Neighbors that did not answer.
    pub(super) failed: u64,
}

impl Neighbors {
    pub(super) fn new(seed: u64) -> Neighbors {
        Neighbors {
            entries: Vec::with_capacity(NEIGHBORS_MAX),
            chance: Chance(seed),
            wake: Instant::FAR,
            refused: 0,
            failed: 0,
        }
    }

    /// The link address to which a packet for `address` goes now. O(log entries), but O(entries)
    /// for a new one.
    pub(super) fn resolve(
        &mut self,
        address: IpAddr,
        now: Instant,
    ) -> Result<LinkAddress, RouteError> {
        let first = State::Incomplete { sent: 0, at: now };
        let Ok(place) = self.place(address) else {
            let lacking = self.entries.iter().filter(|entry| entry.lacks_link()).count();
            let is_new = Entry { address, link: [0; 6], state: first, is_used: true, touched: now };
            if lacking >= NEIGHBORS_MAX / 2 && !self.evict_failed() || !self.add(is_new, true, now)
            {
                self.refused += 1;
                return Err(RouteError::Full);
            }
            self.wake = self.wake.min(now);
            return Err(RouteError::Resolving);
        };
        let entry = &mut self.entries[place];
        (entry.is_used, entry.touched) = (true, now);
        match entry.state {
            State::Incomplete { .. } => return Err(RouteError::Resolving),
            State::Failed { until } if now < until => return Err(RouteError::Unreachable),
            State::Failed { .. } => {
                entry.state = first;
                self.wake = self.wake.min(now);
                return Err(RouteError::Resolving);
            }
            State::Reachable { until } if now < until => {}
            State::Reachable { .. } | State::Stale => {
                let at = now + PROBE_DELAY;
                entry.state = State::Probe { sent: 0, at };
                self.wake = self.wake.min(at);
            }
            State::Probe { .. } | State::Static => {}
        }
        Ok(entry.link)
    }

    /// A neighbor stated its link address, and did not answer to us. It gets an entry if
    /// `asks_us`.
    pub(super) fn stated(
        &mut self,
        address: IpAddr,
        link: LinkAddress,
        asks_us: bool,
        now: Instant,
    ) {
        match self.place(address) {
            Ok(place) => {
                let entry = &mut self.entries[place];
                let is_news = entry.lacks_link() || entry.link != link;
                if entry.state != State::Static && is_news {
                    (entry.link, entry.state) = (link, State::Stale);
                }
            }
            Err(_) if asks_us => {
                let state = State::Stale;
                let is_new = Entry { address, link, state, is_used: false, touched: now };
                self.refused += u64::from(!self.add(is_new, false, now));
            }
            Err(_) => {}
        }
    }

    /// An ARP reply to us. It counts as an answer if there was a request.
    pub(super) fn replied(&mut self, address: IpAddr, link: LinkAddress, now: Instant) {
        let Ok(place) = self.place(address) else { return };
        match self.entries[place].state {
            State::Incomplete { .. } | State::Probe { sent: 1.., .. } => {
                self.confirm(place, link, now);
            }
            _ => self.stated(address, link, false, now),
        }
    }

    /// A neighbor advertisement (RFC 4861 §7.2.5).
    pub(super) fn advertised(
        &mut self,
        address: IpAddr,
        link: Option<LinkAddress>,
        (is_solicited, is_override): (bool, bool),
        now: Instant,
    ) {
        let Ok(place) = self.place(address) else { return };
        let entry = &mut self.entries[place];
        let known = (!entry.lacks_link()).then_some(entry.link);
        let Some(link) = link.or(known) else { return };
        let differs = known.is_some_and(|known| known != link);
        if entry.state == State::Static {
            return;
        }
        if differs && !is_override {
            // Two devices have the address. The known one is asked before it is given up.
            if let State::Reachable { .. } = entry.state {
                entry.state = State::Stale;
            }
        } else if is_solicited {
            self.confirm(place, link, now);
        } else {
            self.stated(address, link, false, now);
        }
    }

    fn confirm(&mut self, place: usize, link: LinkAddress, now: Instant) {
        let until = now + REACHABLE_MIN + self.chance.up_to(REACHABLE_DRAWN);
        let entry = &mut self.entries[place];
        (entry.link, entry.state) = (link, State::Reachable { until });
    }

    /// Makes an entry static. O(entries).
    pub(super) fn set_static(
        &mut self,
        address: IpAddr,
        link: LinkAddress,
    ) -> Result<(), NeighborError> {
        let state = State::Static;
        match self.place(address) {
            Ok(place) => {
                let entry = &mut self.entries[place];
                (entry.link, entry.state) = (link, state);
            }
            Err(_) => {
                let now = Instant::ZERO;
                let is_new = Entry { address, link, state, is_used: true, touched: now };
                if !self.add(is_new, false, now) {
                    return Err(NeighborError::Full);
                }
            }
        }
        Ok(())
    }

    /// The next request that is due. O(1) if no timer has ended, else O(entries).
    pub(super) fn next_request(&mut self, now: Instant) -> Option<Request> {
        if now < self.wake {
            return None;
        }
        let (mut place, mut wake) = (0, Instant::FAR);
        while let Some(entry) = self.entries.get_mut(place) {
            place += 1;
            let (State::Incomplete { sent, at } | State::Probe { sent, at }) = &mut entry.state
            else {
                continue;
            };
            if now < *at {
                wake = wake.min(*at);
            } else if *sent < REQUESTS_MAX {
                (*sent, *at) = (*sent + 1, now + REQUEST_INTERVAL);
                let link = (!entry.lacks_link()).then_some(entry.link);
                return Some(Request { asked: entry.address, link });
            } else {
                self.failed += 1;
                if entry.lacks_link() {
                    entry.state = State::Failed { until: now + FAILED_FOR };
                } else {
                    place -= 1;
                    self.entries.remove(place);
                }
            }
        }
        self.wake = wake;
        None
    }

    /// Not later than the next request; [`Instant::FAR`]: there is no timer. O(1).
    pub(super) fn wake(&self) -> Instant {
        self.wake
    }

    /// The place of the entry, or that of a new one.
    fn place(&self, address: IpAddr) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&address, |entry| entry.address)
    }

    /// Adds an entry, and evicts one if there is no room. Says whether it was added.
    fn add(&mut self, is_new: Entry, for_packet: bool, now: Instant) -> bool {
        if self.entries.len() >= NEIGHBORS_MAX {
            let ranked = self.entries.iter().enumerate().filter_map(|(place, entry)| {
                Some((entry.rank(for_packet, now)?, entry.touched, place))
            });
            let Some((.., place)) = ranked.min() else { return false };
            self.entries.remove(place);
        }
        if let Err(place) = self.place(is_new.address) {
            self.entries.insert(place, is_new);
        }
        true
    }

    fn evict_failed(&mut self) -> bool {
        let failed = self.entries.iter().position(|it| matches!(it.state, State::Failed { .. }));
        failed.map(|place| self.entries.remove(place)).is_some()
    }
}

#[cfg(test)]
mod tests;
