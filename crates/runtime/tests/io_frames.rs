//! Tests of how the readiness of descriptors reorders handlers, and of frames that are reported in
//! their slots (ecalls-2001 §2.4 and §3.3). The tests assert orders and counts, and that nothing
//! comes before its slot.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/ready_services.rs"]
mod ready_services;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use upcall_runtime::activity::{ActivityParams, Terms};
use upcall_runtime::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms};
use upcall_runtime::discipline::{DWS, Discipline, RM, RMDP};
use upcall_runtime::io_events::{
    FrameRate, Interest, IoEventService, IoTarget, IoWatch, NextFrame, Urgency,
};
use upcall_runtime::time::{Instant, Span};
use upcall_runtime::{Batch, HandlerId, Runtime, clock};

use ready_services::{KEY, name, raise, ring_service, start, taken, to_client, until};
use support::ended;

type Order = Arc<Mutex<Vec<(usize, Option<u64>)>>>;

/// Handlers of one rank, each with one job. They note in which order they were upcalled, and the
/// ranks of their events.
fn equals(runtime: &mut Runtime, count: usize, wins_ties: bool) -> (Vec<HandlerId>, Order) {
    let order = Order::default();
    let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(100));
    let terms = Terms { wins_ties, ..Terms::default() };
    let ids = (0..count).map(|number| {
        let order = order.clone();
        let handler = move |batch: &mut Batch<'_>| {
            let rank = batch.take_event().map(|event| event.rank);
            let _ = batch.proceed();
            order.lock().unwrap().push((number, rank));
            batch.finish();
        };
        runtime.handler(&format!("equal {number}"), (need, terms), handler).unwrap()
    });
    (ids.collect(), order)
}

/// Makes the descriptors `ready` ready, one after the other, and then upcalls equal handlers, one
/// for each urgency. Returns the order in which they ran. DWS needs no `wins_ties`.
fn order_of(
    (discipline, wins_ties): (&'static Discipline, bool),
    urgencies: &[Urgency],
    ready: &[usize],
) -> Vec<(usize, Option<u64>)> {
    let (mut runtime, _alone) = start(discipline);
    let io = runtime.io_event_service().unwrap();
    let (ids, order) = equals(&mut runtime, urgencies.len(), wins_ties);
    let mut watches: Vec<(IoWatch, UnixStream, UnixStream)> = Vec::new();
    for (&id, &urgency) in ids.iter().zip(urgencies) {
        let (near, far) = UnixStream::pair().unwrap();
        let target = IoTarget::Post(runtime.poster(id).unwrap());
        let watch = io.watch(&near, Interest::Readable, KEY, urgency, target).unwrap();
        watches.push((watch, near, far));
    }
    for &number in ready {
        let (watch, _, far) = &mut watches[number];
        far.write_all(b"frame").unwrap();
        until("the event is posted", || watch.sent() == 1);
    }
    runtime.run_at(&ids, clock::now() + Span::from_millis(1)).unwrap();
    ids.iter().for_each(|&id| ended(&mut runtime, id));
    let order = order.lock().unwrap();
    order.clone()
}

/// If readiness did not reach the scheduler, handlers of one rank would always run in the order of
/// their creation.
#[test]
fn a_handler_whose_descriptor_is_ready_is_chosen_before_an_equal_one() {
    let urgencies = [Urgency::Rank(5); 3];
    for discipline in [(&RMDP, true), (&RM, true), (&DWS, false)] {
        let idle = order_of(discipline, &urgencies, &[]);
        assert_eq!(idle, [(0, None), (1, None), (2, None)], "{discipline:?}");
        for first in 0..3 {
            let mut expected: Vec<_> = (0..3).filter(|&n| n != first).map(|n| (n, None)).collect();
            expected.insert(0, (first, Some(5)));
            let found = order_of(discipline, &urgencies, &[first]);
            assert_eq!(found, expected, "{discipline:?}, descriptor {first} is ready");
        }
    }
}

fn frame(counter: u64, start: Instant) -> NextFrame {
    NextFrame { rate: FrameRate::new(30, 1).unwrap(), counter, start }
}

#[test]
fn the_player_whose_frame_is_displayed_first_goes_first() {
    // All slots have begun. The frames come in another order than they are displayed.
    let start = clock::now() - Span::from_secs(2);
    let frames = [3, 1, 2].map(|counter| frame(counter, start));
    let ranks = frames.map(|frame| Some(frame.display_time().as_nanos()));
    let found = order_of((&RMDP, true), &frames.map(Urgency::Frame), &[0, 2, 1]);
    assert_eq!(found, [(1, ranks[1]), (2, ranks[2]), (0, ranks[0])]);
}

#[test]
fn a_frame_that_comes_early_is_reported_in_its_slot_and_not_before() {
    let io = IoEventService::start().unwrap();
    let name = name("slots");
    let service = ring_service(&name);
    let (sender, events) = mpsc::channel();
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            let _ = sender.send((event.words, clock::now()));
        }
    });
    let _client = Client::in_thread(&name, route).unwrap();
    let target = to_client(&service);
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let rate = FrameRate::new(200, 1).unwrap();
    let start = clock::now() + Span::from_millis(20);
    let at = |counter| NextFrame { rate, counter, start };
    let first = Urgency::Frame(at(0));
    let mut watch = io.watch(&reader, Interest::Readable, KEY, first, target).unwrap();
    // All frames are there from the beginning: the rate sets the pace.
    writer.write_all(&[0; 10]).unwrap();
    for counter in 0..10 {
        let (words, came) = events.recv_timeout(Duration::from_secs(60)).expect("no event");
        let frame = at(counter);
        assert_eq!(words, [frame.display_time().as_nanos(), KEY, counter, 0, 0]);
        assert!(came >= frame.slot(), "frame {counter} came before its slot");
        reader.read_exact(&mut [0]).unwrap();
        watch.arm_as(Urgency::Frame(at(counter + 1))).unwrap();
    }
    // The pipe is empty, so the next frame is not reported, however late it is.
    until("the slot is over", || clock::now() > at(11).display_time());
    until("the events are counted", || watch.sent() == 10);
    // The player gives up the frame, and changes its rate: the event for it comes at once.
    let late = NextFrame { rate: FrameRate::new(24, 1).unwrap(), counter: 0, start };
    watch.arm_as(Urgency::Frame(late)).unwrap();
    writer.write_all(&[0]).unwrap();
    let (words, _) = events.recv_timeout(Duration::from_secs(60)).expect("no event");
    assert_eq!(words, [start.as_nanos(), KEY, 0, 0, 0]);
}

#[test]
fn of_frames_whose_slots_begin_together_the_one_displayed_first_is_reported_first() {
    let io = IoEventService::start().unwrap();
    let name = name("together");
    let service = ring_service(&name);
    let mut client = Client::polled(&name).unwrap();
    let raiser = service.raiser(service.clients()[0]).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"x").unwrap();
    let slot = clock::after(Span::from_millis(300));
    let rates = [(1, 24), (2, 60), (3, 30)].map(|(key, hz)| (key, FrameRate::new(hz, 1).unwrap()));
    let _watches = rates.map(|(key, rate)| {
        let first = NextFrame { rate, counter: 0, start: slot + rate.span(1) };
        assert_eq!(first.slot(), slot);
        let (urgency, target) = (Urgency::Frame(first), raise(raiser.clone()));
        io.watch(&reader, Interest::Readable, key, urgency, target).unwrap()
    });
    let keys = [(); 3].map(|()| taken(&mut client)[1]);
    assert_eq!(keys, [2, 3, 1]);
}

#[test]
fn a_new_urgency_counts_for_an_event_that_waits_for_its_slot() {
    let io = IoEventService::start().unwrap();
    let name = name("changed");
    let service = ring_service(&name);
    let mut client = Client::polled(&name).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    // The slot of the first frame begins in an hour.
    let far = Urgency::Frame(frame(0, clock::now() + Span::from_secs(3_600)));
    let target = to_client(&service);
    let mut watch = io.watch(&reader, Interest::Readable, KEY, far, target).unwrap();
    writer.write_all(b"x").unwrap();
    assert!(!client.wait(Some(clock::after(Span::from_millis(20)))), "notified an hour early");
    let near = frame(0, clock::now());
    watch.arm_as(Urgency::Frame(near)).unwrap();
    assert_eq!(taken(&mut client), [near.display_time().as_nanos(), KEY, 0, 0, 0]);
    // And without a frame.
    watch.arm_as(Urgency::Rank(3)).unwrap();
    assert_eq!(taken(&mut client), [3, KEY, 0, 0, 0]);
    until("the events are counted", || watch.sent() == 2);
}

/// The player is a client of a service, as one in another process would be. It states its frames
/// by events, and the service that has the descriptor passes them on.
#[test]
fn a_player_states_its_frames_to_the_service_by_events() {
    let io = IoEventService::start().unwrap();
    let name = name("frames");
    let watch: Arc<Mutex<Option<IoWatch>>> = Arc::default();
    let armed = watch.clone();
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            let [rate, counter, start_ns, ..] = event.words;
            let frame = NextFrame::from_words([rate, counter, start_ns]).unwrap();
            let mut armed = armed.lock().unwrap();
            armed.as_mut().unwrap().arm_as(Urgency::Frame(frame)).unwrap();
        }
    });
    let forms = Forms { to_service: Form::Typed { types: 1 }, to_client: Form::Typed { types: 1 } };
    let service = Service::in_thread(&name, ServiceTerms::new(forms, route)).unwrap();
    let mut player = Client::polled(&name).unwrap();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let target = to_client(&service);
    let begin = Urgency::Rank(0);
    *watch.lock().unwrap() =
        Some(io.watch(&reader, Interest::Readable, KEY, begin, target).unwrap());
    writer.write_all(&[0; 8]).unwrap();
    assert_eq!(taken(&mut player), [0, KEY, 0, 0, 0]);
    let start = clock::now();
    for counter in 1..8 {
        reader.read_exact(&mut [0]).unwrap();
        let frame = NextFrame { rate: FrameRate::new(500, 1).unwrap(), counter, start };
        let [rate, counter, start_ns] = frame.to_words();
        player.raise(&Raise::row(0).words([rate, counter, start_ns, 0, 0])).unwrap();
        assert_eq!(taken(&mut player), [frame.display_time().as_nanos(), KEY, counter, 0, 0]);
        assert!(clock::now() >= frame.slot());
    }
}
