//! Attacks on the order of the others: false ranks and priorities.

use std::path::Path;

use upcall_shm::user_area::Rank;
use upcall_sys::{clock, schedule};

use super::{Attack, attack, attacking, claim, notify_daemon, run, sleep, spin};
use crate::raw::Raw;

pub(crate) const ATTACKS: &[Attack] = &[
    attack("false rank", "always ready with the best rank, returns the turn at once", false_rank),
    attack("greed", "always ready with the best rank, and works", greed),
    attack("greed, no lie", "the same with the rank of its admission", greed_as_admitted),
    attack("highest priority", "its thread takes SCHED_FIFO 99 and loops", highest),
];

/// A rank above all others.
const FALSE_RANK: Rank = Rank::new(0, 0);

/// Claims a rank without end: `rank`, or its own if that is `None`. Whenever the domain holds the
/// turn, it acts and returns the turn.
fn in_each_turn(socket: &Path, rank: Option<Rank>, mut act: impl FnMut(&Raw)) {
    let mut raw = Raw::attach(socket, "attacker");
    let rank = rank.unwrap_or(raw.rank);
    claim(&mut raw, rank);
    attacking();
    loop {
        match raw.turn.turn() {
            Ok(turn) if turn.holder() == raw.me => {
                act(&raw);
                raw.turn.pass(turn, upcall_shm::DomainId::DAEMON);
                notify_daemon(&raw);
            }
            _ => sleep(&raw),
        }
    }
}

fn false_rank(socket: &Path) {
    in_each_turn(socket, Some(FALSE_RANK), |_| {});
}

fn greed(socket: &Path) {
    in_each_turn(socket, Some(FALSE_RANK), work_and_ask);
}

fn greed_as_admitted(socket: &Path) {
    in_each_turn(socket, None, work_and_ask);
}

fn work_and_ask(raw: &Raw) {
    for _ in 0..10 {
        let now = clock::monotonic_ns();
        raw.owner.set_running(Some(0), now);
        raw.owner.set_asked(now);
        spin(100_000);
    }
}

fn highest(socket: &Path) {
    run(socket, |_| {
        schedule::set_fifo(99).expect("the attacker has the right");
        attacking();
        loop {
            spin(1_000_000);
        }
    });
}
