//! The protocol in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release load_page`

use super::*;
use crate::edge::{check, each_breaks};
use loom::sync::Arc;
use loom::thread;

const FINAL: StreamCounters =
    StreamCounters { offered: 2, offered_bytes: 200, slips: 1, errors: 1 };

/// Memory that both ends own. Loom does not track this `Arc`.
type Words = std::sync::Arc<[AtomicU64]>;

/// Both ends of a new page for one stream.
///
/// The child is attached here, not in its own thread. Loom remembers only the last access to each
/// word. The child's own check of a word might come between a load of the parent and a store of the
/// child. Loom would then not see that these two accesses race, and would not try both orders.
fn ends() -> (LoadParent<Words>, LoadChild<Words>) {
    let words: Words = (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
    (LoadParent::create(words.clone(), 1).unwrap(), LoadChild::attach(words).unwrap())
}

/// A child reports and finishes. A parent polls before, during or after that, and again at the end.
fn finish() {
    let (mut parent, child) = ends();
    let child = thread::spawn(move || {
        child.stream(0).unwrap().publish(&FINAL);
        child.finish();
    });
    if parent.poll().unwrap() == State::Done {
        assert_eq!(parent.streams(), [FINAL], "done too early");
    }
    child.join().unwrap();
    assert_eq!(parent.poll(), Ok(State::Done));
    assert_eq!(parent.streams(), [FINAL]);
}

/// A child reports. A parent polls twice and finds no fault.
fn look_twice() {
    let (mut parent, child) = ends();
    let child = thread::spawn(move || child.stream(0).unwrap().publish(&FINAL));
    parent.poll().unwrap();
    parent.poll().unwrap();
    child.join().unwrap();
}

/// A parent prepares data and starts the child. The child reads the data.
fn start() {
    let (parent, child) = ends();
    let prepared = Arc::new(AtomicU64::new(0));
    let child = {
        let prepared = prepared.clone();
        thread::spawn(move || {
            if child.start_at_ns().is_some() {
                assert_eq!(prepared.load(Relaxed), 7, "started too early");
            }
        })
    };
    prepared.store(7, Relaxed);
    parent.start(1);
    child.join().unwrap();
}

#[test]
fn a_parent_that_sees_done_sees_final_counters() {
    check(None, finish);
}

#[test]
fn counters_of_an_honest_child_never_seem_to_fall() {
    check(None, look_twice);
}

#[test]
fn a_child_that_sees_the_start_sees_what_was_prepared() {
    check(None, start);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::LoadStateStore, finish, "done too early"),
        (Edge::LoadStateLoad, finish, "done too early"),
        (Edge::LoadStartStore, start, "started too early"),
        (Edge::LoadStartLoad, start, "started too early"),
    ]);
}
