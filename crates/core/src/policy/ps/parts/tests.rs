//! The parts by claims, and the flattened groups against the tree of groups.

use super::*;
use proptest::prelude::*;

fn share(ppm: u32) -> Claim {
    Claim::Share(Share::from_ppm(ppm).unwrap())
}

fn alone(domain: u32, claim: Claim) -> DomainClaim {
    DomainClaim { domain, group: None, claim }
}

fn inside(domain: u32, group: u16, weight: u32) -> DomainClaim {
    DomainClaim { domain, group: Some(GroupId(group)), claim: Claim::Weight(weight) }
}

fn in_ppm_of(parts: &Parts) -> Vec<(u32, u32)> {
    parts.of_domains.iter().map(|(domain, part)| (*domain, part.ppm())).collect()
}

fn groups_in_ppm(parts: &Parts) -> Vec<(u32, u16, u32)> {
    parts.of_groups.iter().map(|(domain, group, part)| (*domain, group.0, part.ppm())).collect()
}

#[test]
fn a_domain_has_its_shares_and_its_part_of_what_they_leave() {
    let weight = Claim::Weight;
    let claims = [
        alone(1, share(450_000)),
        alone(2, share(100_000)),
        alone(2, weight(1)),
        alone(4, weight(2)),
    ];
    let parts = Parts::new(&[], &claims, 0);
    assert_eq!(in_ppm_of(&parts), [(1, 450_000), (2, 250_000), (4, 300_000)]);
    assert_eq!((parts.of_groups, parts.kept), (vec![], None));
    // What is kept comes before the weights, and after the shares.
    let parts = Parts::new(&[], &claims, 90_000);
    assert_eq!(in_ppm_of(&parts), [(1, 450_000), (2, 220_000), (4, 240_000)]);
    assert_eq!(parts.kept.map(Share::ppm), Some(90_000));
    // Nothing is left for weights: they have the smallest share.
    let parts = Parts::new(&[], &[alone(1, share(1_000_000)), alone(2, weight(5))], 100_000);
    assert_eq!((in_ppm_of(&parts), parts.kept), (vec![(1, 1_000_000), (2, 1)], None));
}

#[test]
fn domains_divide_a_group_by_the_weights_of_their_members() {
    let groups = [Group { claim: share(400_000), parent: None }];
    let claims = [inside(1, 0, 1), inside(2, 0, 3), alone(3, Claim::Weight(1))];
    let parts = Parts::new(&groups, &claims, 0);
    assert_eq!(in_ppm_of(&parts), [(1, 100_000), (2, 300_000), (3, 600_000)]);
    assert_eq!(groups_in_ppm(&parts), [(1, 0, 250_000), (2, 0, 750_000)]);
    // A member leaves: the other has the group.
    let parts = Parts::new(&groups, &claims[1..], 0);
    assert_eq!(in_ppm_of(&parts), [(2, 400_000), (3, 600_000)]);
    assert_eq!(groups_in_ppm(&parts), [(2, 0, 1_000_000)]);
    // A group without a member claims nothing.
    assert_eq!(in_ppm_of(&Parts::new(&groups, &claims[2..], 0)), [(3, 1_000_000)]);
}

/// The inner group stands before the outer one: the order does not matter here.
#[test]
fn a_group_inside_a_group_is_a_member_in_each_of_its_domains() {
    let groups = [
        Group { claim: Claim::Weight(2), parent: Some(GroupId(1)) },
        Group { claim: Claim::Weight(1), parent: None },
    ];
    let claims = [inside(1, 0, 1), inside(2, 0, 1), inside(2, 1, 2), alone(3, Claim::Weight(3))];
    let parts = Parts::new(&groups, &claims, 0);
    // The outer group has a quarter, the inner one half of that.
    assert_eq!(in_ppm_of(&parts), [(1, 62_500), (2, 187_500), (3, 750_000)]);
    let expected = [(1, 0, 500_000), (1, 1, 250_000), (2, 0, 500_000), (2, 1, 750_000)];
    assert_eq!(groups_in_ppm(&parts), expected);
}

/// What the tree of all groups gives to each claim if all are busy.
fn by_tree(groups: &[Group], claims: &[DomainClaim]) -> Vec<f64> {
    let is_in = |group: usize, mut at: Option<GroupId>| {
        while let Some(GroupId(id)) = at {
            if usize::from(id) == group {
                return true;
            }
            at = groups[usize::from(id)].parent;
        }
        false
    };
    let is_used = |group: usize| claims.iter().any(|claim| is_in(group, claim.group));
    let clients = |parent: Option<GroupId>| -> Vec<Claim> {
        let inner =
            groups.iter().enumerate().filter(|(at, of)| of.parent == parent && is_used(*at));
        let own = claims.iter().filter(|claim| claim.group == parent);
        inner.map(|(_, of)| of.claim).chain(own.map(|claim| claim.claim)).collect()
    };
    let fraction = |claim: Claim, parent: Option<GroupId>| {
        let all = clients(parent);
        let shares: f64 = all
            .iter()
            .map(|of| match of {
                Claim::Share(share) => share.as_f64(),
                Claim::Weight(_) => 0.0,
            })
            .sum();
        let weights: f64 = all
            .iter()
            .map(|of| match of {
                Claim::Share(_) => 0.0,
                Claim::Weight(weight) => f64::from(*weight),
            })
            .sum();
        match claim {
            Claim::Share(share) => share.as_f64(),
            Claim::Weight(weight) => (1.0 - shares) * f64::from(weight) / weights,
        }
    };
    claims
        .iter()
        .map(|DomainClaim { group, claim, .. }| {
            let mut part = fraction(*claim, *group);
            let mut at = *group;
            while let Some(GroupId(id)) = at {
                let Group { claim, parent } = groups[usize::from(id)];
                part *= fraction(claim, parent);
                at = parent;
            }
            part
        })
        .collect()
}

/// What the scheduler of each domain gives to each claim if all are busy: the domain has its part,
/// and a group in it has the domain's part of what the group claims.
fn by_domains(groups: &[Group], claims: &[DomainClaim]) -> Vec<f64> {
    let parts = Parts::new(groups, claims, 0);
    let part_of_group = |domain: u32, group: usize| {
        let mut all = parts.of_groups.iter();
        let found = all.find(|(of, id, _)| *of == domain && usize::from(id.0) == group);
        found.map_or(0.0, |(_, _, part)| part.as_f64())
    };
    let numbers = |claim: Claim| match claim {
        Claim::Share(share) => (share.as_f64(), 0.0),
        Claim::Weight(weight) => (0.0, f64::from(weight)),
    };
    let mut found = Vec::new();
    for DomainClaim { domain, group, claim } in claims {
        // Shares and weights among the clients of an account of the domain.
        let sums = |parent: Option<GroupId>| {
            let own = claims.iter().filter(|of| of.domain == *domain && of.group == parent);
            let own = own.map(|of| numbers(of.claim));
            let inner = groups.iter().enumerate().filter(|(_, of)| of.parent == parent);
            let inner = inner.map(|(at, of)| {
                let (share, weight) = numbers(of.claim);
                let part = part_of_group(*domain, at);
                (share * part, weight * part)
            });
            own.chain(inner).fold((0.0, 0.0), |(a, b), (share, weight)| (a + share, b + weight))
        };
        let whole = parts.of_domains.iter().find(|(of, _)| of == domain).unwrap().1.as_f64();
        // From the outermost account inwards.
        let mut path = vec![(*claim, 1.0, *group)];
        let mut at = *group;
        while let Some(GroupId(id)) = at {
            let of = groups[usize::from(id)];
            path.push((of.claim, part_of_group(*domain, usize::from(id)), of.parent));
            at = of.parent;
        }
        let mut have = whole;
        for (claim, part, parent) in path.into_iter().rev() {
            let (shares, weights) = sums(parent);
            have = match claim {
                Claim::Share(share) => share.as_f64() * part,
                Claim::Weight(weight) => {
                    let left = if parent.is_none() { whole - shares } else { have };
                    left * f64::from(weight) * part / weights
                }
            };
        }
        found.push(have);
    }
    found
}

fn some_groups() -> impl Strategy<Value = Vec<Group>> {
    let one = (any::<u16>(), any::<bool>(), 1u32..9, 10_000u32..80_000);
    prop::collection::vec(one, 0..6).prop_map(|drawn| {
        let mut groups: Vec<Group> = Vec::new();
        for (parent, is_alone, weight, ppm) in drawn {
            let count = u16::try_from(groups.len()).unwrap();
            let parent = (count > 0 && !is_alone).then(|| GroupId(parent % count));
            let is_share = parent.is_none() && weight % 2 == 0;
            let claim = if is_share { share(ppm) } else { Claim::Weight(weight) };
            groups.push(Group { claim, parent });
        }
        groups
    })
}

fn some_claims(groups: u16) -> impl Strategy<Value = Vec<DomainClaim>> {
    let one = (1u32..6, 0..=groups, 1u32..9, 5_000u32..20_000, any::<bool>());
    prop::collection::vec(one, 1..16).prop_map(move |drawn| {
        let each = drawn.into_iter().map(move |(domain, group, weight, ppm, is_share)| {
            if group < groups {
                inside(domain, group, weight)
            } else {
                alone(domain, if is_share { share(ppm) } else { Claim::Weight(weight) })
            }
        });
        // One claim takes what shares leave.
        each.chain([alone(1, Claim::Weight(1))]).collect()
    })
}

fn some_set() -> impl Strategy<Value = (Vec<Group>, Vec<DomainClaim>)> {
    some_groups().prop_flat_map(|groups| {
        let count = u16::try_from(groups.len()).unwrap();
        (Just(groups), some_claims(count))
    })
}

proptest! {
    #[test]
    fn the_flattened_groups_give_the_parts_of_the_tree((groups, claims) in some_set()) {
        let tree = by_tree(&groups, &claims);
        let flat = by_domains(&groups, &claims);
        for ((claim, expected), found) in claims.iter().zip(tree).zip(flat) {
            // Millionths of the CPU and of a group, rounded at each level.
            let off = (found - expected).abs();
            prop_assert!(off <= 1e-5, "{claim:?} has {found}, expected {expected}");
        }
        let parts = Parts::new(&groups, &claims, 0);
        let all: u64 = parts.of_domains.iter().map(|(_, part)| u64::from(part.ppm())).sum();
        prop_assert!((999_990..=1_000_000).contains(&all), "{all}");
    }
}
