use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::thread;

type Memory = Vec<AtomicU64>;

const FORMS: [StreamForm; 4] = [
    StreamForm::Bytes { capacity: 64 },
    StreamForm::Messages { capacity: 128 },
    StreamForm::Slots { slots: 4, slot_bytes: 40 },
    StreamForm::Buffers { buffers: 4, buffer_bytes: 40 },
];

fn blank(form: StreamForm) -> Memory {
    (0..form.words().unwrap()).map(|_| AtomicU64::new(0)).collect()
}

fn ends(words: &Memory) -> (Writer<&Memory>, Reader<&Memory>) {
    let end = || Stream::attach(words, 7).unwrap();
    (end().writer().unwrap(), end().reader().unwrap())
}

fn created(form: StreamForm, start_level: u64) -> Memory {
    let words = blank(form);
    Stream::create(&words, form, 7, start_level).unwrap();
    words
}

#[test]
fn every_byte_is_where_version_1_has_it() {
    let form = StreamForm::Buffers { buffers: 2, buffer_bytes: 16 };
    let words = blank(form);
    let stream = Stream::create(&words, form, 0x0506, 1).unwrap();
    let mut writer = Stream::attach(&words, 0x0506).unwrap().writer().unwrap();
    let mut reader = Stream::attach(&words, 0x0506).unwrap().reader().unwrap();
    for text in ["one", "two"] {
        assert!(writer.push(text.as_bytes()).unwrap());
    }
    assert_eq!(writer.commit(), Ok(Due::default()));
    let one = reader.front().unwrap().unwrap().keep().unwrap();
    reader.front().unwrap().unwrap().done();
    reader.give_back(one);
    assert_eq!(reader.release(), Due::default());
    assert_eq!(writer.rest(), (Due::default(), true));
    assert!(reader.wait(2).sleep && stream.mark_dead(End::Reader) && stream.mark_dead(End::Writer));
    assert!(reader.wait(2).due == Due::default());
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0u8; 512 + 64 + 64 + 2 * 64];
    for (offset, expected) in [
        (0, &b"upcstrm\0"[..]),
        (8, &[1]),               // version
        (16, &[6, 5]),           // generation
        (24, &[4]),              // form
        (32, &[2]),              // count
        (40, &[16]),             // bytes of a unit
        (48, &[1]),              // start level
        (64, &[2]),              // written
        (128, &[2]),             // read
        (192, &[1]),             // the reader: claimed
        (200, &[2]),             // died
        (208, &[4]),             // wanted
        (256, &[1]),             // the writer: claimed
        (264, &[2]),             // died
        (320, &[1]),             // active
        (512, &[0, 0, 0, 0, 3]), // descriptors: number, length
        (520, &[1, 0, 0, 0, 3]),
        (576, &[1]), // given back: 1, 0
        (640, b"one"),
        (704, b"two"),
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert_eq!((LAYOUT_VERSION, HEADER_BYTES, WAITING), (1, 512, 1));
    assert_eq!(bytes, golden);
}

#[test]
fn the_data_of_each_form_is_where_version_1_has_it() {
    let places = |form: StreamForm| {
        let words = created(form, 0);
        let (mut writer, _reader) = ends(&words);
        assert!(writer.push(b"ab").unwrap() && writer.push(b"c").unwrap());
        (64..words.len()).map(|at| words[at].load(Relaxed)).collect::<Vec<_>>()
    };
    let word = |bytes: &[u8]| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(whole)
    };
    assert_eq!(places(FORMS[0])[..2], [word(b"abc"), 0]);
    assert_eq!(places(FORMS[1])[..5], [2, word(b"ab"), 1, word(b"c"), 0]);
    let slots = places(FORMS[2]);
    assert_eq!((&slots[..2], &slots[8..10]), (&[2, word(b"ab")][..], &[1, word(b"c")][..]));
}

#[test]
fn only_created_streams_are_attached() {
    for form in FORMS {
        for word in 0..word::DATA {
            let words = created(form, 0);
            words[word].store(1 << 40, Relaxed);
            let offset = word * 8;
            match Stream::attach(&words, 7) {
                Err(LayoutError::Used { offset: found, .. }) => assert_eq!(found, offset),
                Err(_) => assert!(word < 7, "{word}"),
                Ok(_) => assert!(!word::is_reserved(word) && word > 6, "{word}"),
            }
            let new = blank(form);
            new[word].store(1, Relaxed);
            let used = LayoutError::Used { page: "stream", offset };
            assert_eq!(Stream::create(&new, form, 7, 0).unwrap_err(), used);
        }
        let short = &created(form, 0)[1..];
        assert!(Stream::create(short, form, 7, 0).is_err() && Stream::attach(short, 7).is_err());
        assert!(Stream::attach(&short[..5], 7).is_err());
        assert!(Stream::attach(created(form, 0), 8).is_err(), "another generation");
    }
}

#[test]
fn sizes_out_of_range_are_refused() {
    const RING: u32 = 1 << 30;
    const UNIT: u32 = 1 << 24;
    for (form, refused, most) in [
        (StreamForm::Bytes { capacity: 0 }, 0, RING),
        (StreamForm::Bytes { capacity: RING + 1 }, RING + 1, RING),
        (StreamForm::Messages { capacity: u32::MAX }, u32::MAX, RING),
        (StreamForm::Slots { slots: 0, slot_bytes: 8 }, 0, 1 << 16),
        (StreamForm::Slots { slots: 4, slot_bytes: 0 }, 0, UNIT),
        (StreamForm::Buffers { buffers: (1 << 16) + 1, buffer_bytes: 8 }, (1 << 16) + 1, 1 << 16),
        (StreamForm::Buffers { buffers: 4, buffer_bytes: UNIT + 1 }, UNIT + 1, UNIT),
    ] {
        let Err(LayoutError::Value { found, min: 1, max, .. }) = form.words() else {
            panic!("{form:?}");
        };
        assert_eq!((found, max), (u64::from(refused), u64::from(most)), "as asked, not as rounded");
    }
    assert!(Stream::create(blank(FORMS[2]), FORMS[2], 0, 5).is_err(), "level above the slots");
}

#[test]
fn sizes_are_rounded_up_to_the_next_that_are_allowed() {
    for (asked, expected) in [
        (StreamForm::Bytes { capacity: 1 }, StreamForm::Bytes { capacity: 64 }),
        (StreamForm::Messages { capacity: 100 }, StreamForm::Messages { capacity: 128 }),
        (
            StreamForm::Slots { slots: 48, slot_bytes: 12 },
            StreamForm::Slots { slots: 64, slot_bytes: 16 },
        ),
        (
            StreamForm::Buffers { buffers: 3, buffer_bytes: 1 },
            StreamForm::Buffers { buffers: 4, buffer_bytes: 8 },
        ),
    ] {
        assert_eq!((asked.rounded(), asked.words()), (Ok(expected), expected.words()));
        let words = blank(asked);
        assert_eq!(Stream::create(&words, asked, 7, 0).unwrap().form(), expected);
        assert_eq!(Stream::attach(&words, 7).unwrap().form(), expected);
        // The sizes that a peer has written are not rounded.
        words[word::COUNT].store(48, Relaxed);
        assert!(Stream::attach(&words, 7).is_err());
    }
    for form in FORMS {
        assert_eq!(form.rounded(), Ok(form), "allowed already");
    }
}

#[test]
fn an_end_is_claimed_once() {
    let words = created(FORMS[1], 0);
    let (writer, _reader) = ends(&words);
    let _ = writer.end();
    assert!(Stream::attach(&words, 7).unwrap().writer().is_err());
    assert!(Stream::attach(&words, 7).unwrap().reader().is_err());
}

#[test]
fn a_batch_is_seen_only_once_committed() {
    for form in FORMS {
        let words = created(form, 0);
        let (mut writer, mut reader) = ends(&words);
        assert!(writer.push(b"first").unwrap() && writer.push(b"second").unwrap());
        assert!(reader.front().unwrap().is_none());
        let _ = writer.commit();
        assert_eq!(reader.front().unwrap().map(|m| m.is_empty()), Some(false));
    }
}

#[test]
fn only_a_write_that_reaches_the_level_wakes() {
    for form in &FORMS[2..] {
        let words = created(*form, 0);
        let (mut writer, mut reader) = ends(&words);
        assert!(reader.wait(3).sleep);
        for wake in [false, false, true, false] {
            assert!(writer.push(b"x").unwrap());
            assert_eq!(writer.commit(), Ok(Due { wake, start: false }));
        }
        assert!(reader.finish_wait());
        assert_eq!(reader.level(), Ok(4));
        assert!(!reader.wait(4).sleep, "the bytes have come");
        // And the other form: room for one.
        assert!(!writer.push(b"y").unwrap() && writer.wait(1).sleep);
        reader.front().unwrap().unwrap().done();
        assert!(reader.release().wake && writer.finish_wait() && writer.push(b"y").unwrap());
    }
}

#[test]
fn a_wait_for_more_than_fits_ends_when_the_stream_is_full() {
    let words = created(FORMS[2], 0);
    let (mut writer, mut reader) = ends(&words);
    assert!(reader.wait(u64::MAX).sleep);
    for _ in 0..4 {
        assert!(writer.push(b"x").unwrap());
    }
    assert!(writer.commit().unwrap().wake);
}

#[test]
fn a_resting_source_is_started_once_and_only_below_its_level() {
    let words = created(FORMS[2], 2);
    let (mut writer, mut reader) = ends(&words);
    while writer.push(b"x").unwrap() {}
    assert_eq!(writer.rest(), (Due::default(), false));
    let starts: Vec<bool> = (0..4)
        .map(|_| {
            reader.front().unwrap().unwrap().done();
            reader.release().start
        })
        .collect();
    assert_eq!(starts, [false, false, true, false], "4 left 3, 2, 1 and 0");
    // Below the level the source goes on without a start. No reader starts it a second time.
    assert_eq!((writer.rest().1, reader.release().start), (true, false));
}

#[test]
fn the_end_is_reported_after_all_that_was_committed() {
    for form in FORMS {
        for (died, closed) in [(false, Closed::Ended), (true, Closed::Died)] {
            let words = created(form, 0);
            let (mut writer, mut reader) = ends(&words);
            assert!(reader.wait(20).sleep);
            assert!(writer.push(b"kept").unwrap());
            let _ = writer.commit();
            assert!(writer.push(b"never committed").unwrap());
            let wake = match died {
                true => Stream::attach(&words, 7).unwrap().mark_dead(End::Writer),
                false => writer.end(),
            };
            assert!(wake && reader.finish_wait());
            let mut bytes = [0; 40];
            assert_eq!(reader.pop(&mut bytes), Ok(Some(4)));
            assert_eq!(&bytes[..4], b"kept");
            assert_eq!(reader.pop(&mut bytes), Err(StreamError::Closed(closed)));
            assert!(!reader.wait(1).sleep);
            assert_eq!(reader.front().unwrap_err(), closed);
        }
    }
}

#[test]
fn an_end_notified_by_a_dead_peer_that_did_not_wake_it_is_woken() {
    for form in FORMS {
        let words = created(form, 0);
        let (mut writer, mut reader) = ends(&words);
        assert!(reader.wait(1).sleep);
        assert!(writer.push(b"last").unwrap());
        // Killed here, before it wakes the other end.
        assert!(writer.commit().unwrap().wake);
        let view = Stream::attach(&words, 7).unwrap();
        assert!(view.mark_dead(End::Writer), "the reader sleeps");
        // The same for a writer that ended and died before it woke the other end.
        let words = created(form, 0);
        let (writer, mut reader) = ends(&words);
        assert!(reader.wait(1).sleep && writer.end());
        assert!(Stream::attach(&words, 7).unwrap().mark_dead(End::Writer));
    }
}

#[test]
fn a_writer_learns_that_its_reader_is_gone() {
    for form in FORMS {
        let words = created(form, 0);
        let (mut writer, reader) = ends(&words);
        while writer.push(b"x").unwrap() {}
        assert!(writer.wait(1).sleep);
        assert!(reader.end() && writer.finish_wait());
        assert_eq!(writer.push(b"x"), Err(StreamError::Closed(Closed::Ended)));
        assert_eq!(writer.commit(), Err(Closed::Ended));
        assert!(Stream::attach(&words, 7).unwrap().mark_dead(End::Reader));
        assert_eq!(writer.commit(), Err(Closed::Ended), "it ended before it died");
    }
}

#[test]
fn a_message_that_does_not_fit_is_refused_and_not_lost() {
    for form in &FORMS[1..] {
        let words = created(*form, 0);
        let (mut writer, mut reader) = ends(&words);
        let max = if let StreamForm::Messages { .. } = form { 120 } else { 40 };
        assert_eq!(writer.push(&[0; 121]), Err(StreamError::TooLong { found: 121, max }));
        assert!(writer.push(b"twelve bytes").unwrap());
        let _ = writer.commit();
        let mut short = [0; 11];
        assert_eq!(reader.pop(&mut short), Err(StreamError::TooLong { found: 12, max: 11 }));
        assert_eq!(reader.pop(&mut [0; 12]), Ok(Some(12)));
    }
}

#[test]
fn buffers_come_back_in_any_order() {
    let words = created(FORMS[3], 0);
    let (mut writer, mut reader) = ends(&words);
    for round in 0..100u8 {
        for number in 0..4 {
            assert!(writer.push(&[round, number]).unwrap());
        }
        assert!(!writer.push(&[0]).unwrap(), "no buffer is free");
        let _ = writer.commit();
        let mut all = Vec::new();
        while let Some(message) = reader.front().unwrap() {
            all.push(message.keep().unwrap());
        }
        for number in [2, 0, 1, 0].map(|at| all.remove(at.min(all.len() - 1))) {
            let mut bytes = [0; 2];
            reader.kept(&number).copy_to(0, &mut bytes);
            assert_eq!(bytes[0], round);
            reader.give_back(number);
        }
        let _ = reader.release();
    }
}

/// The calls of both ends in a model of a stream, in any order.
#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Commit,
    Pop,
    Keep,
    GiveBack(usize),
    Release,
}

fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..5, any::<u64>(), (0u64..9).prop_map(|n| n << 32)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..=40).prop_map(Step::Push),
        2 => Just(Step::Commit),
        3 => Just(Step::Pop),
        2 => Just(Step::Keep),
        2 => any::<usize>().prop_map(Step::GiveBack),
        2 => Just(Step::Release),
    ]
}

proptest! {
    #[test]
    fn exactly_the_committed_data_is_read(
        form in prop::sample::select(&FORMS[1..]), steps in prop::collection::vec(step(), 0..400),
    ) {
        let words = created(form, 0);
        let (mut writer, mut reader) = ends(&words);
        let (mut staged, mut committed) = (VecDeque::new(), VecDeque::new());
        let (mut kept, mut next) = (Vec::new(), 0u8);
        for step in steps {
            match step {
                Step::Push(len) => {
                    let bytes = (0..len).map(|_| { next = next.wrapping_add(1); next });
                    let bytes: Vec<u8> = bytes.collect();
                    if writer.push(&bytes).unwrap() { staged.push_back(bytes) }
                }
                Step::Commit => { let _ = writer.commit(); committed.append(&mut staged) }
                Step::Pop => {
                    let mut bytes = [0; 40];
                    let found = reader.pop(&mut bytes).unwrap().map(|len| bytes[..len].to_vec());
                    prop_assert_eq!(found, committed.pop_front());
                }
                Step::Keep => if let Some(one) = reader.front().unwrap().and_then(Message::keep) {
                    kept.push((one, committed.pop_front().unwrap()));
                },
                Step::GiveBack(at) => if !kept.is_empty() {
                    let (one, expected) = kept.swap_remove(at % kept.len());
                    let mut bytes = vec![0; expected.len()];
                    prop_assert_eq!(reader.kept(&one).len(), expected.len());
                    reader.kept(&one).copy_to(0, &mut bytes);
                    prop_assert_eq!(bytes, expected);
                    reader.give_back(one);
                },
                Step::Release => { let _ = reader.release(); }
            }
            let (out, units) = (kept.len() + staged.len() + committed.len(), 4);
            let counted = !matches!(form, StreamForm::Messages { .. });
            prop_assert!(!counted || out <= units, "more units are in use than exist");
        }
    }

    #[test]
    fn plain_bytes_come_out_as_they_went_in(
        steps in prop::collection::vec((0usize..=64, 0usize..=64), 0..300),
    ) {
        let words = created(FORMS[0], 0);
        let (mut writer, mut reader) = ends(&words);
        let (mut model, mut next) = (VecDeque::new(), 0u8);
        for (push, pop) in steps {
            let bytes: Vec<u8> = (0..push).map(|_| { next = next.wrapping_add(1); next }).collect();
            let pushed = writer.push(&bytes).unwrap();
            prop_assert_eq!(pushed, model.len() + push <= 64);
            if pushed { model.extend(bytes) }
            let _ = writer.commit();
            let mut bytes = vec![0; pop];
            let found = reader.pop(&mut bytes).unwrap().unwrap_or(0);
            prop_assert_eq!(found, pop.min(model.len()));
            prop_assert!(model.drain(..found).eq(bytes[..found].iter().copied()));
            let _ = reader.release();
        }
    }

    #[test]
    fn a_faulty_peer_ends_the_stream_and_harms_nothing_else(
        form in prop::sample::select(&FORMS[..]),
        writes in prop::collection::vec((any::<usize>(), any_word(), step()), 0..200),
    ) {
        let words = created(form, 2);
        let (mut writer, mut reader) = ends(&words);
        let mut kept = Vec::new();
        let mut faults = (None, None);
        for (at, value, step) in writes {
            words[word::WRITTEN + at % (words.len() - word::WRITTEN)].store(value, Relaxed);
            match step {
                Step::Push(len) => match (writer.push(&vec![1; len]), faults.0) {
                    (Ok(false), Some(_)) => panic!("a call succeeds on a closed stream"),
                    (Err(StreamError::Closed(found)), earlier) => {
                        prop_assert_eq!(earlier.unwrap_or(found), found);
                        faults.0 = Some(found);
                    }
                    _ => {}
                },
                Step::Commit => { let _ = (writer.commit(), writer.rest()); }
                Step::Pop => match (reader.pop(&mut [0; 200]), faults.1) {
                    (Ok(_), Some(_)) => panic!("a call succeeds on a closed stream"),
                    (Err(StreamError::Closed(found)), earlier) => {
                        prop_assert_eq!(earlier.unwrap_or(found), found);
                        faults.1 = Some(found);
                    }
                    _ => {}
                },
                Step::Keep => kept.extend(reader.front().ok().flatten().and_then(Message::keep)),
                Step::GiveBack(_) => if let Some(one) = kept.pop() { reader.give_back(one) },
                Step::Release => {
                    let _ = (reader.release(), reader.wait(at as u64), writer.wait(at % 50));
                }
            }
        }
    }
}

/// Its own number many times, and a checksum.
fn message(number: u64) -> [u64; 3] {
    [number, number.wrapping_mul(0x9E37_79B9_7F4A_7C15), !number]
}

#[test]
fn two_threads_lose_nothing_and_read_nothing_twice() {
    let count = if cfg!(debug_assertions) { 400_000 } else { 10_000_000 };
    for form in [
        StreamForm::Messages { capacity: 4096 },
        StreamForm::Slots { slots: 64, slot_bytes: 24 },
        StreamForm::Buffers { buffers: 64, buffer_bytes: 24 },
    ] {
        let words = created(form, 0);
        let (mut writer, mut reader) = ends(&words);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut bytes = [0; 24];
                for number in 0..count {
                    for (to, from) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(message(number)) {
                        *to = from.to_ne_bytes();
                    }
                    while !writer.push(&bytes).unwrap() {
                        if writer.wait(24).sleep {
                            thread::yield_now();
                        }
                        writer.finish_wait();
                    }
                    if number % 16 == 15 {
                        let _ = writer.commit();
                    }
                }
                let _ = writer.commit();
                let _ = writer.end();
            });
            let (mut bytes, mut expected) = ([0; 24], 0);
            loop {
                match reader.pop(&mut bytes) {
                    Ok(Some(len)) => {
                        let words = bytes.as_chunks::<8>().0.iter().map(|w| u64::from_ne_bytes(*w));
                        assert!(len == 24 && words.eq(message(expected)), "message {expected}");
                        expected += 1;
                    }
                    Ok(None) => {
                        if reader.wait(1).sleep {
                            thread::yield_now();
                        }
                        reader.finish_wait();
                    }
                    Err(error) => {
                        assert_eq!(error, StreamError::Closed(Closed::Ended));
                        break;
                    }
                }
            }
            assert_eq!(expected, count);
        });
    }
}
