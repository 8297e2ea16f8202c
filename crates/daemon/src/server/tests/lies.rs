//! Domains that show ranks which they were not admitted with.

use super::status::ByHand;
use super::*;
use std::sync::atomic::AtomicBool;
use upcall_runtime::status::{SeatState, status};
use upcall_shm::user_area::{AREA_BYTES, Owner as AreaOwner, Rank, Slot, SlotState};
use upcall_shm::wire::{ToDaemon, ToDomain};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::thread_id;

/// As `ByHand::create` has it.
const PERIOD_NS: u64 = 1_000_000_000;

/// A domain by hand, its thread there and asleep; its area, and the order it was granted.
fn domain(daemon: &Running) -> (ByHand, AreaOwner<SharedMapping>, u32, Sleeper) {
    let by_hand = ByHand::connect(daemon);
    let (me, generation, cpu, fds) = by_hand.attach();
    let memory = SharedMapping::from_fd(fds[1].try_clone().unwrap(), AREA_BYTES).unwrap();
    let area = AreaOwner::create(memory, me, generation).unwrap();
    let sleeper = Sleeper::start();
    by_hand.say(&ToDaemon::Thread { cpu, tid: sleeper.tid });
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
        let told = quit.clone();
        let thread = std::thread::spawn(move || {
            send.send(thread_id()).unwrap();
            while !told.load(Ordering::Relaxed) {
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

fn measures(events: &[Event]) -> Vec<Measure> {
    let each = events.iter().filter_map(|event| match event {
        Event::Offence { measure, .. } => Some(*measure),
        _ => None,
    });
    each.collect()
}

/// The next offence that the domain is told of.
fn told(by_hand: &ByHand) -> Option<Measure> {
    loop {
        match by_hand.hear()? {
            (ToDomain::Offence { measure, .. }, _) => return Measure::of_number(measure),
            _ => continue,
        }
    }
}

fn state(daemon: &Running) -> SeatState {
    status(&daemon.socket).unwrap().domains[0].seats[0].state
}

#[test]
fn a_rank_that_was_not_admitted_is_an_offence_until_the_right_one_is_shown() {
    let daemon = Running::start(|_| {});
    let (by_hand, mut area, order, sleeper) = domain(&daemon);
    let honest = Rank::new(PERIOD_NS, order);
    // To come, and never: nobody waits for it meanwhile.
    let next_release_ns = u64::MAX - 1;
    let slot = |rank| Slot { next_release_ns, rank, state: SlotState::Waiting };
    area.set(0, slot(honest)).unwrap();
    area.publish(None);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(state(&daemon), SeatState::Attached);

    area.set(0, slot(Rank { key: PERIOD_NS - 1, ..honest })).unwrap();
    area.publish(None);
    assert_eq!(told(&by_hand), Some(Measure::Disbelieved));
    for _ in 0..20 {
        assert_eq!(state(&daemon), SeatState::Demoted);
        std::thread::sleep(Duration::from_millis(10));
    }

    area.set(0, slot(honest)).unwrap();
    area.publish(None);
    let clock = upcall_runtime::clock::now;
    let give_up = clock() + Span::from_secs(60);
    while state(&daemon) != SeatState::Attached {
        assert!(clock() < give_up, "not taken back in a minute");
        area.set_asked(clock().as_nanos());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((by_hand, sleeper));
    assert_eq!(measures(&daemon.stop()), [Measure::Disbelieved]);
}

#[test]
fn an_event_by_which_it_was_not_admitted_to_win_ties_is_not_to_be_shown() {
    let daemon = Running::start(|_| {});
    let (by_hand, mut area, order, _sleeper) = domain(&daemon);
    let rank = Rank { event: 3, ..Rank::new(PERIOD_NS, order) };
    area.publish(Some(rank.into()));
    assert_eq!(told(&by_hand), Some(Measure::Disbelieved));
    drop(by_hand);
    daemon.stop();
}

#[test]
fn another_domain_s_place_in_the_order_is_not_to_be_shown() {
    let daemon = Running::start(|_| {});
    let (other, _area, theirs, _asleep) = domain(&daemon);
    let (by_hand, mut area, _, _sleeper) = domain(&daemon);
    area.publish(Some(Rank::new(PERIOD_NS, theirs).into()));
    assert_eq!(told(&by_hand), Some(Measure::Disbelieved));
    drop((other, by_hand));
    assert!(measures(&daemon.stop()).contains(&Measure::Disbelieved));
}

#[test]
fn activities_that_come_and_go_are_no_lies() {
    for discipline in [&RMDP, &upcall_core::discipline::RM, &upcall_core::discipline::DWS] {
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
            assert!(ids.into_iter().all(|id| domain.close(id).is_some()));
        }
        drop(domain);
        assert_eq!(measures(&daemon.stop()), [], "{}", discipline.name);
    }
}
