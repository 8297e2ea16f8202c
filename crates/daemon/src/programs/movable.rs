//! Ordinary processes that may run on CPUs without shares, in a group of their own.
//!
//! Some kernels have a fault ([`kernel_has_fault`]): while a group with threads on several CPUs
//! runs, its lag grows with each fork, exit, sleep and wake-up in it. Then programs on its CPU
//! starve (docs/decisions/0020-programs.md). A group of the kernel's own weight is too light for
//! that. So on such kernels:
//!
//! ```text
//!                       all its CPUs have shares
//!            movable --------------------------------> others, in `rest`
//!   (the kernel's weight) <------------------------  (threads on CPUs with shares only)
//!                       a CPU without shares
//! ```
//!
//! [`super::groups`] places each process when it moves it, and [`Movable::sort`] follows what
//! changes later. This module changes no weight, and moves no process of a program.

use std::time::Instant;

use upcall_sys::cgroup::{Cgroup, Hierarchy};
use upcall_sys::machine::kernel_version;
use upcall_sys::process::threads_of;
use upcall_sys::schedule::allowed_cpus_of;

use super::bound::{TURN, move_between};

/// Threads that one turn looks at, beside those of its last process.
const LOOKS_MAX: usize = 1_024;
/// Processes that one turn moves at most.
const SORTED_MAX: usize = 64;

/// Whether the kernel that runs counts the lag of a group twice when it changes the weight: Linux
/// 6.13 (commit `6d71a9c61604`) to 6.19. A distribution may have ended that earlier. One system
/// call.
pub fn kernel_has_fault() -> bool {
    kernel_version().is_some_and(has_fault)
}

fn has_fault(version: (u32, u32)) -> bool {
    ((6, 13)..=(6, 19)).contains(&version)
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Movable {
    pub(super) group: Cgroup,
    /// The CPUs that have programs with shares.
    pub(super) shared: Vec<u32>,
    /// The last process that a turn looked at.
    looked_at: u32,
}

impl Movable {
    /// A group that may not exist yet.
    pub(super) fn new(group: Cgroup, shared: Vec<u32>) -> Self {
        Movable { group, shared, looked_at: 0 }
    }

    /// Whether an ordinary process belongs into the group. Some system calls a thread.
    pub(super) fn takes(&self, pid: u32) -> bool {
        look(pid, &self.shared).is_movable
    }

    /// Moves processes between `others` and this group that belong into the other one. The next
    /// turn goes on after the last process of this one. Bounded by [`LOOKS_MAX`] and
    /// [`SORTED_MAX`], and blocks for [`TURN`] at most, beside the last process.
    pub(super) fn sort(
        &mut self,
        others: &Cgroup,
        hierarchy: &Hierarchy,
        may_move: impl Fn(u32) -> bool,
    ) {
        let list = |group: &Cgroup| group.processes().unwrap_or_default().into_iter();
        let inside = list(&self.group).map(|pid| (pid, true));
        let mut all: Vec<(u32, bool)> =
            inside.chain(list(others).map(|pid| (pid, false))).collect();
        begin_after(&mut all, self.looked_at);
        let begun = Instant::now();
        let (mut threads, mut moves) = (0, 0);
        for (pid, is_inside) in all {
            if threads >= LOOKS_MAX || moves == SORTED_MAX || begun.elapsed() >= TURN {
                return;
            }
            self.looked_at = pid;
            let found = look(pid, &self.shared);
            threads += found.threads;
            if found.is_movable != is_inside && may_move(pid) {
                moves += 1;
                let (from, to) =
                    if is_inside { (&self.group, others) } else { (others, &self.group) };
                // Fails if the process has ended; else a later turn finds it again.
                let _ = move_between((from, to), pid, hierarchy);
            }
        }
    }
}

/// Puts those after a number first, each part in order.
fn begin_after(all: &mut [(u32, bool)], number: u32) {
    all.sort_unstable();
    let before = all.partition_point(|&(pid, _)| pid <= number);
    all.rotate_left(before);
}

/// What was found of a process.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    /// Whether a thread may run on a CPU without shares, while others have some.
    is_movable: bool,
    /// How many threads were looked at, at least 1.
    threads: usize,
}

/// Looks at the first thread, and at the others only if all CPUs of that have shares.
fn look(pid: u32, shared: &[u32]) -> Look {
    let is_bound = |tid: u32| {
        // One that has ended binds nothing.
        allowed_cpus_of(tid).map_or(true, |cpus| cpus.iter().all(|cpu| shared.contains(cpu)))
    };
    if shared.is_empty() || !is_bound(pid) {
        return Look { is_movable: !shared.is_empty(), threads: 1 };
    }
    let threads = threads_of(pid).unwrap_or_default();
    Look { is_movable: !threads.iter().all(|&tid| is_bound(tid)), threads: 1 + threads.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use upcall_sys::schedule::{allowed_cpus, pin_thread};

    #[test]
    fn the_fault_is_in_linux_6_13_to_6_19() {
        for version in [(6, 13), (6, 18), (6, 19)] {
            assert!(has_fault(version), "{version:?}");
        }
        for version in [(5, 15), (6, 1), (6, 12), (6, 20), (7, 0), (7, 13)] {
            assert!(!has_fault(version), "{version:?}");
        }
    }

    #[test]
    fn a_turn_begins_after_the_last_process_of_the_former_one() {
        let begun = |number| {
            let mut all = [(7, true), (3, false), (9, false), (5, true)];
            begin_after(&mut all, number);
            all.map(|(pid, _)| pid)
        };
        assert_eq!(begun(0), [3, 5, 7, 9]);
        assert_eq!(begun(5), [7, 9, 3, 5]);
        // It has ended meanwhile.
        assert_eq!(begun(6), [7, 9, 3, 5]);
        assert_eq!(begun(9), [3, 5, 7, 9]);
    }

    #[test]
    fn a_process_is_movable_while_one_of_its_threads_is() {
        let (own, cpus) = (std::process::id(), allowed_cpus().unwrap());
        let movable = |shared: &[u32]| look(own, shared).is_movable;
        // The first thread decides, and this one is another.
        assert_eq!(look(own, &[u32::MAX]), Look { is_movable: true, threads: 1 });
        assert!(!movable(&cpus));
        assert!(look(own, &cpus).threads >= 2);
        // Without shares nobody is promised anything.
        assert_eq!(look(own, &[]), Look { is_movable: false, threads: 1 });
        let [pinned_to, .., other] = cpus[..] else { return };
        let (told, tells) = channel();
        let (ends, waits) = channel::<()>();
        let thread = std::thread::spawn(move || {
            pin_thread(&[pinned_to]).unwrap();
            told.send(upcall_sys::process::thread_id()).unwrap();
            let _ = waits.recv();
        });
        let tid = tells.recv().unwrap();
        // As of a process with this thread first: the others may run elsewhere.
        assert!(look(tid, &[pinned_to]).is_movable);
        assert!(look(tid, &[pinned_to]).threads > 1);
        assert_eq!(look(tid, &[other]), Look { is_movable: true, threads: 1 });
        drop(ends);
        thread.join().unwrap();
    }
}
