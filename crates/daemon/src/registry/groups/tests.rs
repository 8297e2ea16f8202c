//! Groups of several domains: parts, conflicts, admission and quotas, without processes.

use upcall_core::admission::Reason;
use upcall_core::discipline::{PS, RMDP};
use upcall_core::policy::ps::GROUPS_MAX;
use upcall_core::time::Instant;
use upcall_shm::kernel_area;
use upcall_shm::wire::Need;

use super::*;
use crate::registry::tests::platform;
use crate::registry::{Owner, Parts, Quota};

const _: () = assert!(GROUPS_MAX == kernel_area::GROUPS_MAX);

fn registry(discipline: &'static upcall_core::discipline::Discipline, ppm: u64) -> Registry {
    let platform = platform(vec![1, 2], Share::from_ppm(900_000).unwrap());
    Registry::new(discipline, platform, Quota { domains_max: 8, share_max_ppm: ppm })
}

/// Domains of user 1 under PS.
fn domains<const N: usize>(registry: &mut Registry) -> [u32; N] {
    let policy = "ps with a time quantum of 1 ms";
    [(); N].map(|()| registry.attach(Owner { uid: 1, pid: 7 }, "d", policy).unwrap())
}

fn member(group: Option<u32>, weight: u32) -> Need {
    Need {
        period_ns: 10_000_000,
        deadline_ns: 10_000_000,
        batch: 1,
        quantum: 1,
        pdu_cost_ns: 100_000,
        weight,
        group,
        only_cpu: Some(1),
        ..Need::default()
    }
}

fn percent(percent: u32) -> Portion {
    Portion::Share(percent * 10_000)
}

/// A domain, the number of its group, and the part in millionths.
type OfGroup = (u32, usize, u32);

/// The parts of CPU 1 by domains, and those of groups.
fn parts(registry: &Registry) -> (Vec<(u32, u32)>, Vec<OfGroup>) {
    let Parts { of_domains, of_groups, .. } = registry.parts(1).unwrap();
    let of_domains = of_domains.iter().map(|(of, part)| (of.number(), part.ppm()));
    let of_groups = of_groups.iter().map(|(of, group, part)| (of.number(), *group, part.ppm()));
    (of_domains.collect(), of_groups.collect())
}

#[test]
fn groups_of_one_name_are_one_group_and_parts_follow_members() {
    let mut registry = registry(&PS, 2_000_000);
    let [one, two, other] = domains(&mut registry);
    registry.define_group(one, "video", (None, percent(40))).unwrap();
    // Another domain may number the groups in another way.
    registry.define_group(two, "sound", (None, Portion::Weight(9))).unwrap();
    registry.define_group(two, "video", (None, percent(40))).unwrap();
    registry.create(one, "a", &member(Some(0), 1), false).unwrap();
    let second = registry.create(two, "b", &member(Some(1), 3), false).unwrap();
    registry.create(other, "c", &member(None, 1), false).unwrap();
    let all = vec![(1, 100_000), (2, 300_000), (3, 500_000)];
    assert_eq!(parts(&registry), (all, vec![(1, 0, 250_000), (2, 1, 750_000)]));
    registry.reweigh(two, second.order, Portion::Weight(1)).unwrap();
    assert_eq!(parts(&registry).1, [(1, 0, 500_000), (2, 1, 500_000)]);
    assert!(registry.reweigh(two, second.order, percent(10)).is_err(), "members have weights");
    // A group without a name is of its domain alone, and so is an unknown one.
    registry.define_group(other, "", (None, Portion::Weight(1))).unwrap();
    registry.create(other, "d", &member(Some(0), 1), false).unwrap();
    registry.create(other, "e", &member(Some(5), 1), false).unwrap();
    assert_eq!(parts(&registry).1[2..], [(3, 0, 1_000_000)]);
    // A domain that ends leaves its part to the group.
    registry.detach(two, Instant::ZERO);
    let (of_domains, of_groups) = parts(&registry);
    assert_eq!((of_domains[0], of_groups[0]), ((1, 400_000), (1, 0, 1_000_000)));
    registry.detach(one, Instant::ZERO);
    assert_eq!(parts(&registry).0, [(3, 900_000)]);
}

#[test]
fn domains_that_say_different_things_of_a_group_are_refused() {
    let mut registry = registry(&PS, 2_000_000);
    let [one, two] = domains(&mut registry);
    registry.define_group(one, "outer", (None, percent(40))).unwrap();
    registry.define_group(one, "inner", (Some(0), Portion::Weight(2))).unwrap();
    registry.define_group(two, "outer", (None, percent(30))).unwrap();
    registry.define_group(two, "inner", (None, Portion::Weight(2))).unwrap();
    // Nobody is in the groups of the first domain yet.
    let first = registry.create(two, "a", &member(Some(0), 1), false).unwrap();
    let refused = registry.create(one, "b", &member(Some(1), 1), false).unwrap_err();
    let reason = "group `outer` has a share of 30 % in another process of the user, found a share \
                  of 40 %";
    assert_eq!(refused.to_string(), reason);
    registry.close(two, first.order, Instant::ZERO);
    registry.create(one, "b", &member(Some(1), 1), false).unwrap();
    let refused = registry.create(two, "c", &member(Some(1), 1), false).unwrap_err();
    let PlaceError::Group(GroupConflict { name, found, expected }) = &refused else {
        panic!("{refused}")
    };
    assert_eq!((&name[..], &found[..]), ("inner", "no group around it"));
    assert_eq!(expected, "group `outer` around it");
    // Another user has groups of its own.
    let policy = "ps with a time quantum of 1 ms";
    let other = registry.attach(Owner { uid: 2, pid: 8 }, "d", policy).unwrap();
    registry.define_group(other, "outer", (None, percent(30))).unwrap();
    let need = Need { only_cpu: Some(2), ..member(Some(0), 1) };
    registry.create(other, "d", &need, false).unwrap();
}

#[test]
fn the_share_of_a_group_counts_once_on_each_cpu() {
    let mut registry = registry(&PS, 2_000_000);
    let [one, two] = domains(&mut registry);
    for domain in [one, two] {
        registry.define_group(domain, "video", (None, percent(60))).unwrap();
        registry.create(domain, "a", &member(Some(0), 1), false).unwrap();
    }
    let share = Need { share_ppm: 400_000, ..member(None, 0) };
    let refused = registry.create(two, "b", &share, false).unwrap_err();
    let PlaceError::Refused(refusal) = &refused else { panic!("{refused}") };
    assert!(matches!(refusal.reason, Reason::OverLimit { .. }), "{refusal}");
    registry.create(two, "b", &Need { share_ppm: 300_000, ..share }, false).unwrap();
    let loads = registry.reservations().load();
    assert_eq!(loads.iter().map(|load| load.utilization).collect::<Vec<_>>(), [0.9, 0.0]);
}

#[test]
fn the_quota_of_a_user_counts_groups() {
    let mut registry = registry(&PS, 500_000);
    let [one, two] = domains(&mut registry);
    for domain in [one, two] {
        registry.define_group(domain, "video", (None, percent(40))).unwrap();
        registry.define_group(domain, "guest", (None, percent(20))).unwrap();
    }
    registry.create(one, "a", &member(Some(0), 1), false).unwrap();
    registry.create(two, "b", &member(Some(0), 1), false).unwrap();
    let refused = registry.create(two, "c", &member(Some(1), 1), false).unwrap_err();
    assert_eq!(refused, PlaceError::Quota { found_ppm: 600_000, share_max_ppm: 500_000 });
    // Nothing is left of it, and there is room on no other CPU either.
    let before = parts(&registry);
    let elsewhere = Need { only_cpu: Some(2), ..member(Some(0), 1) };
    assert!(registry.create(two, "d", &elsewhere, false).is_err());
    assert_eq!((parts(&registry), before.1.len()), (before, 2));
    registry.create(two, "e", &member(Some(0), 1), false).unwrap();
}

#[test]
fn groups_that_do_not_fit_are_not_defined() {
    let mut registry = registry(&PS, 500_000);
    let [one] = domains(&mut registry);
    let mut define =
        |name: &str, parent, portion| registry.define_group(one, name, (parent, portion));
    assert_eq!(define("a", None, Portion::Weight(0)), Err(DefineError::Portion));
    assert_eq!(define("a", None, Portion::Share(1_000_001)), Err(DefineError::Portion));
    let error = define("a", Some(0), Portion::Weight(1)).unwrap_err();
    assert_eq!(error, DefineError::Group(GroupError::Parent { group: 0 }));
    assert!(define("a", Some(u32::MAX), Portion::Weight(1)).is_err());
    define("a", None, Portion::Weight(1)).unwrap();
    let error = define("b", Some(0), percent(1)).unwrap_err();
    assert_eq!(error, DefineError::Group(GroupError::ShareInside { group: 1 }));
    let error = define("a", None, Portion::Weight(1)).unwrap_err();
    assert_eq!(error, DefineError::Group(GroupError::Name { group: 1 }));
    for _ in 1..GROUPS_MAX {
        define("", Some(0), Portion::Weight(1)).unwrap();
    }
    let error = define("", None, Portion::Weight(1)).unwrap_err();
    assert_eq!(error, DefineError::Group(GroupError::TooMany(GROUPS_MAX + 1)));
    assert_eq!(registry.define_group(9, "a", (None, percent(1))), Err(DefineError::Gone));
}

#[test]
fn under_another_policy_groups_mean_nothing() {
    let mut registry = registry(&RMDP, 2_000_000);
    let number = registry.attach(Owner { uid: 1, pid: 7 }, "d", "rmdp").unwrap();
    registry.define_group(number, "video", (None, percent(99))).unwrap();
    registry.create(number, "a", &member(Some(0), 1), false).unwrap();
    assert_eq!(registry.parts(1), None);
}

/// Each change of a claim computes the parts of all groups, so one user may not have any number.
#[test]
fn a_user_has_a_limited_number_of_groups() {
    let mut registry = registry(&PS, 1_000_000_000);
    let mine = domains::<8>(&mut registry);
    let define = |registry: &mut Registry, domain| {
        registry.define_group(domain, "", (None, Portion::Weight(1))).unwrap();
    };
    for &domain in &mine[..7] {
        for group in 0..40 {
            define(&mut registry, domain);
            let created = registry.create(domain, "x", &member(Some(group), 1), false);
            let known = 40 * (domain - mine[0]) + group;
            match created {
                Ok(_) => assert!(known < 256, "{known}"),
                Err(error) => {
                    assert_eq!((error, known >= 256), (PlaceError::GroupsUsedUp, true), "{known}");
                }
            }
        }
    }
    // What ends makes room.
    registry.detach(mine[0], Instant::ZERO);
    define(&mut registry, mine[7]);
    registry.create(mine[7], "x", &member(Some(0), 1), false).unwrap();
}
