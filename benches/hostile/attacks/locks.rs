//! Attacks by locks: the owner of a priority-inheritance lock has the priority of a thread that
//! waits for it (futex(2), `FUTEX_LOCK_PI`). The owner here is an ordinary thread that loops.

use std::path::Path;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::{clock, schedule};

use super::{Attack, attack, attacking, claim, sleep};
use crate::raw::Raw;

pub(crate) const ATTACKS: &[Attack] = &[
    of_other("PI lock, other", "waits for a lock whose owner, ordinary, loops", wait),
    of_other("PI lock, again", "as `PI lock, other`, for 20 ms again and again", wait_again),
    of_other(
        "PI lock, in turn",
        "as `PI lock, other`, in its turn with the best rank",
        wait_in_turn,
    ),
];

const fn of_other(name: &'static str, what: &'static str, act: fn(&Path)) -> Attack {
    Attack { other_user: true, ends_by_look: true, ..attack(name, what, act) }
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

/// Calls `act` with a lock whose owner loops on that CPU. The attack begins when the owner is
/// boosted. The watchdog may end that soon, so the owner itself looks.
fn with_looping_owner(cpu: u32, act: impl FnOnce(&AtomicU32)) {
    let word = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let word = &word;
        scope.spawn(move || {
            lock(word, None);
            schedule::pin_thread(&[cpu]).expect("the CPU is allowed");
            assert!(!is_boosted(), "the owner is an ordinary thread");
            let _ = tell.send(());
            while !is_boosted() {}
            attacking();
            loop {
                std::hint::spin_loop();
            }
        });
        let _ = told.recv();
        act(word);
    });
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
    let until = until_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    });
    match futex::lock_pi(word, Flags::PRIVATE, until.as_ref()) {
        Ok(_) => {}
        Err(Errno::TIMEDOUT) if until.is_some() => {}
        Err(error) => panic!("FUTEX_LOCK_PI: {error}"),
    }
}
