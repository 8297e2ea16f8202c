//! Attacks by locks: the owner of a priority-inheritance lock has the priority of a thread that
//! waits for it (futex(2), `FUTEX_LOCK_PI`). The owner here is an ordinary thread that loops.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::{clock, schedule};

use super::{
    Attack, DaemonOptions, attach_elsewhere, attack, attacking, claim, cpu_of_victims, sleep, spin,
};
use crate::raw::Raw;

pub(crate) const ATTACKS: &[Attack] = &[
    of_other("PI lock, other", "waits for a lock whose owner, ordinary, loops", wait),
    of_other("PI lock, again", "as `PI lock, other`, for 20 ms again and again", wait_again),
    of_other(
        "PI lock, in turn",
        "as `PI lock, other`, in its turn with the best rank",
        wait_in_turn,
    ),
    of_other("PI lock, short", "as `PI lock, other`, for 0.09 ms again and again", wait_shortly),
    of_other(
        "PI lock, bursts",
        "waits for a lock whose owner loops in bursts of 0.4 ms",
        wait_bursts,
    ),
    of_other(
        "PI lock, two",
        "as `PI lock, short`, for two locks of two owners in turn",
        wait_for_two,
    ),
    of_other(
        "PI lock, requeued",
        "as `PI lock, short`; an ordinary thread begins each wait",
        wait_requeued,
    ),
    of_other("PI lock, paced", "as `PI lock, other`, twice each 1.3 s", wait_paced),
    Attack {
        daemon: DaemonOptions { all_cpus: true, ..DaemonOptions::USUAL },
        ..of_other(
            "PI lock, elsewhere",
            "as `PI lock, requeued`, on the victims' CPU, not its own",
            wait_elsewhere,
        )
    },
];

/// How long a short wait lasts. The watchdog looks twice within 0.1 ms before it acts (`away`).
const SHORT_NS: u64 = 90_000;

const fn of_other(name: &'static str, what: &'static str, act: fn(&Path)) -> Attack {
    Attack { other_user: true, ..attack(name, what, act) }
}

fn wait(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    with_looping_owner(raw.turn.cpu(), |word| lock(word, None));
}

fn wait_again(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    with_looping_owner(raw.turn.cpu(), |word| {
        loop {
            lock(word, Some(clock::realtime_ns() + 20_000_000));
            // It keeps to the rules for a moment.
            let wake_word = raw.turn.wake_word(raw.me);
            if wake_word.prepare_wait() {
                let until_ns = clock::monotonic_ns() + 1_000_000;
                upcall_sys::futex::wait_shared_until(wake_word.word(), ASLEEP, Some(until_ns));
            }
            wake_word.finish_wait();
        }
    });
}

fn wait_in_turn(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    let rank = raw.rank;
    claim(&mut raw, rank);
    with_looping_owner(raw.turn.cpu(), |word| {
        loop {
            while raw.turn.holder() != Ok(raw.me) {
                sleep(&raw);
            }
            lock(word, None);
        }
    });
}

fn wait_shortly(socket: &Path) {
    let elsewhere = other_cpu();
    let mut raw = Raw::attach(socket, "attacker");
    with_looping_owner(raw.turn.cpu(), |word| {
        leave_for(elsewhere);
        loop {
            lock(word, Some(clock::realtime_ns() + SHORT_NS));
            respond(&mut raw);
        }
    });
}

/// Twice within a second, so the third time never comes.
fn wait_paced(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    with_looping_owner(raw.turn.cpu(), |word| {
        loop {
            for _ in 0..2 {
                lock(word, Some(clock::realtime_ns() + 5_000_000));
                respond(&mut raw);
                std::thread::sleep(Duration::from_millis(100));
            }
            std::thread::sleep(Duration::from_millis(1_100));
        }
    });
}

fn wait_bursts(socket: &Path) {
    let elsewhere = other_cpu();
    let mut raw = Raw::attach(socket, "attacker");
    let burst = || {
        spin(400_000);
        std::thread::sleep(Duration::from_micros(100));
    };
    with_owner(raw.turn.cpu(), burst, |word| {
        leave_for(elsewhere);
        loop {
            // A domain that was put away must run before it takes turns again.
            lock(word, Some(clock::realtime_ns() + 5_000_000));
            respond(&mut raw);
        }
    });
}

fn wait_for_two(socket: &Path) {
    let elsewhere = other_cpu();
    let mut raw = Raw::attach(socket, "attacker");
    let cpu = raw.turn.cpu();
    with_looping_owner(cpu, |one| {
        with_looping_owner(cpu, |two| {
            leave_for(elsewhere);
            loop {
                for word in [one, two] {
                    lock(word, Some(clock::realtime_ns() + SHORT_NS));
                    respond(&mut raw);
                }
            }
        });
    });
}

fn wait_requeued(socket: &Path) {
    let elsewhere = other_cpu();
    let raw = Raw::attach(socket, "attacker");
    requeue(raw, None, [elsewhere; 2]);
}

/// A wait that has timed out goes on until the thread runs, and the owner keeps it from running. No
/// record names it, and it does not sleep.
fn wait_elsewhere(socket: &Path) {
    let (cpu, elsewhere) = (cpu_of_victims(), other_cpu());
    let raw = attach_elsewhere(socket);
    requeue(raw, Some(cpu), [cpu, elsewhere]);
}

/// Waits for a lock whose owner loops on that CPU, or on that of the domain. Another thread, which
/// is no domain, begins each wait, so the kernel shows no domain that ran then. The two run on
/// these CPUs.
fn requeue(mut raw: Raw, owner_cpu: Option<u32>, [own, others]: [u32; 2]) {
    let condition = AtomicU32::new(0);
    with_looping_owner(owner_cpu.unwrap_or_else(|| raw.turn.cpu()), |word| {
        std::thread::scope(|scope| {
            let condition = &condition;
            scope.spawn(move || {
                leave_for(others);
                loop {
                    // It fails while nobody waits.
                    let _ = futex::cmp_requeue_pi(condition, Flags::PRIVATE, 1, word, 0);
                }
            });
            loop {
                leave_for(own);
                let until = timespec(clock::monotonic_ns() + SHORT_NS);
                match futex::wait_requeue_pi(condition, Flags::PRIVATE, 0, Some(&until), word) {
                    Ok(()) | Err(Errno::TIMEDOUT | Errno::AGAIN) => {}
                    Err(error) => panic!("FUTEX_WAIT_REQUEUE_PI: {error}"),
                }
                respond(&mut raw);
            }
        });
    });
}

/// The domain claims to keep to the rules. Otherwise it stays ordinary after the first wait.
fn respond(raw: &mut Raw) {
    raw.owner.set_asked(clock::monotonic_ns());
}

/// A CPU beside the one of the daemon. Called before the daemon pins the thread.
///
/// # Panics
/// If there is none.
fn other_cpu() -> u32 {
    let allowed = schedule::allowed_cpus().expect("the CPUs of this process");
    allowed.into_iter().find(|&cpu| cpu != cpu_of_victims()).expect("a second CPU")
}

/// Takes the calling thread to a CPU on which the owner of the lock does not keep it from running.
fn leave_for(cpu: u32) {
    schedule::pin_thread(&[cpu]).expect("the CPU is allowed");
}

/// Calls `act` with a lock whose owner loops on that CPU.
fn with_looping_owner(cpu: u32, act: impl FnOnce(&AtomicU32)) {
    with_owner(cpu, std::hint::spin_loop, act);
}

/// Calls `act` with a lock whose owner does `step` again and again on that CPU. The attack begins
/// when the owner is boosted, or when a thread waits. The watchdog may end that so soon that the
/// owner does not see its own priority, so the word counts, too.
fn with_owner(cpu: u32, step: impl Fn() + Send, act: impl FnOnce(&AtomicU32)) {
    let word = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let word = &word;
        scope.spawn(move || {
            lock(word, None);
            schedule::pin_thread(&[cpu]).expect("the CPU is allowed");
            assert!(!is_boosted(), "the owner is an ordinary thread");
            let _ = tell.send(());
            while !is_boosted() && !is_awaited(word) {}
            attacking();
            loop {
                step();
            }
        });
        let _ = told.recv();
        act(word);
    });
}

/// Whether a thread waits for the lock: the kernel sets this bit, and only the owner clears it
/// (futex(2), `FUTEX_WAITERS`).
fn is_awaited(word: &AtomicU32) -> bool {
    // Relaxed: it orders no other memory.
    word.load(Relaxed) & 0x8000_0000 != 0
}

/// Whether the calling thread has a priority of the real-time classes, its own or that of a waiter:
/// field 18, `priority`, is negative (proc_pid_stat(5)).
fn is_boosted() -> bool {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("/proc is mounted");
    // Field 3 follows the name.
    let priority = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(18 - 3));
    let priority: i32 = priority.and_then(|it| it.parse().ok()).expect("a number");
    priority < 0
}

/// Until a time of `CLOCK_REALTIME`.
///
/// # Panics
/// On an error other than the end of that time.
fn lock(word: &AtomicU32, until_ns: Option<u64>) {
    let until = until_ns.map(timespec);
    match futex::lock_pi(word, Flags::PRIVATE, until.as_ref()) {
        Ok(_) => {}
        Err(Errno::TIMEDOUT) if until.is_some() => {}
        Err(error) => panic!("FUTEX_LOCK_PI: {error}"),
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    }
}
