//! What an activity requests, and which activity gets the rest. `tests/ps_model.rs` compares every
//! call with a model; `tests/ps_lag.rs` has long runs.

use super::*;
use crate::admission::Share;
use crate::discipline::ps_with_groups;

const fn us(us: u64) -> Span {
    Span::from_micros(us)
}

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

fn share(percent: u32) -> Terms {
    Terms { share: Share::from_ppm(percent * 10_000), ..Terms::default() }
}

fn weight(weight: u32) -> Terms {
    Terms { weight: Some(weight), ..Terms::default() }
}

/// `batch` PDUs of 100 us in 100 ms, preemptible after each.
fn task(batch: u32) -> ActivityParams {
    ActivityParams::new(Span::from_millis(100), us(100)).batch(batch)
}

const JOB: Ready = Ready::new(Instant::ZERO, Instant::FAR);

/// A policy with a quantum of 1 ms, with all activities ready at 0.
fn policy(set: &[(ActivityParams, Terms)]) -> ProportionalShare {
    let mut policy =
        ProportionalShare::new(u32::try_from(set.len()).unwrap(), Span::from_millis(1));
    for (number, (params, terms)) in (0..).zip(set) {
        policy.join(ActivityId(number), params, terms, Instant::ZERO);
        policy.ready(ActivityId(number), JOB, Instant::ZERO);
    }
    policy
}

/// Serves the next activity for `used`; it has more to do.
fn serve(policy: &mut ProportionalShare, now: &mut Instant, used: Span) -> u32 {
    let id = policy.pick(*now).unwrap();
    *now += used;
    policy.ran(id, used, *now);
    policy.resume(id, *now);
    id.0
}

fn quanta(policy: &mut ProportionalShare, count: usize) -> Vec<u32> {
    let mut quanta = vec![0; policy.slots.len()];
    let mut now = at(0);
    for _ in 0..count {
        quanta[serve(policy, &mut now, Span::from_millis(1)) as usize] += 1;
    }
    quanta
}

#[test]
fn shares_are_kept_and_the_rest_goes_by_weight() {
    let big = task(1_000);
    // 20 %, 30 %, and the other half 1 : 4, which is 10 % and 40 %.
    let mut policy =
        policy(&[(big, share(20)), (big, share(30)), (big, weight(1)), (big, weight(4))]);
    assert_eq!(quanta(&mut policy, 1_000), [200, 300, 100, 400]);
}

/// Equation (1) of proportional-share-1998 with `w = f W_a / (1 - F)` gives the same.
#[test]
fn shares_without_computed_weights_match_the_weights_of_the_paper() {
    let big = task(1_000);
    let mut policy =
        policy(&[(big, share(20)), (big, share(30)), (big, weight(3)), (big, weight(2))]);
    let adaptive = 5.0;
    let real_time = [0.2, 0.3].map(|share: f64| share * adaptive / (1.0 - 0.5));
    let total = adaptive + real_time[0] + real_time[1];
    let paper = [real_time[0], real_time[1], 3.0, 2.0].map(|weight| weight / total);
    for (found, expected) in quanta(&mut policy, 1_000).into_iter().zip(paper) {
        assert!((f64::from(found) / 1_000.0 - expected).abs() < 0.002, "{found} {expected}");
    }
}

#[test]
fn adaptive_activities_get_the_rest_of_real_time_activities() {
    let big = task(1_000);
    let mut policy = policy(&[(big, share(20)), (big, share(70)), (big, weight(1))]);
    policy.withdraw(ActivityId(1), at(0));
    assert_eq!(quanta(&mut policy, 1_000), [200, 0, 800]);
}

#[test]
fn with_no_adaptive_activity_shares_grow_in_proportion() {
    let big = task(1_000);
    let mut policy = policy(&[(big, share(10)), (big, share(30))]);
    assert_eq!(quanta(&mut policy, 1_000), [250, 750]);
}

#[test]
fn shares_of_more_than_the_whole_shrink_in_proportion() {
    let big = task(1_000);
    let mut policy = policy(&[(big, share(80)), (big, share(40)), (big, weight(7))]);
    let quanta = quanta(&mut policy, 3_000);
    assert!((1_999..=2_000).contains(&quanta[0]), "{quanta:?}");
    assert!((999..=1_000).contains(&quanta[1]), "{quanta:?}");
}

#[test]
fn a_share_is_free_again_when_its_activity_leaves() {
    let big = task(1_000);
    let mut policy = policy(&[(big, share(20)), (big, share(70)), (big, weight(1))]);
    policy.withdraw(ActivityId(1), at(0));
    policy.leave(ActivityId(1), at(0));
    assert_eq!(policy.tree.shares_ppm(), 200_000);
    policy.join(ActivityId(1), &big, &share(30), at(0));
    policy.ready(ActivityId(1), JOB, at(0));
    assert_eq!(quanta(&mut policy, 1_000), [200, 300, 500]);
}

#[test]
fn the_rest_owes_what_a_leaving_share_used_in_advance() {
    let big = task(1_000);
    let mut policy = policy(&[(big, share(40)), (big, share(50)), (big, weight(1))]);
    let lag =
        |policy: &ProportionalShare| policy.tree.account_lag_ns(REST, None, Span::ZERO).unwrap();
    let mut now = at(0);
    assert_eq!(serve(&mut policy, &mut now, us(1_000)), 1);
    assert_eq!((lag(&policy), policy.lag_ns(ActivityId(1), now)), (100_000, Some(-500_000)));
    policy.withdraw(ActivityId(1), now);
    policy.leave(ActivityId(1), now);
    // The rest forfeits the service by which it was behind.
    assert!((-500_001..=-500_000).contains(&lag(&policy)), "{}", lag(&policy));
}

#[test]
fn the_first_in_the_file_wins_a_tie() {
    let big = task(1_000);
    let terms = [weight(1), share(25), share(25), weight(1)];
    let mut policy = policy(&terms.map(|terms| (big, terms)));
    let mut now = at(0);
    let order = [(); 4].map(|()| serve(&mut policy, &mut now, Span::from_millis(1)));
    // The rest, 50 %, has the earliest deadline twice.
    assert_eq!(order, [0, 1, 2, 3]);
}

#[test]
fn a_request_is_the_expected_rest_of_the_job() {
    let quantum = Span::from_millis(1);
    let mut slot = Slot::new(us(100), quantum, us(700));
    assert_eq!(slot.request(quantum), us(700));
    slot.used = us(600);
    assert_eq!(slot.request(quantum), us(100));
    // Longer than declared: a full quantum.
    slot.used = us(700);
    assert_eq!(slot.request(quantum), us(1_000));
    // Recent jobs took 250 us: whole stretches.
    slot.used = Span::ZERO;
    slot.estimate.observe(us(250), 1);
    assert_eq!(slot.request(quantum), us(300));
    slot.used = us(200);
    assert_eq!(slot.request(quantum), us(100));
    // The job used more than expected, so the declared cost counts.
    slot.used = us(300);
    assert_eq!(slot.request(quantum), us(400));
    slot.used = us(650);
    assert_eq!(slot.request(quantum), us(100));
    // Expected to take more than declared.
    slot.used = us(700);
    (0..100).for_each(|_| slot.estimate.observe(us(5_000), 1));
    assert_eq!(slot.request(quantum), us(1_000));
    slot.used = us(4_750);
    assert_eq!(slot.request(quantum), us(300));
}

#[test]
fn a_request_is_whole_stretches() {
    let quantum = Span::from_millis(1);
    for (stretch, longest) in [(1, 1_000), (300, 900), (500, 1_000), (600, 600), (2_500, 2_500)] {
        let slot = Slot::new(us(stretch), quantum, us(50_000));
        assert_eq!(slot.request(quantum), us(longest));
    }
    let small = Slot::new(us(2_500), Span::from_nanos(1), us(50_000));
    assert_eq!(small.request(Span::from_nanos(1)), us(2_500));
}

#[test]
fn a_handler_is_asked_from_where_another_stretch_might_not_fit() {
    let mut policy = policy(&[(task(50), weight(1)), (task(50), weight(1))]);
    let id = policy.pick(at(0)).unwrap();
    assert_eq!(id, ActivityId(0));
    let after = |us: u64| Instant::from_nanos(us * 1_000 + 1);
    assert_eq!(policy.check_at(id, at(0), Instant::FAR), after(900));
    // A handler may not run past a release without asking.
    assert_eq!(policy.check_at(id, at(0), at(50)), at(50));
    assert!(!policy.gives_way(id, at(0), at(100)));
    assert!(!policy.gives_way(id, at(0), at(900)), "one of 100 us fits");
    assert!(policy.gives_way(id, at(0), Instant::from_nanos(900_001)));
}

#[test]
fn the_quantum_continues_while_no_other_activity_is_due() {
    let mut policy = policy(&[(task(50), weight(1)), (task(50), weight(1))]);
    policy.withdraw(ActivityId(1), at(0));
    let id = policy.pick(at(0)).unwrap();
    assert!(!policy.gives_way(id, at(0), at(1_000)));
    // The next request began there.
    assert!(policy.check_at(id, at(0), Instant::FAR) > at(1_900));
    policy.ready(ActivityId(1), JOB, at(1_500));
    assert!(!policy.gives_way(id, at(0), at(1_900)), "not within the quantum");
    assert!(policy.gives_way(id, at(0), at(2_000)));
    policy.ran(id, us(2_000), at(2_000));
    policy.resume(id, at(2_000));
    assert_eq!(policy.pick(at(2_000)), Some(ActivityId(1)));
    // Half of the 500 us were the other's.
    assert_eq!(policy.lag_ns(ActivityId(1), at(2_000)), Some(250_000));
}

#[test]
fn a_stretch_that_turns_out_longer_is_asked_about_earlier() {
    // Declares 100 us and takes 300.
    let mut policy = policy(&[(task(50), weight(1)), (task(50), weight(1))]);
    let (mut now, mut lags) = (at(0), Vec::new());
    for _ in 0..100 {
        let id = policy.pick(now).unwrap();
        let since = now;
        let stretch = if id.0 == 0 { us(300) } else { us(100) };
        let mut check_at = policy.check_at(id, since, Instant::FAR);
        loop {
            now += stretch;
            if now >= check_at && policy.gives_way(id, since, now) {
                break;
            }
            check_at = policy.check_at(id, since, Instant::FAR);
        }
        policy.ran(id, now.since(since), now);
        policy.resume(id, now);
        lags.push(policy.lag_ns(ActivityId(1), now).unwrap());
    }
    // The first request of 1 ms took 1.2 ms. Now the policy knows that 900 us is the most that
    // fits.
    assert_eq!(lags[0], 600_000);
    assert!(lags[1..].iter().all(|lag| lag.abs() <= 500_000), "{lags:?}");
}

#[test]
fn lag_is_known_in_the_middle_of_a_quantum() {
    let big = task(1_000);
    let mut policy = policy(&[(big, share(50)), (big, weight(1)), (big, weight(1))]);
    assert_eq!(policy.pick(at(0)), Some(ActivityId(0)));
    let lags = |policy: &ProportionalShare, us| {
        [0, 1, 2].map(|number| policy.lag_ns(ActivityId(number), at(us)).unwrap() / 1_000)
    };
    assert_eq!(lags(&policy, 400), [-200, 0, 0]);
    policy.ran(ActivityId(0), us(1_000), at(1_000));
    policy.resume(ActivityId(0), at(1_000));
    assert_eq!(policy.pick(at(1_000)), Some(ActivityId(1)));
    // The rest has got 400 us so far, all for one of its two activities.
    assert_eq!(lags(&policy, 1_400), [-300, -200, 200]);
    assert_eq!(policy.lag_ns(ActivityId(9), at(0)), None);
}

/// A group in the top or in the rest.
fn group(claim: Claim) -> Group {
    Group { claim, parent: None }
}

fn within(parent: u16, weight: u32) -> Group {
    Group { claim: Claim::Weight(weight), parent: Some(GroupId(parent)) }
}

fn share_of(percent: u32) -> Claim {
    Claim::Share(Share::from_ppm(percent * 10_000).unwrap())
}

fn member(of: u16, weight: u32) -> Terms {
    Terms { group: Some(GroupId(of)), weight: Some(weight), ..Terms::default() }
}

/// Like `policy`, with jobs that never end.
fn grouped(groups: &[Group], set: &[Terms]) -> ProportionalShare {
    let capacity = u32::try_from(set.len()).unwrap();
    let mut policy = ProportionalShare::with_groups(capacity, Span::from_millis(1), groups);
    for (number, terms) in (0..).zip(set) {
        policy.join(ActivityId(number), &task(1_000), terms, Instant::ZERO);
        policy.ready(ActivityId(number), JOB, Instant::ZERO);
    }
    policy
}

#[test]
fn a_group_has_its_part_whatever_is_in_it() {
    let groups = [group(share_of(30)), group(Claim::Weight(3))];
    let outside = [share(20), weight(1), member(1, 9)];
    for members in 1..=6 {
        let mut set = outside.to_vec();
        set.extend((1..=members).map(|weight| member(0, weight)));
        let quanta = quanta(&mut grouped(&groups, &set), 1_000);
        // Half of the CPU is the rest's, 1 : 3.
        assert_eq!(quanta[..3], [200, 125, 375]);
        assert_eq!(quanta[3..].iter().sum::<u32>(), 300);
        let weights: u32 = (1..=members).sum();
        for (number, had) in (1..=members).zip(&quanta[3..]) {
            assert!((300 * number / weights).abs_diff(*had) <= 1, "{members}: {quanta:?}");
        }
    }
}

#[test]
fn a_group_in_a_group_shares_what_that_one_gets() {
    // 40 % : one member of weight 1, and a group of weight 3 that has 1 : 2.
    let groups = [group(share_of(40)), within(0, 3)];
    let set = [member(0, 1), member(1, 1), member(1, 2), weight(5)];
    let mut policy = grouped(&groups, &set);
    assert_eq!(quanta(&mut policy, 1_000), [100, 100, 200, 600]);
    assert!(policy.group_lag_ns(GroupId(1), at(1_000_000)).unwrap().abs() <= 1_000_000);
    assert_eq!(policy.group_lag_ns(GroupId(9), at(1_000_000)), None);
}

#[test]
fn a_group_comes_with_its_first_member_and_goes_with_its_last() {
    let groups = [group(share_of(40)), within(0, 1)];
    let set = [share(50), weight(1), member(1, 1), member(1, 1)];
    let mut policy = grouped(&groups, &set);
    assert_eq!(policy.tree.shares_ppm(), 900_000);
    for number in [2, 3] {
        assert_eq!(policy.tree.shares_ppm(), 900_000);
        policy.withdraw(ActivityId(number), at(0));
        policy.leave(ActivityId(number), at(0));
    }
    assert_eq!(policy.tree.shares_ppm(), 500_000);
    assert_eq!(policy.group_lag_ns(GroupId(0), at(0)), None);
    policy.join(ActivityId(3), &task(1_000), &set[3], at(0));
    assert_eq!(policy.tree.shares_ppm(), 900_000);
    // An idle group cedes its part to the ready ones.
    assert_eq!(quanta(&mut policy, 1_000), [500, 500, 0, 0]);
}

#[test]
fn a_group_that_the_policy_does_not_have_counts_as_none() {
    let set = [share(50), Terms { share: None, ..member(7, 3) }, weight(1)];
    assert_eq!(quanta(&mut grouped(&[], &set), 1_000), [500, 375, 125]);
    // In a group a share does not count.
    let both = Terms { share: Share::from_ppm(500_000), ..member(0, 1) };
    let set = [both, member(0, 3), weight(1)];
    assert_eq!(quanta(&mut grouped(&[group(share_of(40))], &set), 1_000), [100, 300, 600]);
}

/// A member of a group has no share of its own, whatever its terms say.
#[test]
fn only_the_messages_of_an_activity_with_its_own_share_are_a_period_apart() {
    let groups = [group(share_of(30))];
    let policy = ProportionalShare::with_groups(1, Span::from_millis(1), &groups);
    let own = Terms { group: None, ..member(0, 1) };
    let gap = |terms| policy.arrival_gap(&task(1), &terms).as_nanos() / 1_000_000;
    assert_eq!(gap(Terms { share: Share::from_ppm(1), ..own }), 100);
    assert_eq!(gap(own), 0);
    assert_eq!(gap(Terms { share: Share::from_ppm(1), ..member(0, 1) }), 0);
}

#[test]
fn invalid_groups_are_refused() {
    let made = |groups: Vec<Group>| ps_with_groups(QUANTUM_DEFAULT, groups).map(|made| made.name);
    assert_eq!(made(vec![group(share_of(1)), within(0, 1), within(1, 1)]), Ok("ps"));
    assert_eq!(made(vec![within(0, 1)]), Err(GroupError::Parent { group: 0 }));
    let inside = Group { claim: share_of(1), parent: Some(GroupId(0)) };
    let refused = made(vec![group(share_of(1)), inside]);
    assert_eq!(refused, Err(GroupError::ShareInside { group: 1 }));
    let many = vec![group(share_of(1)); GROUPS_MAX + 1];
    assert_eq!(made(many), Err(GroupError::TooMany(GROUPS_MAX + 1)));
}

#[test]
fn each_group_has_a_name_of_its_own_or_none_has_one() {
    let named = |names: &[&str]| {
        let made = ps_with_groups(QUANTUM_DEFAULT, vec![group(share_of(1)), within(0, 1)]).unwrap();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        made.naming_groups(names).map(|made| made.group_names)
    };
    assert_eq!(named(&["a", "b"]).unwrap(), ["a", "b"]);
    let long = "x".repeat(65);
    for (names, group) in [
        (&["a", "a"][..], 1),
        (&["", "b"], 0),
        (&["a"], 1),
        (&["a", "b", "c"], 2),
        (&["a", &long], 1),
    ] {
        assert_eq!(named(names), Err(GroupError::Name { group }));
    }
}
