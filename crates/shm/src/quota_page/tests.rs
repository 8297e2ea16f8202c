use super::layout::{SLOT_BYTES, SLOT_OUTCOMES};
use super::*;

/// The layout for the XDP program.
const HEADER: &str = include_str!("quota_page.h");

fn blank() -> Vec<AtomicU64> {
    (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// Stores what the program would: `value` in a word of a slot.
fn store(words: &[AtomicU64], slot: u32, word: usize, value: u64) {
    words[slot as usize * 16 + word].store(value, Relaxed);
}

#[test]
fn every_byte_is_where_the_program_expects_it() {
    let words = blank();
    let owner = Owner::new(&words).unwrap();
    owner.set_quota(SLOT_UNKNOWN, Quota::new(0x0201, 0x0403, 5).unwrap());
    owner.set_quota(SLOT_MAX, Quota::new(7, 0, 1).unwrap());
    owner.set_action(SLOT_UNKNOWN, Action::DropAll);
    owner.set_action(SLOT_MAX, Action::Redirect { socket: 0x0908 });
    owner.set_limit(SLOT_MAX, 0x0b0a);
    owner.set_link(SLOT_MAX, Some([2, 3, 4, 5, 6, 7]));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0_u8; 131_072];
    let last = 1022 * 128;
    for (offset, expected) in [
        (0, &[1, 2][..]),                       // interval
        (8, &[3, 4]),                           // step
        (16, &[5, 10]),                         // depth times interval
        (24, &[2]),                             // drop all
        (last, &[7]),                           // interval
        (last + 16, &[7]),                      // depth times interval
        (last + 24, &[1, 0, 0, 0, 8, 9, 0, 0]), // redirect, socket
        (last + 40, &[0x0a, 0x0b]),             // limit
        (last + 48, &[2, 3, 4, 5, 6, 7, 0, 0]), // link address
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert!(bytes == golden, "first difference: {:?}", (0..).find(|&at| bytes[at] != golden[at]));
}

#[test]
fn every_count_is_read_from_its_word() {
    let words = blank();
    let owner = Owner::new(&words).unwrap();
    (8..16).for_each(|word| store(&words, 5, word, word as u64));
    (0..7).for_each(|word| store(&words, 1023, word, 100 + word as u64));
    let counters = Counters {
        passed: 9,
        dropped: 10,
        contended: 11,
        undelivered: 12,
        behind: 15,
        passed_bytes: 13,
        dropped_bytes: 14,
    };
    assert_eq!((owner.counters(5), owner.next_eligible_ns(5)), (counters, 8));
    assert_eq!(owner.counters(4), Counters::default());
    let outcomes = Outcomes {
        not_ip: 100,
        discovery: 101,
        malformed: 102,
        hidden: 106,
        unknown_fragments: 103,
        known_fragments: 104,
        lost_fragments: 105,
    };
    assert_eq!(owner.outcomes(), outcomes);
}

#[test]
fn a_cleared_slot_is_blank_except_for_its_generation_and_the_others_are_untouched() {
    let words: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(1)).collect();
    Owner::new(&words).unwrap().clear(3);
    for (at, word) in words.iter().enumerate() {
        let expected = match at {
            52 => 2,
            48..64 => 0,
            _ => 1,
        };
        assert_eq!(word.load(Relaxed), expected, "{at}");
    }
}

#[test]
fn a_quota_without_limit_has_no_interval() {
    let words = blank();
    let owner = Owner::new(&words).unwrap();
    owner.set_quota(1, Quota::new(1, 0, 1).unwrap());
    owner.set_quota(1, Quota::UNLIMITED);
    owner.set_action(1, Action::Pass);
    assert!(words.iter().all(|word| word.load(Relaxed) == 0));
}

#[test]
fn only_quotas_whose_sums_fit_are_made() {
    for (interval_ns, step_ns, depth) in [
        (0, 0, 1),
        (1, 0, 0),
        (QUOTA_NS_MAX + 1, 0, 1),
        (QUOTA_NS_MAX / 2 + 1, 0, 2),
        (u64::MAX, 0, u64::MAX),
        (1, QUOTA_NS_MAX + 1, 1),
    ] {
        let refused = Quota::new(interval_ns, step_ns, depth);
        assert_eq!(refused, Err(QuotaError { interval_ns, step_ns, depth }));
    }
    assert!(Quota::new(QUOTA_NS_MAX / 2, QUOTA_NS_MAX, 2).is_ok());
    // The greatest sum of the program, 9 years after the machine was started.
    assert!((QUOTA_NS_MAX * 2).checked_add(QUOTA_NS_MAX).is_some());
    let text = Quota::new(0, 7, 1).unwrap_err().to_string();
    assert!(text.contains("interval 0 ns, step 7 ns, depth 1"), "{text}");
}

#[test]
fn only_a_whole_page_is_one() {
    let words: Vec<AtomicU64> = (1..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
    let expected = PAGE_WORDS;
    let error = LayoutError::Length { page: "quota page", found: expected - 1, expected };
    assert_eq!(Owner::new(&words).unwrap_err(), error);
}

#[test]
#[should_panic(expected = "slot 1023 is greater than 1022")]
fn the_outcomes_are_no_slot() {
    Owner::new(blank()).unwrap().counters(1023);
}

/// The number that the header gives to `name`.
fn constant(name: &str) -> usize {
    let line = HEADER.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// The words of a structure in the header, in order. An array has its name more than once.
fn members(structure: &str) -> Vec<&'static str> {
    let start = format!("struct {structure} {{");
    let body = HEADER.split(&start).nth(1).unwrap().split('}').next().unwrap();
    let lines = body.lines().filter_map(|line| line.trim().strip_prefix("u64 "));
    let words = lines.flat_map(|line| {
        let declared = line.trim_end_matches(';');
        let (name, count) = declared.split_once('[').unwrap_or((declared, "1]"));
        std::iter::repeat_n(name, count.trim_end_matches(']').parse().unwrap())
    });
    words.collect()
}

#[test]
fn the_header_of_the_program_has_the_same_constants() {
    let found = ["SLOTS", "SLOT_BYTES", "SLOT_UNKNOWN", "SLOT_OUTCOMES"].map(constant);
    assert_eq!(found, [SLOTS, SLOT_BYTES, SLOT_UNKNOWN as usize, SLOT_OUTCOMES]);
    let actions = ["ACTION_PASS", "ACTION_REDIRECT", "ACTION_DROP"].map(constant);
    let words = [Action::Pass, Action::Redirect { socket: 0 }, Action::DropAll].map(Action::word);
    assert_eq!(actions.map(|action| action as u64), words);
}

#[test]
fn the_header_of_the_program_has_the_same_words() {
    let slot = members("slot");
    assert_eq!(slot.len() * 8, SLOT_BYTES);
    for (name, word) in [
        ("interval_ns", word::INTERVAL_NS),
        ("step_ns", word::STEP_NS),
        ("depth_ns", word::DEPTH_NS),
        ("action", word::ACTION),
        ("limit", word::LIMIT),
        ("link", word::LINK),
        ("next_eligible_ns", word::NEXT_ELIGIBLE_NS),
        ("passed", word::PASSED),
        ("dropped", word::DROPPED),
        ("contended", word::CONTENDED),
        ("undelivered", word::UNDELIVERED),
        ("passed_bytes", word::PASSED_BYTES),
        ("dropped_bytes", word::DROPPED_BYTES),
        ("behind", word::BEHIND),
    ] {
        assert_eq!(slot[word], name);
    }
    let outcomes = members("outcomes");
    assert_eq!(outcomes.len() * 8, SLOT_BYTES);
    for (name, word) in [
        ("not_ip", word::NOT_IP),
        ("discovery", word::DISCOVERY),
        ("malformed", word::MALFORMED),
        ("unknown_fragments", word::UNKNOWN_FRAGMENTS),
        ("known_fragments", word::KNOWN_FRAGMENTS),
        ("lost_fragments", word::LOST_FRAGMENTS),
        ("hidden", word::HIDDEN),
    ] {
        assert_eq!(outcomes[word - word::slot(SLOT_OUTCOMES)], name);
    }
}
