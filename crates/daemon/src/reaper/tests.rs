//! Groups on their way out, on real pages and with their threads.

use std::sync::atomic::{AtomicBool, Ordering};

use upcall_shm::DomainId;
use upcall_shm::turn_page::{PAGE_BYTES, TurnPage};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::schedule;

use super::*;
use crate::cpu::{CpuState, Known};
use crate::kls::{self, Kls};

fn staffed(cpu_state: &Arc<CpuState>, uid: u32) -> GroupWithThread {
    let group = Arc::new(DomainGroup::new(cpu_state.cpu, uid).unwrap());
    let thread = kls::start(Kls::new(cpu_state.clone(), group.clone(), None)).unwrap();
    cpu_state.set_groups(|groups| groups.push(group.clone()));
    (group, thread)
}

fn cpu_state() -> Arc<CpuState> {
    Arc::new(CpuState::new(*schedule::allowed_cpus().unwrap().last().unwrap()))
}

fn until(is_so: impl Fn() -> bool) {
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < give_up, "not so in a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn halls_that_left_are_freed_and_those_in_use_stay() {
    let (cpu_state, mut reaper) = (cpu_state(), Reaper::start().unwrap());
    let stays = staffed(&cpu_state, 1);
    let mut left = Vec::new();
    for _ in 0..20 {
        let goes = staffed(&cpu_state, 2);
        left.push(Arc::downgrade(&goes.0));
        cpu_state.close(&goes.0);
        reaper.reap(goes);
    }
    // The thread of the one that stays was roused, and has forgotten the others.
    until(|| left.iter().all(|group| group.strong_count() == 0));
    assert_eq!((reaper.leaving_of(cpu_state.cpu, 1), reaper.leaving_of(cpu_state.cpu, 2)), (0, 0));
    assert!(!stays.1.is_finished());
    assert_eq!(cpu_state.groups().len(), 1);
    cpu_state.close(&stays.0);
    reaper.reap(stays);
}

#[test]
fn a_hall_that_somebody_still_knows_is_counted_as_leaving() {
    let (cpu_state, mut reaper) = (cpu_state(), Reaper::start().unwrap());
    let mut known = Known::default();
    let goes = staffed(&cpu_state, 7);
    known.refresh(&cpu_state);
    cpu_state.close(&goes.0);
    reaper.reap(goes);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((reaper.leaving_of(cpu_state.cpu, 7), reaper.leaving_of(cpu_state.cpu, 8)), (1, 0));
    known.refresh(&cpu_state);
    until(|| reaper.leaving_of(cpu_state.cpu, 7) == 0);
}

#[test]
fn a_hall_leaves_though_somebody_goes_on_writing_into_its_bell() {
    let (cpu_state, mut reaper) = (cpu_state(), Reaper::start().unwrap());
    let goes = staffed(&cpu_state, 3);
    let fd = goes.0.turn.memory().fd().try_clone_to_owned().unwrap();
    let page = TurnPage::attach(SharedMapping::from_fd(fd, PAGE_BYTES).unwrap()).unwrap();
    let enough = Arc::new(AtomicBool::new(false));
    let scribbler = std::thread::spawn({
        let enough = enough.clone();
        move || {
            while !enough.load(Ordering::Relaxed) {
                for value in [0, u64::from(ASLEEP)] {
                    page.wake_word(DomainId::DAEMON).word().store(value, Ordering::Relaxed);
                }
            }
        }
    });
    let left = Arc::downgrade(&goes.0);
    cpu_state.close(&goes.0);
    reaper.reap(goes);
    drop(reaper);
    assert_eq!(left.strong_count(), 0);
    enough.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
}
