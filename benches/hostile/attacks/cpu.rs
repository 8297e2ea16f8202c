//! Attacks on the time of the others: a domain that does not yield its CPU.

use std::path::Path;
use std::time::Duration;

use upcall_shm::user_area::Mask;
use upcall_sys::{clock, schedule};

use super::{
    Attack, Beside, DaemonOptions, Victims, attach_elsewhere, attack, attacking, be_ready, behave,
    cpu_of_victims, run, spin,
};
use crate::raw::Raw;

pub(crate) const ATTACKS: &[Attack] = &[
    attack("none", "a domain that keeps to the rules", behave),
    Attack {
        victims: Victims::QUICK,
        ..attack("none, quick", "the same, beside victims with periods of 1 ms and 2 ms", behave)
    },
    attack("endless loop", "a handler neither calls proceed() nor returns", endless),
    attack("no turn", "its thread loops without ever having the turn", without_turn),
    attack("masked", "preemption masked, then an endless loop", masked),
    attack("false life", "an endless loop that reports all the time that it asks", false_life),
    Attack {
        other_user: true,
        daemon: DaemonOptions { all_cpus: true, ..DaemonOptions::USUAL },
        ..attack("leaves its CPU", "as `false life`, on the victims' CPU, not its own", leave)
    },
    Attack {
        other_user: true,
        daemon: DaemonOptions { all_cpus: true, ..DaemonOptions::USUAL },
        ..attack("leaves, paced", "as `leaves its CPU`, twice each 1.3 s", leave_paced)
    },
    attack("blocks", "a handler sleeps in the kernel, 20 ms each time", blocks),
    Attack {
        beside: Beside::VictimsAndOrdinary,
        ..attack("endless, ordinary", "as `endless loop`, an ordinary program beside", endless)
    },
    Attack {
        beside: Beside::Ordinary,
        ..attack("endless, alone", "the same without victims", endless)
    },
    Attack {
        daemon: DaemonOptions { kill: true, ..DaemonOptions::USUAL },
        ends: true,
        ..attack("endless, --kill", "as `endless loop`, under a daemon that kills", endless)
    },
];

fn endless(socket: &Path) {
    run(socket, |_| {
        attacking();
        loop {
            spin(1_000_000);
        }
    });
}

/// Loops without ready work and without the turn.
fn without_turn(socket: &Path) {
    let _raw = Raw::attach(socket, "attacker");
    attacking();
    loop {
        spin(1_000_000);
    }
}

fn masked(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    let _ = raw.owner.mask(Mask::Preemption);
    be_ready(&mut raw);
    attacking();
    loop {
        spin(1_000_000);
    }
}

fn false_life(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    be_ready(&mut raw);
    attacking();
    loop {
        raw.owner.set_asked(clock::monotonic_ns());
    }
}

/// It has the turn on its own CPU.
fn leave(socket: &Path) {
    leave_for_victims(socket, || ());
}

/// Twice within a second, so the third time never comes.
fn leave_paced(socket: &Path) {
    let mut visits = 0;
    leave_for_victims(socket, || {
        visits += 1;
        // The class comes back after 50 ms.
        std::thread::sleep(Duration::from_millis(if visits % 2 == 0 { 1_200 } else { 100 }));
    });
}

/// Visits the CPU of the victims for 3 ms, then calls `pause`, again and again.
fn leave_for_victims(socket: &Path, mut pause: impl FnMut()) {
    let cpu = cpu_of_victims();
    let mut raw = attach_elsewhere(socket);
    be_ready(&mut raw);
    attacking();
    loop {
        schedule::pin_thread(&[cpu]).expect("the CPU is allowed");
        let until_ns = clock::monotonic_ns() + 3_000_000;
        while clock::monotonic_ns() < until_ns {
            raw.owner.set_asked(clock::monotonic_ns());
        }
        pause();
        raw.owner.set_asked(clock::monotonic_ns());
    }
}

fn blocks(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            attacking();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}
