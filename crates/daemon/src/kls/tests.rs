//! Which KLS thread chooses, on real pages and without threads.

use upcall_shm::user_area::Rank;

use super::*;
use crate::group::tests::member;

/// If a KLS thread gave the CPU to its own group while the thread of another group is still below
/// the domains, that thread could not show work of its domains before the next holder sleeps.
#[test]
fn the_kls_thread_of_the_group_that_had_the_cpu_chooses() {
    let cpu_state = Arc::new(CpuState::new(0));
    let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
    cpu_state.set_groups(|list| list.extend(groups.clone()));
    let [mut here, there] = [0, 1].map(|at| {
        let band = Some(Band::WHOLE);
        let mut kls = Kls::new(cpu_state.clone(), groups[at].clone(), band);
        kls.view.refresh(&cpu_state);
        kls
    });
    let ((_mine, mut work), _theirs) =
        (member(&groups[0], 1, (1, 1)), member(&groups[1], 1, (1, 1)));
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
