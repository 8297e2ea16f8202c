//! Attacks with wake-ups: the domain that has the turn lets woken domains run at its boundaries
//! (docs/decisions/0017).

use std::path::Path;

use upcall_shm::DomainId;
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::{futex, schedule};

use super::{Attack, attack, attacking, sleep, spin};
use crate::raw::Raw;

pub(crate) const ATTACKS: &[Attack] = &[
    attack("wake storm", "is woken all the time, and sleeps again each time", storm),
    Attack { other_user: true, ..attack("wake storm, other", "the same as another user", storm) },
    attack("stays awake", "works for 3 ms without the turn whenever it is woken", stays_awake),
    Attack {
        other_user: true,
        ..attack("stays awake, other", "the same as another user", stays_awake)
    },
    Attack {
        other_user: true,
        ..attack("asks daemon, other", "asks the daemon all the time to show its work", asks_daemon)
    },
];

/// Attaches, and shows that wake-ups may leave no sign. An ordinary thread on any CPU does
/// `disturb` again and again, while the domain's own thread does `act`.
fn disturb_and(socket: &Path, disturb: fn(&Raw), act: fn(&Raw)) {
    let cpus = schedule::allowed_cpus().expect("the CPUs of this process");
    let raw = Raw::attach(socket, "attacker");
    raw.owner.set_outside_wakes(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The thread has inherited the CPU of the domain.
            schedule::pin_thread(&cpus).expect("they are allowed");
            schedule::set_ordinary().expect("any thread may");
            loop {
                disturb(&raw);
            }
        });
        loop {
            act(&raw);
            // It was woken.
            attacking();
        }
    });
}

/// Wakes the domain, as a thread of its process does.
fn wake(raw: &Raw) {
    let wake_word = raw.turn.wake_word(raw.me);
    if wake_word.notify() {
        let _ = raw.turn.set_need_resched();
        futex::wake_shared(wake_word.word(), 1);
    }
}

fn storm(socket: &Path) {
    disturb_and(socket, wake, sleep);
}

fn stays_awake(socket: &Path) {
    disturb_and(socket, wake, |raw| {
        sleep(raw);
        spin(3_000_000);
    });
}

/// An ordinary thread on any CPU changes what the domain shows, and asks the daemon without end to
/// show that to the holder. The work is of a rank below all others. If the domain gets the turn, it
/// returns it.
fn asks_daemon(socket: &Path) {
    let cpus = schedule::allowed_cpus().expect("the CPUs of this process");
    let raw = Raw::attach(socket, "attacker");
    let Raw { mut owner, turn: page, me, rank, connection: _connection, pages: _pages } = raw;
    let ask_daemon = || {
        let wake_word = page.wake_word(DomainId::DAEMON);
        if wake_word.notify() {
            futex::wake_shared(wake_word.word(), 1);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            schedule::pin_thread(&cpus).expect("they are allowed");
            schedule::set_ordinary().expect("any thread may");
            loop {
                owner.publish(Some(rank.below_all().into()));
                ask_daemon();
                owner.publish(None);
                ask_daemon();
            }
        });
        loop {
            let wake_word = page.wake_word(me);
            if wake_word.prepare_wait() {
                futex::wait_shared_until(wake_word.word(), ASLEEP, None);
            }
            wake_word.finish_wait();
            if let Ok(turn) = page.turn()
                && turn.holder() == me
            {
                page.pass(turn, DomainId::DAEMON);
                ask_daemon();
            }
        }
    });
}
