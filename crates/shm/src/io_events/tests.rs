use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn blank() -> Vec<AtomicU64> {
    (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn ends(words: &Vec<AtomicU64>) -> (IoClient<&Vec<AtomicU64>>, IoService<&Vec<AtomicU64>>) {
    (IoClient::create(words).unwrap(), IoService::attach(words).unwrap())
}

fn both(generation: u32) -> Interest {
    Interest { bits: READABLE | WRITABLE, generation }
}

#[test]
fn every_byte_is_where_version_1_has_it() {
    let words = blank();
    let (mut client, mut service) = ends(&words);
    assert!(client.state(0, both(7)));
    assert!(client.state(65_535, Interest { bits: WRITABLE, generation: 0x0102_0304 }));
    service.raise(33, READABLE);
    service.raise(65_535, WRITABLE);
    service.raise(65_535, READABLE);
    service.raise(5, WRITABLE);
    assert_eq!(client.take(), Some((5, WRITABLE)));
    service.raise(6, READABLE);
    assert!(!service.wake_word().notify());
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    let mut golden = vec![0u8; PAGE_BYTES];
    for (offset, expected) in [
        (0, &b"upcioev\0"[..]),
        (8, &[1]),                     // version
        (16, &[0, 0, 1]),              // descriptors
        (64, &[4]),                    // raised
        (128, &[1]),                   // taken
        (192, &[1]),                   // wake word: notified
        (256, &[1, 0, 0, 0x80]),       // active, top; the 1 is of descriptor 6
        (320, &[1]),                   // summary 0: leaf 0; leaf 1 is to be looked at by the client
        (320 + 31 * 8 + 7, &[0x80]),   // the last summary, the last leaf
        (576 + 1, &[0x10]),            // descriptor 6 readable
        (576 + 8, &[4]),               // descriptor 33 readable
        (576 + 2047 * 8 + 7, &[0xc0]), // descriptor 65535 both
        (16_960, &[1, 0, 0, 0x80]),    // updated, top
        (17_024, &[1]),
        (17_024 + 31 * 8 + 7, &[0x80]),
        (17_280, &[1]),                   // descriptor 0
        (17_280 + 2047 * 8 + 7, &[0x40]), // descriptor 65535
        (33_664, &[3, 0, 0, 0, 7]),
        (33_664 + 65_535 * 8, &[2, 0, 0, 0, 4, 3, 2, 1]),
    ] {
        golden[offset..offset + expected.len()].copy_from_slice(expected);
    }
    // The client keeps descriptors it has taken and not returned in its cursor, not in the page.
    golden[256..260].copy_from_slice(&[1, 0, 0, 0]);
    golden[320..328].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((LAYOUT_VERSION, DESCRIPTORS_MAX, PAGE_BYTES), (1, 65_536, 561_152));
    let differ: Vec<_> =
        (0..PAGE_BYTES).filter(|&at| bytes[at] != golden[at]).map(|at| (at, bytes[at])).collect();
    assert_eq!(differ, []);
}

#[test]
fn only_new_pages_are_created_and_only_valid_ones_attached() {
    let page = "page of I/O events";
    for found in [0, PAGE_WORDS - 1, PAGE_WORDS + 1] {
        let words: Vec<_> = (0..found).map(|_| AtomicU64::new(0)).collect();
        let error = LayoutError::Length { page, found, expected: PAGE_WORDS };
        assert_eq!(IoClient::create(&words).unwrap_err(), error);
        assert_eq!(IoService::attach(&words).unwrap_err(), error);
    }
    for word in (0..48).chain([2_000, 2_120, 2_126, 2_160, 5_000, 69_743, 69_744, PAGE_WORDS - 1]) {
        let words = blank();
        words[word].store(1 << 40, Relaxed);
        let offset = word * 8;
        assert_eq!(IoClient::create(&words).unwrap_err(), LayoutError::Used { page, offset });
        words[word].store(0, Relaxed);
        IoClient::create(&words).unwrap();
        words[word].store(1 << 40, Relaxed);
        let found = 1 << 40;
        let expected = match word {
            0 => LayoutError::Magic { page, found, expected: KIND.magic },
            1 => LayoutError::Version { page, found, expected: 1 },
            2 => LayoutError::Value { page, name: "descriptors", found, min: 65_536, max: 65_536 },
            8 | 16 | 24 | 32 | 40..2_120 | 2_120 | 2_128..69_744 => continue, // in use
            _ => LayoutError::Used { page, offset },
        };
        assert_eq!(IoService::attach(&words).unwrap_err(), expected, "word {word}");
    }
}

#[test]
fn a_raised_descriptor_is_taken_once_with_all_its_bits() {
    let words = blank();
    let (mut client, mut service) = ends(&words);
    assert_eq!((client.take(), client.active()), (None, 0));
    service.raise(9, READABLE);
    service.raise(9, WRITABLE);
    service.raise(9, WRITABLE);
    service.raise(40_000, WRITABLE);
    assert_eq!(client.active(), 2);
    assert_eq!(client.take(), Some((9, READABLE | WRITABLE)));
    assert_eq!(client.take(), Some((40_000, WRITABLE)));
    assert_eq!((client.take(), client.active()), (None, 0));
}

#[test]
fn a_descriptor_raised_repeatedly_comes_after_the_others() {
    let words = blank();
    let (mut client, mut service) = ends(&words);
    let crowd = [3, 4, 70, 3_000, 65_000];
    crowd.iter().for_each(|&one| service.raise(one, READABLE));
    let order: Vec<u32> = crowd
        .iter()
        .map(|_| {
            service.raise(3, READABLE);
            client.take().unwrap().0
        })
        .collect();
    assert_eq!(order[..], crowd);
    assert_eq!(client.take(), Some((3, READABLE)));
}

#[test]
fn a_new_interest_forgets_readiness_of_the_old_one() {
    let words = blank();
    let (mut client, mut service) = ends(&words);
    [64, 65, 66, 2_000].iter().for_each(|&one| service.raise(one, READABLE));
    assert_eq!(client.take(), Some((64, READABLE)));
    // These are in the cursor by now, and still in the page.
    assert!(client.state(65, both(2)) && client.state(2_000, both(2)));
    service.raise(65, WRITABLE);
    assert_eq!(client.take(), Some((66, READABLE)));
    assert_eq!(client.take(), Some((65, WRITABLE)));
    assert_eq!((client.take(), client.active()), (None, 0));
}

#[test]
fn the_service_finds_the_newest_interest_of_each_descriptor() {
    let words = blank();
    let (mut client, mut service) = ends(&words);
    assert_eq!(service.take_update(), None);
    assert!(client.state(5, both(1)) && client.state(5, Interest { bits: 0, generation: 2 }));
    assert!(client.state(4_000, both(1)));
    assert!(!client.state(DESCRIPTORS_MAX, both(1)));
    assert_eq!(service.take_update(), Some((5, Interest { bits: 0, generation: 2 })));
    assert_eq!(service.take_update(), Some((4_000, both(1))));
    assert_eq!(service.take_update(), None);
}

#[test]
fn both_ends_have_the_same_wake_word() {
    let words = blank();
    let (client, service) = ends(&words);
    assert!(!service.wake_word().notify() && !client.wake_word().prepare_wait());
    client.wake_word().finish_wait();
    assert!(client.wake_word().prepare_wait());
    assert!(service.wake_word().is_asleep());
    assert!(service.wake_word().notify() && !service.wake_word().notify());
    client.wake_word().finish_wait();
    assert!(!service.wake_word().is_notified());
}

#[test]
fn a_page_full_of_ones_causes_no_panic() {
    let words = blank();
    let (mut client, mut service) = ends(&words);
    words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
    for _ in 0..DESCRIPTORS_MAX {
        assert!(client.take().is_some_and(|(one, bits)| one < DESCRIPTORS_MAX && bits == 3));
        let (one, interest) = service.take_update().unwrap();
        assert!(one < DESCRIPTORS_MAX && interest.bits == 3);
    }
    assert_eq!((client.take(), service.take_update()), (None, None));
    assert!(client.active() <= u64::from(DESCRIPTORS_MAX));
    service.raise(u32::MAX, READABLE);
}

proptest! {
    #[test]
    fn the_page_holds_exactly_the_ready_descriptors(
        steps in prop::collection::vec((0..4u8, 0..DESCRIPTORS_MAX, 1..4u8), 1..400),
        narrow in any::<bool>(),
    ) {
        let words = blank();
        let (mut client, mut service) = ends(&words);
        let mut model = BTreeMap::<u32, u8>::new();
        for (step, descriptor, bits) in steps {
            let descriptor = if narrow { descriptor % 130 } else { descriptor };
            match step {
                0 | 1 => {
                    service.raise(descriptor, bits);
                    *model.entry(descriptor).or_default() |= bits;
                }
                2 => match client.take() {
                    // It may come in two parts: before and after the client looked.
                    Some((found, bits)) => {
                        let left = model.get_mut(&found).expect("was raised");
                        prop_assert_eq!(*left & bits, bits);
                        // What is left was raised after the look, or is the same again.
                        let again = words[word::ACTIVE + word::TREE_LEAVES + found as usize / 32]
                            .load(Relaxed) >> (found % 32 * 2) & 3;
                        *left = u8::try_from(again).unwrap();
                        if again == 0 { model.remove(&found); }
                    }
                    None => prop_assert!(model.is_empty(), "{model:?}"),
                },
                _ => {
                    prop_assert!(client.state(descriptor, both(1)));
                    model.remove(&descriptor);
                }
            }
        }
        while client.take().is_some() {}
        prop_assert_eq!(client.active(), 0);
    }
}
