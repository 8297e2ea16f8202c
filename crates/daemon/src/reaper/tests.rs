//! Groups that are drained, on real pages and with their threads.

use std::sync::atomic::{AtomicBool, Ordering};

use upcall_shm::DomainId;
use upcall_shm::turn_page::{PAGE_BYTES, TurnPage};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::schedule;

use super::*;
use crate::cpu::{CpuState, CpuView};
use crate::kls::{self, Kls};

fn with_thread(cpu_state: &Arc<CpuState>, uid: u32) -> GroupWithThread {
    let group = Arc::new(DomainGroup::new(cpu_state.cpu, uid).unwrap());
    let thread = kls::start(Kls::new(cpu_state.clone(), group.clone(), None)).unwrap();
    cpu_state.set_groups(|groups| groups.push(group.clone()));
    (group, thread)
}

fn cpu_state() -> Arc<CpuState> {
    Arc::new(CpuState::new(*schedule::allowed_cpus().unwrap().last().unwrap()))
}

fn wait_until(is_so: impl Fn() -> bool) {
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < give_up, "the condition was not met in a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn closed_groups_are_freed_and_groups_in_use_stay() {
    let (cpu_state, mut reaper) = (cpu_state(), Reaper::start().unwrap());
    let stays = with_thread(&cpu_state, 1);
    let mut left = Vec::new();
    for _ in 0..20 {
        let closed = with_thread(&cpu_state, 2);
        left.push(Arc::downgrade(&closed.0));
        cpu_state.close(&closed.0);
        reaper.reap(closed);
    }
    // Closing woke the thread of the group that stays, which removed the others from its view.
    wait_until(|| left.iter().all(|group| group.strong_count() == 0));
    assert_eq!(
        (reaper.unreaped_of(cpu_state.cpu, 1), reaper.unreaped_of(cpu_state.cpu, 2)),
        (0, 0)
    );
    assert!(!stays.1.is_finished());
    assert_eq!(cpu_state.groups().len(), 1);
    cpu_state.close(&stays.0);
    reaper.reap(stays);
}

#[test]
fn a_closed_group_counts_until_the_last_view_drops_it() {
    let (cpu_state, mut reaper) = (cpu_state(), Reaper::start().unwrap());
    let mut view = CpuView::default();
    let closed = with_thread(&cpu_state, 7);
    view.refresh(&cpu_state);
    cpu_state.close(&closed.0);
    reaper.reap(closed);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(
        (reaper.unreaped_of(cpu_state.cpu, 7), reaper.unreaped_of(cpu_state.cpu, 8)),
        (1, 0)
    );
    view.refresh(&cpu_state);
    wait_until(|| reaper.unreaped_of(cpu_state.cpu, 7) == 0);
}

#[test]
fn a_group_is_drained_though_a_domain_keeps_writing_its_wake_word() {
    let (cpu_state, mut reaper) = (cpu_state(), Reaper::start().unwrap());
    let closed = with_thread(&cpu_state, 3);
    let fd = closed.0.turn.memory().fd().try_clone_to_owned().unwrap();
    let page = TurnPage::attach(SharedMapping::from_fd(fd, PAGE_BYTES).unwrap()).unwrap();
    let enough = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let enough = enough.clone();
        move || {
            while !enough.load(Ordering::Relaxed) {
                for value in [0, u64::from(ASLEEP)] {
                    page.wake_word(DomainId::DAEMON).word().store(value, Ordering::Relaxed);
                }
            }
        }
    });
    let left = Arc::downgrade(&closed.0);
    cpu_state.close(&closed.0);
    reaper.reap(closed);
    drop(reaper);
    assert_eq!(left.strong_count(), 0);
    enough.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

/// Found by a user: a daemon lived on for minutes after SIGTERM, while another real-time program
/// kept the CPU.
#[test]
#[ignore = "needs the right to SCHED_FIFO, and two CPUs"]
fn a_group_is_drained_though_a_real_time_program_keeps_its_cpu() {
    let (cpu_state, mut reaper) = (cpu_state(), Reaper::start().unwrap());
    if schedule::allowed_cpus().unwrap().len() < 2 {
        // `eprintln` would be captured.
        let what = "a_group_is_drained_though_a_real_time_program_keeps_its_cpu: one CPU";
        let _ =
            std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {what}\n"));
        return;
    }
    let group = Arc::new(DomainGroup::new(cpu_state.cpu, 3).unwrap());
    let kls = Kls::new(cpu_state.clone(), group.clone(), Some(schedule::Band::WHOLE));
    let thread = kls::start(kls).unwrap();
    cpu_state.set_groups(|groups| groups.push(group.clone()));
    let wake_word = group.turn.wake_word(DomainId::DAEMON);
    wait_until(|| wake_word.is_asleep());
    let drained = Arc::new(AtomicBool::new(false));
    let (cpu, seen) = (cpu_state.cpu, drained.clone());
    let keeps = std::thread::spawn(move || {
        schedule::pin_thread(&[cpu]).unwrap();
        schedule::set_fifo(63).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while !seen.load(Ordering::Relaxed) && std::time::Instant::now() < until {}
        schedule::set_ordinary().unwrap();
        seen.load(Ordering::Relaxed)
    });
    std::thread::sleep(Duration::from_millis(20));
    cpu_state.close(&group);
    reaper.reap((group, thread));
    drop(reaper);
    drained.store(true, Ordering::Relaxed);
    assert!(keeps.join().unwrap(), "the group was drained only after the program had ended");
}
