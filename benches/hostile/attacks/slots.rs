//! Idle domains whose user areas are long to read. The choices of other users must not pay for it.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Barrier, Mutex};

use upcall_shm::user_area::{AREA_SLOTS, Rank, Slot, SlotState};
use upcall_sys::{clock, schedule};

use super::{Attack, Victims, attack, attacking, sleep};
use crate::raw::{Raw, need};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        other_user: true,
        victims: Victims::QUICK,
        ..attack("slots, other", "29 idle domains show 256 releases each", all_slots)
    },
    Attack {
        other_user: true,
        victims: Victims::QUICK,
        ..attack("one slot, other", "29 idle domains show one release each", one_slot)
    },
    Attack {
        other_user: true,
        victims: Victims::QUICK,
        ..attack("new slots, other", "the areas of 29 idle domains change all the time", new_slots)
    },
];

const DOMAINS: usize = 29;
/// The word of a user area with the number of its publications.
const SEQUENCE: usize = 8;

fn all_slots(socket: &Path) {
    idle_domains(socket, AREA_SLOTS, false);
}

fn one_slot(socket: &Path) {
    idle_domains(socket, 1, false);
}

fn new_slots(socket: &Path) {
    idle_domains(socket, AREA_SLOTS, true);
}

/// Attaches domains that show `slots` releases each in an hour, and never run. Each release is
/// later than the one before and has a better rank, so that all of them matter. An ordinary thread
/// on any CPU may change the areas.
fn idle_domains(socket: &Path, slots: usize, change: bool) {
    let cpus = schedule::allowed_cpus().expect("the CPUs of this process");
    let (attached, raws) = (Barrier::new(DOMAINS), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..DOMAINS {
            scope.spawn(|| {
                let mut raw = Raw::attach_with(socket, "attacker", need(1_000_000_000, 10_000));
                let far_ns = clock::monotonic_ns() + 3_600_000_000_000;
                for index in 0..slots {
                    let later = index as u64;
                    let rank = Rank { key: raw.rank.key + 1_000 - later, ..raw.rank };
                    let next_release_ns = far_ns + later * 1_000_000;
                    let slot = Slot { next_release_ns, rank, state: SlotState::Waiting };
                    raw.owner.set(index, slot).expect("the area has this slot");
                }
                raw.owner.publish(None);
                let raw: &'static Raw = Box::leak(Box::new(raw));
                raws.lock().expect("no thread panicked").push(raw);
                attached.wait();
                attacking();
                loop {
                    sleep(raw);
                }
            });
        }
        if change {
            while raws.lock().expect("no thread panicked").len() < DOMAINS {
                std::thread::yield_now();
            }
            let raws = raws.lock().expect("no thread panicked");
            schedule::pin_thread(&cpus).expect("they are allowed");
            loop {
                for raw in raws.iter() {
                    raw.pages[1].words()[SEQUENCE].fetch_add(2, Relaxed);
                }
            }
        }
    });
}
