//! Domains without a runtime: false ranks, and a thread that ends.

use super::status::ByHand;
use super::*;
use std::sync::atomic::AtomicBool;
use upcall_core::discipline::{DWS, RM, RMDP};
use upcall_runtime::status::{VirtualProcessorState, status};
use upcall_shm::user_area::{AREA_BYTES, Owner as AreaOwner, Rank, Slot, SlotState};
use upcall_shm::wire::{ToDaemon, ToDomain};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::thread_id;

/// The period that `ByHand::create` requests.
const PERIOD_NS: u64 = 1_000_000_000;

/// A domain without a runtime: its connection, its user area, its place in the order of admission,
/// and its sleeping thread.
fn domain(daemon: &Running) -> (ByHand, AreaOwner<SharedMapping>, u32, Sleeper) {
    let by_hand = ByHand::connect(daemon);
    let (me, generation, cpu, fds) = by_hand.attach();
    let memory = SharedMapping::from_fd(fds[1].try_clone().unwrap(), AREA_BYTES).unwrap();
    let area = AreaOwner::create(memory, me, generation).unwrap();
    let sleeper = Sleeper::start();
    by_hand.send(&ToDaemon::Thread { cpu, tid: sleeper.tid });
    let order = by_hand.create("by hand");
    (by_hand, area, order, sleeper)
}

/// A thread that only sleeps.
struct Sleeper {
    tid: u32,
    quit: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    fn start() -> Self {
        let (quit, (send, tid)) = (Arc::new(AtomicBool::new(false)), std::sync::mpsc::channel());
        let quit_flag = quit.clone();
        let thread = std::thread::spawn(move || {
            send.send(thread_id()).unwrap();
            while !quit_flag.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Sleeper { tid: tid.recv().unwrap(), quit, thread: Some(thread) }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn measures(events: &[DaemonEvent]) -> Vec<Measure> {
    let each = events.iter().filter_map(|event| match event {
        DaemonEvent::Offence { measure, .. } => Some(*measure),
        _ => None,
    });
    each.collect()
}

/// The measure of the next offence that the domain receives.
fn next_offence(by_hand: &ByHand) -> Option<Measure> {
    loop {
        match by_hand.receive()? {
            (ToDomain::Offence { measure, .. }, _) => return Measure::of_number(measure),
            _ => continue,
        }
    }
}

fn state(daemon: &Running) -> VirtualProcessorState {
    status(&daemon.socket).unwrap().domains[0].virtual_processors[0].state
}

#[test]
fn a_false_rank_is_an_offence_until_the_admitted_one_is_shown() {
    let daemon = Running::start(|_| {});
    let (by_hand, mut area, order, sleeper) = domain(&daemon);
    let honest = Rank::new(PERIOD_NS, order);
    // A release in the far future, so that no domain waits for it meanwhile.
    let next_release_ns = u64::MAX - 1;
    let slot = |rank| Slot { next_release_ns, rank, state: SlotState::Waiting };
    area.set(0, slot(honest)).unwrap();
    area.publish(None);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(state(&daemon), VirtualProcessorState::Attached);

    area.set(0, slot(Rank { key: PERIOD_NS - 1, ..honest })).unwrap();
    area.publish(None);
    assert_eq!(next_offence(&by_hand), Some(Measure::Disbelieved));
    for _ in 0..20 {
        assert_eq!(state(&daemon), VirtualProcessorState::Demoted);
        std::thread::sleep(Duration::from_millis(10));
    }

    let clock = upcall_runtime::clock::now;
    // A domain that shows an honest rank before it responds may finish its quantum first, and then
    // has to sleep. The thread of this test shows no sleep.
    area.set_asked(clock().as_nanos());
    area.set(0, slot(honest)).unwrap();
    area.publish(None);
    let give_up = clock() + Span::from_secs(60);
    while state(&daemon) != VirtualProcessorState::Attached {
        assert!(clock() < give_up, "not taken back in a minute");
        area.set_asked(clock().as_nanos());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((by_hand, sleeper));
    assert_eq!(measures(&daemon.stop()), [Measure::Disbelieved]);
}

#[test]
fn an_event_rank_without_admission_is_an_offence() {
    let daemon = Running::start(|_| {});
    let (by_hand, mut area, order, _sleeper) = domain(&daemon);
    let rank = Rank { event: 3, ..Rank::new(PERIOD_NS, order) };
    area.publish(Some(rank.into()));
    assert_eq!(next_offence(&by_hand), Some(Measure::Disbelieved));
    drop(by_hand);
    daemon.stop();
}

#[test]
fn showing_another_domains_place_is_an_offence() {
    let daemon = Running::start(|_| {});
    let (other, _area, theirs, _asleep) = domain(&daemon);
    let (by_hand, mut area, _, _sleeper) = domain(&daemon);
    area.publish(Some(Rank::new(PERIOD_NS, theirs).into()));
    assert_eq!(next_offence(&by_hand), Some(Measure::Disbelieved));
    drop((other, by_hand));
    assert!(measures(&daemon.stop()).contains(&Measure::Disbelieved));
}

#[test]
fn creating_and_closing_activities_is_no_offence() {
    for discipline in [&RMDP, &RM, &DWS] {
        let daemon = Running::start(|config| {
            config.discipline = discipline;
            config.switch_cost = Some(Span::from_micros(20));
        });
        let attach = Attach { socket: daemon.socket.clone(), name: "busy".to_owned() };
        let config = RuntimeConfig { daemon: Some(attach), discipline, ..RuntimeConfig::default() };
        let mut domain = Runtime::start(config).unwrap();
        for round in 0..20 {
            let ids = [10, 20].map(|ms| {
                let name = format!("t{ms}");
                domain.handler(&name, params(ms + round), spin).unwrap()
            });
            domain.run_at(&ids, upcall_runtime::clock::now()).unwrap();
            std::thread::sleep(Duration::from_millis(15));
            ids.into_iter().for_each(|id| close(&mut domain, id));
        }
        drop(domain);
        let test = "creating_and_closing_activities_is_no_offence";
        daemon.stop_without_offence(&format!("{test} under {}", discipline.name));
    }
}

#[test]
fn a_domain_leaves_a_cpu_when_its_thread_there_ends() {
    let daemon = Running::start(|_| {});
    let (by_hand, _area, _, sleeper) = domain(&daemon);
    let reply = daemon.status_when(|reply| !reply.domains[0].activities.is_empty());
    assert_eq!(reply.domains[0].virtual_processors.len(), 1);
    let cpu = reply.domains[0].virtual_processors[0].cpu;
    drop(sleeper);
    let reply = daemon.status_when(|reply| reply.domains[0].virtual_processors.is_empty());
    assert!(reply.domains[0].activities.is_empty(), "its place is free again");
    assert_eq!(by_hand.refusal_of("again"), format!("the domain's thread on CPU {cpu} has ended"));
    by_hand.send(&ToDaemon::Detach);
    daemon.status_when(|reply| reply.domains.is_empty());
    daemon.stop();
}

/// The report that a thread has ended may be among the lost ones.
#[test]
fn a_server_that_lost_reports_says_so_once() {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let config = Config::new(directory.path().join("upcalld"), schedule::allowed_cpus().unwrap());
    let mut daemon = Daemon::start(config).unwrap();
    daemon.events.clear();
    daemon.take_offences();
    assert!(daemon.events.is_empty());
    daemon.reports_lost.store(3, Ordering::Relaxed);
    daemon.take_offences();
    let told: Vec<_> = daemon.events.drain(..).map(|event| event.to_string()).collect();
    assert_eq!(told, ["3 reports of the watchdog were lost: the server is far behind"]);
    daemon.take_offences();
    assert!(daemon.events.is_empty(), "once");
    drop((daemon, alone));
}
