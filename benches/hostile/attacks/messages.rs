//! Attacks on the daemon's socket: what a client sends, and how often.

use std::path::Path;

use upcall_sys::schedule;

use super::{Attack, attack, attacking, sleep};
use crate::raw::Raw;

pub(crate) const ATTACKS: &[Attack] = &[Attack {
    other_user: true,
    arrivals: true,
    long_calls: true,
    ..attack("flood", "invalid messages to the daemon's socket, from 4 threads", flood)
}];

fn flood(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            scope.spawn(move || {
                let _ = schedule::set_ordinary();
                loop {
                    // Connecting fails after the daemon has hung up. The loop then tries again.
                    let Ok(connection) = upcall_sys::local::Connection::connect(socket) else {
                        continue;
                    };
                    for length in 1..200 {
                        if connection.send(&vec![number; length], &[]).is_err() {
                            break;
                        }
                        attacking();
                    }
                }
            });
        }
        loop {
            sleep(&raw);
        }
    });
}
