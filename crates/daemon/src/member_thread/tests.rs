//! Whose class is taken back, and when.

use super::*;
use crate::group::DomainGroup;
use crate::group::tests::{member, member_process};
use std::process::{Child, Command};
use upcall_sys::process::thread_id;

/// A process that sleeps; killed when it is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Sleeper(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn class(&self) -> Class {
        schedule::class_of(self.pid()).unwrap()
    }

    fn change(&self, arguments: &[&str]) {
        let pid = self.pid().to_string();
        let changed = Command::new("chrt").args(arguments).arg(pid).status().unwrap();
        assert!(changed.success(), "{arguments:?}");
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn the_first_thread_loses_what_the_daemon_gave_and_keeps_a_class_of_its_own() {
    let ours: [(&[&str], bool); 6] = [
        (&["--reset-on-fork", "--fifo", "-p", "60"], true),
        (&["--reset-on-fork", "--fifo", "-p", "1"], true),
        (&["--reset-on-fork", "--rr", "-p", "59"], true),
        (&["--reset-on-fork", "--fifo", "-p", "63"], false),
        (&["--fifo", "-p", "59"], false),
        (&["--rr", "-p", "20"], false),
    ];
    for (arguments, is_ours) in ours {
        let sleeper = Sleeper::start();
        let process = member_process(sleeper.pid());
        sleeper.change(arguments);
        let before = sleeper.class();
        // A member's thread is watched for itself.
        process.first_is_member.store(true, Ordering::Relaxed);
        process.lower_first_thread();
        assert_eq!(sleeper.class(), before, "{arguments:?}");
        process.first_is_member.store(false, Ordering::Relaxed);
        process.lower_first_thread();
        let expected = if is_ours { Class::Ordinary } else { before };
        assert_eq!(sleeper.class(), expected, "{arguments:?}");
    }
}

/// The KLS thread and the watchdog may still know a member that the server has ended.
#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn nothing_raises_a_thread_that_the_server_has_released() {
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let group = DomainGroup::new(0, 0).unwrap();
    let (member, _owner) = member(&group, 1, (pid, pid));
    let raised = RaisedMember(member.clone());
    for priority in [60, 61] {
        member.thread.by_kls().set_fifo_not_inherited(priority).unwrap();
        assert_eq!(sleeper.class(), Class::Fifo { priority });
    }
    drop(raised);
    assert_eq!(sleeper.class(), Class::Ordinary);
    for handle in [member.thread.by_kls(), member.thread.by_watchdog()] {
        handle.set_fifo_not_inherited(60).unwrap();
        assert_eq!(sleeper.class(), Class::Ordinary);
    }
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn a_thread_of_another_user_is_lowered_and_counts_as_ended() {
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let uid = upcall_sys::process::effective_user();
    for (expected, is_same) in [(uid, true), (uid + 1, false)] {
        let handle = Arc::new(PidFd::open(pid).unwrap());
        let process = MemberProcess::new((pid, expected), handle, Some(Band::WHOLE));
        let thread = MemberThread::open(Arc::new(process), pid).unwrap().unwrap();
        let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
        assert_eq!(thread.raise(cpu).is_ok(), is_same);
        thread.by_watchdog().set_fifo_not_inherited(60).unwrap();
        let expected = if is_same { Class::Fifo { priority: 60 } } else { Class::Ordinary };
        assert_eq!(sleeper.class(), expected);
        let seen = (0..=USERS_EVERY).all(|_| thread.by_watchdog().cpu_time().is_ok());
        assert_eq!(seen, is_same);
        thread.set_ended();
        assert_eq!(sleeper.class(), Class::Ordinary);
    }
}

#[test]
fn a_thread_is_known_by_its_process_and_number_as_long_as_it_lives() {
    let pid = std::process::id();
    let opened = std::thread::spawn(move || {
        let thread = MemberThread::open(member_process(pid), thread_id()).unwrap().unwrap();
        let tid = thread.tid();
        assert!(thread.is_thread((pid, tid)) && !thread.is_thread((pid + 1, tid)));
        assert!(!thread.is_thread((pid, tid + 1)));
        thread
    });
    let thread = opened.join().unwrap();
    while thread.is_thread((pid, thread.tid())) {
        std::thread::yield_now(); // the thread is joined a moment before it is gone
    }
}

#[test]
fn the_reasons_of_a_refusal_name_what_was_found() {
    let ids = UserIds { real: 7, effective: 0, saved: 0 };
    let other = RaiseError::OtherUser { found: ids, expected: 7 };
    let expected = "its thread has other user ids: found real 7, effective 0, saved 0, \
                    expected 7, who connected";
    assert_eq!(other.to_string(), expected);
    let refused = RaiseError::Priority { priority: 60, error: OsError::new("x", 1) };
    assert!(refused.to_string().starts_with("its thread cannot have real-time priority 60 ("));
}
