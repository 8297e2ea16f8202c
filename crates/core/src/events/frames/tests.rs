use super::*;
use proptest::prelude::*;

/// 29.97 frames per second.
const NTSC: Option<FrameRate> = FrameRate::new(30_000, 1_001);

fn frame(counter: u64) -> NextFrame {
    NextFrame { rate: NTSC.unwrap(), counter, start: Instant::from_nanos(7_000_000_000) }
}

fn shown_ns(counter: u64) -> u64 {
    frame(counter).display_time().as_nanos() - 7_000_000_000
}

#[test]
fn display_times_do_not_drift_over_a_billion_frames() {
    // Each 30,000 frames take 1,001 s, to the nanosecond.
    for blocks in [0, 1, 2, 1_000, 33_333] {
        assert_eq!(shown_ns(30_000 * blocks), 1_001_000_000_000 * blocks);
    }
    // A period rounded to nanoseconds would be 0.66 s off by here.
    let billion = 1_000_000_000;
    assert_eq!(shown_ns(billion), 33_366_666_666_666_666);
    assert_eq!(billion * 33_366_666, 33_366_666_000_000_000);
    // The gaps are those of the ratio, one nanosecond apart at most.
    for counter in (0..100).chain(billion - 100..billion) {
        let gap = shown_ns(counter + 1) - shown_ns(counter);
        assert!((33_366_666..=33_366_667).contains(&gap), "frame {counter}: {gap} ns");
    }
}

#[test]
fn the_slot_of_a_frame_begins_when_the_frame_before_is_displayed() {
    for counter in [1, 2, 999, 1_000_000_000] {
        assert_eq!(frame(counter).slot(), frame(counter - 1).display_time());
    }
    assert_eq!(frame(0).display_time(), Instant::from_nanos(7_000_000_000));
    assert_eq!(frame(0).slot(), Instant::from_nanos(7_000_000_000 - 33_366_666));
    let at_zero = NextFrame { start: Instant::ZERO, ..frame(0) };
    assert_eq!(at_zero.slot(), Instant::ZERO);
}

#[test]
fn a_late_counter_is_of_an_earlier_frame_and_more_urgent() {
    let (late, on_time) = (frame(500), frame(503));
    assert!(late.display_time() < on_time.display_time());
    assert!(late.slot() < on_time.slot());
    // The same frame, stated by the frame before it.
    let rate = FrameRate::new(25, 1).unwrap();
    let start = Instant::from_nanos(1_000);
    let counted = NextFrame { rate, counter: 500, start };
    let last = NextFrame { counter: 499, ..counted }.display_time();
    let stated = NextFrame { rate, counter: 1, start: last };
    assert_eq!(stated.display_time(), counted.display_time());
    assert_eq!(stated.slot(), counted.slot());
}

#[test]
fn counters_and_times_at_the_end_of_their_range_saturate() {
    let slowest = FrameRate::new(1, u32::MAX).unwrap();
    let fastest = FrameRate::new(u32::MAX, 1).unwrap();
    for rate in [slowest, fastest, NTSC.unwrap()] {
        let last = NextFrame { rate, counter: u64::MAX, start: Instant::FAR };
        assert_eq!((last.slot(), last.display_time()), (Instant::FAR, Instant::FAR));
    }
    let far = NextFrame { rate: slowest, counter: u64::MAX, start: Instant::ZERO };
    assert_eq!(far.display_time(), Instant::FAR);
    let near = NextFrame { rate: fastest, ..far };
    assert!(near.display_time() < Instant::FAR);
    assert_eq!(fastest.span(u64::from(u32::MAX)), Span::from_secs(1));
}

#[test]
fn a_rate_of_zero_is_refused() {
    assert_eq!(FrameRate::new(0, 1), None);
    assert_eq!(FrameRate::new(30, 0), None);
    assert_eq!(NextFrame::from_words([30 << 32, 5, 9]), None);
    assert_eq!(NextFrame::from_words([1, 5, 9]), None);
}

proptest! {
    /// The display time is the largest nanosecond that is not after the exact one.
    #[test]
    fn the_display_time_is_exact_to_a_nanosecond(
        frames in 1..=u32::MAX, seconds in 1u32..10_000, counter in 0u64..1_000_000_000,
    ) {
        let rate = FrameRate::new(frames, seconds).unwrap();
        let ns = u128::from(rate.span(counter).as_nanos());
        let exact = u128::from(counter) * u128::from(seconds) * SECOND_NS;
        prop_assume!(exact / u128::from(frames) <= u128::from(u64::MAX));
        prop_assert!(ns * u128::from(frames) <= exact);
        prop_assert!((ns + 1) * u128::from(frames) > exact);
    }

    #[test]
    fn words_give_the_same_frame(
        frames in 1..=u32::MAX, seconds in 1..=u32::MAX, counter: u64, start_ns: u64,
    ) {
        let rate = FrameRate::new(frames, seconds).unwrap();
        let frame = NextFrame { rate, counter, start: Instant::from_nanos(start_ns) };
        prop_assert!(frame.to_words()[0] != 0);
        prop_assert_eq!(NextFrame::from_words(frame.to_words()), Some(frame));
    }
}
