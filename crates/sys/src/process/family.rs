//! The processes of this machine, who started whom, and their threads.
//!
//! The daemon takes a program with all its descendants by this module. The source is `/proc`
//! (proc_pid_stat(5)). Everything may be out of date at once.

use crate::OsError;
use std::collections::BTreeSet;
use std::fs;

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A process, as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its number.
    pub pid: u32,
    /// The process that started it, or that took it over.
    pub parent: u32,
    /// Whether it is a thread of the kernel.
    pub is_kernel: bool,
    /// When it started, in ticks of the clock since the machine started. Tells it from a later
    /// process with the same number.
    pub started: u64,
}

/// The facts about process `pid`; `None` if there is none, or `/proc` hides it. Three system calls.
pub fn process_facts(pid: u32) -> Option<ProcessFacts> {
    facts_in(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// All processes that `/proc` shows. Reads a file of each.
///
/// # Errors
/// The kernel's error if `/proc` cannot be read.
pub fn all_processes() -> Result<Vec<ProcessFacts>, OsError> {
    Ok(numbers_in("/proc", "read(/proc)")?.into_iter().filter_map(process_facts).collect())
}

/// The processes that `pid` started, and those that they started, without `pid` itself. Reads a
/// file of each process of the machine. A process whose parent has ended is not found.
///
/// # Errors
/// As [`all_processes`].
pub fn descendants_of(pid: u32) -> Result<Vec<ProcessFacts>, OsError> {
    Ok(descendants_in(&all_processes()?, pid))
}

fn descendants_in(all: &[ProcessFacts], pid: u32) -> Vec<ProcessFacts> {
    let (mut known, mut found) = (BTreeSet::from([pid]), Vec::new());
    loop {
        let before = found.len();
        for facts in all {
            if known.contains(&facts.parent) && known.insert(facts.pid) {
                found.push(*facts);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The threads of process `pid`.
///
/// # Errors
/// `ENOENT` or `ESRCH` if there is no such process (or `/proc` hides it).
pub fn threads_of(pid: u32) -> Result<Vec<u32>, OsError> {
    numbers_in(&format!("/proc/{pid}/task"), "read(/proc/pid/task)")
}

/// The entries of a folder whose names are numbers.
fn numbers_in(folder: &str, operation: &'static str) -> Result<Vec<u32>, OsError> {
    let entries = fs::read_dir(folder).map_err(OsError::of_io(operation))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// `pid (name) S ppid pgrp session tty tpgid flags ... starttime`. A name may contain anything.
pub(super) fn facts_in(pid: u32, stat: &[u8]) -> Option<ProcessFacts> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = core::str::from_utf8(&stat[after_name..]).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let started = fields.nth(12)?.parse().ok()?;
    Some(ProcessFacts { pid, parent, is_kernel: flags & KERNEL_THREAD != 0, started })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::forked;
    use crate::process::thread_id;

    #[test]
    fn a_child_is_a_descendant_and_this_process_is_not() {
        // SAFETY: the child only repeats one system call.
        let child = unsafe {
            forked(|| {
                loop {
                    libc::pause();
                }
            })
        };
        let own = std::process::id();
        let facts = process_facts(child.pid()).unwrap();
        assert_eq!((facts.pid, facts.parent, facts.is_kernel), (child.pid(), own, false));
        assert!(process_facts(own).unwrap().started <= facts.started);
        let descendants = pids(&descendants_of(own).unwrap());
        assert!(descendants.contains(&child.pid()) && !descendants.contains(&own));
        assert_eq!(threads_of(child.pid()), Ok(vec![child.pid()]));
    }

    fn pids(all: &[ProcessFacts]) -> Vec<u32> {
        all.iter().map(|facts| facts.pid).collect()
    }

    #[test]
    fn descendants_are_found_in_any_order_of_numbers() {
        let facts = |(pid, parent)| ProcessFacts { pid, parent, is_kernel: false, started: 0 };
        let all = [(9, 30), (30, 7), (7, 1), (8, 1), (1, 0), (4, 9)].map(facts);
        assert_eq!(pids(&descendants_in(&all, 7)), [30, 9, 4]);
        assert!(descendants_in(&all, 8).is_empty());
    }

    #[test]
    fn a_misleading_name_does_not_change_the_facts() {
        let stat = b"7 (x) S 1 2) R 5 7 7 0 -1 2129984 0 0 0 0 1 2 3 4 20 0 1 0 4321 99 8";
        let expected = ProcessFacts { pid: 7, parent: 5, is_kernel: true, started: 4321 };
        assert_eq!(facts_in(7, stat), Some(expected));
        assert_eq!(facts_in(7, b"7 (x) R 5 7"), None);
        assert_eq!(process_facts(5_000_000), None);
    }

    #[test]
    fn all_threads_of_this_process_are_found() {
        assert!(threads_of(std::process::id()).unwrap().contains(&thread_id()));
        assert!(threads_of(5_000_000).unwrap_err().is_not_found());
    }
}
