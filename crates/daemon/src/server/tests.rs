//! A daemon and its domains in one process: real pages, sockets and threads.

use super::*;

mod connections;
mod events;
mod false_ranks;
#[path = "../../tests/support/lost_time.rs"]
mod lost_time;
mod programs;
mod restart;
mod soft;
mod status;
mod streams;
mod trace;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::watchdog::Measure;
use upcall_core::activity::ActivityParams;
use upcall_core::admission::Share;
use upcall_runtime::{Attach, Batch, Config as RuntimeConfig, HandlerId, Runtime};
use upcall_shm::wire::{ToDaemon, ToDomain};

use lost_time::LostTime;

/// Tests run one daemon at a time: two daemons would use the same CPU unaware of each other.
static ALONE: Mutex<()> = Mutex::new(());

struct Running {
    stopper: Stopper,
    thread: Option<JoinHandle<Vec<DaemonEvent>>>,
    socket: PathBuf,
    /// The time that the CPU of the daemon loses to the host.
    lost_time: LostTime,
    lost_before: u64,
    _directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Running {
    fn start(change: impl FnOnce(&mut Config)) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("upcalld");
        let lost_time = LostTime::of(*schedule::allowed_cpus().unwrap().last().unwrap());
        let lost_before = lost_time.count();
        let (stopper, thread) = Running::serve(&socket, change);
        Running {
            stopper,
            thread: Some(thread),
            socket,
            lost_time,
            lost_before,
            _directory: directory,
            _alone: alone,
        }
    }

    fn serve(
        socket: &std::path::Path,
        change: impl FnOnce(&mut Config),
    ) -> (Stopper, JoinHandle<Vec<DaemonEvent>>) {
        let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
        let mut config = Config::new(socket.to_owned(), vec![cpu]);
        change(&mut config);
        let daemon = Daemon::start(config).unwrap();
        let stopper = daemon.stopper();
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            daemon.run(|event, _| events.push(event.clone()));
            events
        });
        (stopper, thread)
    }

    fn domain(&self, name: &str) -> Runtime {
        let daemon = Some(Attach { socket: self.socket.clone(), name: name.to_owned() });
        Runtime::start(RuntimeConfig { daemon, ..RuntimeConfig::default() }).unwrap()
    }

    /// Stops the daemon. No daemon listens at the socket from now on.
    fn end(&mut self) -> Vec<DaemonEvent> {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap()
    }

    fn stop(mut self) -> Vec<DaemonEvent> {
        self.end()
    }

    /// Stops the daemon, which accused no domain. If the host took the CPU meanwhile, that time may
    /// have been charged to a handler. Then that others went first proves nothing.
    #[track_caller]
    fn stop_without_offence(mut self, test: &str) -> Vec<DaemonEvent> {
        let events = self.end();
        let lost = self.lost_time.count() - self.lost_before;
        match events.iter().any(is_offence) {
            true if lost > 0 && events.iter().filter(|of| is_offence(of)).all(goes_last) => {
                let _ = writeln!(std::io::stderr(), "skipped: {test}: the host took the CPU");
            }
            is_accused => assert!(!is_accused, "{test}: {events:?}"),
        }
        events
    }
}

/// Waits until something is so. The limit is generous: any thread may be stopped for seconds.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < give_up, "no {what} in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Closes a handler. A busy machine may keep its executor from answering within the half second
/// that `close` waits.
#[track_caller]
fn close(domain: &mut Runtime, id: HandlerId) {
    wait_until("closed handler", || domain.close(id).is_some());
}

/// Whether a domain is accused.
fn is_offence(event: &DaemonEvent) -> bool {
    matches!(event, DaemonEvent::Offence { .. })
}

/// Whether others go first because the domain used too much CPU time.
fn goes_last(event: &DaemonEvent) -> bool {
    matches!(event, DaemonEvent::Offence { measure: Measure::OutPrioritised, .. })
}

/// Whether a domain showed a rank that it does not have.
fn is_false_rank(event: &DaemonEvent) -> bool {
    matches!(event, DaemonEvent::Offence { measure: Measure::Disbelieved, .. })
}

fn spin(batch: &mut Batch<'_>) {
    while batch.proceed() {
        let until = upcall_runtime::clock::now() + Span::from_micros(100);
        while upcall_runtime::clock::now() < until {}
    }
}

fn params(period_ms: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(150)).batch(4)
}

#[test]
fn the_handlers_of_several_domains_all_run() {
    let daemon = Running::start(|_| {});
    let mut domains: Vec<Runtime> =
        ["one", "two", "three"].iter().map(|name| daemon.domain(name)).collect();
    let mut handlers = Vec::new();
    for domain in &mut domains {
        for period_ms in [10, 20] {
            let name = format!("t{period_ms}");
            handlers.push(domain.handler(&name, params(period_ms), spin).unwrap());
        }
    }
    let at = upcall_runtime::clock::now() + Span::from_millis(20);
    for (domain, ids) in domains.iter_mut().zip(handlers.chunks(2)) {
        domain.run_at(ids, at).unwrap();
    }
    wait_until("five jobs of each", || {
        domains.iter_mut().zip(handlers.chunks(2)).all(|(domain, ids)| {
            domain.poll(|_, _| {});
            ids.iter().all(|&id| domain.statistics(id).unwrap().jobs > 5)
        })
    });
    for domain in domains {
        domain.stop(|_, _| {});
    }
    let events = daemon.stop_without_offence("the_handlers_of_several_domains_all_run");
    let attached =
        events.iter().filter(|event| matches!(event, DaemonEvent::Attached { .. })).count();
    assert_eq!(attached, 3, "{events:?}");
}

#[test]
fn a_blocked_domain_gets_a_resume_interrupt_when_it_returns() {
    let daemon = Running::start(|_| {});
    let (mut sleeper, mut other) = (daemon.domain("sleeper"), daemon.domain("other"));
    let resumed = Arc::new(AtomicU32::new(0));
    let counted = resumed.clone();
    let cpu = sleeper.config().cpus[0];
    sleeper
        .on_interrupt(cpu, move |kind| {
            assert_eq!(kind, upcall_runtime::Interrupt::Resume);
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    let asleep = sleeper
        .handler("asleep", params(100), |batch| {
            while batch.proceed() {
                // Sleeps during its turn, for some releases of the other domain.
                std::thread::sleep(Duration::from_millis(30));
            }
        })
        .unwrap();
    let awake = other.handler("awake", params(5), spin).unwrap();
    other.run(awake).unwrap();
    sleeper.run(asleep).unwrap();
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while resumed.load(Ordering::Relaxed) < 3 {
        assert!(std::time::Instant::now() < give_up, "not interrupted in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((sleeper, other));
    daemon.stop();
}

#[test]
fn a_domain_receives_its_own_offences_only() {
    let daemon = Running::start(|_| {});
    let (mut hog, mut victim) = (daemon.domain("hog"), daemon.domain("victim"));
    let stuck = hog
        .handler("stuck", params(50), |batch| {
            // CPU time, so that a busy machine does not shorten it.
            let until = upcall_runtime::thread_cpu_ns() + 60_000_000;
            while upcall_runtime::thread_cpu_ns() < until {}
            batch.finish();
        })
        .unwrap();
    let well = victim.handler("well", params(10), spin).unwrap();
    victim.run(well).unwrap();
    hog.run(stuck).unwrap();
    let mut offences = Vec::new();
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while offences.is_empty() {
        assert!(std::time::Instant::now() < give_up, "no offence reported in a minute");
        std::thread::sleep(Duration::from_millis(5));
        offences.extend(hog.offences());
    }
    let cpu = hog.config().cpus[0];
    hog.wait(&[stuck], Some(upcall_runtime::clock::after(Span::from_secs(60))));
    assert!(victim.offences().is_empty());
    assert!(victim.stop(|_, _| {}).offences.is_empty());
    // The report holds the offences after the last call. Together they are the daemon's events, in
    // order. The daemon may notice the last of them while the domain ends.
    std::thread::sleep(Duration::from_millis(100));
    offences.extend(hog.stop(|_, _| {}).offences);
    let events = daemon.stop();
    let of_hog = |event: &DaemonEvent| match event {
        DaemonEvent::Offence { name, cpu, measure, held, .. } if name == "hog" => {
            Some((*cpu, *measure as u32, *held))
        }
        _ => None,
    };
    let received = offences.iter().map(|of| (of.cpu, of.measure as u32, of.held));
    let (received, told): (Vec<_>, Vec<_>) =
        (received.collect(), events.iter().filter_map(of_hog).collect());
    assert!(told.starts_with(&received), "{received:?} of {told:?}");
    assert!(offences.iter().all(|of| of.cpu == cpu && !of.held.is_zero()), "{offences:?}");
    assert_eq!(offences[0].measure, Measure::OutPrioritised);
}

#[test]
fn the_detach_reason_distinguishes_an_orderly_end() {
    let daemon = Running::start(|_| {});
    daemon.domain("ends in order").stop(|_, _| {});
    let by_hand = status::ByHand::connect(&daemon);
    by_hand.attach();
    drop(by_hand);
    daemon.status_when(|reply| reply.domains.is_empty());
    let events = daemon.stop();
    let ends = events.iter().filter_map(|event| match event {
        DaemonEvent::Detached { name, reason, .. } => Some((name.as_str(), reason.as_str())),
        _ => None,
    });
    let closed = ("by hand", "its connection closed before it detached");
    assert_eq!(ends.collect::<Vec<_>>(), [("ends in order", "it detached"), closed]);
}

#[test]
fn an_ended_thread_is_not_attached_and_its_domain_detaches_in_order() {
    let daemon = Running::start(|_| {});
    let by_hand = status::ByHand::connect(&daemon);
    let (_, _, cpu, _) = by_hand.attach();
    let tid = std::thread::spawn(process::thread_id).join().unwrap();
    by_hand.send(&ToDaemon::Thread { cpu, tid });
    by_hand.send(&ToDaemon::Detach);
    daemon.status_when(|reply| reply.domains.is_empty());
    let ends = daemon.stop().into_iter().find_map(|event| match event {
        DaemonEvent::Detached { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(ends.as_deref(), Some("it detached"));
}

#[test]
fn deferred_preemption_is_announced_and_counted_in_admission() {
    let daemon = Running::start(|config| config.defer_preemption = Span::from_millis(30));
    let by_hand = status::ByHand::connect(&daemon);
    by_hand.send(&ToDaemon::Hello { name: "by hand".into(), policy: "rmdp".into() });
    let Some((ToDomain::Welcome { defer_preemption_ns, .. }, _)) = by_hand.receive() else {
        panic!("no welcome");
    };
    assert_eq!(defer_preemption_ns, 30_000_000);
    let mut domain = daemon.domain("a");
    domain.handler("can wait", params(40), spin).unwrap();
    assert!(domain.handler("cannot", params(20), spin).is_err());
    domain.stop(|_, _| {});
    daemon.stop();
}

#[test]
fn deferred_preemption_needs_rmdp() {
    let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
    let socket = std::env::temp_dir().join("upcalld-that-does-not-start");
    let defer_preemption = Span::from_millis(1);
    for discipline in [&upcall_core::discipline::DWS, &upcall_core::discipline::RM] {
        let config =
            Config { discipline, defer_preemption, ..Config::new(socket.clone(), vec![cpu]) };
        let refused = Daemon::start(config).err().map(|error| error.to_string());
        let name = discipline.name;
        let expected =
            format!("deferred preemption under policy `{name}`, expected 0 or policy rmdp");
        assert_eq!(refused, Some(expected));
    }
}
