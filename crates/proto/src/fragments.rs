//! Fragments of IP packets follow their first one.
//!
//! Only the first fragment has ports. The table remembers where it went, so that the others of the
//! same packet go there too. It never holds data: reassembly is the receiver's.
//!
//! The table is a ring. A new first fragment takes the place of the oldest one, so it is bounded
//! and every call is O(1) on average. Fragments that come before their first have no destination.

use crate::flow::Destination;
use crate::seeded::Seeded;
use core::net::Ipv6Addr;
use std::collections::HashMap;
use upcall_core::time::{Instant, Span};

/// What the fragments of one packet have in common (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// The address of the sender; one of IPv4 is mapped.
    pub source: Ipv6Addr,
    /// The address of the receiver; one of IPv4 is mapped.
    pub destination: Ipv6Addr,
    /// The identification, of 16 bits under IPv4.
    pub id: u32,
    /// The protocol above IP. 0 under IPv6, where it does not count.
    pub protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: FragmentKey,
    destination: Destination,
    expires: Instant,
}

/// Where packets in fragments go.
#[derive(Clone, Debug)]
pub struct Fragments {
    /// The place of each key in `entries`.
    places: HashMap<FragmentKey, usize, Seeded>,
    entries: Vec<Option<Entry>>,
    /// The place of the oldest entry, which the next one takes.
    oldest: usize,
    lifetime: Span,
    evicted: u64,
}

impl Fragments {
    /// An empty table of `capacity` packets, at least 1. An entry holds for `lifetime`. Peers
    /// choose the keys, so `seed` should be unknown to them. Allocates all its memory.
    pub fn new(capacity: usize, lifetime: Span, seed: u64) -> Self {
        let capacity = capacity.max(1);
        Fragments {
            places: HashMap::with_capacity_and_hasher(capacity, Seeded(seed)),
            entries: vec![None; capacity],
            oldest: 0,
            lifetime,
            evicted: 0,
        }
    }

    /// Notes that the first fragment of a packet went to `destination`. A second first fragment
    /// replaces the first.
    pub fn first(&mut self, key: FragmentKey, destination: Destination, now: Instant) {
        if let Some(place) = self.places.remove(&key) {
            self.entries[place] = None;
        }
        let expires = now + self.lifetime;
        let place = self.oldest;
        self.oldest = (place + 1) % self.entries.len();
        if let Some(before) = self.entries[place].replace(Entry { key, destination, expires }) {
            self.places.remove(&before.key);
            self.evicted += u64::from(before.expires > now);
        }
        self.places.insert(key, place);
    }

    /// Where a later fragment goes. `None` if its first one is unknown or too long ago.
    pub fn follow(&self, key: FragmentKey, now: Instant) -> Option<Destination> {
        let entry = self.entries[*self.places.get(&key)?]?;
        (now < entry.expires).then_some(entry.destination)
    }

    /// How many packets lost their entry to others before it expired.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::UDP;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn key(id: u32) -> FragmentKey {
        let address = Ipv6Addr::LOCALHOST;
        FragmentKey { source: address, destination: address, id, protocol: UDP }
    }

    fn to(port: u16) -> Destination {
        Destination { address: Ipv6Addr::LOCALHOST, protocol: UDP, port }
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn fragments_follow_their_first_until_it_expires() {
        let mut table = Fragments::new(2, Span::from_nanos(10), 0);
        assert_eq!(table.follow(key(1), at(0)), None);
        table.first(key(1), to(7), at(0));
        assert_eq!(table.follow(key(1), at(9)), Some(to(7)));
        assert_eq!(table.follow(key(2), at(9)), None);
        assert_eq!(table.follow(key(1), at(10)), None);
    }

    #[test]
    fn the_oldest_packet_gives_way() {
        let mut table = Fragments::new(2, Span::from_nanos(100), 0);
        for id in [1, 2, 3] {
            table.first(key(id), to(7), at(u64::from(id)));
        }
        let known: Vec<_> = [1, 2, 3].map(|id| table.follow(key(id), at(4)).is_some()).into();
        assert_eq!(known, [false, true, true]);
        assert_eq!(table.evicted(), 1);
    }

    proptest! {
        /// A queue of the last entries is the model.
        #[test]
        fn the_table_is_the_last_entries(
            steps in prop::collection::vec((0u32..6, 0u16..4, 0u64..5, any::<bool>()), 1..200),
        ) {
            let mut table = Fragments::new(3, Span::from_nanos(12), 1);
            let mut model: VecDeque<Option<(u32, u16, u64)>> = VecDeque::from(vec![None; 3]);
            let mut now = 0;
            for (id, port, later, is_first) in steps {
                now += later;
                if is_first {
                    table.first(key(id), to(port), at(now));
                    for place in &mut model {
                        *place = place.filter(|(known, ..)| *known != id);
                    }
                    model.pop_front();
                    model.push_back(Some((id, port, now + 12)));
                }
                for id in 0..6 {
                    let known = model.iter().flatten().find(|(known, ..)| *known == id);
                    let expected = known.filter(|(.., expires)| now < *expires);
                    let expected = expected.map(|(_, port, _)| to(*port));
                    prop_assert_eq!(table.follow(key(id), at(now)), expected);
                }
                prop_assert!(table.places.len() <= 3);
            }
        }
    }
}
