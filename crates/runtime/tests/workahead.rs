//! Work ahead of handlers whose messages come early, under DWS. A period takes an hour, so a job
//! that begins within this test began at its release or ahead of it: counts need no clock.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_core::activity::{ActivityParams, Terms};
use upcall_core::discipline::{DWS, Discipline, RMDP};
use upcall_core::time::{Instant, Span};
use upcall_runtime::{Batch, Config, Runtime, clock};

const HOUR: Span = Span::from_secs(3600);

/// The jobs that end while a message of a second handler, which has no promise, is awaited. Under
/// DWS that message goes after every job that is ready.
fn jobs(
    discipline: &'static Discipline,
    workahead_max: u32,
    mut upcall: impl FnMut(&mut Batch<'_>) + Send + 'static,
) -> u32 {
    // Both handlers share a CPU.
    let cpus = vec![upcall_runtime::default_cpus().unwrap()[0]];
    let config = Config { discipline, cpus, ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let params = ActivityParams::new(HOUR, Span::from_micros(50));
    let terms = Terms { workahead_max, ..Terms::default() };
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let stream = runtime.handler("stream", (params, terms), move |batch| {
        assert!(batch.proceed());
        counted.fetch_add(1, Ordering::Relaxed);
        upcall(batch);
    });
    let stream = stream.unwrap();
    // Twenty jobs of 5 ms, after the first job of the stream and all that it makes ready.
    let often = ActivityParams::new(Span::from_millis(5), Span::from_micros(10));
    let mut left = 20;
    let beside = runtime.handler("beside", often, move |batch| {
        assert!(batch.proceed());
        left -= 1;
        if left == 0 {
            batch.finish();
        }
    });
    let beside = beside.unwrap();
    runtime.run(stream).unwrap();
    runtime.run(beside).unwrap();
    runtime.wait(&[beside], None);
    drop(runtime.stop(|_, _| {}));
    count.load(Ordering::Relaxed)
}

#[test]
fn early_messages_are_processed_ahead_up_to_the_limit_of_the_activity() {
    let waiting = |messages: u32| move |batch: &mut Batch<'_>| batch.messages_waiting(messages);
    assert_eq!(jobs(&DWS, 4, waiting(9)), 5);
    assert_eq!(jobs(&DWS, 0, waiting(9)), 1);
    assert_eq!(jobs(&RMDP, 4, waiting(9)), 1);
    // Two wait, and each job counts them once more: they are the same two.
    let mut left = 3;
    let two = move |batch: &mut Batch<'_>| {
        left -= 1;
        batch.messages_waiting(left);
    };
    assert_eq!(jobs(&DWS, 4, two), 3);
}

/// The timestamps say that the messages are due every 3 hours: one of them is within 4 hours.
#[test]
fn timestamps_move_the_logical_arrivals_of_early_messages() {
    let from = clock::now();
    let stamp = move |job: u64| Instant::from_nanos(from.as_nanos() + job * 3 * HOUR.as_nanos());
    let mut job = 0;
    let stamped = move |batch: &mut Batch<'_>| {
        job += 1;
        batch.next_logical_arrival(stamp(job));
        batch.messages_waiting(1);
    };
    assert_eq!(jobs(&DWS, 4, stamped), 2);
}
