//! When the watchdog looks at a CPU between two ticks: a function of times, without a clock.
//!
//! A domain that never yields must be found soon after it has used its limit, and no look may be
//! spent on a CPU for which no second domain waits. Domains publish their releases ahead. So the
//! moment of the next look follows from the present state, although the watchdog learns of no
//! hand-off:
//!
//! ```text
//!   holder          last response ----- limit ----->|
//!   another domain          release (it waits) --- limit of the holder --->| look
//!   a domain without the turn      may get it now, or at its release --- its limit --->| look
//! ```
//!
//! The later of the holder's two moments counts, and the earliest look of all domains. So there is
//! at most one look for each of the shortest limits, and none while at most one domain has work. If
//! several users have domains, a lone holder is looked at once for each of its limits (`away`).

use upcall_core::time::{Instant, Span};

/// The shortest time between two looks, and between the two looks that show a runaway.
pub(super) const LOOK_MIN: Span = Span::from_micros(100);

/// A domain that has the turn, or that has or will have work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contender {
    pub(super) is_holder: bool,
    /// The holder: its last response. Another domain: when its work is ready; any past moment if it
    /// is ready now.
    pub(super) from: Instant,
    /// How long it may run without a response.
    pub(super) limit: Span,
}

impl Contender {
    /// From when on it waits for the CPU. The holder always wants it.
    fn waits_from(&self) -> Instant {
        if self.is_holder { Instant::ZERO } else { self.from }
    }
}

/// The next look at a CPU; `None` if no look is needed before the next tick. O(n).
pub(super) fn next_look(now: Instant, contenders: &[Contender]) -> Option<Instant> {
    let (mut first, mut second) = (Instant::FAR, Instant::FAR);
    for at in contenders.iter().map(Contender::waits_from) {
        second = second.min(first.max(at));
        first = first.min(at);
    }
    let look_for = |contender: &Contender| {
        let waits_from = contender.waits_from();
        // The earliest of the others.
        let contested = if waits_from == first { second } else { first };
        if contested == Instant::FAR {
            return None;
        }
        let since = if contender.is_holder { contender.from } else { contender.from.max(now) };
        Some(since.max(contested) + contender.limit)
    };
    let earliest = contenders.iter().filter_map(look_for).min();
    earliest.map(|at| at.max(now + LOOK_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);
    const LIMIT: Span = Span::from_micros(1_100);

    fn micros(us: u64) -> Span {
        Span::from_micros(us)
    }

    fn before(us: u64) -> Instant {
        Instant::from_nanos(NOW.as_nanos() - us * 1_000)
    }

    fn holder(from: Instant) -> Contender {
        Contender { is_holder: true, from, limit: LIMIT }
    }

    fn other(from: Instant) -> Contender {
        Contender { is_holder: false, from, limit: LIMIT }
    }

    #[test]
    fn a_cpu_for_which_nobody_else_waits_needs_no_look() {
        assert_eq!(next_look(NOW, &[]), None);
        assert_eq!(next_look(NOW, &[holder(before(9_000))]), None);
        assert_eq!(next_look(NOW, &[other(NOW + LIMIT)]), None);
    }

    #[test]
    fn a_holder_is_looked_at_when_its_limit_has_passed_since_its_response() {
        let waiting = other(before(10_000));
        let looks = [0, 300, 900].map(|us| next_look(NOW, &[holder(before(us)), waiting]));
        assert_eq!(looks, [1_100, 800, 200].map(|us| Some(NOW + micros(us))));
    }

    #[test]
    fn a_holder_has_its_limit_from_the_release_of_the_other_domain() {
        let soon = other(NOW + micros(400));
        assert_eq!(next_look(NOW, &[holder(before(50_000)), soon]), Some(NOW + micros(1_500)));
    }

    #[test]
    fn an_overdue_look_comes_at_once_but_not_without_end() {
        let contenders = [holder(before(5_000)), other(before(5_000))];
        assert_eq!(next_look(NOW, &contenders), Some(NOW + LOOK_MIN));
    }

    #[test]
    fn a_domain_that_may_get_the_turn_next_is_looked_at_after_its_own_limit() {
        let short = Contender { limit: micros(300), ..other(before(1)) };
        let long = Contender { limit: micros(9_000), ..holder(NOW) };
        assert_eq!(next_look(NOW, &[long, short]), Some(NOW + micros(300)));
        // Its work comes later, so its turn does too.
        let later = Contender { from: NOW + micros(2_000), ..short };
        assert_eq!(next_look(NOW, &[long, later]), Some(NOW + micros(2_300)));
    }

    #[test]
    fn two_releases_in_the_future_need_a_look_after_the_later_one() {
        let contenders = [other(NOW + micros(500)), other(NOW + micros(3_000))];
        assert_eq!(next_look(NOW, &contenders), Some(NOW + micros(3_000) + LIMIT));
    }

    /// Whatever the state, the looks of a contested CPU are at least the shortest limit apart if
    /// the holder keeps responding.
    #[test]
    fn the_rate_of_looks_is_bounded_by_the_shortest_limit() {
        let mut now = NOW;
        for _ in 0..100 {
            let look = next_look(now, &[holder(now), other(before(1_000))]).unwrap();
            assert!(look >= now + LIMIT);
            now = look;
        }
    }
}
