use super::*;
use crate::{DomainId, Ordering, PeerFault};
use Ordering::Relaxed;
use core::sync::atomic::AtomicBool;
use proptest::prelude::*;
use std::thread;

const ME: DomainId = DomainId::new(7).unwrap();
const PAGE: &str = "user area";

fn blank(slot_pages: usize) -> Vec<AtomicU64> {
    (0..words_of(slot_pages)).map(|_| AtomicU64::new(0)).collect()
}

fn rank(key: u64, order: u64) -> Rank {
    Rank::new(key, u32::try_from(order).unwrap())
}

fn slot(next_release_ns: u64, key: u64, order: u64) -> Slot {
    Slot { next_release_ns, rank: rank(key, order), state: SlotState::Waiting }
}

/// Both ends of a new area in `words`.
fn ends(words: &[AtomicU64]) -> (Owner<&[AtomicU64]>, Peer<&[AtomicU64]>) {
    let owner = Owner::create(words, ME, 9).unwrap();
    (owner, Peer::attach(words, ME, 9).unwrap())
}

/// Also checks that the best rank of a rival is the best of the area.
fn preempts_at(peer: &Peer<&[AtomicU64]>, running: Rank) -> Result<u64, PeerFault> {
    let rival = peer.rival(running, 150);
    assert_eq!(rival.map(|rival| rival.best), peer.best(150));
    rival.map(|rival| rival.preempts_at_ns)
}

fn copy(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(|word| word.load(Relaxed)).collect()
}

#[test]
fn every_byte_is_where_version_4_has_it() {
    let words = blank(2);
    let mut owner = Owner::create(&words, ME, 0x0506).unwrap();
    owner.set(1, Slot { state: SlotState::Running, ..slot(0x11, 0x12, 0x13) }).unwrap();
    let with_event = Rank { event: 0x24, ..rank(0x22, 0x23) };
    owner.set(130, Slot { rank: with_event, ..slot(0x21, 0, 0) }).unwrap();
    let ready = Rank { event: 0x34, ..rank(0x31, 0x32) };
    assert!(owner.publish(Some(Pending { rank: ready, first: 0x30, since_ns: 0x33 })));
    owner.set_running(Some(1), 0x41);
    owner.set_asked(0x42);
    owner.set_outside_wakes(true);
    owner.set_awaits_idle(true);
    assert_eq!(owner.mask(Mask::Preemption), 1);
    assert_eq!((owner.mask(Mask::Interrupts), owner.mask(Mask::Interrupts)), (1, 2));
    owner.count(&Counters {
        upcalls: 0x51,
        switches: 0x52,
        jobs: 0x53,
        misses: 0x54,
        pdus: 0x55,
        handoffs: 0x56,
        slack_ns_min: -2,
    });
    let bytes: Vec<u8> = copy(&words).into_iter().flat_map(u64::to_le_bytes).collect();
    let mut golden = vec![0u8; 3 * 4096];
    // A free slot: no release, the worst rank.
    for slot in (0..=130).map(|slot| 4096 + slot * 32) {
        golden[slot..slot + 24].fill(0xff);
    }
    for (offset, expected) in [
        (0, &b"upcuser\0"[..]),
        (8, &[4]),                                                // version
        (16, &[7]),                                               // domain
        (24, &[6, 5]),                                            // generation
        (32, &[0, 1]),                                            // slots
        (64, &[2]),                                               // sequence
        (72, &[0x31]),                                            // ready key
        (80, &[0x32, 0, 0, 0, 0x30]),                             // ready order, first
        (88, &[131]),                                             // slots used
        (96, &[2]),                                               // running: slot 1
        (104, &[0x41]),                                           // upcalled at
        (112, &[0x33]),                                           // ready since
        (120, &[0x34]),                                           // ready event
        (128, &[1]),                                              // preemption mask
        (136, &[2]),                                              // interrupt mask
        (144, &[0x42]),                                           // asked at
        (152, &[1]),                                              // outside wakes
        (160, &[1]),                                              // awaits idle
        (192, &[0x51]),                                           // upcalls
        (200, &[0x52]),                                           // switches
        (208, &[0x53]),                                           // jobs
        (216, &[0x54]),                                           // misses
        (224, &[0x55]),                                           // PDUs
        (232, &[0x56]),                                           // hand-offs
        (240, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), // slack
        (4128, &[0x11, 0, 0, 0, 0, 0, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0]),
        (4144, &[0xff; 8]), // no event
        (4152, &[0x13, 0, 0, 0, 4]),
        (8256, &[0x21, 0, 0, 0, 0, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0]),
        (8272, &[0x24, 0, 0, 0, 0, 0, 0, 0, 0x23, 0, 0, 0, 2]),
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert_eq!((LAYOUT_VERSION, PAGE_SLOTS, PAGE_BYTES), (4, 128, 4096));
    assert_eq!(bytes, golden);
}

#[test]
fn only_new_areas_are_created() {
    for (found, expected) in [(0, 1024), (512, 1024), (1023, 1024), (1025, 1536), (9999, 4608)] {
        let words: Vec<_> = (0..found).map(|_| AtomicU64::new(0)).collect();
        let error = LayoutError::Length { page: PAGE, found, expected };
        assert_eq!(Owner::create(&words, ME, 0).unwrap_err(), error);
        assert_eq!(Peer::attach(&words, ME, 0).unwrap_err(), error);
    }
    for word in 0..words_of(1) {
        let words = blank(1);
        words[word].store(1, Relaxed);
        let error = LayoutError::Used { page: PAGE, offset: word * 8 };
        assert_eq!(Owner::create(&words, ME, 0).unwrap_err(), error);
    }
}

#[test]
fn only_areas_whose_identity_and_reserved_words_hold_are_attached() {
    for word in 0..words_of(1) {
        let words = blank(1);
        let (_, peer) = ends(&words);
        let found = 1 << 40;
        words[word].store(found, Relaxed);
        let wrong = |name, expected| LayoutError::Value {
            page: PAGE,
            name,
            found,
            min: expected,
            max: expected,
        };
        let expected = match word {
            0 => LayoutError::Magic { page: PAGE, found, expected: KIND.magic },
            1 => LayoutError::Version { page: PAGE, found, expected: 4 },
            2 => wrong("domain", 7),
            3 => wrong("generation", 9),
            4 => wrong("slots", 128),
            8..=15 | 16..=20 | 24..=30 | 512.. => continue, // in use
            _ => LayoutError::Used { page: PAGE, offset: word * 8 },
        };
        assert_eq!(Peer::attach(&words, ME, 9).unwrap_err(), expected);
        let reserved = matches!(expected, LayoutError::Used { .. });
        let fault = PeerFault::Reserved { page: PAGE, offset: word * 8 };
        assert_eq!(peer.audit().err(), reserved.then_some(fault));
    }
    let words = blank(1);
    drop(ends(&words));
    let error = Peer::attach(&words, ME, 8).unwrap_err();
    assert_eq!(error.to_string(), "user area has generation 9, expected 8");
}

#[test]
fn a_new_area_has_nothing_to_run() {
    let words = blank(SLOT_PAGES_MAX);
    let (owner, peer) = ends(&words);
    assert_eq!((owner.slots(), peer.slots()), (1024, 1024));
    assert_eq!(peer.best(NEVER), Ok(None));
    assert_eq!(peer.next_release(), Ok(NEVER));
    assert_eq!(preempts_at(&peer, NO_RANK), Ok(NEVER));
    assert_eq!(peer.slot(0), Ok(Slot::FREE));
    assert_eq!(peer.counters(), Counters::default());
    let running = Running { slot: None, upcalled_at_ns: 0, asked_at_ns: 0 };
    assert_eq!(peer.running(), Ok(running));
}

#[test]
fn the_best_rank_counts_ready_and_since_released_activities() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    owner.set(0, slot(100, 40, 0)).unwrap();
    owner.set(1, slot(200, 20, 1)).unwrap();
    owner.set(2, slot(NEVER, 10, 2)).unwrap();
    owner.publish(Some(rank(30, 3).into()));
    for (now_ns, best) in [(0, (30, 3)), (100, (30, 3)), (199, (30, 3)), (200, (20, 1))] {
        assert_eq!(peer.best(now_ns), Ok(Some(rank(best.0, best.1))));
    }
    owner.publish(None);
    assert_eq!(peer.best(99), Ok(None));
    assert_eq!(peer.best(100), Ok(Some(rank(40, 0))));
    assert_eq!(peer.best(200), Ok(Some(rank(20, 1))));
}

#[test]
fn equal_keys_are_told_apart_by_order() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    owner.set(0, slot(5, 40, 7)).unwrap();
    owner.publish(Some(rank(40, 8).into()));
    assert_eq!(peer.best(5), Ok(Some(rank(40, 7))));
    assert_eq!(preempts_at(&peer, rank(40, 8)), Ok(5));
    assert_eq!(preempts_at(&peer, rank(40, 7)), Ok(NEVER));
}

#[test]
fn the_most_urgent_event_wins_among_equal_keys_and_preempts_none() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    let with_event = |order, event| Rank { event, ..rank(40, order) };
    owner.set(0, Slot { rank: with_event(7, 100), ..slot(5, 0, 0) }).unwrap();
    owner.set(1, Slot { rank: with_event(9, 50), ..slot(8, 0, 0) }).unwrap();
    owner.publish(Some(rank(40, 3).into()));
    for (now_ns, best) in [(4, rank(40, 3)), (5, with_event(7, 100)), (8, with_event(9, 50))] {
        assert_eq!(peer.best(now_ns), Ok(Some(best)));
    }
    // A smaller key goes first, even against an event.
    assert!(rank(39, 9) < with_event(1, 0));
    owner.publish(None);
    // An activity that runs with an event keeps its place. Without one it yields to an earlier
    // place in the order.
    for (running, at_ns) in [
        (rank(40, 8), 5),
        (rank(40, 6), NEVER),
        (with_event(8, 100), NEVER),
        (with_event(8, 101), NEVER),
        (Rank { event: 0, ..rank(41, 0) }, 5),
    ] {
        assert_eq!(preempts_at(&peer, running), Ok(at_ns), "{running:?}");
    }
    // An event of a later activity does not hide one that is ready.
    let ready = Pending { rank: with_event(9, 50), first: 2, since_ns: 1 };
    owner.publish(Some(ready));
    assert_eq!(peer.best(4), Ok(Some(with_event(9, 50))));
    assert_eq!(preempts_at(&peer, rank(40, 3)), Ok(1));
    assert_eq!(preempts_at(&peer, rank(40, 2)), Ok(NEVER));
    assert_eq!(peer.summary(4).unwrap().pending(4), Some(Pending { since_ns: 0, ..ready }));
    // Nor does the event hide it if the work is combined with activities of another key.
    let all = Pending::from(rank(41, 0)).and(ready).and(rank(40, 1).into());
    assert_eq!(all, Pending { first: 1, since_ns: 0, ..ready });
}

#[test]
fn a_slot_preempts_from_its_earliest_release_on() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    for (index, (release, key)) in [(300, 10), (200, 20), (100, 30)].into_iter().enumerate() {
        owner.set(index, slot(release, key, 0)).unwrap();
    }
    owner.publish(None);
    for (key, at_ns) in [(31, 100), (30, 200), (15, 300), (10, NEVER)] {
        assert_eq!(preempts_at(&peer, rank(key, 0)), Ok(at_ns));
    }
    assert_eq!(peer.next_release(), Ok(100));
}

#[test]
fn slots_below_the_first_one_set_are_free_and_not_released_at_0() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    owner.set(5, slot(100, 1, 1)).unwrap();
    owner.publish(None);
    assert_eq!(peer.best(99), Ok(None));
    assert_eq!(peer.next_release(), Ok(100));
    assert_eq!(peer.slot(4), Ok(Slot::FREE));
    assert_eq!(peer.slot(5), Ok(slot(100, 1, 1)));
    assert_eq!(peer.slot(usize::MAX), Ok(Slot::FREE));
}

#[test]
fn only_what_changed_is_written() {
    let words = blank(1);
    let (mut owner, _) = ends(&words);
    for index in 0..70 {
        owner.set(index, slot(100, 1, 1)).unwrap();
    }
    assert!(owner.publish(Some(rank(1, 1).into())));
    // A word that is not written keeps this value.
    for word in &words[5..] {
        word.store(77, Relaxed);
    }
    let before = copy(&words);
    owner.set(3, slot(100, 1, 1)).unwrap();
    assert!(!owner.publish(Some(rank(1, 1).into())), "nothing is new");
    assert_eq!(copy(&words), before);
    owner.set(65, slot(200, 1, 1)).unwrap();
    assert!(owner.publish(Some(rank(1, 1).into())));
    let mut expected = before;
    expected[word::SEQUENCE] = 4;
    expected[word::slot(65)..word::slot(66)].copy_from_slice(&[200, 1, NEVER, 1 | 2 << 32]);
    assert_eq!(copy(&words), expected);
}

#[test]
fn a_slot_that_does_not_exist_is_refused() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    let error = owner.set(128, Slot::FREE).unwrap_err();
    assert_eq!(error.to_string(), "user area has no slot 128, expected below 128");
    owner.set(127, slot(1, 2, 3)).unwrap();
    owner.publish(None);
    assert_eq!(peer.best(1), Ok(Some(rank(2, 3))));
}

#[test]
fn a_ready_key_of_never_counts_as_one_less() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    owner.publish(Some(rank(NEVER, 4).into()));
    assert_eq!(peer.best(0), Ok(Some(rank(NEVER - 1, 4))));
}

#[test]
fn masks_nest_down_to_level_0() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    for mask in [Mask::Preemption, Mask::Interrupts] {
        assert!(!peer.is_masked(mask));
        assert_eq!((owner.mask(mask), owner.mask(mask)), (1, 2));
        assert_eq!(owner.unmask(mask), 1);
        assert!(peer.is_masked(mask));
        assert_eq!((owner.unmask(mask), owner.unmask(mask)), (0, 0));
        assert!(!peer.is_masked(mask));
    }
}

#[test]
fn what_runs_is_published() {
    let words = blank(1);
    let (owner, peer) = ends(&words);
    owner.set_running(Some(127), 5);
    owner.set_asked(6);
    let running = Running { slot: Some(127), upcalled_at_ns: 5, asked_at_ns: 6 };
    assert_eq!(peer.running(), Ok(running));
    words[word::RUNNING].store(129, Relaxed);
    let fault = PeerFault::Value { page: PAGE, name: "running", found: 129, max: 128 };
    assert_eq!(peer.running(), Err(fault));
}

#[test]
fn reading_from_an_owner_stopped_in_a_write_fails_without_waiting() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    words[word::SEQUENCE].store(1, Relaxed);
    let fault = PeerFault::Torn { page: PAGE };
    assert_eq!(peer.best(0), Err(fault));
    assert_eq!(preempts_at(&peer, rank(1, 1)), Err(fault));
    assert_eq!(peer.next_release(), Err(fault));
    assert_eq!(peer.slot(0), Err(fault));
    assert!(
        owner.publish(Some(rank(1, 1).into())),
        "an owner never reads what a peer might have spoilt"
    );
    assert_eq!(peer.best(0), Ok(Some(rank(1, 1))));
}

#[test]
fn impossible_slots_are_faults() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    owner.set(0, slot(1, 1, 1)).unwrap();
    owner.publish(None);
    words[word::slot(0) + word::ORDER_STATE].store(1 | 5 << 32, Relaxed);
    let fault = PeerFault::Value { page: PAGE, name: "slot state", found: 5, max: 4 };
    assert_eq!(peer.slot(0), Err(fault));
    assert_eq!(peer.best(1), Ok(Some(rank(1, 1))), "a state is only for display");
    for found in [129, 1 << 32, u64::MAX] {
        words[word::SLOTS_USED].store(found, Relaxed);
        let fault = PeerFault::Value { page: PAGE, name: "slots used", found, max: 128 };
        assert_eq!(peer.best(0), Err(fault));
        assert_eq!(peer.next_release(), Err(fault));
    }
}

#[test]
fn a_reader_sees_whole_publications_or_a_tear() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    let over = AtomicBool::new(false);
    let (whole, torn) = thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                // Together they always identify the round.
                owner.set(0, slot(round, round, round)).unwrap();
                owner.set(1, slot(round, round, round)).unwrap();
                owner.publish(Some(rank(round, round).into()));
                if over.load(Relaxed) {
                    break;
                }
            }
        });
        let (mut whole, mut torn) = (0u32, 0u32);
        while whole < 20_000 && torn < 2_000_000 {
            match peer.best(NEVER - 1) {
                Ok(best) => {
                    assert!(best.is_none_or(|best| best.key == u64::from(best.order)), "{best:?}");
                    whole += 1;
                }
                Err(fault) => {
                    assert_eq!(fault, PeerFault::Torn { page: PAGE });
                    torn += 1;
                }
            }
        }
        over.store(true, Relaxed);
        (whole, torn)
    });
    assert!(whole > 0, "{torn} tears and nothing else");
}

#[test]
fn a_summary_has_the_releases_that_matter_and_says_until_when_it_is_whole() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    // Later and worse than the first, or equal to it: one release matters.
    for index in 0..100 {
        owner.set(index, slot(1_000 + index as u64 / 2, 50, 1)).unwrap();
    }
    owner.publish(None);
    let summary = peer.summary(0).unwrap();
    assert_eq!(summary.releases(), [(1_000, rank(50, 1))]);
    assert!(peer.is_current(&summary, NEVER - 1) && !summary.is_of(4, 0));
    // Each later than the one before, and better: 16 have room, and those that have come by now
    // count as one.
    for index in 0..100 {
        owner.set(index, slot(1_000 + index as u64, 200 - index as u64, 1)).unwrap();
    }
    owner.publish(None);
    assert!(!peer.is_current(&summary, 0));
    for (now_ns, first) in [(0, 1_000), (1_010, 1_010), (1_084, 1_084)] {
        let summary = peer.summary(now_ns).unwrap();
        let kept: Vec<_> = summary.releases().iter().map(|release| release.0).collect();
        let last = (first + 15).min(1_099);
        assert_eq!(kept, Vec::from_iter(first..=last));
        assert!(peer.is_current(&summary, last));
        assert_eq!(peer.is_current(&summary, last + 1), last == 1_099);
    }
    // An event decides who goes first, and the place in the order who preempts: both matter.
    let with_event = Rank { event: 3, ..rank(40, 9) };
    owner.set(0, Slot { rank: with_event, ..slot(5, 0, 0) }).unwrap();
    owner.set(1, slot(6, 40, 2)).unwrap();
    owner.publish(None);
    let pending = peer.summary(7).unwrap().pending(7).unwrap();
    assert_eq!(pending, Pending { rank: with_event, first: 2, since_ns: 0 });
}

/// Work of keys above the limit does not count, nor what is released later.
#[test]
fn a_summary_says_since_when_work_with_a_low_key_has_waited() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    let since = |limit, at_ns| peer.summary(at_ns).unwrap().waits_since_ns(limit, at_ns);
    assert_eq!(since(NEVER, 9), None);
    owner.set(0, slot(5, 40, 0)).unwrap();
    owner.set(1, slot(3, 70, 1)).unwrap();
    owner.publish(None);
    assert_eq!(
        [since(50, 2), since(50, 4), since(50, 5), since(50, 9)],
        [None, None, Some(5), Some(5)]
    );
    assert_eq!([since(71, 2), since(71, 3), since(71, 4)], [None, Some(3), Some(3)]);
    // A better one hides it.
    assert_eq!(since(71, 9), Some(5));
    owner.publish(Some(Pending { since_ns: 2, ..rank(45, 2).into() }));
    assert_eq!([since(50, 1), since(50, 9), since(45, 9)], [None, Some(2), Some(5)]);
    // It does not say since when.
    owner.publish(Some(rank(45, 2).into()));
    assert_eq!([since(50, 9), since(45, 9)], [Some(0), Some(5)]);
}

/// Checks the result of a read of any memory: a value for which `answer` is true, or a fault that
/// states what was found.
fn typed<T>(read: Result<T, PeerFault>, answer: impl Fn(&T) -> bool) -> bool {
    match read {
        Ok(read) => answer(&read),
        Err(PeerFault::Torn { .. }) => true,
        Err(PeerFault::Value { found, max, .. }) => found > max,
        Err(_) => false,
    }
}

proptest! {
    #[test]
    fn any_area_gives_results_in_range(
        random in prop::collection::vec(any::<u64>(), words_of(1)),
        // Most random words are refused at once, so some are made valid here.
        sequence in any::<u64>(),
        slots_used in prop_oneof![0..=128u64, any::<u64>()],
        running in prop_oneof![0..=128u64, any::<u64>()],
        even in any::<bool>(),
        states in prop_oneof![Just(5u64), Just(1 << 32)],
        index in 0..200usize,
        now_ns in any::<u64>(),
        key in any::<u64>(),
    ) {
        let words = blank(1);
        let (_, peer) = ends(&words);
        for (word, value) in words.iter().zip(random) {
            word.store(value, Relaxed);
        }
        words[word::SEQUENCE].store(sequence & !u64::from(even), Relaxed);
        words[word::SLOTS_USED].store(slots_used, Relaxed);
        words[word::RUNNING].store(running, Relaxed);
        if index < 128 {
            let state = &words[word::slot(index) + word::ORDER_STATE];
            state.store(((state.load(Relaxed) >> 32) % states) << 32, Relaxed);
        }
        let best = peer.best(now_ns);
        prop_assert!(typed(best, |best| best.is_none_or(|best| best.key != NEVER)));
        let next = peer.next_release();
        prop_assert!(typed(next, |_| true));
        let preempts_at = preempts_at(&peer, rank(key, 0));
        let since_ns = words[word::READY_SINCE_NS].load(Relaxed);
        prop_assert!(typed(preempts_at, |&at| next.is_ok_and(|next| next.min(since_ns) <= at)));
        prop_assert!(typed(peer.slot(index), |_| true));
        prop_assert!(typed(peer.running(), |running| running.slot.is_none_or(|slot| slot < 128)));
        peer.counters();
        prop_assert!(peer.audit().is_err());
        prop_assert!(Peer::attach(&words, ME, 9).is_err());
    }

    #[test]
    fn peers_read_what_is_set_and_published(
        sets in prop::collection::vec((0..128usize, 1..50u64, 1..50u64, 0..8u64), 0..60),
        each in 1..10usize,
        now_ns in 0..60u64,
        ready in prop::option::of((1..50u64, 0..8u64, 0..60u64)),
        than in 0..60u64,
    ) {
        let words = blank(1);
        let (mut owner, peer) = ends(&words);
        let mut known = [Slot::FREE; 128];
        let pending = |(key, order, since_ns)| Pending { since_ns, ..rank(key, order).into() };
        let ready = ready.map(pending);
        for sets in sets.chunks(each) {
            for &(index, release, key, order) in sets {
                known[index] = slot(release, key, order);
                owner.set(index, known[index]).unwrap();
            }
            owner.publish(ready);
        }
        owner.publish(ready);
        let released = known.iter().filter(|slot| slot.next_release_ns <= now_ns);
        let waits = ready.filter(|ready| ready.since_ns <= now_ns).map(|ready| ready.rank);
        let best = released.map(|slot| slot.rank).chain(waits).min();
        prop_assert_eq!(peer.best(now_ns), Ok(best));
        let summary = peer.summary(now_ns).unwrap();
        prop_assert!(peer.is_current(&summary, now_ns));
        for at_ns in (now_ns..60).filter(|&at_ns| peer.is_current(&summary, at_ns)) {
            prop_assert_eq!(Ok(summary.best(at_ns)), peer.best(at_ns));
        }
        let earliest = |slots: &mut dyn Iterator<Item = &Slot>| {
            slots.map(|slot| slot.next_release_ns).min().unwrap_or(NEVER)
        };
        prop_assert_eq!(peer.next_release(), Ok(earliest(&mut known.iter())));
        let better = &mut known.iter().filter(|slot| slot.rank < rank(than, 4));
        let outranks = ready.filter(|ready| ready.rank < rank(than, 4));
        let since_ns = outranks.map_or(NEVER, |ready| ready.since_ns);
        let preempts_at_ns = earliest(better).min(since_ns);
        prop_assert_eq!(peer.rival(rank(than, 4), now_ns), Ok(Rival { preempts_at_ns, best }));
        for (index, slot) in known.into_iter().enumerate() {
            prop_assert_eq!(peer.slot(index), Ok(slot));
        }
    }
}

/// A domain whose work waits for a moment has nothing to run before it, and then at once.
#[test]
fn work_that_is_ready_later_is_as_a_release() {
    let words = blank(1);
    let (mut owner, peer) = ends(&words);
    owner.set(0, slot(300, 10, 0)).unwrap();
    owner.publish(Some(Pending { since_ns: 200, ..rank(90, 0).into() }));
    let summary = peer.summary(100).unwrap();
    assert_eq!((summary.ready(), summary.next_release_ns()), (None, 200));
    for (at_ns, expected) in [(199, None), (200, Some(90)), (299, Some(90)), (300, Some(10))] {
        let expected = expected.map(|key| rank(key, 0));
        assert_eq!((peer.best(at_ns), summary.best(at_ns)), (Ok(expected), expected), "{at_ns}");
    }
    let mut others = Summary::EMPTY;
    others.add_upcoming(&summary, 100);
    assert_eq!(others.releases(), [(200, rank(90, 0)), (300, rank(10, 0))]);
    // Work that never becomes ready stays in sight of those who check the rank.
    owner.publish(Some(Pending { since_ns: NEVER, ..rank(90, 0).into() }));
    assert_eq!(peer.summary(100).unwrap().ready(), Some(rank(90, 0)));
}

#[test]
fn later_pages_of_slots_are_written_before_use_and_untouched_before() {
    let words = blank(4);
    // In a new area these words are 0, but neither end reads them.
    words[words_of(1)..].iter().for_each(|word| word.store(7, Relaxed));
    let (mut owner, peer) = ends(&words);
    owner.set(0, slot(100, 40, 0)).unwrap();
    owner.publish(None);
    assert_eq!(peer.best(99), Ok(None));
    assert!(words[words_of(1)..].iter().all(|word| word.load(Relaxed) == 7));
    owner.set(PAGE_SLOTS + 5, slot(50, 20, 1)).unwrap();
    owner.publish(None);
    assert_eq!(peer.next_release(), Ok(50));
    assert_eq!(peer.best(99), Ok(Some(rank(20, 1))));
    assert_eq!(peer.slot(PAGE_SLOTS), Ok(Slot::FREE));
    assert!(words[words_of(2)..].iter().all(|word| word.load(Relaxed) == 7));
    assert_eq!((AREA_BYTES, AREA_SLOTS), (words_of(2) * 8, 256));
    assert_eq!(owner.set(512, Slot::FREE), Err(NoSlot { index: 512, slots: 512 }));
}

#[test]
fn a_rank_below_all_is_worse_than_any_with_a_reservation_and_keeps_the_order_among_its_kind() {
    // The worst key of DWS: the lowest level, and an instant of 73 years.
    let worst = Rank::new((3 << 62) | ((1 << 61) - 1), u32::MAX);
    let [short, long] = [10, 20].map(|key| Rank::new(key, 3).below_all());
    assert!(worst < short && short < long && long.is_below_all() && !worst.is_below_all());
    assert_eq!(Rank::new(NEVER, 3).below_all().key, NEVER - 1);
    assert_eq!(short.below_all(), short);
}
