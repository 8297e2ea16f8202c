//! Attacks on the time of the others by work beyond the reservation (docs/decisions/0016).

use std::path::Path;
use std::time::Duration;

use upcall_shm::DomainId;
use upcall_sys::clock;

use super::{Attack, Outside, attack, attacking, be_ready, notify_daemon, run, sleep, spin};
use crate::raw::Raw;

/// Far beyond the cost that [`run`] declares for a PDU, in ns.
const QUANTUM_NS: u64 = 500_000;

pub(crate) const ATTACKS: &[Attack] = &[
    attack("over budget", "PDUs take far longer than declared, and it asks after each", over),
    Attack {
        outside: Outside::StopAndContinue,
        ..attack("backlog", "stopped between jobs, continued 1 s later with all its jobs", over)
    },
    attack("saved credit", "shows work for 1 s, is blocked, then runs while it can", saved_credit),
    Attack {
        other_user: true,
        ..attack(
            "interrupts, other",
            "blocks, and comes back in upcalls of others for 3 ms",
            interrupts,
        )
    },
    Attack {
        other_user: true,
        ..attack(
            "awaits idle, other",
            "asks to be woken when the CPU idles, and asks again",
            awaits_idle,
        )
    },
];

fn over(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            attacking();
            spin(QUANTUM_NS);
        }
    });
}

/// Blocks in its upcall for long enough that another domain is in an upcall when it comes back.
fn interrupts(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            std::thread::sleep(Duration::from_micros(700));
            attacking();
            spin(6 * QUANTUM_NS);
        }
    });
}

/// The daemon wakes it whenever the CPU idles, and it wakes the daemon each time.
fn awaits_idle(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    raw.owner.set_awaits_idle(true);
    loop {
        sleep(&raw);
        attacking();
        notify_daemon(&raw);
    }
}

/// Shows work at its own rank, and blocks in the kernel in place of taking its turn. Then it runs
/// for as long as it keeps the turn, and responds all the time.
fn saved_credit(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    loop {
        raw.owner.publish(Some(raw.rank.into()));
        std::thread::sleep(Duration::from_secs(1));
        be_ready(&mut raw);
        attacking();
        let until = clock::monotonic_ns() + 200_000_000;
        while raw.turn.holder() == Ok(raw.me) && clock::monotonic_ns() < until {
            raw.owner.set_running(Some(0), clock::monotonic_ns());
            raw.owner.set_asked(clock::monotonic_ns());
            spin(QUANTUM_NS / 10);
        }
        raw.owner.publish(None);
        match raw.turn.turn() {
            Ok(turn) if turn.holder() == raw.me => {
                raw.turn.pass(turn, DomainId::DAEMON);
                notify_daemon(&raw);
            }
            _ => {}
        }
    }
}
