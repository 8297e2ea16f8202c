//! The ranks that a domain may show, on a real area.

use upcall_shm::DomainId;
use upcall_shm::user_area::{AREA_BYTES, Owner, Peer, Pending, Slot, SlotState};
use upcall_sys::memfd::SharedMapping;

use super::*;

const NOW: Instant = Instant::from_nanos(1_000_000_000);
/// A period of 10 ms, and place 3 in the order of admission.
const PERIODIC: Admitted =
    Admitted { order: 3, key_min: 10_000_000, delay: None, wins_ties: false };

fn ranks(admitted: Admitted) -> Ranks {
    let mut ranks = Ranks::default();
    ranks.set(vec![admitted], NOW);
    ranks
}

fn area() -> (Owner<SharedMapping>, Peer<SharedMapping>) {
    let domain = DomainId::new(1).unwrap();
    let memory = SharedMapping::create("user", AREA_BYTES).unwrap();
    let fd = memory.fd().try_clone_to_owned().unwrap();
    let owner = Owner::create(memory, domain, 1).unwrap();
    let memory = SharedMapping::from_fd(fd, AREA_BYTES).unwrap();
    (owner, Peer::attach(memory, domain, 1).unwrap())
}

fn copy(area: &Peer<SharedMapping>) -> Summary {
    area.summary(NOW.as_nanos()).unwrap()
}

fn waiting(key: u64, order: u32, next_release_ns: u64) -> Slot {
    Slot { next_release_ns, rank: Rank::new(key, order), state: SlotState::Waiting }
}

#[test]
fn a_ready_rank_must_have_been_admitted() {
    let (mut owner, area) = area();
    let ranks = ranks(PERIODIC);
    for (ready, is_false) in [
        (None, false),
        (Some(Rank::new(10_000_000, 3)), false),
        // A worse rank than admitted harms no other domain.
        (Some(Rank::new(20_000_000, 3)), false),
        (Some(Rank::new(9_999_999, 3)), true),
        (Some(Rank::new(10_000_000, 2)), true),
        (Some(Rank::new(10_000_000, u32::MAX)), true),
        // It was not admitted to win ties by an event.
        (Some(Rank { event: 7, ..Rank::new(10_000_000, 3) }), true),
    ] {
        for since_ns in [0, 1, NOW.as_nanos(), NEVER] {
            owner.publish(ready.map(|rank| Pending { since_ns, ..rank.into() }));
            let found = ranks.is_violated_by(&copy(&area), NOW);
            assert_eq!(found, is_false, "{ready:?} since {since_ns}");
        }
    }
}

#[test]
fn the_rank_of_a_future_release_must_have_been_admitted() {
    let (mut owner, area) = area();
    let ranks = ranks(PERIODIC);
    for (slot, is_false) in [
        (waiting(10_000_000, 3, 5), false),
        (waiting(0, 0, 5), true),
        (waiting(0, 3, 5), true),
        // The rank of a suspended slot has no effect.
        (waiting(0, 0, NEVER), false),
    ] {
        owner.set(100, slot).unwrap();
        owner.publish(Some(Rank::new(10_000_000, 3).into()));
        assert_eq!(ranks.is_violated_by(&copy(&area), NOW), is_false, "{slot:?}");
    }
}

#[test]
fn a_deadline_before_release_and_delay_is_false() {
    let (mut owner, area) = area();
    let delay = Span::from_millis(10);
    let ranks = ranks(Admitted { order: 3, key_min: 0, delay: Some(delay), wins_ties: true });
    let release_ns = NOW.as_nanos();
    for (deadline_ns, is_false) in
        [(release_ns + 10_000_000, false), (release_ns + 9_999_999, true)]
    {
        owner.set(0, waiting(deadline_ns, 3, release_ns)).unwrap();
        owner.publish(None);
        assert_eq!(ranks.is_violated_by(&copy(&area), NOW), is_false, "{deadline_ns}");
    }
}

#[test]
fn a_closed_rank_stays_allowed_for_a_while() {
    let (mut owner, area) = area();
    owner.publish(Some(Rank::new(10_000_000, 3).into()));
    let mut ranks = ranks(PERIODIC);
    ranks.set(Vec::new(), NOW);
    assert!(!ranks.is_violated_by(&copy(&area), NOW));
    ranks.set(Vec::new(), NOW + CLOSED_FOR / 2);
    assert!(!ranks.is_violated_by(&copy(&area), NOW + CLOSED_FOR / 2));
    assert!(ranks.is_violated_by(&copy(&area), NOW + CLOSED_FOR));
}

/// A domain that shows such a rank waits for all work with a reservation.
#[test]
fn a_rank_below_all_needs_no_admission() {
    let (mut owner, area) = area();
    let none = Ranks::default();
    let rank = Rank::new(1, 77);
    owner.publish(Some(rank.below_all().into()));
    owner.set(0, Slot { rank: rank.below_all(), ..waiting(1, 77, 5) }).unwrap();
    assert!(!none.is_violated_by(&copy(&area), NOW));
    owner.publish(Some(rank.into()));
    assert!(none.is_violated_by(&copy(&area), NOW));
}
