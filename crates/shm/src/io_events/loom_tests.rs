//! The tree in every interleaving and every reordering that the memory model allows, and the proof
//! that its orderings and its order of levels are needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release io_events`
//!
//! Loom orders the exchanges of one word as it ran them. So it cannot tell whether those of the
//! summaries and of the top may be weaker than `AcqRel`. The module's head argues that they may
//! not. These tests show what loom can tell: each edge by name, and the order of the levels.

use super::tree::{Taker, Tree};
use super::*;
use crate::edge::{Edge, check, each_breaks};
use loom::thread;
use std::sync::Arc;

/// A tree of two leaves (descriptors 0 to 31 and 32 to 63), and data to hand over.
struct Shared {
    top: AtomicU64,
    summaries: [AtomicU64; 1],
    leaves: [AtomicU64; 2],
    data: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let (top, data) = (zero(), zero());
        Arc::new(Shared { top, summaries: [zero()], leaves: [zero(), zero()], data })
    }

    fn tree(&self) -> Tree<'_> {
        Tree::of_parts(&self.top, &self.summaries, &self.leaves)
    }

    /// Takes everything, and ORs the bits together.
    fn take_all(&self, taker: &mut Taker, found: &mut [u8; 64]) {
        while let Some((descriptor, bits)) = taker.next(&self.tree()) {
            found[descriptor as usize] |= bits;
        }
    }
}

/// Two leaves are raised, one of them twice, while they are taken. Nothing is left behind.
fn raise_and_take() {
    let shared = Shared::new();
    let service = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.tree().raise(1, READABLE);
            shared.tree().raise(40, READABLE);
            shared.tree().raise(2, WRITABLE);
        })
    };
    let (mut taker, mut found) = (Taker::default(), [0; 64]);
    shared.take_all(&mut taker, &mut found);
    service.join().unwrap();
    shared.take_all(&mut taker, &mut found);
    assert_eq!((found[1], found[40], found[2]), (READABLE, READABLE, WRITABLE), "lost");
}

/// A taker of a bit sees what was stored before the bit was raised, such as a statement of
/// interest.
fn hand_over() {
    let shared = Shared::new();
    let client = {
        let shared = shared.clone();
        thread::spawn(move || {
            // The second raise finds the leaf in use and goes no further up, so only the leaf hands
            // over.
            shared.tree().raise(3, 1);
            shared.data.store(7, Relaxed);
            shared.tree().raise(4, 1);
        })
    };
    let mut found = [0; 64];
    shared.take_all(&mut Taker::default(), &mut found);
    if found[4] != 0 {
        assert_eq!(shared.data.load(Relaxed), 7, "taken too early");
    }
    client.join().unwrap();
}

/// A mutant of [`raise_and_take`]: the service sets the summary first.
fn summary_first() {
    let shared = Shared::new();
    let service = {
        let shared = shared.clone();
        thread::spawn(move || {
            if shared.summaries[0].fetch_or(1, Ordering::AcqRel) == 0 {
                shared.top.fetch_or(1, Ordering::AcqRel);
            }
            shared.leaves[0].fetch_or(1, Ordering::AcqRel);
        })
    };
    let (mut taker, mut found) = (Taker::default(), [0; 64]);
    shared.take_all(&mut taker, &mut found);
    service.join().unwrap();
    shared.take_all(&mut taker, &mut found);
    assert_eq!(found[0], 1, "lost");
}

/// A mutant of [`raise_and_take`]: the client empties a leaf before its summary.
fn leaf_first() {
    let shared = Shared::new();
    let service = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.tree().raise(1, READABLE);
            shared.tree().raise(2, READABLE);
        })
    };
    let mut found = 0;
    let mut take = || {
        if shared.top.swap(0, Ordering::AcqRel) != 0 {
            found |= shared.leaves[0].swap(0, Ordering::AcqRel);
            shared.summaries[0].swap(0, Ordering::AcqRel);
        }
    };
    take();
    service.join().unwrap();
    take();
    assert_eq!(found, 0b10100, "lost");
}

#[test]
fn nothing_raised_is_left_behind() {
    check(None, raise_and_take);
}

#[test]
fn a_taker_of_a_bit_sees_what_was_stored_before() {
    check(None, hand_over);
}

#[test]
fn no_ordering_can_be_weaker_and_no_level_can_be_reordered() {
    each_breaks(&[
        (Edge::IoLeafRaise, hand_over, "taken too early"),
        (Edge::IoLeafTake, hand_over, "taken too early"),
    ]);
    for mutant in [summary_first as fn(), leaf_first] {
        let found =
            std::panic::catch_unwind(|| check(None, mutant)).expect_err("loom found nothing");
        assert!(found.downcast_ref::<String>().is_some_and(|text| text.contains("lost")));
    }
}
