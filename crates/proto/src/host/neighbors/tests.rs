use super::*;
use core::net::Ipv4Addr;
use proptest::prelude::*;

const A: LinkAddress = [2, 0, 0, 0, 0, 1];
const B: LinkAddress = [2, 0, 0, 0, 0, 2];

#[expect(clippy::cast_possible_truncation, reason = "a small number")]
const MAX: u32 = NEIGHBORS_MAX as u32;

fn ip(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// All requests that are due: the last part of the address, and whether one device alone is asked.
fn asked(all: &mut Neighbors, now: Instant) -> Vec<(IpAddr, bool)> {
    let next = || all.next_request(now).map(|request| (request.asked, request.link.is_some()));
    std::iter::from_fn(next).collect()
}

/// A table in which the neighbor 1 has answered at `ms(0)`.
fn reachable() -> Neighbors {
    let mut all = Neighbors::new(7);
    assert_eq!(all.resolve(ip(1), ms(0)), Err(RouteError::Resolving));
    assert_eq!(asked(&mut all, ms(0)).len(), 1);
    all.replied(ip(1), A, ms(0));
    all
}

#[test]
fn three_requests_a_second_apart_then_the_neighbor_is_unreachable_for_three_seconds() {
    let mut all = Neighbors::new(7);
    let mut times = Vec::new();
    for now in (0..9_000).step_by(100) {
        let expected = match now {
            3_000..6_000 => RouteError::Unreachable,
            _ => RouteError::Resolving,
        };
        times.extend(asked(&mut all, ms(now)).iter().map(|_| now));
        assert_eq!(all.resolve(ip(1), ms(now)), Err(expected), "{now}");
        times.extend(asked(&mut all, ms(now)).iter().map(|_| now));
        assert!(all.wake() > ms(now));
    }
    assert_eq!(times, [0, 1_000, 2_000, 6_000, 7_000, 8_000]);
    assert_eq!(all.failed, 1);
}

#[test]
fn an_answer_makes_a_neighbor_reachable_for_15_to_45_seconds() {
    let mut all = reachable();
    assert_eq!(all.resolve(ip(1), ms(15_000)), Ok(A));
    assert!(matches!(all.entries[0].state, State::Reachable { .. }));
    // Long after, packets go on. Five seconds later three requests go to the device alone.
    assert_eq!(all.resolve(ip(1), ms(45_001)), Ok(A));
    assert_eq!(asked(&mut all, ms(50_000)), []);
    for second in 0..3 {
        assert_eq!(asked(&mut all, ms(50_001 + second * 1_000)), [(ip(1), true)]);
        assert_eq!(all.resolve(ip(1), ms(50_001 + second * 1_000)), Ok(A));
    }
    assert_eq!(asked(&mut all, ms(53_001)), []);
    // All are asked, because the address may have moved.
    assert_eq!(all.resolve(ip(1), ms(53_001)), Err(RouteError::Resolving));
    assert_eq!(asked(&mut all, ms(53_001)), [(ip(1), false)]);
    all.replied(ip(1), B, ms(53_002));
    assert_eq!(all.resolve(ip(1), ms(53_002)), Ok(B));
}

#[test]
fn an_answer_to_a_poll_ends_it_and_an_idle_neighbor_is_not_polled() {
    let mut all = reachable();
    assert_eq!(asked(&mut all, ms(500_000)), []);
    assert_eq!(all.resolve(ip(1), ms(500_000)), Ok(A));
    assert_eq!(asked(&mut all, ms(505_000)), [(ip(1), true)]);
    all.replied(ip(1), A, ms(505_001));
    assert_eq!(asked(&mut all, ms(510_000)), []);
    assert_eq!(all.wake(), Instant::FAR);
}

#[test]
fn a_stated_link_address_is_used_but_is_no_answer() {
    let mut all = reachable();
    // The same one again changes nothing.
    all.stated(ip(1), A, false, ms(1));
    assert!(matches!(all.entries[0].state, State::Reachable { .. }));
    all.stated(ip(1), B, false, ms(1));
    assert_eq!(all.entries[0].state, State::Stale);
    assert_eq!(all.resolve(ip(1), ms(2)), Ok(B));
    // A reply without a request is no answer either: the delay has not ended.
    all.replied(ip(1), A, ms(3));
    assert_eq!(all.entries[0].state, State::Stale);
    // While all are asked, whatever the neighbor says is news.
    assert_eq!(all.resolve(ip(2), ms(3)), Err(RouteError::Resolving));
    all.stated(ip(2), B, false, ms(4));
    assert_eq!(all.resolve(ip(2), ms(5)), Ok(B));
}

#[test]
fn only_who_is_asked_or_asks_us_gets_an_entry() {
    let mut all = Neighbors::new(7);
    all.stated(ip(1), A, false, ms(0));
    all.replied(ip(1), A, ms(0));
    all.advertised(ip(1), Some(A), (true, true), ms(0));
    assert!(all.entries.is_empty());
    all.stated(ip(1), A, true, ms(0));
    assert_eq!(all.resolve(ip(1), ms(0)), Ok(A));
}

/// RFC 4861 §7.2.5.
#[test]
fn advertisements_follow_their_flags() {
    let now = ms(1);
    let state = |link, flags, begin: fn() -> Neighbors| {
        let mut all = begin();
        all.advertised(ip(1), link, flags, now);
        let entry = &all.entries[0];
        (entry.link, entry.state)
    };
    let is_reachable = |state| matches!(state, State::Reachable { .. });
    let incomplete = || {
        let mut all = Neighbors::new(7);
        assert_eq!(all.resolve(ip(1), ms(0)), Err(RouteError::Resolving));
        all
    };
    // Without a link address nothing is known.
    assert!(matches!(state(None, (true, true), incomplete).1, State::Incomplete { .. }));
    for is_override in [false, true] {
        let (link, found) = state(Some(A), (true, is_override), incomplete);
        assert!(link == A && is_reachable(found));
        assert_eq!(state(Some(A), (false, is_override), incomplete), (A, State::Stale));
    }
    let stale = || {
        let mut all = reachable();
        all.entries[0].state = State::Stale;
        all
    };
    // Another link address without override: the known one is doubted, and kept.
    assert_eq!(state(Some(B), (true, false), reachable), (A, State::Stale));
    assert_eq!(state(Some(B), (true, false), stale), (A, State::Stale));
    let (link, found) = state(Some(B), (true, true), reachable);
    assert!(link == B && is_reachable(found));
    assert_eq!(state(Some(B), (false, true), reachable), (B, State::Stale));
    // The same one, or none.
    for link in [Some(A), None] {
        let (_, found) = state(link, (true, false), stale);
        assert!(is_reachable(found));
        assert_eq!(state(link, (false, true), stale), (A, State::Stale));
        let (_, found) = state(link, (false, true), reachable);
        assert!(is_reachable(found));
    }
}

#[test]
fn a_static_entry_stays() {
    let mut all = reachable();
    for address in [ip(1), ip(2)] {
        all.set_static(address, B).unwrap();
        all.stated(address, A, true, ms(1));
        all.replied(address, A, ms(1));
        all.advertised(address, Some(A), (true, true), ms(1));
        assert_eq!(all.resolve(address, ms(1_000_000)), Ok(B));
    }
    assert_eq!(asked(&mut all, ms(2_000_000)), []);
    for number in 3..=MAX {
        all.set_static(ip(number), B).unwrap();
    }
    assert_eq!(all.set_static(ip(9_999), B), Err(NeighborError::Full));
    assert_eq!(all.resolve(ip(9_999), ms(0)), Err(RouteError::Full));
}

#[test]
fn peers_do_not_evict_what_is_in_use() {
    let mut all = reachable();
    for number in 2..10 * MAX {
        all.stated(ip(number), B, true, ms(1_000 + u64::from(number)));
    }
    // Ten minutes later as well: peers never evict what a packet used.
    for number in 2..10 * MAX {
        all.stated(ip(20_000 + number), B, true, ms(600_000));
    }
    assert_eq!(all.entries.len(), NEIGHBORS_MAX);
    assert_eq!((all.resolve(ip(1), ms(600_000)), all.refused), (Ok(A), 0));
    // Those that a packet uses stay, and the others give way to them.
    for number in 1..MAX {
        let (address, now) = (ip(50_000 + number), ms(601_000 + 10 * u64::from(number)));
        assert_eq!(all.resolve(address, now), Err(RouteError::Resolving));
        all.stated(address, B, false, now);
    }
    let used = |all: &Neighbors| all.entries.iter().filter(|entry| entry.is_used).count();
    assert_eq!((all.entries.len(), used(&all)), (NEIGHBORS_MAX, NEIGHBORS_MAX));
    assert_eq!(all.resolve(ip(7), ms(604_000)), Err(RouteError::Full));
    all.stated(ip(9_999), B, true, ms(2_000_000));
    assert!(all.place(ip(9_999)).is_err() && all.refused == 2);
    // 30 s after its last packet one of them does.
    assert_eq!(all.resolve(ip(7), ms(631_009)), Err(RouteError::Full));
    assert_eq!(all.resolve(ip(7), ms(631_010)), Err(RouteError::Resolving));
    assert!(all.place(ip(50_001)).is_err(), "the one that was used longest ago");
    assert!(all.place(ip(1)).is_ok(), "one that is about to be asked");
}

#[test]
fn addresses_that_nobody_has_take_half_of_the_table() {
    let mut all = Neighbors::new(7);
    let mut requests = 0;
    let found: Vec<_> = (0..MAX).map(|number| all.resolve(ip(number), ms(0))).collect();
    assert_eq!(found.iter().filter(|it| **it == Err(RouteError::Full)).count(), 128);
    all.stated(ip(5_000), A, true, ms(1));
    assert_eq!(all.resolve(ip(5_000), ms(1)), Ok(A));
    // The requests of a flood are bounded: one for each place in a second.
    for number in 0..60_000 {
        let now = ms(number / 10);
        let address = ip(10_000 + u32::try_from(number).unwrap());
        let _full_most_times = all.resolve(address, now);
        requests += asked(&mut all, now).len();
    }
    assert!((384..=128 * 7).contains(&requests), "{requests}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Resolve(u32),
    Stated(u32, bool),
    Replied(u32),
    Advertised(u32, Option<u8>, bool, bool),
    Static(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..400u32;
    prop_oneof![
        6 => number().prop_map(Step::Resolve),
        2 => (number(), any::<bool>()).prop_map(|(number, asks)| Step::Stated(number, asks)),
        2 => number().prop_map(Step::Replied),
        2 => (number(), any::<Option<u8>>(), any::<bool>(), any::<bool>())
            .prop_map(|(number, link, s, o)| Step::Advertised(number, link, s, o)),
        1 => (0..20u32).prop_map(Step::Static),
        3 => (1..40_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The table keeps its order and its memory, no address is asked more than once a second, and
    /// `wake` is never later than a request.
    #[test]
    fn any_calls_keep_the_bounds(steps in prop::collection::vec(step(), 1..1500)) {
        let mut all = Neighbors::new(7);
        let mut last = std::collections::HashMap::new();
        let mut now = ms(0);
        for step in steps {
            match step {
                Step::Resolve(number) => { let _any = all.resolve(ip(number), now); }
                Step::Stated(number, asks) => all.stated(ip(number), A, asks, now),
                Step::Replied(number) => all.replied(ip(number), B, now),
                Step::Advertised(number, link, is_solicited, is_override) => {
                    let link = link.map(|last| [2, 0, 0, 0, 0, last]);
                    all.advertised(ip(number), link, (is_solicited, is_override), now);
                }
                Step::Static(number) => { let _full = all.set_static(ip(number), A); }
                Step::Wait(ms) => now += Span::from_millis(ms),
            }
            let is_early = all.wake() > now;
            let requests = asked(&mut all, now);
            prop_assert!(!is_early || requests.is_empty());
            prop_assert!(all.wake() > now);
            for (address, _) in requests {
                let before = last.insert(address, now);
                prop_assert!(before.is_none_or(|before| now.since(before) >= REQUEST_INTERVAL));
            }
            prop_assert!(all.entries.is_sorted_by(|a, b| a.address < b.address));
            prop_assert_eq!(all.entries.capacity(), NEIGHBORS_MAX);
            let lacking = all.entries.iter().filter(|entry| entry.lacks_link()).count();
            prop_assert!(lacking <= NEIGHBORS_MAX / 2);
        }
    }
}
