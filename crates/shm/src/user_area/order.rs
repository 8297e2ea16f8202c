//! The order of the domains of a CPU: pure functions of what the domains show.
//!
//! [`super::Peer`] and the runtime apply them to shared pages, and the simulator to its own
//! schedulers. A domain shows what is ready ([`Pending`]) and, for each activity, its next release
//! with the rank from then on. Nothing here reads memory of a peer, waits or allocates.

use super::{NEVER, NO_RANK, Pending, Rank, Rival};

/// What comes next on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<D> {
    /// The domain that asks: it has the best rank.
    Own,
    /// Another domain.
    Other(D),
    /// No domain has anything to run.
    Nothing,
}

/// The best rank of a domain among what was ready or released by `at_ns`. O(slots).
#[inline]
pub fn best(ready: Pending, slots: impl Iterator<Item = (u64, Rank)>, at_ns: u64) -> Option<Rank> {
    let released = slots.filter(|&(release_ns, _)| release_ns <= at_ns);
    let first = if ready.since_ns <= at_ns { ready.rank } else { NO_RANK };
    let best = released.map(|(_, rank)| rank).fold(first, Rank::min);
    (best.key != NEVER).then_some(best)
}

/// How a domain compares with an activity of another domain that runs with rank `running`.
/// O(slots).
#[inline]
pub fn rival(
    ready: Pending,
    slots: impl Iterator<Item = (u64, Rank)>,
    running: Rank,
    at_ns: u64,
) -> Rival {
    let best = if ready.since_ns <= at_ns { ready.rank } else { NO_RANK };
    let first = Rank { order: ready.first, ..ready.rank };
    let preempts_at_ns = if first.preempts(&running) { ready.since_ns } else { NEVER };
    let (preempts_at_ns, best) =
        slots.fold((preempts_at_ns, best), |(preempts_at_ns, best), (release_ns, rank)| {
            let at = if rank.preempts(&running) { release_ns } else { NEVER };
            let released = if release_ns <= at_ns { rank } else { NO_RANK };
            (preempts_at_ns.min(at), best.min(released))
        });
    Rival { preempts_at_ns, best: (best.key != NEVER).then_some(best) }
}

/// The better of the best domain so far and `domain`, whose rank is `rank`.
#[inline]
pub fn better<D>(best: Option<(Rank, D)>, rank: Option<Rank>, domain: D) -> Option<(Rank, D)> {
    match (best, rank) {
        (Some((least, of)), Some(rank)) if least <= rank => Some((least, of)),
        (_, Some(rank)) => Some((rank, domain)),
        (best, None) => best,
    }
}

/// What comes next, by the rank of the domain that asks and by the best of the others.
#[inline]
pub fn next<D>(own: Option<Rank>, other: Option<(Rank, D)>) -> Next<D> {
    match (own, other) {
        (Some(own), Some((other, _))) if own < other => Next::Own,
        (_, Some((_, domain))) => Next::Other(domain),
        (Some(_), None) => Next::Own,
        (None, None) => Next::Nothing,
    }
}
