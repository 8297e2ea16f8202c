use super::*;
use proptest::prelude::*;

fn from_domain() -> Vec<ToDaemon> {
    let need = Need {
        period_ns: 1,
        deadline_ns: 2,
        offset_ns: 3,
        batch: 4,
        quantum: 5,
        pdu_cost_ns: 6,
        class: 7,
        workahead_max: 8,
        delay_bound_ns: 9,
        on_demand: true,
    };
    vec![
        ToDaemon::Hello { name: "player".into(), policy: "rmdp".into() },
        ToDaemon::Thread { cpu: 1, tid: u32::MAX },
        ToDaemon::Create { request: u64::MAX, unscreened: true, need, name: "ton".into() },
        ToDaemon::Close { order: 7 },
    ]
}

fn to_domain() -> Vec<ToDomain> {
    vec![
        ToDomain::Welcome {
            domain: 1,
            generation: 2,
            seats: 3,
            real_time: true,
            switch_cost_ns: 4,
        },
        ToDomain::Rejected { reason: "voll".into() },
        ToDomain::Seat { cpu: 1 },
        ToDomain::Peer { cpu: 1, domain: 2, generation: 3 },
        ToDomain::Granted { request: 1, cpu: 2, order: 3, response_max_ns: 4 },
        ToDomain::Refused { request: 1, reason: "zu viel".into(), hint: String::new() },
        ToDomain::Offence { cpu: 1, measure: 2, held_ns: 3 },
    ]
}

#[test]
fn every_message_comes_back_as_it_was() {
    for message in from_domain() {
        assert_eq!(ToDaemon::decode(&message.encode()), Ok(message));
    }
    for message in to_domain() {
        assert_eq!(ToDomain::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn a_message_that_is_cut_or_longer_is_refused() {
    for message in from_domain() {
        let bytes = message.encode();
        for len in 0..bytes.len() {
            assert!(ToDaemon::decode(&bytes[..len]).is_err(), "{message:?} {len}");
        }
        assert!(ToDaemon::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn what_is_wrong_is_named() {
    let good = ToDaemon::Thread { cpu: 1, tid: 2 }.encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        ToDaemon::decode(&bytes)
    };
    assert_eq!(with(0, 9), Err(WireError::Version { found: 9 }));
    assert_eq!(with(4, 99), Err(WireError::Kind { found: 99 }));
    assert_eq!(with(4, 1), Err(WireError::Content { kind: 1 }));
    // The upper half of a CPU's number.
    assert_eq!(with(20, 1), Err(WireError::Content { kind: 2 }));
    assert_eq!(with(8, 200), Err(WireError::Length { found: good.len() }));
    assert!(ToDaemon::decode(&vec![0; MESSAGE_BYTES_MAX + 1]).is_err());
}

#[test]
fn a_text_that_is_too_long_is_cut_at_a_character() {
    let name = "ä".repeat(TEXT_BYTES_MAX);
    let message = ToDaemon::Hello { name, policy: "ps".into() };
    let Ok(ToDaemon::Hello { name, .. }) = ToDaemon::decode(&message.encode()) else {
        panic!("it was not understood");
    };
    assert_eq!(name, "ä".repeat(TEXT_BYTES_MAX / 2));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..11usize) {
        let _ = (ToDaemon::decode(&bytes), ToDomain::decode(&bytes));
        // Behind a good beginning, too.
        let all: Vec<_> = from_domain().iter().map(ToDaemon::encode)
            .chain(to_domain().iter().map(ToDomain::encode)).collect();
        let mixed = [&all[at][..all[at].len() / 2], &bytes].concat();
        let _ = (ToDaemon::decode(&mixed), ToDomain::decode(&mixed));
    }
}
