use super::*;
use crate::DOMAINS_MAX;
use proptest::prelude::*;

const PAGE: &str = "kernel area";

fn blank() -> Vec<AtomicU64> {
    (0..AREA_WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn domain(number: u32) -> DomainId {
    DomainId::new(number).unwrap()
}

fn generation(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

/// Both ends of a new page in `words`.
fn ends(words: &[AtomicU64]) -> (Writer<&[AtomicU64]>, Reader<&[AtomicU64]>) {
    (Writer::create(words, 1).unwrap(), Reader::attach(words).unwrap())
}

#[test]
fn every_byte_is_where_version_6_has_it() {
    let words = blank();
    let writer = Writer::create(&words, 0x0304).unwrap();
    writer.attach(DomainId::DAEMON, generation(1), 0, 0x0908);
    writer.attach(domain(32), generation(0x0706), 0x21, 0x22);
    writer.set_state(domain(32), State::Demoted);
    writer.request_yield(domain(32));
    writer.interrupt(domain(32), Interrupt::Timer);
    writer.interrupt(domain(32), Interrupt::IoReady);
    writer.interrupt(domain(32), Interrupt::Resume);
    writer.interrupt(domain(32), Interrupt::Resume);
    assert_eq!(writer.count_offence(domain(32)), 1);
    writer.note_idle(0x0201);
    writer.set_interruption_max(0x0403);
    writer.set_unreserved_from(0x0605);
    writer.set_share(domain(32), 0x0f0e);
    writer.set_group_part(domain(1), 0, 0x1110);
    writer.set_group_part(domain(32), 63, 0x1312);
    writer.set_group_part(domain(32), 64, 0x1514);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0u8; 20_480];
    let last = 64 + 32 * 64;
    for (offset, expected) in [
        (0, &b"upckern\0"[..]),
        (8, &[6]),      // version
        (16, &[4, 3]),  // CPU
        (24, &[32]),    // domains
        (32, &[2]),     // epoch
        (40, &[1, 2]),  // when the CPU idled
        (48, &[3, 4]),  // the longest interruption
        (56, &[5, 6]),  // when work without a reservation may run
        (64, &[1]),     // the daemon: attached
        (72, &[1]),     // its generation
        (112, &[8, 9]), // its process
        (last, &[4]),   // the last domain: demoted
        (last + 8, &[6, 7]),
        (last + 16, &[0x21]),                // quantum
        (last + 24, &[1]),                   // yield
        (last + 32, &[1, 0, 0x20, 0, 0, 8]), // 1 << 0, 1 << 21, 2 << 42
        (last + 40, &[1]),                   // offences
        (last + 48, &[0x22]),                // process
        (last + 56, &[0xe, 0xf]),            // part of the CPU
        (2176 + 512, &[0x10, 0x11]),         // the first group of domain 1
        (19_072 - 8, &[0x12, 0x13]),         // the last group of the last domain
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert_eq!((LAYOUT_VERSION, AREA_BYTES), (6, 20_480));
    assert_eq!(bytes, golden);
}

#[test]
fn only_new_pages_are_created() {
    for found in [0, AREA_WORDS - 1, AREA_WORDS + 1] {
        let words: Vec<_> = (0..found).map(|_| AtomicU64::new(0)).collect();
        let error = LayoutError::Length { page: PAGE, found, expected: 2_560 };
        assert_eq!(Writer::create(&words, 1).unwrap_err(), error);
        assert_eq!(Reader::attach(&words).unwrap_err(), error);
    }
    for word in 0..AREA_WORDS {
        let words = blank();
        words[word].store(1, Relaxed);
        let error = LayoutError::Used { page: PAGE, offset: word * 8 };
        assert_eq!(Writer::create(&words, 1).unwrap_err(), error);
    }
}

#[test]
fn only_pages_whose_identity_and_reserved_words_hold_are_attached() {
    for word in 0..AREA_WORDS {
        let words = blank();
        ends(&words);
        let found = 1 << 40;
        words[word].store(found, Relaxed);
        let expected = match (word, word / 8, word % 8) {
            (0, ..) => LayoutError::Magic { page: PAGE, found, expected: KIND.magic },
            (1, ..) => LayoutError::Version { page: PAGE, found, expected: LAYOUT_VERSION },
            (2, ..) => {
                LayoutError::Value { page: PAGE, name: "CPU", found, min: 0, max: 0xffff_ffff }
            }
            (3, ..) => LayoutError::Value { page: PAGE, name: "domains", found, min: 32, max: 32 },
            (4..=7, ..) | (_, 1..298, _) => continue, // in use
            _ => LayoutError::Used { page: PAGE, offset: word * 8 },
        };
        assert_eq!(Reader::attach(&words).unwrap_err(), expected);
    }
}

#[test]
fn generations_tell_domains_with_one_number_apart() {
    let words = blank();
    let (writer, reader) = ends(&words);
    let me = domain(3);
    assert_eq!((reader.cpu(), reader.epoch(), reader.entry(me)), (1, 0, Ok(None)));
    writer.attach(me, generation(5), 1000, 42);
    let entry = Entry {
        state: State::Attached,
        generation: generation(5),
        quantum_ns_max: 1000,
        offences: 0,
        pid: 42,
    };
    assert_eq!((reader.epoch(), reader.entry(me)), (1, Ok(Some(entry))));
    assert_eq!(reader.entry(domain(4)), Ok(None));
    writer.request_yield(me);
    assert_eq!((writer.count_offence(me), writer.count_offence(me)), (1, 2));
    writer.set_state(me, State::Stopped);
    writer.set_quantum(me, 2000);
    let stopped = Entry { state: State::Stopped, offences: 2, quantum_ns_max: 2000, ..entry };
    assert_eq!((reader.epoch(), reader.entry(me)), (1, Ok(Some(stopped))));
    assert_eq!(reader.state(me), Ok(Some(State::Stopped)));
    writer.detach(me);
    assert_eq!((reader.epoch(), reader.entry(me)), (2, Ok(None)));
    writer.attach(me, generation(6), 1000, 42);
    let next = Entry { generation: generation(6), ..entry };
    assert_eq!((reader.epoch(), reader.entry(me)), (3, Ok(Some(next))));
    assert_eq!(reader.yield_requests(me), 0, "asked of the domain before");
}

#[test]
fn each_request_to_yield_is_counted() {
    let words = blank();
    let (writer, reader) = ends(&words);
    assert_eq!(reader.yield_requests(domain(1)), 0);
    writer.request_yield(domain(1));
    writer.request_yield(domain(1));
    assert_eq!(reader.yield_requests(domain(1)), 2);
    assert_eq!(reader.yield_requests(domain(2)), 0);
}

#[test]
fn interrupts_are_found_once_each() {
    let words = blank();
    let (writer, reader) = ends(&words);
    let since = |seen| reader.interrupts(domain(1)).since(seen).collect::<Vec<_>>();
    let first = reader.interrupts(domain(1));
    assert_eq!(since(first), []);
    writer.interrupt(domain(1), Interrupt::IoReady);
    writer.interrupt(domain(1), Interrupt::IoReady);
    writer.interrupt(domain(2), Interrupt::Timer);
    assert_eq!(since(first), [Interrupt::IoReady]);
    let second = reader.interrupts(domain(1));
    assert_eq!(since(second), []);
    writer.interrupt(domain(1), Interrupt::Resume);
    writer.interrupt(domain(1), Interrupt::Timer);
    assert_eq!(since(second), [Interrupt::Timer, Interrupt::Resume]);
    assert_eq!(since(first), Interrupt::ALL);
}

#[test]
fn an_overflowing_count_raises_one_too_many_and_loses_none() {
    let words = blank();
    let (writer, reader) = ends(&words);
    words[word::line(1) + word::INTERRUPTS].store((1 << 21) - 1, Relaxed);
    let seen = reader.interrupts(domain(1));
    writer.interrupt(domain(1), Interrupt::Timer);
    let found: Vec<_> = reader.interrupts(domain(1)).since(seen).collect();
    assert_eq!(found, [Interrupt::Timer, Interrupt::IoReady]);
    words[word::line(1) + word::INTERRUPTS].store(u64::MAX >> 1, Relaxed);
    let seen = reader.interrupts(domain(1));
    writer.interrupt(domain(1), Interrupt::Resume);
    let found: Vec<_> = reader.interrupts(domain(1)).since(seen).collect();
    assert_eq!(found, [Interrupt::Resume]);
}

#[test]
fn an_impossible_value_of_the_daemon_is_a_fault() {
    let words = blank();
    let (writer, reader) = ends(&words);
    writer.attach(domain(1), generation(1), 1, 1);
    let line = word::line(1);
    let fault = |name, found, max| PeerFault::Value { page: PAGE, name, found, max };
    words[line + word::STATE].store(5, Relaxed);
    assert_eq!(reader.entry(domain(1)), Err(fault("state", 5, 4)));
    assert_eq!(reader.state(domain(1)), Err(fault("state", 5, 4)));
    words[line + word::STATE].store(1, Relaxed);
    words[line + word::PID].store(1 << 32, Relaxed);
    assert_eq!(reader.entry(domain(1)), Err(fault("pid", 1 << 32, 0xffff_ffff)));
}

proptest! {
    #[test]
    fn any_page_gives_results_in_range(
        random in prop::collection::vec(any::<u64>(), AREA_WORDS),
        number in 0..=DOMAINS_MAX,
        state in 0..8u64,
        pid in prop_oneof![0..1u64 << 33, any::<u64>()],
        seen in any::<u64>(),
    ) {
        let words = blank();
        let (_, reader) = ends(&words);
        for (word, value) in words.iter().zip(random) {
            word.store(value, Relaxed);
        }
        let line = word::line(number as usize);
        words[line + word::STATE].store(state, Relaxed);
        words[line + word::PID].store(pid, Relaxed);
        match reader.entry(domain(number)) {
            Ok(None) => prop_assert_eq!(state, 0),
            Ok(Some(entry)) => {
                prop_assert_eq!(entry.state as u64, state);
                prop_assert_eq!(u64::from(entry.pid), pid);
            }
            Err(PeerFault::Value { found, max, .. }) => prop_assert!(found > max),
            Err(fault) => prop_assert!(false, "{fault}"),
        }
        prop_assert_eq!(reader.state(domain(number)).is_ok(), state <= 4);
        let kinds = reader.interrupts(domain(number)).since(Interrupts(seen)).count();
        prop_assert!(kinds <= 3);
        prop_assert!(Reader::attach(&words).is_err());
    }
}

#[test]
fn a_domain_reads_its_parts_of_groups_and_a_later_domain_does_not() {
    let words = blank();
    let (writer, reader) = ends(&words);
    writer.attach(domain(3), generation(5), 0, 1);
    writer.set_group_part(domain(3), 0, 250_000);
    writer.set_group_part(domain(3), GROUPS_MAX - 1, 1_000_000);
    let parts = |number| {
        [0, 1, GROUPS_MAX - 1, GROUPS_MAX].map(|group| reader.group_part_ppm(domain(number), group))
    };
    assert_eq!((parts(3), parts(2), parts(4)), ([250_000, 0, 1_000_000, 0], [0; 4], [0; 4]));
    writer.detach(domain(3));
    writer.attach(domain(3), generation(6), 0, 1);
    assert_eq!(parts(3), [0; 4]);
}
