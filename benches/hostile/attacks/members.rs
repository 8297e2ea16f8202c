//! Attacks with what the daemon knows of a domain: its thread's number and class, its group's wake
//! word and turn, and the grace of each domain.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use upcall_shm::DomainId;
use upcall_shm::user_area::Rank;
use upcall_shm::wire::{ToDaemon, ToDomain};
use upcall_sys::local::Connection;
use upcall_sys::schedule::Class;
use upcall_sys::{clock, futex, process, schedule};

use super::{Attack, Beside, attack, attacking, claim, notify_daemon, sleep, spin};
use crate::raw::{self, Raw, need};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("wake flood", "an ordinary thread wakes the daemon for nothing", wake_flood),
    Attack {
        other_user: true,
        beside: Beside::VictimsAndOrdinary,
        ..attack("wake flood, other", "as `wake flood`, by another user", wake_flood)
    },
    Attack {
        other_user: true,
        beside: Beside::VictimsAndOrdinary,
        ..attack("turn flood, other", "an ordinary thread returns each turn at once", turn_flood)
    },
    Attack {
        other_user: true,
        beside: Beside::VictimsAndOrdinary,
        long_calls: true,
        ..attack("swarm, other", "20 domains, each 4.9 % beyond its reservation", swarm)
    },
    Attack {
        other_user: true,
        long_calls: true,
        ..attack(
            "swarm, better",
            "as `swarm, other`, with better ranks than all others",
            swarm_better,
        )
    },
    Attack {
        long_calls: true,
        ..attack("reused number", "a spinning process gets the number of its thread", reused_number)
    },
    Attack {
        other_user: true,
        ..attack("blank, other", "attaches a thread with a blank user area, then loops", blank)
    },
    Attack {
        other_user: true,
        long_calls: true,
        ..attack("exec at 59, other", "lowers itself by one, then executes a loop", exec_below)
    },
];

/// How many domains a swarm has.
const SWARM: usize = 20;
/// The period of the reservations, in which each domain of a swarm runs for its reservation and
/// 4.9 % of the CPU. Twenty such reservations of another user fit beside the victims, with some
/// 1 ms to spare: admission counts each hand-off as the daemon measured it at its start.
const PERIOD_NS: u64 = 5_000_000;
const RESERVED_NS: u64 = 30_000;
const USED_NS: u64 = RESERVED_NS + 245_000;
/// A period above those of the victims: the swarm has worse ranks.
const WORSE_KEY_NS: u64 = 40_000_000;

fn wake_flood(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    beside(&raw, || {
        loop {
            notify_daemon(&raw);
        }
    });
}

/// A domain with ready work, whose group never keeps the turn.
fn turn_flood(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    let rank = raw.rank;
    claim(&mut raw, rank);
    beside(&raw, || {
        loop {
            raw.turn.reset(DomainId::DAEMON);
            notify_daemon(&raw);
        }
    });
}

/// Acts in an ordinary thread on another CPU, while the domain's own thread sleeps.
fn beside(raw: &Raw, act: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let allowed = upcall::allowed_cpus().into_iter().flatten();
            let others: Vec<u32> = allowed.filter(|&cpu| cpu != raw.turn.cpu()).collect();
            let _ = schedule::set_ordinary();
            let _ = schedule::pin_thread(&others);
            attacking();
            act();
        });
        loop {
            sleep(raw);
        }
    });
}

fn swarm(socket: &Path) {
    all_of_swarm(socket, |admitted| Rank { key: WORSE_KEY_NS, ..admitted });
}

/// The ranks are those of the admission.
fn swarm_better(socket: &Path) {
    all_of_swarm(socket, |admitted| admitted);
}

fn all_of_swarm(socket: &Path, rank_of: fn(Rank) -> Rank) {
    // How many have worked.
    let active = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..SWARM {
            scope.spawn(|| swarm_member(socket, rank_of, &active));
        }
    });
}

fn swarm_member(socket: &Path, rank_of: fn(Rank) -> Rank, active: &AtomicUsize) {
    let mut raw = Raw::attach_with(socket, "attacker", need(PERIOD_NS, RESERVED_NS));
    let rank = rank_of(raw.rank);
    let mut release_ns = clock::monotonic_ns();
    let mut worked = false;
    loop {
        while clock::monotonic_ns() < release_ns {
            sleep_until(&raw, release_ns);
        }
        claim(&mut raw, rank);
        let turn = loop {
            match raw.turn.turn() {
                Ok(turn) if turn.holder() == raw.me => break turn,
                _ => sleep(&raw),
            }
        };
        for _ in 0..4 {
            let now = clock::monotonic_ns();
            raw.owner.set_running(Some(0), now);
            raw.owner.set_asked(now);
            spin(USED_NS / 4);
        }
        // Relaxed: it orders no other memory.
        if !std::mem::replace(&mut worked, true) && active.fetch_add(1, Relaxed) + 1 == SWARM {
            attacking();
        }
        raw.owner.publish(None);
        raw.turn.pass(turn, DomainId::DAEMON);
        notify_daemon(&raw);
        release_ns = clock::monotonic_ns().max(release_ns + PERIOD_NS);
    }
}

fn sleep_until(raw: &Raw, deadline_ns: u64) {
    let wake_word = raw.turn.wake_word(raw.me);
    if wake_word.prepare_wait() {
        let asleep = upcall_shm::wake_word::ASLEEP;
        futex::wait_shared_until(wake_word.word(), asleep, Some(deadline_ns));
    }
    wake_word.finish_wait();
}

/// The domain offends, so that the daemon changes the class of its thread. Then the thread ends, a
/// process that spins gets its number, and the domain behaves: the daemon reinstates the thread.
/// Root chooses the number; other users would start processes until the number comes.
fn reused_number(socket: &Path) {
    let (tell, told) = std::sync::mpsc::channel();
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let path = socket.to_owned();
    let thread = std::thread::spawn(move || {
        let raw = Raw::attach(&path, "attacker");
        let _ = tell.send((raw, process::thread_id()));
        let _ = opened.recv();
    });
    let (mut raw, tid) = told.recv().expect("the domain attaches");
    raw.owner.publish(Some(Rank::new(0, 0).into()));
    std::thread::sleep(Duration::from_millis(100));
    drop(gate);
    let _ = thread.join();
    let _ = schedule::pin_thread(&[raw.turn.cpu()]);
    let mut child = process_with_number(tid).expect("a process gets the number");
    raw.owner.publish(None);
    attacking();
    loop {
        raw.owner.set_asked(clock::monotonic_ns());
        let _ = child.try_wait();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process with that number, which spins for some seconds.
fn process_with_number(number: u32) -> Option<Child> {
    let spins = "i=0; while [ $i -lt 4000000 ]; do i=$((i+1)); done";
    for _ in 0..1_000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).ok()?;
        let mut child = Command::new("sh").args(["-c", spins]).spawn().ok()?;
        if child.id() == number {
            return Some(child);
        }
        let _ = (child.kill(), child.wait());
    }
    None
}

/// The attachment of the thread fails: a user area names its domain.
fn blank(socket: &Path) {
    let connection = Connection::connect(socket).expect("the daemon listens");
    let hello = ToDaemon::Hello { name: "attacker".into(), policy: "rmdp".into() };
    connection.send(&hello.encode(), &[]).expect("the domain is connected");
    let _welcome = raw::next(&connection);
    let Ok((ToDomain::VirtualProcessor { cpu }, _)) = raw::next(&connection) else { return };
    let tid = process::thread_id();
    let _ = connection.send(&ToDaemon::Thread { cpu, tid }.encode(), &[]);
    attacking();
    std::thread::sleep(Duration::from_millis(200));
    drop(connection);
    let _ = schedule::pin_thread(&[cpu]);
    loop {
        std::hint::spin_loop();
    }
}

/// A thread may lower itself. One that is not the first of its process gets another number when it
/// executes a program.
fn exec_below(socket: &Path) {
    let path = socket.to_owned();
    let thread = std::thread::spawn(move || {
        let _raw = Raw::attach(&path, "attacker");
        let tid = process::thread_id();
        let Ok(Class::Fifo { priority }) = schedule::class_of(tid) else { return };
        attacking();
        let _ = schedule::set_fifo_not_inherited_of(tid, priority - 1);
        let error = Command::new("sh").args(["-c", "while :; do :; done"]).exec();
        panic!("{error}");
    });
    let _ = thread.join();
}
