//! What a user area says of its domain in few words: what is ready, and the releases that matter.
//!
//! The daemon keeps a summary of each area that it reads for other users, so that a choice reads no
//! slots. A release does not matter if another one comes no later and has no worse rank: these are
//! the releases of a Pareto front. A domain that shows its activities with their periods as keys
//! has few of them. Nothing here reads memory of a peer, waits or allocates.

use super::{NEVER, Pending, Rank};

/// The releases in one summary.
pub const RELEASES_MAX: usize = 16;

/// A release and the rank from then on.
pub type Release = (u64, Rank);

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The sequence number of the area. `None`: the summary is of no area.
    sequence: Option<u64>,
    ready: Pending,
    /// The first [`Self::count`] are in use, the earliest first.
    releases: [Release; RELEASES_MAX],
    count: usize,
    /// The earliest release that found no room.
    whole_until_ns: u64,
}

impl Summary {
    /// Nothing is ready, and nothing will be released.
    pub const EMPTY: Summary = Summary {
        sequence: None,
        ready: Pending::NONE,
        releases: [(NEVER, super::NO_RANK); RELEASES_MAX],
        count: 0,
        whole_until_ns: NEVER,
    };

    /// A summary of an area with this sequence number, without slots yet. Work that is ready only
    /// after `now_ns` is as a release.
    pub(super) fn of(sequence: u64, ready: Pending, now_ns: u64) -> Self {
        let mut summary = Summary { sequence: Some(sequence), ..Summary::EMPTY };
        if ready.since_ns > now_ns && ready.since_ns != NEVER && ready.rank.key != NEVER {
            summary.add((ready.since_ns, ready.rank), now_ns);
        } else {
            summary.ready = ready;
        }
        summary
    }

    /// Adds a release at `now_ns`, unless another one makes it needless. All releases that have
    /// come by `now_ns` count as equally early. If there is no room, the latest release is left
    /// out. O([`RELEASES_MAX`]).
    pub fn add(&mut self, new: Release, now_ns: u64) {
        let kept = &mut self.releases[..self.count];
        let is_full = kept.len() == RELEASES_MAX;
        if is_full && new.0 > kept[RELEASES_MAX - 1].0.max(now_ns) {
            self.whole_until_ns = self.whole_until_ns.min(new.0);
            return;
        }
        if new.0 == NEVER || kept.iter().any(|old| makes_needless(old, &new, now_ns)) {
            return;
        }
        let mut count = 0;
        for at in 0..kept.len() {
            if !makes_needless(&new, &kept[at], now_ns) {
                kept[count] = kept[at];
                count += 1;
            }
        }
        let place = kept[..count].partition_point(|old| *old < new);
        if count == RELEASES_MAX {
            let last = kept[count - 1].max(new);
            self.whole_until_ns = self.whole_until_ns.min(last.0);
            if place == count {
                return;
            }
            count -= 1;
        }
        self.releases.copy_within(place..count, place + 1);
        self.releases[place] = new;
        self.count = count + 1;
    }

    /// Adds the releases of `other` that come after `now_ns`. O([`RELEASES_MAX`] squared).
    pub fn add_upcoming(&mut self, other: &Summary, now_ns: u64) {
        let upcoming = other.releases().iter().filter(|release| release.0 > now_ns);
        upcoming.for_each(|release| self.add(*release, now_ns));
        self.whole_until_ns = self.whole_until_ns.min(other.whole_until_ns);
    }

    /// The rank of what the domain states as ready, whenever that began to wait.
    pub fn ready(&self) -> Option<Rank> {
        (self.ready.rank.key != NEVER).then_some(self.ready.rank)
    }

    /// The releases that matter, the earliest first.
    pub fn releases(&self) -> &[Release] {
        &self.releases[..self.count]
    }

    /// The earliest release, which may be past. [`NEVER`]: there is none.
    pub fn next_release_ns(&self) -> u64 {
        self.releases().first().map_or(NEVER, |release| release.0)
    }

    /// What is ready or released by `at_ns`, with an unknown waiting time. O([`RELEASES_MAX`]).
    pub fn pending(&self, at_ns: u64) -> Option<Pending> {
        let ready = if self.ready.since_ns <= at_ns { self.ready } else { Pending::NONE };
        let released = self.releases().iter().take_while(|release| release.0 <= at_ns);
        let all = released.fold(ready, |all, &(_, rank)| all.and(rank.into()));
        (all.rank.key != NEVER).then_some(Pending { since_ns: 0, ..all })
    }

    /// The best rank of what is ready or released by `at_ns`. O([`RELEASES_MAX`]).
    pub fn best(&self, at_ns: u64) -> Option<Rank> {
        self.pending(at_ns).map(|all| all.rank)
    }

    /// Since when the domain has waited at `at_ns` with work whose key is below `key`. 0: unknown,
    /// which counts as always. Of releases in the past a better one may hide an earlier one.
    /// O([`RELEASES_MAX`]).
    pub fn waits_since_ns(&self, key: u64, at_ns: u64) -> Option<u64> {
        let ready = (self.ready.since_ns, self.ready.rank);
        let all = self.releases().iter().copied().chain([ready]);
        let waiting = all.filter(|&(since_ns, rank)| since_ns <= at_ns && rank.key < key);
        waiting.map(|(since_ns, _)| since_ns).min()
    }

    /// Whether it is of an area with this sequence number, and has all that matters by `at_ns`.
    #[inline]
    pub(super) fn is_of(&self, sequence: u64, at_ns: u64) -> bool {
        self.sequence == Some(sequence) && at_ns < self.whole_until_ns
    }
}

/// Whether `one` comes no later than `other` and is no worse in any comparison of ranks. Among
/// equal keys the event decides which goes first, and the order which preempts
/// ([`Rank::preempts`]).
fn makes_needless(one: &Release, other: &Release, now_ns: u64) -> bool {
    let (rank, than) = (&one.1, &other.1);
    let is_same_key = rank.key == than.key;
    let is_no_worse = is_same_key && rank.event <= than.event && rank.order <= than.order;
    one.0.max(now_ns) <= other.0.max(now_ns) && (rank.key < than.key || is_no_worse)
}
