//! The records of a real lock.

use super::*;
use crate::clock;
use crate::process::{ThreadHandle, ThreadState, thread_id};
use crate::schedule::{allowed_cpus, pin_thread, set_fifo};
use rustix::thread::futex::{self, Flags};
use std::io::Write;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::channel;

#[test]
fn the_list_of_cpus_is_read() {
    let cpus = |list| cpus_in(list).collect::<Vec<_>>();
    assert_eq!(cpus("0\n"), [0]);
    assert_eq!(cpus("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
    assert_eq!(cpus("\n"), []);
}

/// The records of this machine from `SCHED_FIFO` priority `least` on, or a line that says why there
/// are none.
fn recorded(test: &str, least: u8) -> Option<Boosts> {
    let boosts = Boosts::record(least);
    boosts.inspect_err(|why| drop(writeln!(std::io::stderr(), "skipped: {test}: {why}"))).ok()
}

/// The threads of the boosts since the last call.
fn causes_in(boosts: &mut Boosts) -> Vec<u32> {
    let mut found = Vec::new();
    boosts.take(&mut found);
    assert!(found.iter().all(|boost| boost.at_ns <= clock::monotonic_ns()));
    found.into_iter().map(|boost| boost.by).collect()
}

/// A thread with `SCHED_FIFO` priority 7 waits for a lock of the calling thread. Returns its number
/// when it has the lock.
fn wait_for_own_lock() -> u32 {
    let word = AtomicU32::new(0);
    futex::lock_pi(&word, Flags::PRIVATE, None).unwrap();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let word = &word;
        scope.spawn(move || {
            set_fifo(7).unwrap();
            tell.send(thread_id()).unwrap();
            futex::lock_pi(word, Flags::PRIVATE, None).unwrap();
            futex::unlock_pi(word, Flags::PRIVATE).unwrap();
        });
        let waiter = told.recv().unwrap();
        let handle = ThreadHandle::open(std::process::id(), waiter).unwrap();
        // The bit of futex(2) that a thread waits.
        while word.load(std::sync::atomic::Ordering::Relaxed) & (1 << 31) == 0
            || handle.state() != Ok(ThreadState::Sleeping)
        {
            std::thread::yield_now();
        }
        futex::unlock_pi(word, Flags::PRIVATE).unwrap();
        waiter
    })
}

#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn the_thread_that_begins_to_wait_for_a_lock_is_recorded_once() {
    let Some(mut boosts) = recorded("the_thread_that_begins_to_wait", 7) else { return };
    let waiter = wait_for_own_lock();
    assert!(boosts.wait_until_ns(u64::MAX), "a record is there");
    let mut causes = causes_in(&mut boosts);
    assert_eq!(causes.iter().filter(|&&tid| tid == waiter).count(), 1, "{causes:?}");
    causes = causes_in(&mut boosts);
    assert!(!causes.contains(&waiter), "each record comes once");
}

#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn boosts_to_lower_priorities_are_not_recorded() {
    let Some(mut boosts) = recorded("boosts_to_lower_priorities", 8) else { return };
    let waiter = wait_for_own_lock();
    assert!(!causes_in(&mut boosts).contains(&waiter));
    // The wait ends although there may be no record.
    let until_ns = clock::monotonic_ns() + 1_000_000;
    while clock::monotonic_ns() < until_ns {
        boosts.wait_until_ns(until_ns);
        causes_in(&mut boosts);
    }
}

#[test]
#[ignore = "needs the right to trace: run by cargo xtask ci where it is granted"]
fn more_records_than_a_ring_holds_do_no_harm() {
    let Some(mut boosts) = recorded("more_records_than_a_ring_holds", 7) else { return };
    // The threads that it starts stay there, too.
    pin_thread(&allowed_cpus().unwrap()[..1]).unwrap();
    let waiters: Vec<u32> = (0..600).map(|_| wait_for_own_lock()).collect();
    let mut causes = causes_in(&mut boosts);
    let known = |tids: &[u32]| waiters.iter().filter(|tid| tids.contains(tid)).count();
    assert!((1..600).contains(&known(&causes)), "{}", known(&causes));
    let later = wait_for_own_lock();
    causes = causes_in(&mut boosts);
    assert!(causes.contains(&later), "the ring has room again");
}
