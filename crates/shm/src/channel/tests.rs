use super::*;

mod models;

const PAGE: &str = "channel";

type Memory = Vec<AtomicU64>;

fn blank(form: Form) -> Memory {
    (0..form.words()).map(|_| AtomicU64::new(0)).collect()
}

fn segment(form: Form) -> Memory {
    let words = blank(form);
    create(&words, form).unwrap();
    words
}

fn payload(first: u64) -> Payload {
    core::array::from_fn(|at| first + at as u64)
}

fn bytes(words: &Memory) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
}

fn golden(len: usize, runs: &[(usize, &[u8])]) -> Vec<u8> {
    let mut golden = vec![0; len];
    golden[..9].copy_from_slice(b"upcchan\0\x02");
    for &(offset, expected) in runs {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    golden
}

const TYPED: Form = Form::Typed { types: 70 };
const SLOTS: Form = Form::Slots { levels: 3, depth: 2 };
const RING: Form = Form::Ring { slots: 4 };
const FORMS: [Form; 4] = [Form::Counter, TYPED, SLOTS, RING];

#[test]
fn every_byte_of_a_counter_is_where_version_2_has_it() {
    let words = segment(Form::Counter);
    let mut raiser = counter::Raiser::attach(&words).unwrap();
    let mut taker = counter::Taker::attach(&words).unwrap();
    for _ in 0..0x102 {
        raiser.post();
    }
    assert_eq!(taker.take(), Ok(Some(0x102)));
    raiser.post();
    let runs: &[(usize, &[u8])] = &[(16, &[1]), (64, &[3, 1]), (128, &[2, 1])];
    assert_eq!(bytes(&words), golden(192, runs));
}

#[test]
fn every_byte_of_typed_entries_is_where_version_2_has_it() {
    let words = segment(TYPED);
    let mut raiser = typed::Raiser::attach(&words, 70).unwrap();
    raiser.post(69, &payload(0x21)).unwrap();
    raiser.post(69, &payload(0x11)).unwrap();
    raiser.post(1, &payload(0x31)).unwrap();
    let mut taker = typed::Taker::attach(&words, 70).unwrap();
    assert_eq!(taker.take().unwrap().unwrap().payload, payload(0x31));
    // 70 bytes of marks, in 2 lines of each end.
    let entries = 192 + 2 * 128;
    let last = entries + 69 * 64;
    let runs: &[(usize, &[u8])] = &[
        (16, &[2]),           // form
        (24, &[70]),          // types
        (32, &[1]),           // depth
        (64, &[3]),           // raised
        (192 + 1, &[1]),      // type 1, raised once
        (192 + 69, &[2]),     // type 69, twice
        (320 + 1, &[1]),      // type 1, taken
        (entries + 64, &[2]), // written once
        (last, &[4]),         // written twice
    ];
    let mut golden = golden(entries + 70 * 64, runs);
    for word in 0..7 {
        golden[entries + 64 + 8 + word * 8] = 0x31 + u8::try_from(word).unwrap();
        golden[last + 8 + word * 8] = 0x11 + u8::try_from(word).unwrap();
    }
    assert_eq!(bytes(&words), golden);
}

#[test]
fn every_byte_of_slots_is_where_version_2_has_it() {
    let words = segment(SLOTS);
    let mut raiser = slots::Raiser::attach(&words, 3, 2).unwrap();
    let mut taker = slots::Taker::attach(&words, 3, 2).unwrap();
    for first in [0x11, 0x21, 0x31] {
        raiser.post(2, &payload(first)).unwrap();
    }
    raiser.post(0, &payload(0x41)).unwrap();
    assert_eq!(taker.take().unwrap().unwrap().payload, payload(0x41));
    let runs: &[(usize, &[u8])] = &[
        (16, &[3]),           // form
        (24, &[3]),           // levels
        (32, &[2]),           // depth
        (64, &[3]),           // raised
        (72, &[1]),           // lost
        (192, &[0b11_0001]),  // raised: both slots of level 2, one of level 0
        (256, &[1]),          // taken: the one of level 0
        (320, &[2]),          // its stamp: 2 events before it
        (320 + 5 * 64, &[1]), // stamp of the second of level 2
    ];
    let mut golden = golden(320 + 6 * 64, runs);
    for (entry, first) in [(0, 0x41), (4, 0x11), (5, 0x21)] {
        for word in 0..7 {
            golden[320 + entry * 64 + 8 + word * 8] = first + u8::try_from(word).unwrap();
        }
    }
    assert_eq!(bytes(&words), golden);
}

#[test]
fn every_byte_of_a_ring_is_where_version_2_has_it() {
    let words = segment(RING);
    let mut raiser = ring::Raiser::attach(&words, 4).unwrap();
    let mut taker = ring::Taker::attach(&words, 4).unwrap();
    for first in [0x11, 0x21, 0x31, 0x41, 0x51] {
        raiser.post(&payload(first)).unwrap();
    }
    taker.take().unwrap();
    raiser.post(&payload(0x61)).unwrap();
    let runs: &[(usize, &[u8])] = &[
        (16, &[4]),  // form
        (24, &[4]),  // slots
        (32, &[1]),  // depth
        (64, &[5]),  // raised
        (72, &[1]),  // lost
        (128, &[1]), // taken
        (192, &[4]), // the fifth
        (256, &[1]),
        (320, &[2]),
        (384, &[3]),
    ];
    let mut golden = golden(192 + 4 * 64, runs);
    for (entry, first) in [(0, 0x61), (1, 0x21), (2, 0x31), (3, 0x41)] {
        for word in 0..7 {
            golden[192 + entry * 64 + 8 + word * 8] = first + u8::try_from(word).unwrap();
        }
    }
    assert_eq!(bytes(&words), golden);
}

#[test]
fn only_valid_forms_are_created_and_only_in_new_memory_of_their_size() {
    for (form, name, found, max) in [
        (Form::Typed { types: 0 }, "types", 0, 512),
        (Form::Typed { types: 513 }, "types", 513, 512),
        (Form::Slots { levels: 0, depth: 2 }, "levels times depth", 0, 512),
        (Form::Slots { levels: 27, depth: 19 }, "levels times depth", 513, 512),
        (Form::Slots { levels: 1 << 31, depth: 2 }, "levels times depth", u32::MAX.into(), 512),
        (Form::Ring { slots: 0 }, "slots (a power of two)", 0, 65_536),
        (Form::Ring { slots: 6 }, "slots (a power of two)", 6, 65_536),
        (Form::Ring { slots: 1 << 17 }, "slots (a power of two)", 1 << 17, 65_536),
    ] {
        let expected = LayoutError::Value { page: PAGE, name, found, min: 1, max };
        assert_eq!(create(Memory::new(), form), Err(expected));
    }
    for form in FORMS {
        let expected = form.words();
        let words = blank(form);
        let error = LayoutError::Length { page: PAGE, found: expected - 1, expected };
        assert_eq!(create(&words[1..], form), Err(error));
        for word in 0..expected {
            words[word].store(1, Relaxed);
            let error = LayoutError::Used { page: PAGE, offset: word * 8 };
            assert_eq!(create(&words, form), Err(error));
            words[word].store(0, Relaxed);
        }
        assert_eq!(create(&words, form), Ok(()));
    }
}

#[test]
fn only_segments_of_the_agreed_form_are_attached() {
    for form in FORMS {
        for word in 0..form.words().min(form.entries_at() + 1) {
            let words = segment(form);
            let found = 1 << 40;
            words[word].store(found, Relaxed);
            let [kind, rows, depth] = form.identity();
            let value = |name, expected| LayoutError::Value {
                page: PAGE,
                name,
                found,
                min: expected,
                max: expected,
            };
            let expected = match word {
                0 => LayoutError::Magic { page: PAGE, found, expected: KIND.magic },
                1 => LayoutError::Version { page: PAGE, found, expected: 2 },
                2 => value("form", kind),
                3 => value("rows", rows),
                4 => value("depth", depth),
                word::RAISED | word::LOST | word::TAKEN => continue, // in use
                _ if word >= form.entries_at() => continue,
                24..33 | 40..49 if form == TYPED => continue,
                24 | 32 if form == SLOTS => continue,
                _ => LayoutError::Used { page: PAGE, offset: word * 8 },
            };
            assert_eq!(attach(&words, form).unwrap_err(), expected);
        }
    }
    // A segment of the same length, but of another form.
    let words = segment(Form::Ring { slots: 8 });
    let error = typed::Taker::attach(&words[..], 6).unwrap_err();
    assert_eq!(error, LayoutError::Value { page: PAGE, name: "form", found: 4, min: 2, max: 2 });
}

#[test]
fn many_events_need_one_notification() {
    let words = segment(Form::Counter);
    let mut raiser = counter::Raiser::attach(&words).unwrap();
    let mut taker = counter::Taker::attach(&words).unwrap();
    assert_eq!(raiser.must_notify(), Ok(false), "nothing was posted");
    assert_eq!(raiser.raise(), Ok(true));
    assert_eq!((raiser.raise(), raiser.raise()), (Ok(false), Ok(false)));
    assert_eq!((taker.take(), taker.take()), (Ok(Some(3)), Ok(None)));
    raiser.post();
    raiser.post();
    assert_eq!((raiser.must_notify(), raiser.must_notify()), (Ok(true), Ok(false)));
    assert_eq!((taker.take(), taker.take()), (Ok(Some(2)), Ok(None)));
}

#[test]
fn the_latest_event_of_a_type_counts_and_the_first_type_comes_first() {
    let words = segment(TYPED);
    let mut raiser = typed::Raiser::attach(&words, 70).unwrap();
    let mut taker = typed::Taker::attach(&words, 70).unwrap();
    let stored = |must_notify| Ok(Raised { posted: Posted::Stored, must_notify });
    let merged = Ok(Raised { posted: Posted::Merged, must_notify: false });
    assert_eq!(raiser.raise(69, &payload(1)), stored(true));
    assert_eq!(raiser.raise(64, &payload(2)), stored(false));
    assert_eq!(raiser.raise(69, &payload(3)), merged);
    assert_eq!(raiser.post(70, &payload(0)), Err(SegmentError::Row { found: 70, rows: 70 }));
    let event =
        |row, serial, merged, first| TakenEvent { row, serial, merged, payload: payload(first) };
    assert_eq!(taker.take(), Ok(Some(event(64, 0, 0, 2))));
    assert_eq!(taker.take(), Ok(Some(event(69, 1, 1, 3))));
    assert_eq!(taker.take(), Ok(None));
    assert_eq!(raiser.raise(69, &payload(4)), stored(true));
    assert_eq!(taker.take(), Ok(Some(event(69, 2, 0, 4))));
}

#[test]
fn a_full_level_counts_lost_events_and_the_others_go_on() {
    let words = segment(SLOTS);
    let mut raiser = slots::Raiser::attach(&words, 3, 2).unwrap();
    let mut taker = slots::Taker::attach(&words, 3, 2).unwrap();
    let posted: Vec<_> =
        [1, 1, 1, 2, 0].map(|level| raiser.post(level, &payload(level.into())).unwrap()).into();
    let (stored, lost) = (Posted::Stored, Posted::Lost);
    assert_eq!(posted, [stored, stored, lost, stored, stored]);
    assert_eq!(raiser.post(3, &payload(0)), Err(SegmentError::Row { found: 3, rows: 3 }));
    let taken: Vec<_> = core::iter::from_fn(|| taker.take().unwrap())
        .map(|event| (event.row, event.serial, event.payload[0]))
        .collect();
    assert_eq!(taken, [(0, 3, 0), (1, 0, 1), (1, 1, 1), (2, 2, 2)]);
    assert_eq!((taker.lost(), taker.lost()), (1, 0));
}

#[test]
fn a_new_end_continues_where_a_dead_one_stopped() {
    let words = segment(TYPED);
    let mut first = typed::Raiser::attach(&words, 70).unwrap();
    let mut dead = typed::Taker::attach(&words, 70).unwrap();
    assert!(first.raise(5, &payload(1)).unwrap().must_notify);
    assert_eq!(dead.take().unwrap().map(|event| event.serial), Some(0));
    let _ = first.post(5, &payload(2));
    let _ = first.post(6, &payload(3));
    words[TYPED.entries_at() + 6 * 8].store(5, Relaxed); // died as it wrote
    let mut raiser = typed::Raiser::attach(&words, 70).unwrap();
    let mut taker = typed::Taker::attach(&words, 70).unwrap();
    assert_eq!(raiser.must_notify(), Ok(true), "the dead raiser may not have notified");
    let event = taker.take().unwrap().unwrap();
    assert_eq!((event.row, event.serial, event.merged), (5, 1, 0));
    assert_eq!(taker.take(), Err(PeerFault::Torn { page: PAGE }));
    assert!(raiser.post(6, &payload(4)).is_ok());
    assert_eq!(taker.take().unwrap().unwrap().payload, payload(4));
    assert_eq!(taker.take(), Ok(None));
}

#[test]
fn an_impossible_value_is_a_fault_and_harms_only_the_segment() {
    let fault = |name, found, max| PeerFault::Value { page: PAGE, name, found, max };
    let words = segment(RING);
    let mut raiser = ring::Raiser::attach(&words, 4).unwrap();
    let mut taker = ring::Taker::attach(&words, 4).unwrap();
    words[word::RAISED].store(5, Relaxed);
    assert_eq!(taker.take(), Err(fault("pending", 5, 4)));
    words[word::RAISED].store(0, Relaxed);
    assert_eq!(taker.take(), Ok(None));
    for _ in 0..3 {
        raiser.post(&payload(1)).unwrap();
    }
    words[word::TAKEN].store(4, Relaxed);
    assert_eq!(raiser.must_notify(), Err(fault("pending", u64::MAX, 3)));
    words[word::TAKEN].store(2, Relaxed);
    assert_eq!(raiser.must_notify(), Ok(true));
    words[word::TAKEN].store(1, Relaxed); // back
    raiser.post(&payload(1)).unwrap();
    assert_eq!(raiser.must_notify(), Err(fault("pending", 3, 2)));
    assert_eq!(
        ring::Raiser::attach(&segment_with(RING, word::TAKEN, 1), 4).unwrap_err(),
        LayoutError::Value { page: PAGE, name: "pending", found: u64::MAX, min: 0, max: 4 }
    );

    let words = segment(SLOTS);
    let mut raiser = slots::Raiser::attach(&words, 3, 2).unwrap();
    let mut taker = slots::Taker::attach(&words, 3, 2).unwrap();
    words[word::MARKS].store(1 << 6, Relaxed);
    assert_eq!(taker.take(), Err(fault("marks", 64, 63)));
    raiser.post(0, &payload(1)).unwrap();
    // A taker that writes impossible marks loses only its own events.
    words[word::taker_marks(6, 1)].store(u64::MAX, Relaxed);
    assert_eq!(raiser.post(0, &payload(1)), Ok(Posted::Stored));
    assert_eq!(raiser.post(0, &payload(1)), Ok(Posted::Lost));
    let words = segment_with(SLOTS, word::MARKS, 64);
    let error = LayoutError::Value { page: PAGE, name: "marks", found: 64, min: 0, max: 63 };
    assert_eq!(slots::Raiser::attach(&words, 3, 2).unwrap_err(), error);

    let words = segment(TYPED);
    let mut taker = typed::Taker::attach(&words, 70).unwrap();
    words[TYPED.entries_at()].store(u64::MAX - 1, Relaxed); // back by one
    words[word::MARKS].store(1, Relaxed);
    let max = u64::MAX >> 2;
    assert_eq!(taker.take(), Err(fault("events of a type", u64::MAX >> 1, max)));
    words[word::MARKS].store(u64::MAX, Relaxed); // marks without events
    words[TYPED.entries_at()].store(0, Relaxed);
    assert_eq!(taker.take(), Ok(None));
}

#[test]
fn more_events_of_a_type_are_merged_than_its_mark_can_hold() {
    let words = segment(TYPED);
    let mut raiser = typed::Raiser::attach(&words, 70).unwrap();
    let mut taker = typed::Taker::attach(&words, 70).unwrap();
    let mut serial = 0;
    // The marks wrap around more than once, from each place.
    for count in [1, 254, 255, 256, 257, 1_000, 1, 512] {
        for number in 0..count {
            let posted = raiser.post(68, &payload(serial)).unwrap();
            assert_eq!(posted, if number == 0 { Posted::Stored } else { Posted::Merged });
            serial += 1;
        }
        let event = taker.take().unwrap().unwrap();
        let found = (event.row, event.serial, event.merged, event.payload);
        assert_eq!(found, (68, serial - 1, count - 1, payload(serial - 1)));
        assert_eq!(taker.take(), Ok(None));
    }
    // A new taker counts the pending events, as far as the mark can count them.
    for _ in 0..3 {
        raiser.post(0, &payload(1)).unwrap();
    }
    let mut taker = typed::Taker::attach(&words, 70).unwrap();
    assert_eq!(taker.take().unwrap().map(|event| event.merged), Some(2));
}

fn segment_with(form: Form, word: usize, value: u64) -> Memory {
    let words = segment(form);
    words[word].store(value, Relaxed);
    words
}

/// A taker that sleeps until it is notified, and a raiser that notifies only when it must. Both run
/// as fast as they can, with this machine's own memory model.
#[test]
fn no_event_is_slept_through_between_threads() {
    const EVENTS: u64 = 20_000;
    let words = segment(RING);
    let mut raiser = ring::Raiser::attach(&words, 4).unwrap();
    let mut taker = ring::Taker::attach(&words, 4).unwrap();
    let (notify, notified) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for serial in 0..EVENTS {
                loop {
                    let raised = raiser.raise(&payload(serial)).unwrap();
                    if raised.must_notify {
                        notify.send(()).unwrap();
                    }
                    if raised.posted == Posted::Stored {
                        break;
                    }
                    std::thread::yield_now();
                }
            }
        });
        let mut taken = 0;
        while taken < EVENTS {
            notified.recv().expect("the raiser left without a notification");
            while let Some(event) = taker.take().unwrap() {
                assert_eq!((event.serial, event.payload), (taken, payload(taken)));
                taken += 1;
            }
        }
    });
    assert_eq!(taker.take(), Ok(None));
}
