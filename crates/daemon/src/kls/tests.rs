//! Which KLS thread chooses, on real pages and without threads.

use std::sync::atomic::Ordering::Relaxed;

use upcall_shm::user_area::{AREA_SLOTS, Owner, PAGE_BYTES, Rank, Slot, SlotState};
use upcall_sys::memfd::SharedMapping;

use super::*;
use crate::group::tests::{member, sleeping_thread};

/// If a KLS thread gave the CPU to its own group while the thread of another group is still below
/// the domains, that thread could not show work of its domains before the next holder sleeps.
#[test]
fn the_kls_thread_of_the_group_that_had_the_cpu_chooses() {
    let cpu_state = Arc::new(CpuState::new(0));
    let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
    cpu_state.set_groups(|list| list.extend(groups.clone()));
    let [mut here, mut there] = [0, 1].map(|at| {
        let band = Some(Band::WHOLE);
        let mut kls = Kls::new(cpu_state.clone(), groups[at].clone(), band);
        kls.view.refresh(&cpu_state);
        kls
    });
    let ((_mine, mut work), _theirs) =
        (member(&groups[0], 1, sleeping_thread()), member(&groups[1], 1, sleeping_thread()));
    here.view.refresh(&cpu_state);
    work.publish(Some(Rank::new(7, 1).into()));

    // A domain of the other group runs, and returns the turn.
    cpu_state.grant(&groups[1]);
    groups[1].turn.reset(DomainId::new(1).unwrap());
    assert!(matches!(here.choose(), Choice::HeldElsewhere(true)));
    assert!(groups[1].shows_others() && groups[1].turn.take_need_resched());
    groups[1].turn.reset(DomainId::DAEMON);
    assert!(matches!(here.choose(), Choice::LeftTo(other) if Arc::ptr_eq(&other, &groups[1])));
    // The thread of that group finds nothing: then any thread chooses.
    assert!(matches!(there.choose(), Choice::Nothing(None)));
    assert!(matches!(here.choose(), Choice::Passed(chosen, _) if Arc::ptr_eq(&chosen, &groups[0])));

    // A thread that rests chooses for nobody.
    groups[0].turn.reset(DomainId::DAEMON);
    cpu_state.grant(&groups[1]);
    assert!(matches!(here.choose(), Choice::LeftTo(_)));
    groups[1].pacing.begin_rest();
    assert!(matches!(here.choose(), Choice::Passed(..)));

    // Nor does one of a group that was closed.
    groups[0].turn.reset(DomainId::DAEMON);
    let next = Arc::new(DomainGroup::new(0, 3).unwrap());
    cpu_state.set_groups(|list| list.push(next.clone()));
    cpu_state.grant(&next);
    here.view.refresh(&cpu_state);
    assert!(matches!(here.choose(), Choice::LeftTo(_)));
    cpu_state.close(&next);
    here.view.refresh(&cpu_state);
    assert!(matches!(here.choose(), Choice::Passed(..)));
}

/// The work of a choice for areas of other users: none. A user who fills all slots, and changes
/// them all the time, made the choices of another user so long that the watchdog accused that one.
#[test]
fn a_choice_reads_the_areas_of_its_own_user_alone() {
    let cpu_state = Arc::new(CpuState::new(0));
    let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
    cpu_state.set_groups(|list| list.extend(groups.clone()));
    let ((_mine, mut work), (theirs, mut hostile)) =
        (member(&groups[0], 1, sleeping_thread()), member(&groups[1], 1, sleeping_thread()));
    let [mut here, mut there] = [0, 1].map(|at| {
        let mut kls = Kls::new(cpu_state.clone(), groups[at].clone(), None);
        kls.view.refresh(&cpu_state);
        kls
    });
    let far = now() + Span::from_secs(3_600);
    let fill = |area: &mut Owner<SharedMapping>, at: Instant| {
        for index in 0..AREA_SLOTS {
            let next_release_ns = at.as_nanos() + index as u64;
            let rank = Rank::new(1_000_000 - index as u64, 1);
            area.set(index, Slot { next_release_ns, rank, state: SlotState::Waiting }).unwrap();
        }
        area.publish(None);
    };
    fill(&mut hostile, far);
    assert!(matches!(there.choose(), Choice::Nothing(Some(at)) if at == far));
    // The own thread has copied the area. Later changes do not reach a choice of the other user.
    for round in 1..=3 {
        fill(&mut hostile, far + Span::from_secs(round));
        assert!(matches!(here.choose(), Choice::Nothing(Some(at)) if at == far), "{round}");
    }
    assert!(matches!(there.choose(), Choice::Nothing(Some(at)) if at == far + Span::from_secs(3)));

    // The same while the other user's domain runs: it sees what its own daemon thread copied.
    work.publish(Some(Rank::new(7, 1).into()));
    assert!(matches!(here.choose(), Choice::Passed(chosen, _) if Arc::ptr_eq(&chosen, &groups[0])));
    hostile.publish(Some(Rank::new(5, 1).into()));
    assert!(!theirs.wants_cpu(now()));
    assert!(matches!(there.choose(), Choice::HeldElsewhere(true)));
    assert!(theirs.wants_cpu(now()) && groups[0].turn.take_need_resched());

    // No slot is read as long as the sequence number is the same.
    for word in &hostile.memory().words()[PAGE_BYTES / 8..] {
        word.store(1, Relaxed);
    }
    assert!(matches!(there.choose(), Choice::HeldElsewhere(true)));
    assert_eq!(theirs.next_release(now()), Some(far + Span::from_secs(3)));
}
