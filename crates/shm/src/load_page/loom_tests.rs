//! The protocol under every interleaving and every reordering that the memory
//! model allows, and the proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release`

use super::*;
use core::cell::Cell;
use loom::sync::Arc;
use loom::thread;
use std::panic::catch_unwind;

thread_local! {
    /// Which ordering is `Relaxed` instead of right. Of the test's own thread:
    /// loom runs the threads of a model on it.
    pub(super) static WEAKENED: Cell<Option<Edge>> = const { Cell::new(None) };
}

const FINAL: StreamCounters =
    StreamCounters { offered: 2, offered_bytes: 200, slips: 1, errors: 1 };

/// Memory that both ends own; loom need not watch that.
type Words = std::sync::Arc<[AtomicU64]>;

/// Both ends of a new page for one stream.
///
/// The child is attached here and not in its thread on purpose. Loom remembers
/// of each word the last access only: if the child's own check of a word comes
/// between a load of the parent and a store of the child, loom no longer sees
/// that those two race, and tries nothing.
fn ends() -> (LoadParent<Words>, LoadChild<Words>) {
    let words: Words = (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
    (LoadParent::create(words.clone(), 1).unwrap(), LoadChild::attach(words).unwrap())
}

/// Runs `model` with one ordering weakened, or none, in every way there is.
fn check(weakened: Option<Edge>, model: fn()) {
    WEAKENED.set(weakened);
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000; // a page has many words
    builder.check(model);
}

/// A child reports and finishes; a parent looks before, amid or after, and
/// once more when all is over.
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

/// A child reports; a parent looks twice and finds no fault.
fn look_twice() {
    let (mut parent, child) = ends();
    let child = thread::spawn(move || child.stream(0).unwrap().publish(&FINAL));
    parent.poll().unwrap();
    parent.poll().unwrap();
    child.join().unwrap();
}

/// A parent prepares something and starts; a child looks at it.
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
fn who_sees_done_sees_final_counters() {
    check(None, finish);
}

#[test]
fn counters_of_an_honest_child_never_seem_to_fall() {
    check(None, look_twice);
}

#[test]
fn who_sees_the_start_sees_what_was_prepared() {
    check(None, start);
}

#[test]
fn no_ordering_can_be_weaker() {
    for (edge, model, broken) in [
        (Edge::StateStore, finish as fn(), "done too early"),
        (Edge::StateLoad, finish, "done too early"),
        (Edge::StartStore, start, "started too early"),
        (Edge::StartLoad, start, "started too early"),
    ] {
        let Err(found) = catch_unwind(|| check(Some(edge), model)) else {
            panic!("{edge:?} could be weaker: loom found nothing");
        };
        let found = found.downcast_ref::<String>().map_or("", String::as_str);
        assert!(found.contains(broken), "{edge:?}: {found}");
    }
}
