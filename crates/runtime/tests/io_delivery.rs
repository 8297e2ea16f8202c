//! Tests of the I/O event service beside other users of its targets and of its CPU: an event is
//! neither lost nor late because a target is in use or full, and a full target costs little.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
#[path = "support/ready_services.rs"]
mod ready_services;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::channel::{Client, FastAnswer, Raise, Route, Service, ServiceTerms, Verdict};
use upcall_runtime::discipline::RMDP;
use upcall_runtime::io_events::{Interest, IoEventService, IoTarget, IoWatch, Urgency};
use upcall_runtime::time::Span;
use upcall_runtime::{Batch, allowed_cpus, clock};
use upcall_sys::schedule::pin_thread;

use ready_services::{KEY, RINGS, name, raise, ring_service, start, taken, to_client, until};
use support::{cpu, ended};

const MINUTE: Duration = Duration::from_secs(60);

/// Before, the service took a fast handler in use for one that is gone. It forgot the descriptor.
#[test]
fn a_fast_handler_that_another_thread_runs_gets_the_readiness_afterwards() {
    let io = IoEventService::start().unwrap();
    let name = name("in-use");
    let (entered, inside) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let (sender, words) = mpsc::channel();
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).fast(move |words| {
        if words[1] == KEY {
            sender.send(*words).unwrap();
        } else {
            entered.send(()).unwrap();
            left.recv_timeout(MINUTE).unwrap();
        }
        FastAnswer::done(*words)
    });
    let _service = Service::in_thread(&name, terms).unwrap();
    let (client, other) = (Client::polled(&name).unwrap(), Client::polled(&name).unwrap());
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (urgency, target) = (Urgency::Rank(10), IoTarget::Fast(Box::new(client)));
    let watch = io.watch(&reader, Interest::Readable, KEY, urgency, target).unwrap();
    std::thread::scope(|threads| {
        let caller = threads.spawn(|| other.fast(&[0; 5]));
        inside.recv_timeout(MINUTE).unwrap();
        writer.write_all(b"x").unwrap();
        // The service finds the handler in use.
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(watch.sent(), 0);
        leave.send(()).unwrap();
        assert!(caller.join().unwrap().is_ok());
    });
    assert_eq!(words.recv_timeout(MINUTE), Ok([10, KEY, 0, 0, 0]));
    until("the event is counted", || watch.sent() == 1);
}

/// A watch has a duplicate. So it means its own file, even if another file gets the number.
#[test]
fn a_descriptor_that_is_closed_and_used_again_has_a_watch_of_its_own() {
    let io = IoEventService::start().unwrap();
    let name = name("closed");
    let service = ring_service(&name);
    let mut client = Client::polled(&name).unwrap();
    let pipes = [(); 2].map(|()| std::io::pipe().unwrap());
    let mut key = 0;
    let [(closed, mut first), (open, mut second)] = pipes.map(|(reader, writer)| {
        key += 1;
        let (urgency, target) = (Urgency::Rank(0), to_client(&service));
        // The reader is closed here.
        (io.watch(&reader, Interest::Readable, key, urgency, target).unwrap(), writer)
    });
    first.write_all(b"x").unwrap();
    assert_eq!(taken(&mut client)[1], 1);
    second.write_all(b"x").unwrap();
    assert_eq!(taken(&mut client)[1], 2);
    drop(closed);
    assert!(first.write_all(b"x").is_err(), "the pipe still has a reader");
    // The end of the input and a failure are readiness, too.
    let writable = io.watch(&first, Interest::Writable, 3, Urgency::Rank(0), to_client(&service));
    assert_eq!(taken(&mut client)[1], 3);
    drop(second);
    open.arm().unwrap();
    assert_eq!(taken(&mut client)[1], 2);
    drop(writable.unwrap());
}

/// Before, the service's thread dropped the client, and so waited for the client's handler.
#[test]
fn a_target_that_is_gone_delays_no_other_event() {
    let io = IoEventService::start().unwrap();
    let name = name("gone");
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).fast(|words| FastAnswer::done(*words));
    let service = Service::in_thread(&name, terms).unwrap();
    let (entered, inside) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let route = Route::to(move |events| {
        while events.take().is_some() {
            entered.send(()).unwrap();
            let _ = left.recv();
        }
    });
    let client = Client::in_thread(&name, route).unwrap();
    service.raiser(service.clients()[0]).unwrap().raise(&Raise::row(0)).unwrap();
    inside.recv_timeout(MINUTE).unwrap();
    drop(service);
    until("the client finds the service gone", || client.raiser().gone().is_some());
    let other = self::name("here");
    let other = (ring_service(&other), Client::polled(&other).unwrap());
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"x").unwrap();
    let targets = [IoTarget::Fast(Box::new(client)), to_client(&other.0)];
    let [gone, live] = targets.map(|target| {
        let watch = io.watch(&reader, Interest::Readable, KEY, Urgency::Rank(0), target).unwrap();
        // The thread takes the first event alone.
        std::thread::sleep(Duration::from_millis(10));
        watch
    });
    let _leave = leave; // is dropped before the client, and so ends its handler
    // The handler of the client stays where it is.
    until("the other event is sent", || live.sent() == 1);
    assert_eq!(gone.sent(), 0);
}

/// Before, the thread began the next try as soon as it had finished one, if its tries took longer
/// than the 1 ms between them: with many descriptors, or with code on the client's behalf.
#[test]
fn targets_without_room_cost_the_service_a_small_part_of_its_time() {
    let io = IoEventService::start().unwrap();
    let name = name("full");
    let (took, tries) = (Arc::new(Mutex::new(Duration::ZERO)), Arc::new(AtomicU64::new(0)));
    let (taking, trying) = (took.clone(), tries.clone());
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).on_behalf(move |_, _| {
        if std::thread::current().name() == Some("upcall-ready") {
            let begin = Instant::now();
            std::thread::sleep(Duration::from_millis(3));
            *taking.lock().unwrap() += begin.elapsed();
            trying.fetch_add(1, Ordering::SeqCst);
        }
        Verdict::Pass
    });
    let service = Service::in_thread(&name, terms).unwrap();
    let _client = Client::polled(&name).unwrap();
    let raiser = service.raiser(service.clients()[0]).unwrap();
    for _ in 0..64 {
        raiser.raise(&Raise::row(0)).unwrap();
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"x").unwrap();
    let begin = Instant::now();
    let watch = io.watch(&reader, Interest::Readable, KEY, Urgency::Rank(0), raise(raiser));
    let watch = watch.unwrap();
    until("ten tries", || tries.load(Ordering::SeqCst) >= 10);
    let (whole, took) = (begin.elapsed(), *took.lock().unwrap());
    assert!(whole > took * 5, "the tries took {took:?} of {whole:?}");
    assert_eq!(watch.sent(), 0);
}

/// Before, a handler of a channel got the readiness in the order in which the descriptors became
/// ready. The rank was only a word of the event.
#[test]
fn a_handler_of_a_channel_takes_the_most_urgent_readiness_first() {
    let (mut runtime, _alone) = start(&RMDP);
    let io = IoEventService::start().unwrap();
    for in_thread in [true, false] {
        let name = name("ranks");
        let service = ring_service(&name);
        let (sender, ranks) = mpsc::channel();
        let (go_on, going_on) = mpsc::channel::<()>();
        let mut first = true;
        let route = Route::to(move |events| {
            while let Some(event) = events.take() {
                sender.send(event.words[0]).unwrap();
                if std::mem::take(&mut first) {
                    let _ = going_on.recv_timeout(MINUTE);
                }
            }
        });
        let _client = match in_thread {
            true => Client::in_thread(&name, route),
            false => runtime.client(cpu(), &name, route),
        };
        let _client = _client.unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        let later = clock::now().as_nanos();
        let watch = |rank| {
            let (urgency, target) = (Urgency::Rank(rank), to_client(&service));
            let watch = io.watch(&reader, Interest::Readable, KEY, urgency, target).unwrap();
            until("the event is sent", || watch.sent() == 1);
            watch
        };
        // The first one keeps the handler until the others wait.
        let _first = watch(0);
        assert_eq!(ranks.recv_timeout(MINUTE), Ok(0));
        let watches = [u64::MAX, later + 2, later + 1, 70_000, 7, 65_536, later].map(watch);
        go_on.send(()).unwrap();
        let found = watches.map(|_| ranks.recv_timeout(MINUTE).unwrap());
        assert_eq!(found, [7, 65_536, 70_000, later, later + 1, later + 2, u64::MAX]);
    }
}

/// Arms two watches in each upcall. The first raises towards a client, the second posts to the
/// handler itself. `beside` runs meanwhile, on the same CPU. Asserts that all upcalls but
/// `late_max` see the second event before they return.
fn assert_sent_within_upcalls(
    test: &str,
    late_max: u64,
    beside: impl FnOnce(&IoEventService, &Service, &AtomicBool) + Send,
) {
    const UPCALLS: u64 = 200;
    let (mut runtime, _alone) = start(&RMDP);
    if runtime.real_time().is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no right to the real-time class");
        return;
    }
    let name = name("within");
    let service = ring_service(&name);
    let _client = Client::polled(&name).unwrap();
    let watches: Arc<OnceLock<[IoWatch; 2]>> = Arc::default();
    let (upcalls, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, found_late, armed) = (upcalls.clone(), late.clone(), watches.clone());
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(400));
    let handler = move |batch: &mut Batch<'_>| {
        while batch.take_event().is_some() {}
        let _ = batch.proceed();
        let Some([first, second]) = armed.get() else { return };
        let before = second.sent();
        first.arm().unwrap();
        second.arm().unwrap();
        // The service's thread goes before this one, so it has run by now.
        let came = (0..10_000).any(|_| {
            std::hint::spin_loop();
            second.sent() > before
        });
        found_late.fetch_add(u64::from(!came), Ordering::Relaxed);
        if counted.fetch_add(1, Ordering::Relaxed) + 1 == UPCALLS {
            batch.finish();
        }
    };
    let id = runtime.handler("arms", need, handler).unwrap();
    // The service's thread has the CPUs of this one.
    let cpus = allowed_cpus().unwrap();
    pin_thread(&[cpu()]).unwrap();
    let io = runtime.io_event_service().unwrap();
    pin_thread(&cpus).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"x").unwrap(); // and nobody reads it
    let targets = [to_client(&service), IoTarget::Post(runtime.poster(id).unwrap())];
    let mut rank = 0;
    let both = targets.map(|target| {
        rank += 1;
        io.watch(&reader, Interest::Readable, KEY, Urgency::Rank(rank), target).unwrap()
    });
    // Both threads have run once, so the first upcall finds no page that is still to be read.
    until("the first events are sent", || both.iter().all(|watch| watch.sent() == 1));
    watches.set(both).unwrap();
    let quit = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            pin_thread(&[cpu()]).unwrap();
            beside(&io, &service, &quit);
        });
        runtime.run(id).unwrap();
        ended(&mut runtime, id);
        quit.store(true, Ordering::Relaxed);
    });
    assert_eq!(upcalls.load(Ordering::Relaxed), UPCALLS);
    let late = late.load(Ordering::Relaxed);
    assert!(late <= late_max, "{late} of {UPCALLS} events were late");
}

#[test]
fn readiness_is_sent_while_a_handler_uses_the_cpu() {
    assert_sent_within_upcalls("readiness_is_sent_while_a_handler_uses_the_cpu", 0, |_, _, _| {});
}

/// Before, the service's thread waited for the lock of the channel, whose holder was preempted by
/// the handler. So the events of all descriptors waited until the handlers left the CPU.
#[test]
fn an_ordinary_thread_that_raises_on_the_same_channel_delays_no_other_event() {
    let test = "an_ordinary_thread_that_raises_on_the_same_channel_delays_no_other_event";
    assert_sent_within_upcalls(test, 0, |_, service, quit| {
        let IoTarget::Raise { raiser, .. } = to_client(service) else { return };
        while !quit.load(Ordering::Relaxed) {
            let _ = raiser.raise(&Raise::row(0));
        }
    });
}

/// Before, the service's thread waited for the lock of its table, whose holder was preempted: 14 to
/// 20 events were late. One or two still are in some runs, and this thread does nothing else than
/// add and drop watches. Both threads use the allocator.
#[test]
fn an_ordinary_thread_that_adds_and_drops_watches_delays_no_other_event() {
    let test = "an_ordinary_thread_that_adds_and_drops_watches_delays_no_other_event";
    assert_sent_within_upcalls(test, 5, |io, service, quit| {
        let (reader, _writer) = std::io::pipe().unwrap();
        while !quit.load(Ordering::Relaxed) {
            let (urgency, target) = (Urgency::Rank(1), to_client(service));
            drop(io.watch(&reader, Interest::Readable, KEY, urgency, target).unwrap());
        }
    });
}
