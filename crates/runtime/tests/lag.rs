//! The lag of handlers under PS, as a program reads it. The exact values have tests in virtual
//! time; here any thread may be stopped at any moment for any time.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_runtime::activity::{ActivityParams, Terms};
use upcall_runtime::discipline::{Discipline, PS, RMDP};
use upcall_runtime::time::Span;
use upcall_runtime::{Config, HandlerId, Lag, Mode, Runtime, clock};

/// Uses the CPU for this long, or longer if another thread runs meanwhile.
fn spin(time: Span) {
    let until = clock::after(time);
    while clock::now() < until {}
}

/// Two handlers with batches of 40 PDUs of 100 us every 8 ms: together they want all of the CPU.
/// Returns the lags after 50 jobs of the first one, and after the end.
fn lags(discipline: &'static Discipline, mode: Mode) -> [[Option<Lag>; 2]; 2] {
    let config = Config { discipline, mode, unscreened: true, ..Config::default() };
    let (mut runtime, _alone) = support::start(config);
    let jobs = Arc::new(AtomicU64::new(0));
    let cost = Span::from_micros(100);
    let need = ActivityParams::new(Span::from_millis(8), cost).batch(40);
    let create = |runtime: &mut Runtime, name, weight| {
        let jobs = jobs.clone();
        let terms = Terms { weight: Some(weight), ..Terms::default() };
        let handler = runtime.handler(name, (need, terms), move |batch| {
            while batch.proceed() {
                spin(cost);
            }
            if batch.remaining() == 0 {
                jobs.fetch_add(1, Ordering::Relaxed);
            }
        });
        handler.expect("everything is admitted")
    };
    let both = [create(&mut runtime, "light", 1), create(&mut runtime, "heavy", 3)];
    let lag =
        |runtime: &Runtime, id: HandlerId| runtime.statistics(id).expect("the handler is open").lag;
    assert_eq!(both.map(|id| lag(&runtime, id)), [None, None]);
    runtime.run_at(&both, clock::now()).expect("the threads start");
    let give_up = support::a_minute();
    while jobs.load(Ordering::Relaxed) < 50 {
        assert!(give_up.is_some_and(|at| clock::now() < at), "no job ends");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    runtime.poll(|_, _| {});
    let live = both.map(|id| lag(&runtime, id));
    let report = runtime.stop(|_, _| {});
    [live, [0, 1].map(|place: usize| report.activities[place].statistics.lag)]
}

#[test]
fn lags_are_live_and_in_the_report_under_ps_alone() {
    let [live, last] = lags(&PS, Mode::Upcall);
    for (live, last) in live.into_iter().zip(last) {
        let (live, last) = (live.expect("it ran"), last.expect("it ran"));
        for lag in [live, last] {
            assert!(lag.min_ns <= lag.last_ns && lag.last_ns <= lag.max_ns, "{lag:?}");
        }
        assert!(last.min_ns <= live.min_ns && live.max_ns <= last.max_ns, "{live:?} {last:?}");
        // Two handlers take turns: each waits while the other is served.
        assert!(last.min_ns < 0 && last.max_ns > 0, "{last:?}");
    }
    assert_eq!(lags(&RMDP, Mode::Upcall), [[None; 2]; 2]);
    // The kernel decides, and no policy knows what is due.
    assert_eq!(lags(&PS, Mode::Threads), [[None; 2]; 2]);
}

#[test]
fn a_handler_with_the_number_of_a_closed_one_begins_without_a_lag() {
    let (mut runtime, _alone) = support::start(Config { discipline: &PS, ..Config::default() });
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(10));
    let create = |runtime: &mut Runtime, name| {
        runtime.handler(name, need, |batch| while batch.proceed() {}).expect("it is small")
    };
    let first = create(&mut runtime, "first");
    let place = runtime.place(first);
    runtime.run(first).expect("the thread starts");
    let give_up = support::a_minute();
    while runtime.statistics(first).is_some_and(|statistics| statistics.lag.is_none()) {
        assert!(give_up.is_some_and(|at| clock::now() < at), "no upcall");
        std::thread::sleep(std::time::Duration::from_millis(1));
        runtime.poll(|_, _| {});
    }
    let report = runtime.close(first).expect("it yields");
    assert!(report.statistics.lag.is_some());
    let second = create(&mut runtime, "second");
    assert_eq!(runtime.place(second), place);
    runtime.poll(|_, _| {});
    assert_eq!(runtime.statistics(second).map(|statistics| statistics.lag), Some(None));
}
