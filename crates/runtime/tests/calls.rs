//! Calls that no other test would miss: what they answer or change. docs/keys.md lists all calls
//! with their tests.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use upcall_core::activity::{ActivityParams, Claim, Terms};
use upcall_core::admission::Share;
use upcall_core::discipline::PS;
use upcall_core::time::Span;
use upcall_runtime::udp::{Receiver, ReceiverOptions, Sender};
use upcall_runtime::{
    Batch, Config, Mode, Notice, NoticeKind, OsError, RealTime, Runtime, allowed_cpus, clock,
    daemon_answers, default_cpus, own_daemon_socket, switch_cost, system_daemon_socket,
};
use upcall_sys::local::{Access, Listener};

const NEED: ActivityParams = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));

#[test]
fn a_runtime_tells_what_it_has_of_a_handler() {
    let mut runtime = Runtime::start(Config::default()).unwrap();
    let once = |batch: &mut Batch<'_>| {
        if batch.proceed() {
            batch.finish();
        }
    };
    let handler = runtime.handler("handler", NEED, once).unwrap();
    assert_eq!(runtime.params(handler), Some(NEED));
    let reservation = runtime.reservation(handler).unwrap();
    assert!(runtime.reservations().response_max(reservation).is_some());
    let (cpu, _) = runtime.place(handler).unwrap();
    assert!(runtime.config().cpus.contains(&cpu));
    assert_eq!(runtime.statistics(handler).map(|statistics| statistics.jobs), Some(0));
    runtime.run(handler).unwrap();
    runtime.wait(&[handler], None);
    runtime.poll(|_, _| {});
    let statistics = runtime.statistics(handler).unwrap();
    // The notification of `run` may end a first batch, whose job then goes on.
    assert!((1..=2).contains(&statistics.jobs) && statistics.pdus == 1, "{statistics:?}");
    // A busy machine may keep the executor from answering within the half second of a call.
    assert!((0..100).any(|_| runtime.close(handler).is_some()));
    assert_eq!((runtime.params(handler), runtime.place(handler)), (None, None));
    // A handler that is closed has no share to change.
    let share = Claim::Share(Share::from_ppm(1_000).unwrap());
    assert_eq!(runtime.reweigh(handler, share), Ok(()));
    assert_eq!(runtime.real_time(), RealTime::granted().ok());
    let threads = Runtime::start(Config { mode: Mode::Threads, ..Config::default() }).unwrap();
    assert_eq!(threads.real_time(), None);
}

/// The CPUs of this process by proc_pid_status(5), of which a runtime takes those it is told.
#[test]
fn a_runtime_has_the_cpus_of_its_config_or_all_allowed_but_the_first() {
    let allowed = allowed_cpus().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let expected: Vec<u32> = list
        .trim()
        .split(',')
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        })
        .collect();
    assert_eq!(allowed, expected);
    let rest: Vec<u32> = allowed.iter().copied().filter(|&cpu| cpu != 0).collect();
    let by_default = default_cpus().unwrap();
    assert_eq!(by_default, if rest.is_empty() { allowed.clone() } else { rest });
    assert_eq!(Runtime::start(Config::default()).unwrap().config().cpus, by_default);
    for cpu in allowed {
        let mut runtime = Runtime::start(Config { cpus: vec![cpu], ..Config::default() }).unwrap();
        let ran = Arc::new(AtomicU32::new(u32::MAX));
        let at = ran.clone();
        let handler = runtime.handler("handler", NEED, move |batch| {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Field 39, behind the name in parentheses: the CPU of the thread.
            let field = stat.rsplit(')').next().unwrap().split_whitespace().nth(36).unwrap();
            at.store(field.parse().unwrap(), Relaxed);
            batch.finish();
        });
        let handler = handler.unwrap();
        runtime.run(handler).unwrap();
        runtime.wait(&[handler], None);
        assert_eq!(ran.load(Relaxed), cpu);
    }
}

#[test]
fn the_measured_cost_of_a_hand_off_is_more_than_nothing() {
    let cost = switch_cost();
    assert!(cost > Span::ZERO && cost < Span::from_millis(1), "{cost}");
}

/// `unscreened` admits what the tests refuse.
#[test]
fn an_unscreened_runtime_refuses_no_share() {
    for unscreened in [false, true] {
        let config = Config { discipline: &PS, unscreened, ..Config::default() };
        let mut runtime = Runtime::start(config).unwrap();
        let terms = Terms { share: Share::from_ppm(100), ..Terms::default() };
        let made = runtime.handler("handler", (NEED, terms), |_| {});
        assert_eq!(made.is_ok(), unscreened, "{made:?}");
    }
}

#[test]
fn the_platform_of_admission_follows_the_config() {
    // A busy machine would measure a large cost.
    let config = || Config { switch_cost: Some(Span::from_micros(20)), ..Config::default() };
    let admits = |config: Config, need: ActivityParams| {
        let mut runtime = Runtime::start(config).unwrap();
        runtime.handler("handler", need, |_| {}).is_ok()
    };
    let much = ActivityParams::new(Span::from_millis(10), Span::from_millis(4));
    let soon = NEED.deadline(Span::from_millis(3));
    assert!(admits(config(), much) && admits(config(), soon));
    let cpu_limit = Share::from_ppm(300_000).unwrap();
    assert!(!admits(Config { cpu_limit, ..config() }, much));
    let wakeup_latency = Span::from_millis(5);
    assert!(!admits(Config { wakeup_latency, ..config() }, soon));
    let switch_cost = Some(Span::from_millis(5));
    assert!(!admits(Config { switch_cost, ..config() }, soon));
}

#[test]
fn a_notice_has_a_kind_a_problem_and_a_remedy() {
    let notice = Notice::NoMemoryLock(OsError::new("mlockall", 1));
    assert_eq!(notice.kind(), NoticeKind::MemoryLock);
    assert!(notice.to_string().starts_with(&notice.problem()), "{notice}");
    let remedy = notice.remedy().unwrap().to_string();
    assert!(notice.to_string().contains(&remedy), "{notice}");
    let pinning = Notice::NoPinning { cpu: 7, error: OsError::new("sched_setaffinity", 22) };
    assert!(pinning.problem().contains('7') && pinning.remedy().is_none(), "{pinning}");
}

#[test]
fn sockets_of_daemons_have_their_places() {
    assert_eq!(system_daemon_socket(), Path::new("/run/upcall.sock"));
    let own = own_daemon_socket().unwrap();
    assert!(own.ends_with("upcall.sock") && own.is_absolute(), "{}", own.display());
    assert_eq!(daemon_answers(Path::new("/nowhere/upcall.sock")).ok(), Some(false));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("upcall.sock");
    let listener = Listener::bind(&path, Access::Owner).unwrap();
    assert_eq!(daemon_answers(&path).ok(), Some(true));
    drop(listener);
    assert_eq!(daemon_answers(&path).ok(), Some(false));
}

/// A receiver, and a sender to it.
fn ends(options: &ReceiverOptions) -> (Receiver, Sender) {
    let receiver = Receiver::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let sender = Sender::connect(receiver.local_address().unwrap(), 8, 100).unwrap();
    (receiver, sender)
}

/// Waits until a datagram has come: the kernel may deliver it a moment after the call that sends.
fn has_come(receiver: &mut Receiver) -> bool {
    (0..10_000).any(|_| {
        let is_ready = receiver.ready();
        if !is_ready {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        is_ready
    })
}

#[test]
fn a_sender_sends_when_it_is_flushed_or_full() {
    let (mut receiver, mut sender) = ends(&ReceiverOptions::default());
    let counters = sender.counters();
    sender.send(&[1; 10]);
    assert!(!receiver.ready());
    sender.flush();
    assert!(has_come(&mut receiver));
    for _ in 0..9 {
        sender.send(&[2; 20]);
    }
    assert_eq!((counters.processed.value(), counters.received.value()), (10, 9));
    sender.send(&[3; 101]);
    assert_eq!(counters.dropped_queue.value(), 1);
}

#[test]
fn a_receiver_shows_what_it_fetched_and_drops_what_is_discarded() {
    let options = ReceiverOptions {
        batch_max: 2,
        delay_max: Span::from_nanos(1),
        ..ReceiverOptions::default()
    };
    // The receiver with three datagrams after a call that fetched some of them.
    let fetched = || {
        let (mut receiver, mut sender) = ends(&options);
        for payload in [[1], [2], [3]] {
            sender.send(&payload);
        }
        sender.flush();
        assert_eq!((receiver.waiting(), receiver.peek()), (0, None));
        assert!(has_come(&mut receiver));
        receiver
    };
    // One call fetches at most a batch, and less if the kernel has delivered one datagram alone.
    let mut receiver = fetched();
    for _ in 0..100 {
        if receiver.waiting() != 1 {
            break;
        }
        receiver = fetched();
    }
    assert_eq!(receiver.waiting(), 2);
    let counters = receiver.counters();
    let shown = receiver.peek().unwrap().payload.to_vec();
    assert_eq!(receiver.take().unwrap().payload, shown);
    receiver.processed();
    assert_eq!((counters.processed.value(), counters.late.value()), (1, 1));
    // The next one logically arrives in an hour, so it is not late.
    assert!(has_come(&mut receiver) && receiver.take().is_some());
    receiver.arrived_logically(clock::after(Span::from_secs(3600)));
    receiver.processed();
    assert_eq!((counters.processed.value(), counters.late.value()), (2, 1));
    assert!(has_come(&mut receiver) && receiver.take().is_some());
    receiver.discarded();
    assert_eq!((counters.processed.value(), counters.dropped_queue.value()), (2, 1));
}

#[test]
fn a_socket_buffer_that_is_too_small_is_reported() {
    let (receiver, _) = ends(&ReceiverOptions::default());
    assert_eq!(receiver.buffer_shortfall(), None);
    let (large, small) = (
        ReceiverOptions { buffered: u32::MAX, ..ReceiverOptions::default() },
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    let receiver = Receiver::from_socket(small, &large).unwrap();
    let (asked, granted) = receiver.buffer_shortfall().unwrap();
    assert!(granted < asked, "{asked} {granted}");
}
