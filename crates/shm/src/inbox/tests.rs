//! An inbox in one thread, and under many posters.

use super::*;
use std::collections::HashSet;

fn ranked(rank: u64) -> PostedEvent {
    PostedEvent { rank, words: [rank, !rank, 1, 2, 3] }
}

fn all(taker: &mut Taker) -> Vec<u64> {
    core::iter::from_fn(|| taker.take()).map(|event| event.rank).collect()
}

#[test]
fn events_are_taken_by_rank_and_then_in_order_of_posting() {
    let (inbox, mut taker) = Inbox::new();
    let numbered = |rank, number| PostedEvent { rank, words: [number, 0, 0, 0, 0] };
    for (number, rank) in [(0, 7), (1, 3), (2, 7), (3, 3)] {
        inbox.post(&numbered(rank, number)).unwrap();
    }
    let mut shown = Vec::new();
    taker.find(|rank| shown.push(rank));
    assert_eq!(shown, [7, 3, 7, 3]);
    assert_eq!(taker.take(), Some(numbered(3, 1)));
    // The lowest free entry is the one that was given back.
    inbox.post(&numbered(3, 4)).unwrap();
    assert_eq!(taker.take(), Some(numbered(3, 3)), "not found yet");
    taker.find(|rank| assert_eq!(rank, 3));
    let rest: Vec<_> = core::iter::from_fn(|| taker.take()).map(|event| event.words[0]).collect();
    assert_eq!(rest, [4, 0, 2]);
}

#[test]
fn a_full_inbox_refuses_until_a_take_and_a_closed_one_forever() {
    let (inbox, mut taker) = Inbox::new();
    (0..EVENTS_MAX as u64).for_each(|rank| inbox.post(&ranked(rank)).unwrap());
    assert_eq!(inbox.post(&ranked(0)), Err(PostError::Full));
    taker.find(|_| {});
    assert_eq!(inbox.post(&ranked(0)), Err(PostError::Full), "found, but not taken");
    assert_eq!(taker.take(), Some(ranked(0)));
    inbox.post(&ranked(99)).unwrap();
    inbox.close();
    assert_eq!(inbox.post(&ranked(0)), Err(PostError::Closed));
    taker.find(|_| {});
    let expected: Vec<u64> = (1..EVENTS_MAX as u64).chain([99]).collect();
    assert_eq!(all(&mut taker), expected);
}

#[test]
fn only_a_taker_that_prepared_to_wait_is_notified() {
    let marks = Marks::default();
    assert!(!marks.set(3) && !marks.set(255) && !marks.set(256));
    assert!(!marks.prepare_wait(), "something is marked");
    assert_eq!(marks.take().collect::<Vec<_>>(), [3, 255]);
    assert!(marks.prepare_wait());
    assert!(marks.set(70));
    marks.cancel_wait();
    assert!(!marks.set(70));
    assert_eq!(marks.take().collect::<Vec<_>>(), [70]);
    assert_eq!(marks.take().count(), 0);
}

#[test]
fn every_event_of_many_posters_is_taken_once_and_whole() {
    const EACH: u32 = 20_000;
    let (inbox, mut taker) = Inbox::new();
    let mut seen = HashSet::new();
    std::thread::scope(|scope| {
        for poster in 0..3u64 {
            let inbox = &inbox;
            scope.spawn(move || {
                for number in 0..EACH {
                    while inbox.post(&ranked(poster << 32 | u64::from(number))).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        while seen.len() < 3 * EACH as usize {
            taker.find(|_| {});
            while let Some(event) = taker.take() {
                assert_eq!(event, ranked(event.rank), "mixed");
                assert!(seen.insert(event.rank), "{} twice", event.rank);
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(taker.take(), None);
}
