//! Tests of events for handlers. Among handlers of equal rank, the one with the most urgent event
//! goes first (ecalls-2001 §2.4), whichever thread posts. The tests assert orders and counts; times
//! depend on the machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use upcall_runtime::activity::{ActivityParams, Terms};
use upcall_runtime::admission::Share;
use upcall_runtime::channel::{Form, Forms, Raise, Route, Service, ServiceTerms};
use upcall_runtime::discipline::DWCS;
use upcall_runtime::discipline::DWS;
use upcall_runtime::discipline::Discipline;
use upcall_runtime::discipline::RM;
use upcall_runtime::discipline::RMDP;
use upcall_runtime::time::Span;
use upcall_runtime::{
    Config, EVENTS_MAX, HandlerId, PostError, PostedEvent, Poster, Runtime, clock,
};

use support::{cpu, ended};

fn start(discipline: &'static Discipline) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { cpus: vec![cpu()], discipline, ..Config::default() })
}

const NEED: ActivityParams = ActivityParams::new(Span::from_millis(5), Span::from_micros(100));

fn winning(wins_ties: bool) -> Terms {
    Terms { wins_ties, ..Terms::default() }
}

fn all_ended(runtime: &mut Runtime, ids: &[HandlerId]) {
    ids.iter().for_each(|&id| ended(runtime, id));
}

type Seen = Arc<Mutex<Vec<(usize, u64)>>>;

/// Handlers that take one event in each job, `jobs` in all, and note it.
fn players(
    runtime: &mut Runtime,
    count: usize,
    jobs: usize,
    terms: Terms,
) -> (Vec<HandlerId>, Seen) {
    let seen = Seen::default();
    let ids = (0..count).map(|player| {
        let (seen, mut done) = (seen.clone(), 0);
        let taken = move |event: PostedEvent| seen.lock().unwrap().push((player, event.rank));
        let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
            if let Some(event) = batch.take_event().filter(|_| batch.proceed()) {
                taken(event);
                done += 1;
            }
            if done == jobs {
                batch.finish();
            }
        };
        runtime.handler(&format!("player {player}"), (NEED, terms), handler).unwrap()
    });
    (ids.collect(), seen)
}

fn posters(runtime: &Runtime, ids: &[HandlerId]) -> Vec<Poster> {
    ids.iter().map(|&id| runtime.poster(id).unwrap()).collect()
}

/// The ranks of the events of three handlers in four periods.
const RANKS: [[u64; 3]; 4] = [[30, 10, 20], [110, 130, 120], [230, 220, 210], [310, 320, 330]];

/// The order in which the handlers took the events.
fn order_of(discipline: &'static Discipline, wins_ties: bool) -> Vec<(usize, u64)> {
    let (mut runtime, _alone) = start(discipline);
    let (ids, seen) = players(&mut runtime, 3, RANKS.len(), winning(wins_ties));
    let posters = posters(&runtime, &ids);
    // The events are posted from last to first, because only the rank counts.
    for ranks in RANKS.iter().rev() {
        posters.iter().zip(ranks).for_each(|(poster, &rank)| poster.post(rank).unwrap());
    }
    runtime.run_at(&ids, clock::now() + Span::from_millis(1)).unwrap();
    all_ended(&mut runtime, &ids);
    let report = runtime.stop(|_, _| {});
    assert!(report.activities.iter().all(|of| !of.faulted));
    let seen = seen.lock().unwrap();
    seen.clone()
}

#[test]
fn among_handlers_of_one_rank_the_most_urgent_event_goes_first() {
    let mut expected: Vec<(usize, u64)> =
        RANKS.iter().flat_map(|ranks| ranks.iter().copied().enumerate()).collect();
    expected.sort_unstable_by_key(|&(_, rank)| rank);
    for (discipline, wins_ties) in [(&RMDP, true), (&RM, true), (&DWS, false)] {
        assert_eq!(order_of(discipline, wins_ties), expected, "{discipline:?}");
    }
}

#[test]
fn without_wins_ties_the_order_is_as_without_events() {
    let (mut runtime, _alone) = start(&RMDP);
    let (ids, seen) = players(&mut runtime, 3, 1, winning(false));
    for (poster, rank) in posters(&runtime, &ids).iter().zip([30, 10, 20]) {
        poster.post(rank).unwrap();
    }
    runtime.run_at(&ids, clock::now() + Span::from_millis(1)).unwrap();
    all_ended(&mut runtime, &ids);
    assert_eq!(*seen.lock().unwrap(), [(0, 30), (1, 10), (2, 20)]);
}

/// The loop of the documentation of `Batch::take_event`. Each job ends before the events do.
#[test]
fn a_handler_that_keeps_the_event_it_may_not_process_handles_all_events() {
    const EVENTS: usize = 23;
    for discipline in [&RMDP, &DWS] {
        let (mut runtime, _alone) = start(discipline);
        let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
        let (noted, mut held) = (seen.clone(), None);
        let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
            let mut noted = noted.lock().unwrap();
            while let Some(event) = held.take().or_else(|| batch.take_event()) {
                if !batch.proceed() {
                    held = Some(event);
                    break;
                }
                noted.push(event.rank);
            }
            if noted.len() == EVENTS {
                batch.finish();
            }
        };
        let need = NEED.batch(5).quantum(2);
        let player = runtime.handler("player", need, handler).unwrap();
        let poster = runtime.poster(player).unwrap();
        let ranks: Vec<u64> = (0..EVENTS as u64).collect();
        ranks.iter().for_each(|&rank| poster.post(rank).unwrap());
        runtime.run(player).unwrap();
        ended(&mut runtime, player);
        assert_eq!(*seen.lock().unwrap(), ranks);
        let report = runtime.stop(|_, _| {});
        assert_eq!(report.activities[0].counters.unwrap().pdus, EVENTS as u64);
    }
}

#[test]
fn each_event_that_threads_post_is_taken_once() {
    const EACH: u64 = 3_000;
    for discipline in [&RMDP, &DWS, &DWCS] {
        let (mut runtime, _alone) = start(discipline);
        let sums: Arc<Mutex<Vec<u64>>> = Arc::new(Mutex::new(vec![0; 3]));
        let ids: Vec<HandlerId> = (0..3)
            .map(|at| {
                let (sums, mut taken) = (sums.clone(), 0);
                let need = ActivityParams::new(Span::from_micros(500), Span::from_micros(10));
                let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
                    while let Some(event) = batch.take_event() {
                        taken += 1;
                        sums.lock().unwrap()[at] += event.words[1] * event.words[1];
                    }
                    let _ = batch.proceed();
                    if taken == 2 * EACH {
                        batch.finish();
                    }
                };
                runtime.handler(&format!("h{at}"), (need, winning(true)), handler).unwrap()
            })
            .collect();
        runtime.run_at(&ids, clock::now()).unwrap();
        let posters = posters(&runtime, &ids);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let posters = &posters;
                scope.spawn(move || {
                    for number in 0..EACH {
                        for poster in posters {
                            let event =
                                PostedEvent { rank: number % 7, words: [thread, number, 0, 0, 0] };
                            while poster.post_event(&event) == Err(PostError::Full) {
                                std::thread::yield_now();
                            }
                        }
                    }
                });
            }
        });
        all_ended(&mut runtime, &ids);
        let squares = 2 * (0..EACH).map(|number| number * number).sum::<u64>();
        assert_eq!(*sums.lock().unwrap(), [squares; 3], "{discipline:?}");
    }
}

#[test]
fn the_inbox_of_a_handler_is_bounded_and_that_of_a_closed_one_accepts_nothing() {
    let (mut runtime, _alone) = start(&RMDP);
    let id = runtime.handler("idle", (NEED, winning(true)), |_| {}).unwrap();
    let poster = runtime.poster(id).unwrap();
    (0..EVENTS_MAX as u64).for_each(|rank| poster.post(rank).unwrap());
    assert_eq!(poster.post(0), Err(PostError::Full));
    assert!(runtime.close(id).is_some());
    assert_eq!(poster.post(0), Err(PostError::Closed));
    assert!(runtime.poster(id).is_none());
    // A new handler gets the number, and none of the former handler's events.
    let (ids, seen) = players(&mut runtime, 1, 1, winning(true));
    runtime.poster(ids[0]).unwrap().post(77).unwrap();
    runtime.run(ids[0]).unwrap();
    all_ended(&mut runtime, &ids);
    assert_eq!(*seen.lock().unwrap(), [(0, 77)]);
}

/// Before, posters went on until the inbox was full, and did not learn that nothing takes events.
#[test]
fn a_runtime_that_ends_accepts_no_event() {
    for stops in [true, false] {
        let (mut runtime, _alone) = start(&RMDP);
        let id = runtime.handler("idle", (NEED, winning(true)), |_| {}).unwrap();
        let poster = runtime.poster(id).unwrap();
        poster.post(0).unwrap();
        match stops {
            true => drop(runtime.stop(|_, _| {})),
            false => drop(runtime),
        }
        assert_eq!(poster.post(0), Err(PostError::Closed));
    }
}

/// Two jobs are ready at once. The first one posts an event to a handler without a job.
fn order_with_an_event_amid_two_jobs(server: bool) -> Vec<&'static str> {
    let (mut runtime, _alone) = start(&DWCS);
    let cpu = cpu();
    let order: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let (first, second, told) = (order.clone(), order.clone(), order.clone());
    let upcalls = Arc::new(AtomicU64::new(0));
    let counted = upcalls.clone();
    let far = ActivityParams::new(Span::from_secs(10), Span::from_micros(100));
    let told = runtime.handler("told", far, move |batch| {
        let event = batch.take_event();
        let _ = batch.proceed();
        told.lock().unwrap().extend(event.map(|_| "event"));
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let told = told.unwrap();
    let poster = runtime.poster(told).unwrap();
    let near = ActivityParams::new(Span::from_secs(1), Span::from_micros(100));
    let job = |runtime: &mut Runtime, name, order: Arc<Mutex<Vec<_>>>, poster: Option<Poster>| {
        let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
            let _ = batch.proceed();
            order.lock().unwrap().push(name);
            poster.iter().for_each(|poster| poster.post(7).unwrap());
            batch.finish();
        };
        runtime.handler(name, near, handler).unwrap()
    };
    let jobs = [
        job(&mut runtime, "first", first, Some(poster)),
        job(&mut runtime, "second", second, None),
    ];
    if server {
        let share = runtime.reservations().event_share(cpu);
        assert!(share.is_some());
        runtime.reserve_events(cpu, share).unwrap();
    }
    runtime.run(told).unwrap();
    // The handler's own job is done, and its next one is seconds away.
    while upcalls.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    runtime.run_at(&jobs, clock::now()).unwrap();
    all_ended(&mut runtime, &jobs);
    while order.lock().unwrap().len() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::mem::take(&mut *order.lock().unwrap())
}

#[test]
fn the_event_server_serves_an_event_ahead_of_a_job_that_is_ready() {
    assert_eq!(order_with_an_event_amid_two_jobs(false), ["first", "second", "event"]);
    assert_eq!(order_with_an_event_amid_two_jobs(true), ["first", "event", "second"]);
}

#[test]
fn an_executor_that_sleeps_without_posters_wakes_for_the_first_event() {
    let (mut runtime, _alone) = start(&DWCS);
    let cpu = cpu();
    let far = ActivityParams::new(Span::from_secs(3_600), Span::from_micros(100));
    let (upcalled, upcalls) = std::sync::mpsc::channel();
    let player = runtime.handler("player", far, move |batch| {
        let event = batch.take_event();
        let _ = batch.proceed();
        upcalled.send(event.map(|event| event.rank)).unwrap();
    });
    let player = player.unwrap();
    let share = runtime.reservations().event_share(cpu);
    runtime.reserve_events(cpu, share).unwrap();
    runtime.run(player).unwrap();
    let next = || upcalls.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(next(), Ok(None));
    // Nothing is released for an hour, and there was no poster until now.
    runtime.poster(player).unwrap().post(7).unwrap();
    assert_eq!(next(), Ok(Some(7)));
}

#[test]
fn only_dwcs_has_an_event_server_and_only_as_large_as_fits() {
    let (mut runtime, alone) = start(&DWS);
    let cpu = cpu();
    assert!(runtime.reserve_events(cpu, Share::from_ppm(1_000)).is_err());
    drop((runtime, alone));
    let (mut runtime, _alone) = start(&DWCS);
    runtime.handler("one", NEED, |_| {}).unwrap();
    assert!(runtime.reserve_events(cpu, Share::from_ppm(999_999)).is_err());
    let fits = runtime.reservations().event_share(cpu);
    assert!(fits.is_some());
    runtime.reserve_events(cpu, fits).unwrap();
    let need = ActivityParams::new(Span::from_millis(5), Span::from_millis(1));
    assert!(runtime.handler("no room is left", need, |_| {}).is_err());
    runtime.reserve_events(cpu, None).unwrap();
    runtime.handler("now there is", need, |_| {}).unwrap();
}

#[test]
fn an_event_channel_posts_to_an_admitted_handler() {
    let (mut runtime, _alone) = start(&DWS);
    let cpu = cpu();
    let name = format!("frames-{}", std::process::id());
    let to_client = Form::Ring { slots: 64 };
    let forms = Forms { to_service: Form::Counter, to_client };
    let service = Service::in_thread(&name, ServiceTerms::new(forms, Route::to(|_| {}))).unwrap();
    let taken: Arc<Mutex<Vec<PostedEvent>>> = Arc::default();
    let noted = taken.clone();
    let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
        let mut noted = noted.lock().unwrap();
        noted.extend(std::iter::from_fn(|| batch.take_event()));
        if noted.len() == 6 {
            batch.finish();
        }
    };
    let player = runtime.handler("player", NEED, handler).unwrap();
    let route = Route::to_handler(runtime.poster(player).unwrap());
    let _client = runtime.client(cpu, &name, route).unwrap();
    let ranks = [50, 20, 60, 10, 40, 30];
    for (frame, rank) in (0..).zip(ranks) {
        assert_eq!(service.raise_all(&Raise::row(0).words([rank, frame, 7, 8, 9])), 1);
    }
    runtime.run(player).unwrap();
    all_ended(&mut runtime, &[player]);
    // The events may come in parts, each in order. None is lost, and each keeps its words.
    let mut taken = std::mem::take(&mut *taken.lock().unwrap());
    taken.sort_unstable_by_key(|event| event.words[1]);
    let expected: Vec<PostedEvent> = (0..)
        .zip(ranks)
        .map(|(frame, rank)| PostedEvent { rank, words: [rank, frame, 7, 8, 9] })
        .collect();
    assert_eq!(taken, expected);
}
