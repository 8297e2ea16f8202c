//! The hand-over of events and of marks in every interleaving and every reordering that the memory
//! model allows, and the proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release inbox`

use super::*;
use crate::edge::{Edge, check, each_breaks};
use loom::thread;

const fn event(value: u64) -> PostedEvent {
    PostedEvent { rank: value, words: [value; 5] }
}

/// Two posters post while the taker looks. Each event is found once, and whole.
fn two_posters() {
    let (inbox, mut taker) = Inbox::new();
    let first = inbox.clone();
    let first = thread::spawn(move || first.post(&event(1)).unwrap());
    let second = thread::spawn(move || inbox.post(&event(2)).unwrap());
    let mut taken = Vec::new();
    taker.find(|rank| assert!([1, 2].contains(&rank), "not handed over"));
    taken.extend(taker.take());
    first.join().unwrap();
    second.join().unwrap();
    taker.find(|_| {});
    taken.extend(core::iter::from_fn(|| taker.take()));
    taken.sort_unstable_by_key(|event| event.rank);
    assert_eq!(taken, [event(1), event(2)], "not handed over");
}

/// The only free entry was just given back. The taker stores `copied` before it takes.
fn last_entry() {
    let (inbox, mut taker) = Inbox::new();
    let others = !1;
    inbox.post(&event(1)).unwrap();
    inbox.held.fetch_or(others, Relaxed);
    taker.find(|_| {});
    let copied = Arc::new(AtomicU64::new(0));
    let posts = {
        let copied = copied.clone();
        thread::spawn(move || {
            if inbox.post(&event(2)).is_ok() {
                assert_eq!(copied.load(Relaxed), 1, "written too early");
            }
        })
    };
    copied.store(1, Relaxed);
    assert_eq!(taker.take(), Some(event(1)));
    posts.join().unwrap();
}

/// A taker that takes the mark finds the event.
fn marked() {
    let (inbox, mut taker) = Inbox::new();
    let marks = Arc::new(Marks::default());
    let posts = {
        let marks = marks.clone();
        thread::spawn(move || {
            inbox.post(&event(1)).unwrap();
            let _ = marks.set(0);
        })
    };
    if marks.take().count() > 0 {
        taker.find(|_| {});
        assert!(taker.take().is_some(), "a mark for nothing, and no other comes");
    }
    posts.join().unwrap();
}

/// A taker that goes to sleep finds the mark or is notified.
fn sleeping() {
    let marks = Arc::new(Marks::default());
    let posts = {
        let marks = marks.clone();
        thread::spawn(move || marks.set(0))
    };
    let sleeps = marks.prepare_wait();
    let must_wake = posts.join().unwrap();
    assert!(!sleeps || must_wake, "slept through");
}

#[test]
fn every_event_is_found_once_and_whole() {
    check(None, two_posters);
    check(None, last_entry);
}

#[test]
fn no_event_is_slept_through() {
    check(None, marked);
    check(None, sleeping);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::InboxWritten, two_posters, "not handed over"),
        (Edge::InboxFind, two_posters, "not handed over"),
        (Edge::InboxGiveBack, last_entry, "written too early"),
        (Edge::InboxHold, last_entry, "written too early"),
        (Edge::MarkSet, marked, "a mark for nothing"),
        (Edge::MarkTake, marked, "a mark for nothing"),
        (Edge::MarkFence, sleeping, "slept through"),
        (Edge::PrepareWaitFence, sleeping, "slept through"),
    ]);
}
