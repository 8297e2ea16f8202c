//! Users whose threads come and go, in virtual time.

use super::*;

const GRACE_PPM: u64 = 50_000;

fn millis(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

/// A thread of user 7 that leaves without a debt.
fn departure(at_ms: u64) -> Departure {
    let now = millis(at_ms);
    Departure { uid: 7, now, owed_ns: 0, ppm: GRACE_PPM, offences: 0, penalty: None }
}

/// Each thread of the user spins for 4.7 ms and leaves before the watchdog sees it. One attaches
/// as soon as it may.
#[test]
fn threads_that_come_and_go_use_the_grace_and_no_more() {
    let (departed, mut used_ns) = (Departed::default(), 0);
    let mut at_ms = 0;
    while at_ms < 10_000 {
        if departed.holds(7, millis(at_ms)) {
            at_ms += 1;
            continue;
        }
        at_ms += 5;
        used_ns += 4_700_000;
        departed.add(Departure { owed_ns: 4_700_000, ..departure(at_ms) });
    }
    assert!(used_ns < 550_000_000, "{used_ns}");
    assert!(used_ns > 400_000_000, "{used_ns}");
}

#[test]
fn a_user_who_owes_nothing_is_not_held_and_nobody_pays_for_another() {
    let departed = Departed::default();
    departed.add(Departure { owed_ns: OWED_MAX_NS, ..departure(0) });
    assert!(!departed.holds(7, millis(0)) && !departed.may_hold(7, millis(0)));
    departed.add(Departure { owed_ns: 10_000_000, ..departure(0) });
    assert!(departed.holds(7, millis(0)) && departed.may_hold(7, millis(0)));
    assert!(!departed.holds(8, millis(0)) && !departed.may_hold(8, millis(0)));
}

/// A domain with half of the CPU leaves within its job. As a member it would owe nothing 9 ms
/// later.
#[test]
fn a_debt_within_a_reservation_is_paid_as_if_the_domain_had_stayed() {
    let departed = Departed::default();
    departed.add(Departure { owed_ns: 4_500_000, ppm: 500_000 + GRACE_PPM, ..departure(0) });
    assert!(departed.holds(7, millis(3)));
    assert!(!departed.holds(7, millis(9)));
    // A reservation does not pay for the debt of another domain without one.
    departed.add(Departure { owed_ns: 4_500_000, ppm: 500_000 + GRACE_PPM, ..departure(100) });
    departed.add(Departure { owed_ns: 4_500_000, ..departure(100) });
    assert!(departed.holds(7, millis(200)));
    assert!(!departed.holds(7, millis(280)));
}

#[test]
fn offences_and_lost_turns_stay_for_a_while() {
    let departed = Departed::default();
    let penalty = Some(Lost::ForNow);
    departed.add(Departure { offences: 2, penalty, ..departure(0) });
    assert!(departed.holds(7, millis(49)) && !departed.holds(7, millis(50)));
    // A later thread without an offence deletes nothing.
    departed.add(departure(100));
    assert_eq!(departed.offences(7, millis(200)), 2);
    assert_eq!(departed.offences(8, millis(200)), 0);
    assert_eq!(departed.offences(7, millis(10_100)), 0);
    departed.add(Departure { offences: 3, penalty: Some(Lost::ForGood), ..departure(20_000) });
    assert!(departed.holds(7, millis(29_999)) && !departed.holds(7, millis(30_000)));
}

#[test]
fn the_number_of_users_and_their_debts_are_bounded() {
    let departed = Departed::default();
    for uid in 0..1_000 {
        departed.add(Departure { uid, owed_ns: 10_000_000_000, ..departure(0) });
    }
    assert_eq!(departed.users().len(), USERS_MAX);
    assert!(departed.holds(999, millis(900)) && !departed.holds(999, millis(1_000)));
    // Users without a debt leave the list.
    departed.add(departure(20_000));
    assert_eq!(departed.users().len(), 1);
}
