//! Each form against a simple model, and all forms against a peer that writes any values.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// One step of either end.
#[derive(Clone, Copy, Debug)]
enum Step {
    Post(u32),
    Notify,
    /// Only if the taker is [`Awake`].
    Take,
}

fn steps(rows: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..rows).prop_map(Step::Post),
        2 => Just(Step::Notify),
        4 => Just(Step::Take),
    ];
    prop::collection::vec(step, 0..200)
}

/// A taker that looks only after a notification. The tests compare it with a model of the pending
/// events.
struct Awake(bool);

impl Awake {
    fn notified(&mut self, must_notify: bool) {
        self.0 |= must_notify;
    }

    fn took<T>(&mut self, taken: Option<&T>) {
        self.0 = taken.is_some();
    }
}

proptest! {
    #[test]
    fn a_counter_loses_no_event(steps in steps(1)) {
        let words = segment(Form::Counter);
        let mut raiser = counter::Raiser::attach(&words).unwrap();
        let mut taker = counter::Taker::attach(&words).unwrap();
        let (mut pending, mut awake) = (0, Awake(false));
        for step in steps.into_iter().chain([Step::Notify]) {
            match step {
                Step::Post(_) => { raiser.post(); pending += 1; }
                Step::Notify => awake.notified(raiser.must_notify().unwrap()),
                Step::Take if awake.0 => {
                    let taken = taker.take().unwrap();
                    prop_assert_eq!(taken.unwrap_or(0), pending);
                    awake.took(taken.as_ref());
                    pending = 0;
                }
                Step::Take => {}
            }
        }
        prop_assert!(pending == 0 || awake.0, "{} events without a notification", pending);
    }

    #[test]
    fn a_ring_is_a_bounded_queue(steps in steps(1)) {
        let words = segment(RING);
        let mut raiser = ring::Raiser::attach(&words, 4).unwrap();
        let mut taker = ring::Taker::attach(&words, 4).unwrap();
        let (mut pending, mut serial, mut lost) = (VecDeque::new(), 0, 0);
        let mut awake = Awake(false);
        for step in steps.into_iter().chain([Step::Notify]) {
            match step {
                Step::Post(_) => match raiser.post(&payload(serial)).unwrap() {
                    Posted::Stored => { pending.push_back(serial); serial += 1; }
                    posted => {
                        prop_assert_eq!((posted, pending.len()), (Posted::Lost, 4));
                        lost += 1;
                    }
                },
                Step::Notify => awake.notified(raiser.must_notify().unwrap()),
                Step::Take if awake.0 => {
                    let taken = taker.take().unwrap();
                    let expected = pending.pop_front().map(|serial| {
                        TakenEvent { row: 0, serial, merged: 0, payload: payload(serial) }
                    });
                    prop_assert_eq!(taken, expected);
                    awake.took(taken.as_ref());
                }
                Step::Take => {}
            }
            prop_assert!(pending.len() <= 4);
        }
        prop_assert!(pending.is_empty() || awake.0, "{:?} without a notification", pending);
        prop_assert_eq!(taker.lost(), lost);
    }

    #[test]
    fn typed_entries_are_a_map_of_the_latest(steps in steps(70)) {
        let words = segment(TYPED);
        let mut raiser = typed::Raiser::attach(&words, 70).unwrap();
        let mut taker = typed::Taker::attach(&words, 70).unwrap();
        // By type: how many events it stands for, and the payload.
        let mut pending: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let (mut serial, mut awake) = (0, Awake(false));
        for step in steps.into_iter().chain([Step::Notify]) {
            match step {
                Step::Post(kind) => {
                    serial += 1;
                    let posted = raiser.post(kind, &payload(serial)).unwrap();
                    let before = pending.get(&kind).map_or(0, |(count, _)| *count);
                    pending.insert(kind, (before + 1, serial));
                    let expected = if before > 0 { Posted::Merged } else { Posted::Stored };
                    prop_assert_eq!(posted, expected);
                }
                Step::Notify => {
                    let must_notify = raiser.must_notify().unwrap();
                    prop_assert!(!(must_notify && awake.0), "notified twice");
                    awake.notified(must_notify);
                }
                Step::Take if awake.0 => {
                    let taken = taker.take().unwrap();
                    let found = taken.map(|event| (event.row, (event.merged + 1, event.payload)));
                    let expected = pending.pop_first();
                    let expected = expected.map(|(row, (count, at))| (row, (count, payload(at))));
                    prop_assert_eq!(found, expected);
                    awake.took(taken.as_ref());
                }
                Step::Take => {}
            }
        }
        prop_assert!(pending.is_empty() || awake.0, "{:?} without a notification", pending);
    }

    #[test]
    fn slots_are_bounded_bags_by_level(steps in steps(3)) {
        let words = segment(SLOTS);
        let mut raiser = slots::Raiser::attach(&words, 3, 2).unwrap();
        let mut taker = slots::Taker::attach(&words, 3, 2).unwrap();
        // Serial numbers by level.
        let mut pending: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let (mut serial, mut lost, mut awake) = (0, 0, Awake(false));
        for step in steps.into_iter().chain([Step::Notify]) {
            match step {
                Step::Post(level) => {
                    let posted = raiser.post(level, &payload(serial)).unwrap();
                    let of_level = pending.entry(level).or_default();
                    if of_level.len() == 2 {
                        prop_assert_eq!(posted, Posted::Lost);
                        lost += 1;
                    } else {
                        prop_assert_eq!(posted, Posted::Stored);
                        of_level.push(serial);
                        serial += 1;
                    }
                }
                Step::Notify => {
                    let must_notify = raiser.must_notify().unwrap();
                    prop_assert!(!(must_notify && awake.0), "notified twice");
                    awake.notified(must_notify);
                }
                Step::Take if awake.0 => {
                    let taken = taker.take().unwrap();
                    let best = pending.iter().find(|(_, of_level)| !of_level.is_empty());
                    prop_assert_eq!(taken.map(|event| event.row), best.map(|(&level, _)| level));
                    if let Some(event) = taken {
                        let of_level = pending.get_mut(&event.row).unwrap();
                        let at = of_level.iter().position(|&serial| serial == event.serial);
                        prop_assert!(at.is_some(), "{:?} was taken before", event);
                        of_level.remove(at.unwrap());
                        prop_assert_eq!(event.payload, payload(event.serial));
                    }
                    awake.took(taken.as_ref());
                }
                Step::Take => {}
            }
        }
        let left: usize = pending.values().map(Vec::len).sum();
        prop_assert!(left == 0 || awake.0, "{} events without a notification", left);
        prop_assert_eq!(taker.lost(), lost);
    }

    /// A peer that writes any value at any place, between any two calls. Every result is in range
    /// or a fault, and every call returns.
    #[test]
    fn any_value_of_a_peer_gives_results_in_range(
        writes in prop::collection::vec(
            (5usize..96, prop_oneof![0..9u64, any::<u64>(), Just(u64::MAX)]), 0..60),
    ) {
        let forms = [TYPED, SLOTS, RING].map(segment);
        let [types, levels, ring] = &forms;
        let mut typed = (typed::Raiser::attach(types, 70).unwrap(),
            typed::Taker::attach(types, 70).unwrap());
        let mut slots = (slots::Raiser::attach(levels, 3, 2).unwrap(),
            slots::Taker::attach(levels, 3, 2).unwrap());
        let mut ring_ends = (ring::Raiser::attach(ring, 4).unwrap(),
            ring::Taker::attach(ring, 4).unwrap());
        for (at, value) in writes {
            for words in &forms {
                if let Some(word) = words.get(at) {
                    word.store(value, Relaxed);
                }
            }
            let event = payload(value >> 1);
            let _ = (typed.0.raise(69, &event), slots.0.raise(2, &event));
            let _ = ring_ends.0.raise(&event);
            let taken = [(typed.1.take(), 70), (slots.1.take(), 3), (ring_ends.1.take(), 1)];
            for (taken, rows) in taken {
                match taken {
                    Ok(Some(event)) => prop_assert!(event.row < rows),
                    Ok(None) | Err(PeerFault::Torn { .. }) => {}
                    Err(PeerFault::Value { name: "marks", found, max, .. }) =>
                        prop_assert!(found & !max != 0),
                    Err(PeerFault::Value { found, max, .. }) => prop_assert!(found > max),
                    Err(fault) => prop_assert!(false, "{fault}"),
                }
            }
        }
    }
}
