//! What a look changes, in numbers, and the thread itself where this process has the right.

use std::io::Write;

use super::*;

const BUDGET: Span = Span::from_millis(10);

fn sample(beats: u64, sleeps: u64, cpu_ms: u64) -> Sample {
    let (compute, cpu) = (Span::from_millis(100), Span::from_millis(cpu_ms));
    Sample { beats, sleeps, budget: BUDGET, compute, cpu }
}

fn held(ms: u64) -> Option<Change> {
    Some(Change::Lower { held: Span::from_millis(ms) })
}

#[test]
fn an_upcall_is_lowered_beyond_its_budget_and_raised_when_it_has_returned() {
    let mut review = Review::default();
    assert_eq!(review.look(sample(1, 0, 1_000)), None);
    // The budget and 50 ms.
    assert_eq!(review.look(sample(1, 0, 1_060)), None);
    assert_eq!(review.look(sample(1, 0, 1_061)), held(61));
    // One offence, however long it goes on.
    assert_eq!(review.look(sample(1, 0, 9_000)), None);
    assert_eq!(review.look(sample(2, 1, 9_000)), Some(Change::Raise));
    assert_eq!(review.look(sample(2, 1, 9_060)), None);
    assert_eq!(review.look(sample(3, 1, 9_120)), None);
    assert_eq!(review.look(sample(3, 1, 9_181)), held(61));
}

#[test]
fn a_long_budget_counts_twice() {
    let long = |cpu_ms| Sample { budget: Span::from_millis(200), ..sample(1, 0, cpu_ms) };
    let mut review = Review::default();
    assert_eq!(review.look(long(0)), None);
    assert_eq!(review.look(long(400)), None);
    assert_eq!(review.look(long(401)), held(401));
}

#[test]
fn a_thread_that_uses_no_cpu_time_is_never_lowered() {
    let mut review = Review::default();
    assert!((0..1_000).all(|_| review.look(sample(1, 0, 5)).is_none()));
}

#[test]
fn an_executor_that_never_sleeps_is_lowered_until_it_sleeps() {
    let mut review = Review::default();
    // 1 s and two jobs of each activity.
    for beat in 0..=60 {
        assert_eq!(review.look(sample(beat, 7, beat * 20)), None, "{beat}");
    }
    assert_eq!(review.look(sample(61, 7, 1_220)), held(1_220));
    assert_eq!(review.look(sample(62, 7, 1_240)), None);
    assert_eq!(review.look(sample(63, 8, 1_250)), Some(Change::Raise));
    assert_eq!(review.look(sample(64, 9, 2_400)), None);
}

/// Before, a handler that never returned kept the real-time class for ever.
#[test]
fn a_busy_thread_leaves_the_real_time_class_and_gets_it_back() {
    let Some(band) = schedule::RealTime::granted().ok().map(|granted| granted.band) else {
        let test = "a_busy_thread_leaves_the_real_time_class_and_gets_it_back";
        let why = "no right to the real-time class";
        // Not `eprintln`, which shows nothing of a test that passes.
        let _ = writeln!(std::io::stderr(), "skipped: watchdog::tests::{test}: {why}");
        return;
    };
    let pulse = Arc::new(Pulse::default());
    let watchdog = Watchdog::start(band).unwrap();
    let tid = |pulse: &Pulse| u32::try_from(pulse.tid.load(Ordering::Relaxed)).unwrap();
    let class = |pulse: &Pulse| schedule::class_of(tid(pulse));
    let fifo = schedule::Class::Fifo { priority: band.handlers() };
    watchdog.watch(3, band.handlers(), pulse.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _attached = pulse.attach_thread();
            schedule::set_fifo(band.handlers()).unwrap();
            pulse.begin(BUDGET);
            while class(&pulse) == Ok(fifo) {}
            // What it starts while its class changes does not keep the former one.
            let is_not_inherited = || schedule::class_and_reset_of(tid(&pulse)).unwrap().1;
            assert!(is_not_inherited());
            pulse.end();
            while class(&pulse) != Ok(fifo) {
                std::thread::yield_now();
            }
            assert!(is_not_inherited());
        });
    });
    let offences: Vec<Offence> = watchdog.offences().collect();
    assert!(matches!(offences[..], [Offence { cpu: 3, measure: Measure::Demoted, .. }]));
}
