use super::*;

fn blank() -> Vec<AtomicU64> {
    (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn counters(first: u64) -> StreamCounters {
    StreamCounters { offered: first, offered_bytes: first + 1, slips: first + 2, errors: first + 3 }
}

#[test]
fn every_byte_is_where_version_1_has_it() {
    let words = blank();
    let parent = LoadParent::create(&words, 2).unwrap();
    let mut child = LoadChild::attach(&words).unwrap();
    parent.start(0x0102_0304_0506_0708);
    parent.stop();
    child.set_running();
    child.stream(0).unwrap().publish(&counters(0x10));
    child.stream(1).unwrap().publish(&counters(0x2000));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0u8; 4096];
    for (offset, expected) in [
        (0, &b"upcload\0"[..]),
        (8, &[1]),                       // version
        (16, &[2]),                      // streams
        (64, &[8, 7, 6, 5, 4, 3, 2, 1]), // start
        (72, &[1]),                      // stop
        (128, &[2]),                     // running
        (192, &[0x10]),
        (200, &[0x11]),
        (208, &[0x12]),
        (216, &[0x13]),
        (256, &[0x00, 0x20]),
        (264, &[0x01, 0x20]),
        (272, &[0x02, 0x20]),
        (280, &[0x03, 0x20]),
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert_eq!((LAYOUT_VERSION, STREAMS_MAX, PAGE_BYTES), (1, 61, 4096));
    assert_eq!(bytes, golden);
}

#[test]
fn the_parent_reads_what_the_child_reports() {
    let words = blank();
    let mut parent = LoadParent::create(&words, STREAMS_MAX).unwrap();
    assert_eq!(parent.poll(), Ok(State::Starting));
    let mut child = LoadChild::attach(&words).unwrap();
    assert_eq!((child.streams(), child.start_at_ns(), child.stop_requested()), (61, None, false));
    child.set_ready();
    assert_eq!(parent.poll(), Ok(State::Ready));
    parent.start(5);
    assert_eq!(child.start_at_ns(), Some(5));
    child.set_running();
    assert!(child.stream(STREAMS_MAX).is_none());
    for stream in 0..STREAMS_MAX {
        child.stream(stream).unwrap().publish(&counters(stream as u64));
    }
    assert_eq!(parent.poll(), Ok(State::Running));
    let expected: Vec<_> = (0..STREAMS_MAX as u64).map(counters).collect();
    assert_eq!(parent.streams(), expected);
    parent.stop();
    assert!(child.stop_requested());
    child.finish();
    assert_eq!(parent.poll(), Ok(State::Done));
    assert_eq!((parent.streams(), parent.state()), (&expected[..], State::Done));
}

#[test]
fn a_start_at_the_epoch_is_a_start() {
    let words = blank();
    LoadParent::create(&words, 1).unwrap().start(0);
    assert_eq!(words[word::START_AT_NS].load(Relaxed), 1);
}

#[test]
fn only_new_pages_are_created() {
    for streams in [0, STREAMS_MAX + 1, usize::MAX] {
        assert_eq!(
            LoadParent::create(&blank(), streams).unwrap_err(),
            LayoutError::Streams { found: streams as u64 }
        );
    }
    for length in [0, PAGE_WORDS - 1, PAGE_WORDS + 1] {
        let words: Vec<_> = (0..length).map(|_| AtomicU64::new(0)).collect();
        let error = LayoutError::Length { found: length };
        assert_eq!(LoadParent::create(&words, 1).unwrap_err(), error);
        assert_eq!(LoadChild::attach(&words).unwrap_err(), error);
    }
    for word in 0..PAGE_WORDS {
        let words = blank();
        words[word].store(1, Relaxed);
        assert_eq!(
            LoadParent::create(&words, 1).unwrap_err(),
            LayoutError::Used { offset: word * 8 }
        );
    }
}

#[test]
fn only_pages_as_the_parent_leaves_them_are_attached() {
    for word in 0..PAGE_WORDS {
        let words = blank();
        LoadParent::create(&words, 3).unwrap();
        words[word].store(1 << 40, Relaxed);
        let expected = match word {
            word::MAGIC => LayoutError::Magic { found: 1 << 40 },
            word::VERSION => LayoutError::Version { found: 1 << 40 },
            word::STREAMS => LayoutError::Streams { found: 1 << 40 },
            word::START_AT_NS | word::STOP => continue, // below
            _ => LayoutError::Used { offset: word * 8 },
        };
        assert_eq!(LoadChild::attach(&words).unwrap_err(), expected);
    }
    assert_eq!(LoadChild::attach(&blank()).unwrap_err(), LayoutError::Magic { found: 0 });
}

#[test]
fn a_late_child_finds_itself_started_and_stopped() {
    let words = blank();
    let parent = LoadParent::create(&words, 1).unwrap();
    parent.start(9);
    parent.stop();
    let child = LoadChild::attach(&words).unwrap();
    assert_eq!((child.start_at_ns(), child.stop_requested()), (Some(9), true));
}

/// A running child of two streams that has reported `counters(10)` for each.
fn running(words: &[AtomicU64]) -> LoadParent<&[AtomicU64]> {
    let mut parent = LoadParent::create(words, 2).unwrap();
    let mut child = LoadChild::attach(words).unwrap();
    child.set_running();
    for stream in 0..2 {
        child.stream(stream).unwrap().publish(&counters(10));
    }
    assert_eq!(parent.poll(), Ok(State::Running));
    parent
}

#[test]
fn every_word_that_the_child_may_not_write_is_checked() {
    // The result of a poll after each word of the child's lines becomes 1.
    for word in word::STATE..PAGE_WORDS {
        let words = blank();
        let mut parent = running(&words);
        words[word].store(1, Relaxed);
        let fault = parent.poll().unwrap_err();
        let (line, within) = (word / 8, word % 8);
        let counter =
            |counter, from| PeerFault::CounterBack { stream: line - 3, counter, from, to: 1 };
        let expected = match (line, within) {
            (2, 0) => PeerFault::StateBack { from: State::Running, to: State::Ready },
            (3 | 4, 0) => counter("offered", 10),
            (3 | 4, 1) => counter("offered_bytes", 11),
            (3 | 4, 2) => counter("slips", 12),
            (3 | 4, 3) => counter("errors", 13),
            _ => PeerFault::Reserved { offset: word * 8 },
        };
        assert_eq!(fault, expected);
        assert_eq!(parent.streams(), [counters(10); 2]);
        assert_eq!(parent.state(), State::Running);
    }
}

#[test]
fn a_state_that_does_not_exist_is_a_fault() {
    for found in [4, 1 << 32, u64::MAX] {
        let words = blank();
        let mut parent = running(&words);
        words[word::STATE].store(found, Relaxed);
        assert_eq!(parent.poll(), Err(PeerFault::State { found }));
    }
}

#[test]
fn a_fault_in_one_stream_leaves_all_counters_as_they_were() {
    let words = blank();
    let mut parent = running(&words);
    words[word::line(0)].store(99, Relaxed);
    words[word::line(1)].store(0, Relaxed);
    assert!(matches!(parent.poll(), Err(PeerFault::CounterBack { stream: 1, .. })));
    assert_eq!(parent.streams(), [counters(10); 2]);
}

#[test]
fn final_counters_are_final() {
    let words = blank();
    let mut parent = running(&words);
    words[word::STATE].store(State::Done as u64, Relaxed);
    assert_eq!(parent.poll(), Ok(State::Done));
    assert_eq!(parent.poll(), Ok(State::Done));
    words[word::line(1)].store(11, Relaxed);
    assert_eq!(parent.poll(), Err(PeerFault::AfterDone { stream: 1 }));
    words[word::STATE].store(State::Running as u64, Relaxed);
    assert_eq!(parent.poll(), Err(PeerFault::StateBack { from: State::Done, to: State::Running }));
}

#[test]
fn errors_say_what_was_found_and_what_was_expected() {
    assert_eq!(
        LayoutError::Version { found: 2 }.to_string(),
        "load page has version 2, expected 1"
    );
    assert_eq!(
        PeerFault::CounterBack { stream: 0, counter: "slips", from: 5, to: 4 }.to_string(),
        "load child's slips of stream 0 fell from 5 to 4"
    );
}
