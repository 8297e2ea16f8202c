//! Tests of event channels whose handlers an executor invokes: at crossings, before scheduling
//! decisions, and without a system call if the executor is awake. The tests do not check times,
//! which depend on the machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::channel::{
    ChannelOpenError, Client, FastAnswer, FastError, Form, Forms, Gone, HANDLER_TERMS,
    HandlerTerms, Posted, Raise, Raiser, Route, Service, ServiceTerms, When,
};
use upcall_runtime::discipline::DWS;
use upcall_runtime::stream::{Stream, StreamForm};
use upcall_runtime::time::Span;
use upcall_runtime::{Config, HandlerId, Mode, Runtime, clock};

use support::{cpu, ended, every_us};

fn start(mode: Mode) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { mode, cpus: vec![cpu()], discipline: &DWS, ..Config::default() })
}

fn name(of: &str) -> String {
    format!("executor-{of}-{}", std::process::id())
}

/// Waits until `is` returns `true`.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let give_up = clock::now() + Span::from_secs(60);
    while !is() {
        assert!(clock::now() < give_up, "never: {what}");
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
}

const RINGS: Forms =
    Forms { to_service: Form::Ring { slots: 64 }, to_client: Form::Ring { slots: 64 } };

fn raise(number: u64) -> Raise {
    Raise::row(0).words([number, 0, 0, 0, 0])
}

type Seen = Arc<Mutex<Vec<u64>>>;

fn shows() -> (Route, Seen) {
    let seen = Seen::default();
    let shown = seen.clone();
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            shown.lock().unwrap().push(event.words[0]);
        }
    });
    (route, seen)
}

/// Terms without limits.
const FREE: HandlerTerms = HandlerTerms { invocations_max: 1 << 16, ..HANDLER_TERMS };

/// A handler that raises `per_upcall` events in each upcall, `count` in all, and then finishes.
/// Also returns the system calls that it made for them.
fn raising(
    runtime: &mut Runtime,
    raiser: Raiser,
    (per_upcall, count): (u32, u64),
    what: impl Fn(u64) -> Raise + Send + 'static,
) -> (HandlerId, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(u64::MAX));
    let (mut number, counted) = (0, calls.clone());
    let need = every_us(500).batch(per_upcall);
    let id = runtime
        .handler("raiser", need, move |batch| {
            while number < count && batch.proceed() {
                assert_eq!(raiser.raise(&what(number)), Ok(Posted::Stored));
                number += 1;
            }
            counted.store(raiser.system_calls(), Ordering::SeqCst);
            if number == count {
                batch.finish();
            }
        })
        .unwrap();
    (id, calls)
}

#[test]
fn deferred_events_to_an_awake_executor_make_no_system_call() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let cpu = cpu();
    let name = name("awake");
    let (route, seen) = shows();
    let terms = ServiceTerms::new(RINGS, route.terms(FREE).when(When::BeforeScheduling));
    let service = runtime.service(cpu, &name, terms).unwrap();
    let client = Client::polled(&name).unwrap();
    let (id, calls) = raising(&mut runtime, client.raiser(), (8, 400), raise);
    runtime.run(id).unwrap();
    ended(&mut runtime, id);
    until("all events are handled", || seen.lock().unwrap().len() == 400);
    assert_eq!(*seen.lock().unwrap(), (0..400).collect::<Vec<u64>>());
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    // None of the eight events of an upcall is handled before the upcall returns or must
    // return.
    let invocations = service.counts()[0].invocations;
    assert!((1..=200).contains(&invocations), "{invocations} invocations for 50 upcalls");
}

#[test]
fn events_of_another_thread_wake_an_executor_that_sleeps() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let cpu = cpu();
    let name = name("asleep");
    let (route, seen) = shows();
    let service = runtime.service(cpu, &name, ServiceTerms::new(RINGS, route)).unwrap();
    let client = Client::polled(&name).unwrap();
    for number in 0..50 {
        client.raise(&raise(number)).unwrap();
        until("the event is handled", || seen.lock().unwrap().len() as u64 > number);
    }
    client.raise(&raise(50).when(When::After(Span::from_millis(5)))).unwrap();
    until("the event is handled", || seen.lock().unwrap().len() == 51);
    assert!(client.raiser().system_calls() <= 51);
    assert!(service.counts()[0].invocations <= 51);
}

#[test]
fn service_and_client_of_one_executor_reply_to_each_other() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let cpu = cpu();
    let name = name("both");
    let echo = Route::to(|events| {
        while let Some(event) = events.take() {
            let answer = raise(event.words[0]);
            assert_eq!(events.raise(event.peer, &answer), Ok(Posted::Stored));
        }
    });
    let _service = runtime.service(cpu, &name, ServiceTerms::new(RINGS, echo)).unwrap();
    let (route, seen) = shows();
    let client = runtime.client(cpu, &name, route).unwrap();
    for number in 0..100 {
        client.raise(&raise(number)).unwrap();
        until("the service replies", || seen.lock().unwrap().len() as u64 > number);
    }
    assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<u64>>());
}

#[test]
fn an_event_that_leads_back_to_its_handler_is_refused_as_recursion_and_counted() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let cpu = cpu();
    let name = name("circle");
    let echo = |events: &mut upcall_runtime::channel::Events<'_>| {
        while let Some(event) = events.take() {
            let _ = events.raise(event.peer, &raise(event.words[0] + 1));
        }
    };
    let terms = ServiceTerms::new(RINGS, Route::to(echo));
    let service = runtime.service(cpu, &name, terms).unwrap();
    let client = runtime.client(cpu, &name, Route::to(echo)).unwrap();
    client.raise(&raise(0)).unwrap();
    // The event goes to the service, to the client, and then back. The last step is refused.
    until("the recursion is counted", || service.counts()[0].recursions == 1);
    assert_eq!((service.counts()[0].invocations, client.counts()[0].invocations), (1, 1));
}

#[test]
fn a_handler_that_raises_without_end_runs_away_and_admitted_handlers_go_on() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let cpu = cpu();
    let name = name("away");
    let within = HandlerTerms { invocations_max: 4, span: Span::from_millis(50), ..HANDLER_TERMS };
    let (route, seen) = shows();
    let terms = ServiceTerms::new(RINGS, route.terms(within));
    let service = runtime.service(cpu, &name, terms).unwrap();
    let client = Client::polled(&name).unwrap();
    let mut upcalls = 0;
    let id = runtime
        .handler("steady", every_us(1_000), move |batch| {
            upcalls += u32::from(batch.proceed());
            if upcalls == 200 {
                batch.finish();
            }
        })
        .unwrap();
    runtime.run(id).unwrap();
    let mut stored = 0;
    while runtime.is_active(id) {
        stored += u64::from(client.raise(&raise(stored)) == Ok(Posted::Stored));
        runtime.wait(&[id], Some(clock::after(Span::from_micros(300))));
    }
    until("all events are handled", || seen.lock().unwrap().len() as u64 == stored);
    let counts = service.counts()[0];
    assert!(counts.run_aways >= 1, "{counts:?}");
    assert!(seen.lock().unwrap().iter().copied().eq(0..stored));
}

#[test]
fn a_fast_call_in_a_handler_may_ask_for_the_scheduler_and_may_not_block() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let name = name("fast");
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {}))
        .fast(|words| match words[0] {
            0 => FastAnswer::done([7; 5]).and_schedule(),
            _ => FastAnswer::done([0; 5]).and_call(),
        })
        .call(|_| panic!("called in an executor"));
    let _service = Service::in_thread(&name, terms).unwrap();
    let client = Client::polled(&name).unwrap();
    let yielded = Arc::new(AtomicU64::new(0));
    let told = yielded.clone();
    let mut is_first = true;
    let id = runtime
        .handler("caller", every_us(2_000).batch(4), move |batch| {
            assert!(batch.proceed());
            if std::mem::take(&mut is_first) {
                assert_eq!(client.fast(&[1; 5]), Err(FastError::WouldBlock));
                assert_eq!(client.fast(&[0; 5]).unwrap().words, [7; 5]);
                // A new scheduling decision: the handler must return at its next
                // boundary.
                told.store(1 + u64::from(batch.proceed()), Ordering::SeqCst);
            } else {
                batch.finish();
            }
        })
        .unwrap();
    runtime.run(id).unwrap();
    ended(&mut runtime, id);
    assert_eq!(yielded.load(Ordering::SeqCst), 1, "the handler did not yield");
    // If the handler panicked, that would show as a fault, not here.
    assert!(!runtime.stop(|_, _| {}).activities[0].faulted);
}

#[test]
fn services_come_and_go_and_each_side_finds_the_other_gone() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let cpu = cpu();
    let name = name("again");
    // More services than an executor has handlers: their slots are used again.
    for round in 0..80 {
        let gone = Arc::new(Mutex::new(None));
        let told = gone.clone();
        let (route, seen) = shows();
        let route = route.on_gone(move |_, how| *told.lock().unwrap() = Some(how));
        let service = runtime.service(cpu, &name, ServiceTerms::new(RINGS, route)).unwrap();
        let mut client = Client::polled(&name).unwrap();
        let raiser = client.raiser();
        assert_eq!(raiser.gone(), None);
        client.raise(&raise(round)).unwrap();
        if round % 2 == 0 {
            drop((client, raiser));
            until("the service finds the client gone", || {
                *gone.lock().unwrap() == Some(Gone::Ended)
            });
            assert_eq!(*seen.lock().unwrap(), [round]);
        } else {
            drop(service);
            until("the client finds the service gone", || client.take().is_err());
            assert_eq!((client.gone(), raiser.gone()), (Some(Gone::Ended), Some(Gone::Ended)));
        }
    }
    let name = format!("{name}-last");
    let service = runtime.service(cpu, &name, ServiceTerms::new(RINGS, Route::to(|_| {}))).unwrap();
    let mut client = Client::polled(&name).unwrap();
    runtime.stop(|_, _| {});
    until("the client finds the service gone", || client.take().is_err());
    assert_eq!(client.gone(), Some(Gone::Died));
    drop(service);
}

#[test]
fn without_a_dispatcher_a_cpu_has_no_handlers_of_channels() {
    let terms = || ServiceTerms::new(RINGS, Route::to(|_| {}));
    let (mut runtime, alone) = start(Mode::Upcall);
    let cpu = cpu();
    let error = runtime.service(cpu + 1_000, &name("nowhere"), terms()).unwrap_err();
    assert!(matches!(error, ChannelOpenError::NoSuchCpu { .. }), "{error}");
    // Streams and peers share one set of words to sleep on.
    let _all = runtime.service(cpu, &name("all"), terms().clients_max(96)).unwrap();
    let error = runtime.service(cpu, &name("more"), terms()).unwrap_err();
    assert!(matches!(error, ChannelOpenError::Handlers(_)), "{error}");
    let mut stream = |number: u32| {
        let stream = Stream::create(StreamForm::Slots { slots: 4, slot_bytes: 8 }, 0).unwrap();
        let reader = stream.reader().unwrap();
        let need = ActivityParams::new(Span::from_secs(10), Span::from_nanos(10));
        runtime.stream_reader_handler(&format!("stream {number}"), need, reader, 1, |_, _| {})
    };
    for number in 0..31 {
        stream(number).unwrap();
    }
    assert!(stream(31).is_err());
    drop(runtime);
    drop(alone);
    let (mut runtime, _alone) = start(Mode::Threads);
    let error = runtime.service(cpu, &name("threads"), terms()).unwrap_err();
    assert!(matches!(error, ChannelOpenError::NotInMode(Mode::Threads)), "{error}");
}
