//! Two users' groups on one CPU, on real pages and without threads.

use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::{AREA_BYTES, NEVER, Owner, Peer, RELEASES_MAX, Rank, Slot, SlotState};
use upcall_sys::memfd::{ReadOnlyMapping, SharedMapping};

use super::*;
use crate::group::PROXY_GENERATION;

const AT: Instant = Instant::from_nanos(1_000_000);

fn cpu_state() -> (CpuState, Arc<DomainGroup>, Arc<DomainGroup>) {
    let (cpu_state, group) = (CpuState::new(0), |uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
    let (one, other) = (group(1), group(2));
    cpu_state.set_groups(|groups| groups.extend([one.clone(), other.clone()]));
    (cpu_state, one, other)
}

/// The writing end of a new member's user area.
fn member(group: &DomainGroup, number: u32) -> Owner<SharedMapping> {
    crate::group::tests::member(group, number, crate::group::tests::sleeping_thread()).1
}

/// A writable mapping of the turn page, as a domain of `group` has it.
fn writer(group: &DomainGroup) -> TurnPage<SharedMapping> {
    let fd = group.turn.memory().fd().try_clone_to_owned().unwrap();
    let memory = SharedMapping::from_fd(fd, upcall_shm::turn_page::PAGE_BYTES).unwrap();
    TurnPage::attach(memory).unwrap()
}

#[test]
fn a_turn_counts_only_in_the_group_that_has_the_cpu() {
    let (cpu_state, one, other) = cpu_state();
    let domain = DomainId::new(1).unwrap();
    writer(&other).reset(domain);
    assert_eq!(other.turn.holder(), Ok(domain));
    assert!(!cpu_state.is_held(&other));
    cpu_state.grant(&one);
    assert!(!cpu_state.is_held(&one) && !cpu_state.is_held(&other));
    one.turn.reset(domain);
    assert!(cpu_state.is_held(&one) && !cpu_state.is_held(&other));
    cpu_state.grant(&other);
    assert!(!cpu_state.is_held(&one) && cpu_state.is_held(&other));
    cpu_state.grant_none();
    assert!(!cpu_state.is_held(&one) && !cpu_state.is_held(&other));
}

#[test]
fn work_of_other_groups_is_published_once() {
    let (cpu_state, one, other) = cpu_state();
    let (_mine, mut theirs) = (member(&one, 1), member(&other, 2));
    let mut view = CpuView::default();
    view.refresh(&cpu_state);
    let mapping = ReadOnlyMapping::from_fd(one.proxy_fd.try_clone().unwrap(), AREA_BYTES).unwrap();
    let proxy = Peer::attach(mapping, DomainId::DAEMON, PROXY_GENERATION.get()).unwrap();
    // The other user has no work, but may be woken.
    assert_eq!(view.publish_others(&one, AT), Shown::Changed);
    assert_eq!((proxy.best(AT.as_nanos()), proxy.has_outside_wakes()), (Ok(None), true));

    let rank = Rank::new(7, 3);
    let copy = |view: &CpuView| other.refresh(view.members_of(&other).unwrap(), AT);
    theirs.publish(Some(rank.into()));
    copy(&view);
    assert_eq!(view.publish_others(&one, AT), Shown::Changed);
    assert_eq!(proxy.best(AT.as_nanos()), Ok(Some(rank)));
    assert_eq!(view.publish_others(&one, AT), Shown::Same);

    // While the KLS thread of its group rests, the domain cannot be chosen.
    other.pacing.begin_rest();
    assert_eq!(view.publish_others(&one, AT), Shown::Changed);
    assert_eq!((proxy.best(AT.as_nanos()), proxy.has_outside_wakes()), (Ok(None), true));
    other.pacing.end_rest();

    // A later release is published with its time.
    let next_release_ns = AT.as_nanos() + 5;
    theirs.set(0, Slot { next_release_ns, rank, state: SlotState::Waiting }).unwrap();
    theirs.publish(None);
    copy(&view);
    assert_eq!(view.publish_others(&one, AT), Shown::Changed);
    assert_eq!(proxy.best(AT.as_nanos()), Ok(None));
    assert_eq!(proxy.next_release(), Ok(next_release_ns));
    assert_eq!(proxy.best(next_release_ns), Ok(Some(rank)));

    // A detached domain is no longer published.
    other.set_members(Vec::clear);
    view.refresh(&cpu_state);
    assert_eq!(view.publish_others(&one, AT), Shown::Changed);
    assert_eq!((proxy.best(next_release_ns), proxy.next_release()), (Ok(None), Ok(NEVER)));
    assert!(!proxy.has_outside_wakes());
    assert_eq!(view.publish_others(&one, AT), Shown::Same);
}

/// A hostile user shows releases by all slots of many domains: past ones, and later ones of which
/// each is better than the one before. Each user has an equal share.
#[test]
fn releases_of_an_honest_user_are_shown_though_another_user_fills_all_slots() {
    let (cpu_state, one, hostile) = cpu_state();
    let third = Arc::new(DomainGroup::new(0, 3).unwrap());
    cpu_state.set_groups(|groups| groups.push(third.clone()));
    let slot = |next_release_ns, key, order| Slot {
        next_release_ns,
        rank: Rank::new(key, order),
        state: SlotState::Waiting,
    };
    let now_ns = AT.as_nanos();
    let mut areas = Vec::new();
    for number in 1..=9 {
        let mut area = member(&hostile, number);
        for index in 0..area.slots() {
            let later = now_ns + 10 * index as u64;
            let release_ns = if number == 9 { index as u64 } else { later + u64::from(number) };
            area.set(index, slot(release_ns, 1_000 - index as u64, number)).unwrap();
        }
        area.publish(None);
        areas.push(area);
    }
    let mut honest = member(&third, 1);
    let release_ns = now_ns + 1_000_000;
    honest.set(0, slot(release_ns, 7, 50)).unwrap();
    honest.publish(None);

    let mut view = CpuView::default();
    view.refresh(&cpu_state);
    view.groups().for_each(|(group, members)| group.refresh(members, AT));
    assert_eq!(view.publish_others(&one, AT), Shown::Changed);
    let mapping = ReadOnlyMapping::from_fd(one.proxy_fd.try_clone().unwrap(), AREA_BYTES).unwrap();
    let proxy = Peer::attach(mapping, DomainId::DAEMON, PROXY_GENERATION.get()).unwrap();
    let shown: Vec<_> = (0..proxy.slots()).map(|slot| proxy.slot(slot).unwrap()).collect();
    let used = shown.iter().filter(|slot| slot.next_release_ns != NEVER);
    assert!(used.clone().any(|slot| slot.next_release_ns == release_ns && slot.rank.order == 50));
    assert_eq!(used.count(), RELEASES_MAX + 1);
    // The past releases are ready work: the best of them counts.
    assert_eq!(proxy.best(now_ns), Ok(Some(Rank::new(1_000 - 255, 9))));
}

/// A user may attach again while the reaper still drains its former group.
#[test]
fn a_new_group_does_not_inherit_the_cpu_of_a_closed_one() {
    let (cpu_state, one, other) = cpu_state();
    let domain = DomainId::new(1).unwrap();
    cpu_state.grant(&one);
    one.turn.reset(domain);
    assert!(cpu_state.is_held(&one));
    cpu_state.close(&one);
    assert!(!cpu_state.is_held(&one));
    let next = Arc::new(DomainGroup::new(0, one.uid).unwrap());
    cpu_state.set_groups(|groups| groups.push(next.clone()));
    writer(&next).reset(domain);
    assert!(!cpu_state.is_held(&next) && !cpu_state.is_held(&other));
    // A KLS thread may grant by an older list.
    cpu_state.grant(&one);
    assert!(!cpu_state.is_held(&one) && !cpu_state.is_held(&next));
    cpu_state.grant(&next);
    assert!(cpu_state.is_held(&next));
}

#[test]
fn a_closed_group_leaves_the_view_even_while_the_list_is_locked() {
    let (cpu_state, one, other) = cpu_state();
    let _mine = member(&one, 1);
    let mut view = CpuView::default();
    view.refresh(&cpu_state);
    assert!(view.members_of(&one).is_some_and(|members| members.len() == 1));
    cpu_state.close(&one);
    let changing = cpu_state.groups.lock().unwrap();
    view.refresh(&cpu_state);
    assert!(view.members_of(&one).is_none() && view.members_of(&other).is_some());
    drop(changing);
    view.refresh(&cpu_state);
    assert_eq!(view.groups().count(), 1);
    assert_eq!(Arc::strong_count(&one), 1);
}
