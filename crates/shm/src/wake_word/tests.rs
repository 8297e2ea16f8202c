use super::*;

#[test]
fn only_an_idle_word_is_slept_on_and_only_a_sleeper_is_woken() {
    let state = AtomicU32::new(0);
    let word = WakeWord::new(&state);
    assert!(!word.acknowledge());
    assert!(!word.notify(), "awake");
    assert!(word.is_notified() && word.is_pending() && !word.is_asleep());
    assert!(!word.prepare_wait(), "notified");
    assert!(word.finish_wait());
    assert!(word.prepare_wait() && word.is_asleep() && !word.is_pending());
    assert_eq!(word.word().load(Relaxed), ASLEEP);
    assert!(word.notify(), "asleep");
    assert!(!word.notify(), "woken already");
    assert!(word.acknowledge());
    assert!(word.prepare_wait());
    assert!(!word.finish_wait(), "no notification: a deadline came");
    assert!(!word.acknowledge());
}

#[test]
fn a_cancelled_wait_keeps_a_notification() {
    let state = AtomicU64::new(0);
    let word = WakeWord::new(&state);
    assert!(word.prepare_wait());
    word.cancel_wait();
    assert!(!word.acknowledge(), "not notified");
    assert!(word.prepare_wait() && word.notify());
    word.cancel_wait();
    assert!(word.acknowledge(), "notified while asleep");
}

#[test]
fn a_value_that_is_no_state_is_replaced_by_each_side() {
    for found in [3, 1 << 32, 2 + (1 << 32), u64::MAX] {
        let state = AtomicU64::new(found);
        let word = WakeWord::new(&state);
        assert!(!word.prepare_wait());
        assert!(!word.finish_wait());
        assert!(word.prepare_wait());
        state.store(found, Relaxed);
        assert!(word.notify(), "may be asleep");
        assert!(word.acknowledge());
        state.store(found, Relaxed);
        assert!(word.acknowledge(), "counts as notified");
        assert!(word.prepare_wait());
    }
}
