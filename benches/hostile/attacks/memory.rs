//! Attacks on shared memory: random words over all pages that a domain can write.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use upcall_sys::schedule;

use super::{Attack, DaemonOptions, attack, attacking, sleep};
use crate::raw::Raw;

pub(crate) const ATTACKS: &[Attack] = &[
    attack("scribble", "random words over all memory it can write, without end", scribble),
    attack("scribble beside", "the same from an ordinary thread on another CPU", scribble_beside),
    Attack {
        other_user: true,
        ..attack("scribble, other", "as `scribble`, by another user's domain", scribble)
    },
    Attack {
        other_user: true,
        ..attack("beside, other", "as `scribble beside`, by another user's domain", scribble_beside)
    },
    Attack {
        daemon: DaemonOptions { kill: true, ..DaemonOptions::USUAL },
        ends: true,
        ..attack("scribble, --kill", "as `scribble`, under a daemon that kills", scribble)
    },
];

fn scribble(socket: &Path) {
    scribble_for_ever(&Raw::attach(socket, "attacker"));
}

fn scribble_beside(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let others: Vec<u32> = upcall::allowed_cpus()
                .into_iter()
                .flatten()
                .filter(|&cpu| cpu != raw.turn.cpu())
                .collect();
            let _ = schedule::set_ordinary();
            let _ = schedule::pin_thread(&others);
            scribble_for_ever(&raw);
        });
        loop {
            sleep(&raw);
        }
    });
}

fn scribble_for_ever(raw: &Raw) {
    let words = raw.words();
    attacking();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        // Marsaglia's xorshift64 suffices, because it only has to reach every word.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state >> 20).unwrap_or_default() % words.len();
        // Small values do more harm than large ones, which the checks detect.
        words[at].store(if state & 1 == 0 { state } else { state >> 1 & 3 }, Relaxed);
    }
}
