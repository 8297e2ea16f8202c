//! Threads that have ended, also if another process has got their number.

use super::*;
use crate::forked::{Forked, forked};
use crate::process::{cpu_time_of, thread_id, thread_state};
use crate::schedule::{allowed_cpus, fifo_permission};
use rustix::thread::futex::{self, Flags};
use std::io::Write;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A thread of this process that runs until its sender is dropped.
fn waiting() -> (ThreadHandle, Sender<()>, JoinHandle<()>) {
    let (tell, told) = channel();
    let (gate, opened) = channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(thread_id()).unwrap();
        opened.recv().unwrap_err();
    });
    let handle = ThreadHandle::open(std::process::id(), told.recv().unwrap()).unwrap();
    (handle, gate, thread)
}

/// A handle of a thread of this process that has ended.
fn ended_thread() -> ThreadHandle {
    let (handle, gate, thread) = waiting();
    drop(gate);
    thread.join().unwrap();
    while !handle.has_ended() {
        std::thread::yield_now(); // the thread is joined a moment before it is gone
    }
    handle
}

#[test]
fn a_living_thread_is_read_and_changed() {
    let (handle, gate, thread) = waiting();
    let (pid, tid) = (std::process::id(), handle.tid());
    while thread_state(pid, tid) != Ok(ThreadState::Sleeping) {
        std::thread::yield_now();
    }
    assert_eq!((handle.state(), handle.class()), (Ok(ThreadState::Sleeping), Ok(Class::Ordinary)));
    assert!(!handle.has_ended());
    // It may be charged for the end of its last turn on the CPU meanwhile.
    let times_ns = [cpu_time_of(pid, tid), handle.cpu_time(), cpu_time_of(pid, tid)];
    assert!(times_ns.map(Result::unwrap).is_sorted(), "{times_ns:?}");
    handle.pin(&allowed_cpus().unwrap()).unwrap();
    assert_eq!(handle.allowed_cpus(), allowed_cpus());
    let own = crate::process::process_facts(pid).unwrap().started;
    assert!(handle.started().unwrap() >= own);
    assert_eq!(ThreadHandle::open(pid, pid).unwrap().started(), Ok(own));
    assert_eq!(handle.set_slice(None), Ok(true));
    handle.set_ordinary().unwrap();
    if fifo_permission(7).is_ok() {
        handle.set_fifo_not_inherited(7).unwrap();
        assert_eq!(handle.class(), Ok(Class::Fifo { priority: 7 }));
        handle.set_ordinary().unwrap();
    }
    drop(gate);
    thread.join().unwrap();
}

/// Waits until the thread sleeps, and returns for what, if the kernel names that.
fn lock_wait_of(handle: &ThreadHandle) -> Option<LockWait> {
    let pid = std::process::id();
    while handle.state() != Ok(ThreadState::Sleeping) {
        std::thread::yield_now();
    }
    // A kernel without names, or a sandbox, says 0.
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{}/wchan", handle.tid()));
    let is_named = name.is_ok_and(|name| !name.is_empty() && name != "0");
    let found = handle.lock_wait(pid);
    assert_eq!(found == LockWait::Unknown, !is_named);
    is_named.then_some(found)
}

/// A thread that waits for a channel waits for a futex, and not for a lock.
#[test]
fn only_a_thread_that_waits_for_a_lock_with_priority_inheritance_does_so() {
    let pid = std::process::id();
    let (handle, gate, thread) = waiting();
    assert_ne!(lock_wait_of(&handle), Some(LockWait::Yes));
    drop(gate);
    thread.join().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        tell.send(ThreadHandle::open(pid, thread_id()).unwrap()).unwrap();
        std::io::Read::read(&mut reader, &mut [0]).unwrap();
    });
    let handle = told.recv().unwrap();
    assert_ne!(lock_wait_of(&handle), Some(LockWait::Yes));
    drop(writer);
    thread.join().unwrap();
    assert_eq!(handle.lock_wait(pid), LockWait::Unknown, "its number may belong to any thread");
}

#[test]
fn a_thread_that_waits_for_a_lock_with_priority_inheritance_is_found() {
    let pid = std::process::id();
    let word = AtomicU32::new(0);
    futex::lock_pi(&word, Flags::PRIVATE, None).unwrap();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tell.send(ThreadHandle::open(pid, thread_id()).unwrap()).unwrap();
            futex::lock_pi(&word, Flags::PRIVATE, None).unwrap();
            futex::unlock_pi(&word, Flags::PRIVATE).unwrap();
        });
        let handle = told.recv().unwrap();
        while !matches!(lock_wait_of(&handle), None | Some(LockWait::Yes)) {
            // It waited for the channel.
            std::thread::yield_now();
        }
        futex::unlock_pi(&word, Flags::PRIVATE).unwrap();
    });
}

#[test]
fn an_ended_thread_is_known_as_such_and_not_changed() {
    let handle = ended_thread();
    assert_eq!(handle.state(), Ok(ThreadState::Dead));
    let cpus = allowed_cpus().unwrap();
    let errors = [
        handle.cpu_time().map(|_| ()),
        handle.class().map(|_| ()),
        handle.set_fifo_not_inherited(1),
        handle.set_ordinary(),
        handle.pin(&cpus),
        handle.started().map(|_| ()),
        handle.allowed_cpus().map(|_| ()),
        handle.set_slice(None).map(|_| ()),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().raw_os_error(), libc::ESRCH);
    }
    let (pid, tid) = (std::process::id(), handle.tid());
    let missing = ThreadHandle::open(pid, tid).unwrap_err().raw_os_error();
    assert_eq!(missing, libc::ENOENT);
}

/// Another process with the number of a thread that has ended. `None` without the right to choose
/// numbers, or if other programs keep taking the number.
fn process_with_number_of(handle: &ThreadHandle) -> Option<Forked> {
    for _ in 0..1_000 {
        let last = (handle.tid() - 1).to_string();
        std::fs::write("/proc/sys/kernel/ns_last_pid", last).ok()?;
        // SAFETY: the child only repeats one system call.
        let child = unsafe {
            forked(|| {
                loop {
                    libc::pause();
                }
            })
        };
        if child.pid() == handle.tid() {
            return Some(child);
        }
    }
    None
}

#[test]
#[ignore = "needs root: chooses the number of a process, and the right to SCHED_FIFO"]
fn another_process_with_the_number_is_not_changed() {
    let handle = ended_thread();
    let Some(child) = process_with_number_of(&handle) else {
        let what = "skipped: another_process_with_the_number_is_not_changed: no such number";
        // `eprintln` would be captured.
        let _ = writeln!(std::io::stderr(), "{what}");
        return;
    };
    // By its number, root would change the other process.
    set_fifo_not_inherited_of(handle.tid(), 7).unwrap();
    assert_eq!(class_of(child.pid()), Ok(Class::Fifo { priority: 7 }));
    assert_eq!(handle.set_ordinary().unwrap_err().raw_os_error(), libc::ESRCH);
    assert_eq!(class_of(child.pid()), Ok(Class::Fifo { priority: 7 }));
    // Step 3 of the module's head: the change has reached the other process.
    undo_fifo(handle.tid(), 6);
    assert_eq!(class_of(child.pid()), Ok(Class::Fifo { priority: 7 }));
    undo_fifo(handle.tid(), 7);
    assert_eq!(class_of(child.pid()), Ok(Class::Ordinary));
    assert_eq!(handle.set_fifo_not_inherited(7).unwrap_err().raw_os_error(), libc::ESRCH);
    assert_eq!(class_of(child.pid()), Ok(Class::Ordinary));
    assert!(handle.has_ended() && handle.cpu_time().is_err());
}

/// Found by the bench `hostile`: a child that was started while its parent was lowered had the
/// parent's class, for ever. The kernel cleared `SCHED_RESET_ON_FORK` before it changed the class.
#[test]
#[ignore = "needs the right to SCHED_FIFO, and two CPUs"]
fn what_a_thread_starts_while_it_is_raised_and_lowered_is_ordinary() {
    const PRIORITY: u8 = 63;
    let cpus = allowed_cpus().unwrap();
    let (first, last) = (cpus[0], *cpus.last().unwrap());
    if first == last {
        let what =
            "skipped: what_a_thread_starts_while_it_is_raised_and_lowered_is_ordinary: one CPU";
        let _ = writeln!(std::io::stderr(), "{what}");
        return;
    }
    let until = std::time::Instant::now() + core::time::Duration::from_millis(1_500);
    let (tell, told) = channel();
    let starts = std::thread::spawn(move || {
        crate::schedule::pin_thread(&[last]).unwrap();
        tell.send(thread_id()).unwrap();
        let (mut started, mut raised) = (0, 0);
        while std::time::Instant::now() < until {
            let heir = || {
                let class = class_of(thread_id());
                let _ = set_ordinary_of(thread_id());
                class != Ok(Class::Ordinary)
            };
            raised += u32::from(std::thread::spawn(heir).join().unwrap());
            started += 1;
        }
        (started, raised)
    });
    crate::schedule::pin_thread(&[first]).unwrap();
    let handle = ThreadHandle::open(std::process::id(), told.recv().unwrap()).unwrap();
    while std::time::Instant::now() < until {
        let _ = handle.set_fifo_not_inherited(PRIORITY);
        let _ = handle.set_ordinary();
    }
    let (started, raised) = starts.join().unwrap();
    assert!(started > 0);
    assert_eq!(raised, 0, "of {started} threads");
}
