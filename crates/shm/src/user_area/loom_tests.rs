//! The sequence in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release user_area`

use super::*;
use crate::edge::{Edge, check, check_up_to, each_breaks};
use crate::{DomainId, PeerFault};
use core::iter::repeat_with;
use loom::thread;

/// Memory that both ends own. Loom does not track this `Arc`.
type Memory = std::sync::Arc<[AtomicU64]>;

/// Both ends of a new area, made before any thread starts: the loom tests of `load_page` say why.
fn ends() -> (Owner<Memory>, Peer<Memory>) {
    let words: Memory = repeat_with(|| AtomicU64::new(0)).take(words_of(1)).collect();
    let domain = DomainId::new(1).unwrap();
    (Owner::create(words.clone(), domain, 1).unwrap(), Peer::attach(words, domain, 1).unwrap())
}

const fn both(value: u32) -> Rank {
    Rank { key: value as u64, event: value as u64, order: value }
}

/// An owner publishes a second time. A peer reads the old rank, the new one, or a tear.
fn ready() {
    let (mut owner, peer) = ends();
    owner.publish(Some(both(1).into()));
    let owner = thread::spawn(move || owner.publish(Some(both(2).into())));
    match peer.best(0) {
        Ok(best) => {
            assert!([Some(both(1)), Some(both(2))].contains(&best), "mixed: {best:?}");
        }
        Err(fault) => assert_eq!(fault, PeerFault::Torn { page: "user area" }),
    }
    owner.join().unwrap();
    assert_eq!(peer.best(0), Ok(Some(both(2))));
}

/// A job is released: its slot's release moves on and its rank becomes ready. At every moment a
/// peer finds the job in one of the two places.
fn release() {
    let (mut owner, peer) = ends();
    let slot = |at| Slot { next_release_ns: at, rank: both(1), state: SlotState::Waiting };
    owner.set(0, slot(10)).unwrap();
    owner.publish(None);
    let owner = thread::spawn(move || {
        owner.set(0, slot(20)).unwrap();
        owner.publish(Some(both(1).into()))
    });
    if let Ok(best) = peer.best(10) {
        assert_eq!(best, Some(both(1)), "missed");
    }
    owner.join().unwrap();
}

#[test]
fn a_read_is_of_one_publication() {
    check(None, ready);
}

#[test]
fn a_released_job_is_always_found() {
    // Without a bound it passes too, in half a minute.
    check_up_to(3, release);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::SequenceOdd, ready, "mixed"),
        (Edge::SequenceEven, ready, "mixed"),
        (Edge::SequenceFirst, ready, "mixed"),
        (Edge::SequenceSecond, ready, "mixed"),
    ]);
}
