use super::*;
use proptest::prelude::*;

fn blank() -> Vec<AtomicU64> {
    (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn domain(number: u32) -> DomainId {
    DomainId::new(number).unwrap()
}

#[test]
fn every_byte_is_where_version_2_has_it() {
    let words = blank();
    let page = TurnPage::create(&words, 0x0304).unwrap();
    assert!(page.pass(page.turn().unwrap(), domain(32)));
    assert!(!page.wake_word(DomainId::DAEMON).notify());
    assert!(page.wake_word(domain(1)).prepare_wait());
    assert!(!page.wake_word(domain(32)).notify());
    assert!(!page.set_need_resched());
    page.set_service(Service { charged_ns: 0x0102, served: 3, allowance_ns: -2 });
    page.set_lag(DomainId::DAEMON, 5, 6);
    page.set_lag(domain(32), 0x0807, -1);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0u8; 4096];
    for (offset, expected) in [
        (0, &b"upcturn\0"[..]),
        (8, &[2]),                                                // version
        (16, &[4, 3]),                                            // CPU
        (24, &[32]),                                              // domains
        (64, &[32]),                                              // holder
        (68, &[1]),                                               // times passed
        (128, &[1]),                                              // need_resched
        (192, &[2, 1]),                                           // charged until
        (200, &[3]),                                              // served
        (208, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), // allowance
        (2624, &[5, 0, 0, 0, 0, 0, 0, 0, 6]),                     // the daemon's account
        (2624 + 32 * 16, &[7, 8, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        (512, &[1]),        // the daemon's wake word: notified
        (512 + 64, &[2]),   // of domain 1: asleep
        (512 + 2048, &[1]), // of the last domain: notified
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    assert_eq!((LAYOUT_VERSION, DOMAINS_MAX, PAGE_BYTES), (2, 32, 4096));
    assert_eq!(bytes, golden);
}

#[test]
fn only_new_pages_are_created() {
    for found in [0, PAGE_WORDS - 1, PAGE_WORDS + 1] {
        let words: Vec<_> = (0..found).map(|_| AtomicU64::new(0)).collect();
        let error = LayoutError::Length { page: "turn page", found, expected: 512 };
        assert_eq!(TurnPage::create(&words, 1).unwrap_err(), error);
        assert_eq!(TurnPage::attach(&words).unwrap_err(), error);
    }
    for word in 0..PAGE_WORDS {
        let words = blank();
        words[word].store(1, Relaxed);
        let error = LayoutError::Used { page: "turn page", offset: word * 8 };
        assert_eq!(TurnPage::create(&words, 1).unwrap_err(), error);
    }
}

#[test]
fn only_pages_whose_identity_and_reserved_words_hold_are_attached() {
    let page = "turn page";
    for word in 0..PAGE_WORDS {
        let words = blank();
        let created = TurnPage::create(&words, 1).unwrap();
        let found = 1 << 40;
        words[word].store(found, Relaxed);
        let wake = word % 8 == 0 && (64..64 + 33 * 8).contains(&word);
        let expected = match word {
            0 => LayoutError::Magic { page, found, expected: KIND.magic },
            1 => LayoutError::Version { page, found, expected: 2 },
            2 => LayoutError::Value { page, name: "CPU", found, min: 0, max: 0xffff_ffff },
            3 => LayoutError::Value { page, name: "domains", found, min: 32, max: 32 },
            word::TURN | word::NEED_RESCHED | 24..27 => continue, // in use
            328..394 => continue,                                 // accounts
            _ if wake => continue,
            _ => LayoutError::Used { page, offset: word * 8 },
        };
        assert_eq!(TurnPage::attach(&words).unwrap_err(), expected);
        let offset = if matches!(expected, LayoutError::Used { .. }) { word * 8 } else { 0 };
        assert_eq!(created.audit(), Err(PeerFault::Reserved { page, offset }));
        created.repair();
        assert_eq!((created.audit(), TurnPage::attach(&words).is_ok()), (Ok(()), true));
    }
}

#[test]
fn a_page_in_use_is_attached() {
    let words = blank();
    let page = TurnPage::create(&words, 3).unwrap();
    assert!(page.pass(page.turn().unwrap(), domain(2)));
    let other = TurnPage::attach(page.memory()).unwrap();
    assert_eq!((other.cpu(), other.holder()), (3, Ok(domain(2))));
}

#[test]
fn the_turn_is_passed_only_if_it_has_not_changed() {
    let words = blank();
    let page = TurnPage::create(&words, 0).unwrap();
    let first = page.turn().unwrap();
    assert_eq!((first.holder(), first.serial()), (DomainId::DAEMON, 0));
    assert!(page.pass(first, domain(1)));
    assert!(!page.pass(first, domain(2)), "no longer the turn of the daemon");
    let second = page.turn().unwrap();
    assert!(page.pass(second, domain(2)));
    assert!(page.pass(page.turn().unwrap(), domain(1)));
    assert!(!page.pass(second, domain(3)), "domain 1 has a later turn");
    let now = page.turn().unwrap();
    assert_eq!((now.holder(), now.serial()), (domain(1), 3));
}

#[test]
fn a_serial_wraps_without_changing_the_holder() {
    let words = blank();
    let page = TurnPage::create(&words, 0).unwrap();
    words[word::TURN].store(u64::from(u32::MAX) << 32 | 5, Relaxed);
    let turn = page.turn().unwrap();
    assert_eq!((turn.holder(), turn.serial()), (domain(5), u32::MAX));
    assert!(page.pass(turn, domain(6)));
    let turn = page.turn().unwrap();
    assert_eq!((turn.holder(), turn.serial()), (domain(6), 0));
}

#[test]
fn an_impossible_holder_is_a_fault_until_the_daemon_resets_it() {
    for found in [33, 1 << 31, u32::MAX] {
        let words = blank();
        let page = TurnPage::create(&words, 0).unwrap();
        words[word::TURN].store(7 << 32 | u64::from(found), Relaxed);
        let fault = page.turn().unwrap_err();
        assert_eq!(fault.to_string(), format!("turn page has holder {found}, expected 0 to 32"));
        assert!(page.set_need_resched(), "the daemon must repair it");
        page.reset(domain(4));
        let turn = page.turn().unwrap();
        assert_eq!((turn.holder(), turn.serial()), (domain(4), 8));
    }
}

#[test]
fn each_domain_has_a_wake_word_of_its_own() {
    let words = blank();
    let page = TurnPage::create(&words, 0).unwrap();
    assert!(page.wake_word(domain(7)).prepare_wait());
    assert!(!page.wake_word(domain(6)).notify(), "awake");
    assert!(page.wake_word(domain(7)).notify(), "asleep");
    assert!(page.wake_word(domain(6)).acknowledge());
    assert!(page.wake_word(domain(7)).finish_wait());
    assert!(!page.wake_word(DomainId::DAEMON).is_notified());
}

#[test]
fn the_daemon_is_notified_only_if_it_has_the_turn() {
    let words = blank();
    let page = TurnPage::create(&words, 0).unwrap();
    assert!(!page.take_need_resched());
    assert!(page.set_need_resched());
    assert!(page.need_resched());
    assert!(page.take_need_resched_idle());
    assert!(!page.need_resched());
    assert!(page.pass(page.turn().unwrap(), domain(1)));
    assert!(!page.set_need_resched());
    assert!(page.take_need_resched());
    assert!(!page.take_need_resched_idle());
}

proptest! {
    #[test]
    fn any_page_gives_results_in_range(
        random in prop::collection::vec(any::<u64>(), PAGE_WORDS),
        number in 0..=DOMAINS_MAX,
    ) {
        let words = blank();
        let page = TurnPage::create(&words, 0).unwrap();
        for (word, value) in words.iter().zip(random) {
            word.store(value, Relaxed);
        }
        match page.turn() {
            Ok(turn) => prop_assert!(page.pass(turn, domain(number))),
            Err(PeerFault::Value { name: "holder", found, max: 32, .. }) => {
                prop_assert!(found > 32);
            }
            Err(fault) => prop_assert!(false, "{fault}"),
        }
        page.reset(domain(number));
        prop_assert_eq!(page.holder(), Ok(domain(number)));
        // One round replaces any value in a wake word.
        let wake_word = page.wake_word(domain(number));
        let _ = wake_word.notify();
        prop_assert!(wake_word.acknowledge());
        prop_assert!(wake_word.prepare_wait());
        page.take_need_resched();
        prop_assert!(!page.need_resched());
        prop_assert!(TurnPage::attach(&words).is_err());
    }
}

#[test]
fn an_account_counts_for_the_generation_that_it_names() {
    let words = blank();
    let page = TurnPage::create(&words, 0).unwrap();
    page.set_lag(domain(3), 7, -5);
    assert_eq!(
        (page.lag(domain(3), 7), page.lag(domain(3), 8), page.lag(domain(4), 7)),
        (-5, 0, 0)
    );
    let service = Service { charged_ns: u64::MAX, served: u64::MAX, allowance_ns: i64::MIN };
    page.set_service(service);
    assert_eq!((page.service(), page.audit()), (service, Ok(())));
}
