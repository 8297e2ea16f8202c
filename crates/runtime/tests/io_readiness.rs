//! Tests of the I/O event service: the readiness of real pipes and sockets reaches handlers and
//! channels, by each way of notification (ecalls-2001 §3.2). The tests assert orders and counts.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/ready_services.rs"]
mod ready_services;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use upcall_runtime::activity::{ActivityParams, Terms};
use upcall_runtime::channel::{
    self, Client, FastAnswer, Route, Service, ServiceTerms, Verdict, When, Words,
};
use upcall_runtime::discipline::RMDP;
use upcall_runtime::io_events::{Interest, IoEventService, IoTarget, IoWatch, Urgency};
use upcall_runtime::time::Span;
use upcall_runtime::{Batch, EVENTS_MAX, HandlerId, PostedEvent, Runtime, clock};

use ready_services::{KEY, RINGS, name, raise, ring_service, start, taken, to_client, until};
use support::cpu;

/// Rounds of each way of delivery.
const ROUNDS: u64 = 20;

/// A route whose handler sends the words of all events on.
fn shows() -> (Route, mpsc::Receiver<Words>) {
    let (sender, receiver) = mpsc::channel();
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            let _ = sender.send(event.words);
        }
    });
    (route, receiver)
}

fn received(receiver: &mpsc::Receiver<Words>) -> Words {
    receiver.recv_timeout(Duration::from_secs(60)).expect("no event came")
}

/// A pipe that is watched, and its writing end.
struct Watched {
    watch: IoWatch,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Watched {
    fn new(io: &IoEventService, rank: u64, target: IoTarget) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let urgency = Urgency::Rank(rank);
        let watch = io.watch(&reader, Interest::Readable, KEY, urgency, target).unwrap();
        Watched { watch, reader, writer }
    }

    fn write(&mut self) {
        self.writer.write_all(b"x").unwrap();
    }

    fn read(&mut self) {
        self.reader.read_exact(&mut [0]).unwrap();
    }

    /// Writes, and checks that each round has exactly one event with the right words.
    #[track_caller]
    fn rounds(&mut self, rank: u64, mut next: impl FnMut() -> Words) {
        for round in 1..=ROUNDS {
            // Two writes are one event, because the watch is not armed in between.
            self.write();
            self.write();
            assert_eq!(next(), [rank, KEY, 0, 0, 0], "round {round}");
            until("the event is counted", || self.watch.sent() >= round);
            self.read();
            self.read();
            self.watch.arm().unwrap();
        }
        assert_eq!(self.watch.sent(), ROUNDS);
        // Data that is left is reported as soon as the watch is armed again.
        self.write();
        assert_eq!(next(), [rank, KEY, 0, 0, 0]);
        self.watch.arm().unwrap();
        assert_eq!(next(), [rank, KEY, 0, 0, 0]);
        until("the events are counted", || self.watch.sent() >= ROUNDS + 2);
    }
}

#[test]
fn a_client_that_polls_or_sleeps_finds_readiness() {
    let io = IoEventService::start().unwrap();
    let name = name("polled");
    let service = ring_service(&name);
    let mut client = Client::polled(&name).unwrap();
    let mut watched = Watched::new(&io, 5, to_client(&service));
    watched.rounds(5, || taken(&mut client));
}

#[test]
fn a_handler_thread_is_notified_of_readiness() {
    let io = IoEventService::start().unwrap();
    let name = name("thread");
    let service = ring_service(&name);
    let (route, words) = shows();
    let _client = Client::in_thread(&name, route).unwrap();
    let mut watched = Watched::new(&io, 6, to_client(&service));
    watched.rounds(6, || received(&words));
}

#[test]
fn a_service_gets_readiness_as_an_event_of_a_client() {
    let io = IoEventService::start().unwrap();
    let name = name("service");
    let (route, words) = shows();
    let _service = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap();
    let client = Client::polled(&name).unwrap();
    let mut watched = Watched::new(&io, 7, raise(client.raiser()));
    watched.rounds(7, || received(&words));
}

#[test]
fn a_real_time_signal_notifies_of_readiness() {
    let io = IoEventService::start().unwrap();
    let name = name("signal");
    let service = ring_service(&name);
    let number = channel::real_time_signals().start() + 9;
    let came = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(number, came.clone()).unwrap();
    let mut client = Client::signalled(&name, number, 5).unwrap();
    assert_eq!(client.take(), Ok(None));
    let mut watched = Watched::new(&io, 8, to_client(&service));
    watched.rounds(8, || {
        until("a signal comes", || came.swap(false, Ordering::SeqCst));
        let event = client.take().unwrap().unwrap();
        // The next event notifies only if the client knows that there is no further one.
        assert_eq!(client.take(), Ok(None));
        event.words
    });
}

#[test]
fn code_on_the_clients_behalf_sees_readiness_first() {
    let io = IoEventService::start().unwrap();
    let name = name("behalf");
    let seen = Arc::new(AtomicU64::new(0));
    let counted = seen.clone();
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).on_behalf(move |_, _| {
        let odd = counted.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        if odd { Verdict::Drop } else { Verdict::Pass }
    });
    let service = Service::in_thread(&name, terms).unwrap();
    let mut client = Client::polled(&name).unwrap();
    let mut watched = Watched::new(&io, 9, to_client(&service));
    for round in 1..=ROUNDS {
        watched.write();
        until("the event is seen", || watched.watch.sent() >= round);
        watched.read();
        watched.watch.arm().unwrap();
    }
    assert_eq!(seen.load(Ordering::SeqCst), ROUNDS);
    let passed = std::iter::from_fn(|| client.take().unwrap()).count() as u64;
    assert_eq!(passed, ROUNDS / 2);
}

#[test]
fn a_fast_call_reports_readiness_in_the_thread_of_the_service() {
    let io = IoEventService::start().unwrap();
    let name = name("fast");
    let (sender, words) = mpsc::channel();
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).fast(move |words| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        sender.send((*words, thread)).unwrap();
        FastAnswer::done(*words)
    });
    let service = Service::in_thread(&name, terms).unwrap();
    let client = Client::polled(&name).unwrap();
    let mut watched = Watched::new(&io, 10, IoTarget::Fast(Box::new(client)));
    watched.rounds(10, || {
        let (words, thread) = words.recv_timeout(Duration::from_secs(60)).expect("no call came");
        assert_eq!(thread, "upcall-ready");
        words
    });
    assert_eq!(service.fast_counts().unwrap().invocations, ROUNDS + 2);
}

#[test]
fn an_executor_gets_readiness_at_once_or_deferred() {
    let (mut runtime, _alone) = start(&RMDP);
    let io = runtime.io_event_service().unwrap();
    for when in [When::NextCrossing, When::BeforeScheduling, When::After(Span::from_millis(1))] {
        let name = name("executor");
        let service = ring_service(&name);
        let (route, words) = shows();
        let _client = runtime.client(cpu(), &name, route.when(when)).unwrap();
        let mut watched = Watched::new(&io, 11, to_client(&service));
        watched.rounds(11, || received(&words));
    }
}

/// A handler that sends the events that it takes on, with its number.
fn player(
    runtime: &mut Runtime,
    number: usize,
    events: mpsc::Sender<(usize, PostedEvent)>,
) -> HandlerId {
    let need = ActivityParams::new(Span::from_millis(1), Span::from_micros(100)).batch(2);
    let handler = move |batch: &mut Batch<'_>| {
        while let Some(event) = batch.take_event() {
            let _ = events.send((number, event));
        }
        let _ = batch.proceed();
    };
    let terms = Terms { wins_ties: true, ..Terms::default() };
    runtime.handler(&format!("player {number}"), (need, terms), handler).unwrap()
}

#[test]
fn an_admitted_handler_gets_readiness_posted_or_raised() {
    let (mut runtime, _alone) = start(&RMDP);
    let io = runtime.io_event_service().unwrap();
    let (sender, events) = mpsc::channel();
    let ids = [0, 1].map(|number| player(&mut runtime, number, sender.clone()));
    let name = name("handler");
    let service = ring_service(&name);
    let route = Route::to_handler(runtime.poster(ids[1]).unwrap());
    let _client = runtime.client(cpu(), &name, route).unwrap();
    let targets = [IoTarget::Post(runtime.poster(ids[0]).unwrap()), to_client(&service)];
    runtime.run_at(&ids, clock::now()).unwrap();
    for (number, target) in targets.into_iter().enumerate() {
        let mut watched = Watched::new(&io, 12, target);
        watched.rounds(12, || {
            let (taker, event) = events.recv_timeout(Duration::from_secs(60)).expect("no event");
            assert_eq!((taker, event.rank), (number, 12));
            event.words
        });
    }
}

#[test]
fn many_ready_descriptors_have_one_event_each_in_the_order_in_which_they_became_ready() {
    let io = IoEventService::start().unwrap();
    let name = name("many");
    let service = ring_service(&name);
    let mut client = Client::polled(&name).unwrap();
    let raiser = service.raiser(service.clients()[0]).unwrap();
    let mut all = Vec::new();
    for key in 0..100 {
        let (near, far) = UnixStream::pair().unwrap();
        let (urgency, target) = (Urgency::Rank(key), raise(raiser.clone()));
        let watch = io.watch(&near, Interest::Readable, key, urgency, target).unwrap();
        all.push((watch, near, far));
    }
    // From last to first, five before the first of them is taken. The ring holds as many.
    let keys: Vec<usize> = (0..100).rev().collect();
    for some in keys.chunks(5) {
        for &key in some {
            all[key].2.write_all(b"x").unwrap();
            until("the event is sent", || all[key].0.sent() == 1);
        }
        for &key in some {
            assert_eq!(taken(&mut client), [key as u64, key as u64, 0, 0, 0]);
        }
    }
    for (watch, ..) in &all {
        until("the event is counted", || watch.sent() == 1);
    }
    // All at once: more than the ring holds. None is lost.
    all.iter().for_each(|(watch, ..)| watch.arm().unwrap());
    let mut keys: Vec<u64> = (0..100).map(|_| taken(&mut client)[1]).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..100).collect::<Vec<u64>>());
    assert_eq!(client.take(), Ok(None));
}

#[test]
fn a_handler_with_too_many_events_gets_the_readiness_once_it_has_room() {
    let (mut runtime, _alone) = start(&RMDP);
    let io = runtime.io_event_service().unwrap();
    let (sender, events) = mpsc::channel();
    let id = player(&mut runtime, 0, sender);
    let poster = runtime.poster(id).unwrap();
    (0..EVENTS_MAX as u64).for_each(|rank| poster.post(rank).unwrap());
    let mut watched = Watched::new(&io, 1_000, IoTarget::Post(poster));
    watched.write();
    // Nothing takes the events for a while.
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(watched.watch.sent(), 0);
    runtime.run(id).unwrap();
    let next = || events.recv_timeout(Duration::from_secs(60)).expect("no event").1.rank;
    let mut ranks: Vec<u64> = (0..=EVENTS_MAX).map(|_| next()).collect();
    assert_eq!(ranks.pop(), Some(1_000));
    assert_eq!(ranks, (0..EVENTS_MAX as u64).collect::<Vec<_>>());
    until("the event is counted", || watched.watch.sent() == 1);
}

#[test]
fn a_dropped_watch_a_closed_handler_and_a_client_that_left_get_nothing() {
    let (mut runtime, _alone) = start(&RMDP);
    let io = runtime.io_event_service().unwrap();
    let (sender, events) = mpsc::channel();
    let ids = [0, 1].map(|number| player(&mut runtime, number, sender.clone()));
    let posts = |id| IoTarget::Post(runtime.poster(id).unwrap());
    let dropped = Watched::new(&io, 1, posts(ids[0]));
    let mut closed = Watched::new(&io, 2, posts(ids[1]));
    let mut live = Watched::new(&io, 3, posts(ids[0]));
    let name = name("left");
    let service = ring_service(&name);
    let client = Client::polled(&name).unwrap();
    let mut left = Watched::new(&io, 4, to_client(&service));
    drop(client);
    until("the client is gone", || service.clients().is_empty());
    let Watched { watch, reader: _open, mut writer } = dropped;
    drop(watch);
    assert!(runtime.close(ids[1]).is_some());
    writer.write_all(b"x").unwrap();
    [&mut closed, &mut left, &mut live].into_iter().for_each(Watched::write);
    runtime.run(ids[0]).unwrap();
    // The event of the live watch comes last, because its descriptor was ready last.
    let event = events.recv_timeout(Duration::from_secs(60)).expect("no event").1;
    assert_eq!(event.rank, 3);
    until("the event is counted", || live.watch.sent() == 1);
    assert_eq!((closed.watch.sent(), left.watch.sent()), (0, 0));
    closed.watch.arm().unwrap(); // does nothing
    drop(io);
    live.watch.arm().unwrap();
}

#[test]
fn interest_in_both_directions_and_files_that_are_always_ready() {
    let io = IoEventService::start().unwrap();
    let name = name("both");
    let service = ring_service(&name);
    let mut client = Client::polled(&name).unwrap();
    let raiser = service.raiser(service.clients()[0]).unwrap();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 4096]).is_ok() {}
    let watch = |interest, key| {
        io.watch(&near, interest, key, Urgency::Rank(0), raise(raiser.clone())).unwrap()
    };
    let (both, writable) = (watch(Interest::Both, 1), watch(Interest::Writable, 2));
    far.write_all(b"x").unwrap();
    assert_eq!(taken(&mut client)[1], 1);
    far.set_nonblocking(true).unwrap();
    while far.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
    assert_eq!(taken(&mut client)[1], 2);
    until("the events are counted", || (both.sent(), writable.sent()) == (1, 1));
    both.arm().unwrap();
    assert_eq!(taken(&mut client)[1], 1);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let refused = io.watch(&file, Interest::Readable, 3, Urgency::Rank(0), raise(raiser));
    assert!(refused.unwrap_err().is_permission());
}
