//! The protocols in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release channel`

use super::marks::{RaiserMarks, TakerMarks};
use super::wake_line::{WAKE_LINE_WORDS, WakeLine};
use super::*;
use crate::edge::{Edge, check, each_breaks};

use core::iter::repeat_with;
use loom::thread;
use std::sync::Arc;

/// Memory that both ends own. Loom does not track this `Arc`.
type Memory = Arc<[AtomicU64]>;

fn zeros(count: usize) -> Memory {
    repeat_with(|| AtomicU64::new(0)).take(count).collect()
}

/// A new segment, made before any thread starts: the loom tests of `load_page` say why.
fn segment(form: Form) -> Memory {
    let words = zeros(form.words());
    create(words.clone(), form).unwrap();
    words
}

/// Both words identify the event.
const fn payload(serial: u64) -> Payload {
    [serial; PAYLOAD_WORDS]
}

/// Panics if the payload has parts of two events.
fn which(event: TakenEvent) -> u64 {
    assert_eq!(event.payload, payload(event.payload[0]), "mixed");
    event.payload[0]
}

/// Takes until one take finds nothing or an event. A raiser at work at every try counts as nothing.
fn found<T>(taken: Result<Option<T>, PeerFault>) -> Option<T> {
    match taken {
        Ok(found) => found,
        Err(fault) => {
            assert_eq!(fault, PeerFault::Torn { page: "channel" });
            None
        }
    }
}

/// Two events are counted. The taker looks until it finds nothing, and once more if it is notified.
fn notified_of_a_count() {
    let words = segment(Form::Counter);
    let mut raiser = counter::Raiser::attach(words.clone()).unwrap();
    let mut taker = counter::Taker::attach(words).unwrap();
    assert_eq!(raiser.raise(), Ok(true));
    let raises = thread::spawn(move || raiser.raise().unwrap());
    let (mut taken, mut settled) = (0, false);
    for _ in 0..3 {
        match taker.take() {
            Ok(Some(count)) => taken += count,
            Ok(None) => settled = true,
            Err(fault) => assert_eq!(fault, PeerFault::Torn { page: "channel" }),
        }
        if settled {
            break;
        }
    }
    let must_notify = raises.join().unwrap();
    assert!(taken == 2 || must_notify || !settled, "no notification");
    taken += taker.take().unwrap().unwrap_or(0);
    assert_eq!(taken, 2);
}

/// Three events in a ring of one slot. The taker stores `copied` before it takes.
fn ring_of_one() {
    let words = segment(Form::Ring { slots: 1 });
    let mut raiser = ring::Raiser::attach(words.clone(), 1).unwrap();
    let mut taker = ring::Taker::attach(words, 1).unwrap();
    let copied = zeros(1);
    let raises = {
        let copied = copied.clone();
        thread::spawn(move || {
            assert_eq!(raiser.post(&payload(1)), Ok(Posted::Stored));
            let posted = raiser.post(&payload(2)).unwrap();
            if posted == Posted::Stored {
                assert_eq!(copied[0].load(Relaxed), 1, "written too early");
            }
            posted
        })
    };
    copied[0].store(1, Relaxed);
    let first = found(taker.take()).map(which);
    assert!(matches!(first, None | Some(1)), "not handed over: {first:?}");
    let posted = raises.join().unwrap();
    let rest: Vec<_> = core::iter::from_fn(|| taker.take().unwrap()).map(which).collect();
    let all: Vec<_> = first.into_iter().chain(rest).collect();
    assert_eq!(all, if posted == Posted::Stored { vec![1, 2] } else { vec![1] });
    assert_eq!(taker.lost(), u64::from(posted == Posted::Lost));
}

/// The same with one slot of one level.
fn level_of_one() {
    let words = segment(Form::Slots { levels: 1, depth: 1 });
    let mut raiser = slots::Raiser::attach(words.clone(), 1, 1).unwrap();
    let mut taker = slots::Taker::attach(words, 1, 1).unwrap();
    let copied = zeros(1);
    let raises = {
        let copied = copied.clone();
        thread::spawn(move || {
            assert_eq!(raiser.post(0, &payload(1)), Ok(Posted::Stored));
            let posted = raiser.post(0, &payload(2)).unwrap();
            if posted == Posted::Stored {
                assert_eq!(copied[0].load(Relaxed), 1, "written too early");
            }
            posted
        })
    };
    copied[0].store(1, Relaxed);
    let first = found(taker.take()).map(which);
    assert!(matches!(first, None | Some(1)), "not handed over: {first:?}");
    let posted = raises.join().unwrap();
    let rest: Vec<_> = core::iter::from_fn(|| taker.take().unwrap()).map(which).collect();
    let all: Vec<_> = first.into_iter().chain(rest).collect();
    assert_eq!(all, if posted == Posted::Stored { vec![1, 2] } else { vec![1] });
}

/// The raiser writes a type again while the taker takes the event before. The taker finds either
/// event, whole, and is notified of any event that is left.
fn overwritten() {
    let words = segment(Form::Typed { types: 1 });
    let mut raiser = typed::Raiser::attach(words.clone(), 1).unwrap();
    let mut taker = typed::Taker::attach(words, 1).unwrap();
    assert!(raiser.raise(0, &payload(1)).unwrap().must_notify);
    let raises = thread::spawn(move || raiser.post(0, &payload(2)).unwrap());
    let first = found(taker.take());
    let posted = raises.join().unwrap();
    let rest = taker.take().unwrap();
    for event in [first, rest].into_iter().flatten() {
        assert_eq!(which(event), event.serial + 1, "mixed");
    }
    let counted: u64 = [first, rest].into_iter().flatten().map(|event| event.merged + 1).sum();
    assert_eq!(counted, 2, "{posted:?}");
    let latest = rest.or(first).map(which);
    assert_eq!(latest, Some(2), "the latest was lost");
    assert_eq!(taker.take(), Ok(None));
}

/// The event in an entry agrees with the number of times the entry was written.
fn read_as_it_is_written() {
    let words = segment(Form::Typed { types: 1 });
    let mut raiser = typed::Raiser::attach(words.clone(), 1).unwrap();
    let mut taker = typed::Taker::attach(words, 1).unwrap();
    let raises = thread::spawn(move || {
        raiser.post(0, &payload(1)).unwrap();
    });
    if let Some(event) = found(taker.take()) {
        assert_eq!((event.serial, which(event)), (0, 1), "not handed over");
    }
    raises.join().unwrap();
}

/// Two types, one raised before the taker looks and one meanwhile. The taker is notified of any
/// event that is left.
fn notified_of_types() {
    let words = segment(Form::Typed { types: 2 });
    let mut raiser = typed::Raiser::attach(words.clone(), 2).unwrap();
    let mut taker = typed::Taker::attach(words, 2).unwrap();
    assert!(raiser.raise(1, &payload(1)).unwrap().must_notify);
    assert_eq!(found(taker.take()).map(which), Some(1));
    let raises = thread::spawn(move || raiser.raise(0, &payload(2)).unwrap());
    let taken = taker.take();
    let must_notify = raises.join().unwrap().must_notify;
    if taken == Ok(None) {
        assert!(must_notify, "no notification");
        assert_eq!(found(taker.take()).map(which), Some(2), "notified too early");
    }
}

/// A mark hands an entry over. A taker that finds the mark reads that event or a later one.
fn handed_over_by_a_mark() {
    let words = Arc::new(Words(segment(Form::Typed { types: 1 })));
    let beside = zeros(1);
    let marks = {
        let (words, beside) = (words.clone(), beside.clone());
        let mut marks = RaiserMarks::<TYPE_BITS>::attach(&words, 1).unwrap();
        thread::spawn(move || {
            beside[0].store(1, Relaxed);
            assert!(!marks.mark(&words, 0));
        })
    };
    if TakerMarks::<TYPE_BITS>::attach(&words, 1).unwrap().first(&words).unwrap().is_some() {
        assert_eq!(beside[0].load(Relaxed), 1, "not handed over");
    }
    marks.join().unwrap();
}

/// As many events of a type are pending as its mark can hold. One more is merged while the taker
/// takes. The taker finds the latest event, with the others or alone.
fn merged_into_a_full_mark() {
    merged_into(3);
}

/// The same with a mark that can hold one more.
fn merged_into_a_mark() {
    merged_into(2);
}

fn merged_into(pending: u64) {
    let words = segment(Form::Typed { types: 1 });
    let mut raiser = typed::Raiser::attach(words.clone(), 1).unwrap();
    let mut taker = typed::Taker::attach(words, 1).unwrap();
    for number in 1..=pending {
        raiser.post(0, &payload(number)).unwrap();
    }
    let raises = thread::spawn(move || raiser.post(0, &payload(pending + 1)).unwrap());
    let first = found(taker.take());
    raises.join().unwrap();
    let rest = taker.take().unwrap();
    let counted: u64 = [first, rest].into_iter().flatten().map(|event| event.merged + 1).sum();
    assert_eq!(counted, pending + 1, "the latest was lost");
    assert_eq!(rest.or(first).map(which), Some(pending + 1), "the latest was lost");
    assert_eq!(taker.take(), Ok(None));
}

/// An acquired count of a ring brings what was stored before.
fn count_hands_over() {
    let words = segment(Form::Ring { slots: 1 });
    let mut raiser = ring::Raiser::attach(words.clone(), 1).unwrap();
    let mut taker = ring::Taker::attach(words, 1).unwrap();
    let raises = thread::spawn(move || {
        raiser.post(&payload(1)).unwrap();
    });
    if let Some(event) = found(taker.take()) {
        assert_eq!(event.payload, payload(1), "not handed over");
    }
    raises.join().unwrap();
}

/// A model of a futex. A waiter compares the word and begins to wait in one step.
#[derive(Default)]
struct Futex(loom::sync::Mutex<()>, loom::sync::Condvar);

/// A taker sleeps on its wake word until it has taken an event raised meanwhile. If a wake is lost,
/// the model hangs.
fn woken_by_its_wake_word() {
    let words = segment(Form::Counter);
    let mut raiser = counter::Raiser::attach(words.clone()).unwrap();
    let mut taker = counter::Taker::attach(words).unwrap();
    let line = Arc::new(WakeLine::new(zeros(WAKE_LINE_WORDS)).unwrap());
    let futex = Arc::new(Futex::default());
    let raises = {
        let (line, futex) = (line.clone(), futex.clone());
        thread::spawn(move || {
            if raiser.raise().unwrap() && line.wake_word().notify() {
                let _guard = futex.0.lock().unwrap();
                futex.1.notify_one();
            }
        })
    };
    // The taker looks once without a notification, and afterwards only after one.
    let mut taken = found(taker.take());
    while taken.is_none() {
        let wake_word = line.wake_word();
        if wake_word.prepare_wait() {
            let guard = futex.0.lock().unwrap();
            if wake_word.is_asleep() {
                drop(futex.1.wait(guard).unwrap());
            }
        }
        wake_word.cancel_wait();
        if wake_word.acknowledge() {
            taken = found(taker.take());
            assert!(taken.is_some(), "notified too early");
        }
    }
    raises.join().unwrap();
}

#[test]
fn a_taker_that_sleeps_on_its_wake_word_is_woken() {
    check(None, woken_by_its_wake_word);
}

#[test]
fn no_event_is_slept_through() {
    check(None, notified_of_a_count);
    check(None, notified_of_types);
}

#[test]
fn a_slot_is_written_again_only_once_it_was_copied() {
    check(None, ring_of_one);
    check(None, level_of_one);
    check(None, count_hands_over);
}

#[test]
fn the_latest_event_of_a_type_is_found_whole() {
    check(None, overwritten);
    check(None, read_as_it_is_written);
    check(None, handed_over_by_a_mark);
    check(None, merged_into_a_mark);
    check(None, merged_into_a_full_mark);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::ChannelNotifyFence, notified_of_a_count, "no notification"),
        (Edge::ChannelSettleFence, notified_of_a_count, "no notification"),
        (Edge::ChannelRaised, count_hands_over, "not handed over"),
        (Edge::ChannelRaisedLoad, count_hands_over, "not handed over"),
        (Edge::ChannelAdvance, ring_of_one, "written too early"),
        (Edge::ChannelTaken, ring_of_one, "written too early"),
        (Edge::MarkFree, level_of_one, "written too early"),
        (Edge::MarkFreed, level_of_one, "written too early"),
        (Edge::MarkRaised, handed_over_by_a_mark, "not handed over"),
        (Edge::MarkFound, handed_over_by_a_mark, "not handed over"),
        (Edge::MarkFullFence, merged_into_a_full_mark, "the latest was lost"),
        (Edge::MarkTakenFence, merged_into_a_full_mark, "the latest was lost"),
        (Edge::StampOdd, overwritten, "mixed"),
        (Edge::StampEven, overwritten, "mixed"),
        (Edge::StampFirst, overwritten, "mixed"),
        (Edge::StampSecond, overwritten, "mixed"),
    ]);
}
