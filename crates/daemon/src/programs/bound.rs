//! Processes and threads by their identity instead of their number.
//!
//! The kernel moves and pins by number, and gives a number away again after its owner has ended. So
//! each change has three steps, as in [`upcall_sys::process::ThreadHandle`]:
//!
//! 1. A descriptor binds the process or thread. Then its group is read, and the descriptor says
//!    that it has not ended. So the group is its own, and not that of a later owner of the number.
//! 2. The change is made.
//! 3. If it has ended meanwhile, another process or thread may have got the number and the change.
//!    Then the change is undone: a process goes to the group of its parent, where it was born, and
//!    a thread gets the CPUs that the former owner of the number had.
//!
//! A number can pass to another owner only if all numbers of the machine are given away between the
//! end of the first owner and step 2, which follows step 1 at once.

use std::time::Duration;

use upcall_core::time::Span;
use upcall_sys::cgroup::{Cgroup, CgroupError, Hierarchy};
use upcall_sys::process::{
    PidFd, ProcessFacts, ThreadHandle, ThreadState, process_facts, thread_state, threads_of,
};
use upcall_sys::schedule::{Class, allowed_cpus_of, pin_thread_of, set_slice_of};

/// Processes that one turn of the server's thread moves at most.
pub(super) const MOVES_MAX: usize = 1_024;
/// How long such a turn lasts at most, beside the threads of the last process and one move.
pub(super) const TURN: Duration = Duration::from_millis(50);
/// Threads of a program that are pinned at most.
pub(super) const THREADS_MAX: usize = 4_096;

/// A process that has its number as long as it has not ended.
#[derive(Debug)]
pub(super) struct BoundProcess {
    pub(super) pid: u32,
    handle: PidFd,
}

impl BoundProcess {
    /// Binds the process that has the number now; `None` if there is none.
    pub(super) fn open(pid: u32) -> Option<Self> {
        PidFd::open(pid).ok().map(|handle| BoundProcess { pid, handle })
    }

    /// Binds the process that was listed with these facts; `None` if it has ended.
    pub(super) fn of(listed: &ProcessFacts) -> Option<Self> {
        let bound = BoundProcess::open(listed.pid)?;
        let is_listed = process_facts(bound.pid).is_some_and(|now| now.started == listed.started);
        (is_listed && !bound.has_ended()).then_some(bound)
    }

    /// Binds the process if it is in a group (step 1).
    pub(super) fn in_group(pid: u32, group: &Cgroup, hierarchy: &Hierarchy) -> Option<Self> {
        let bound = BoundProcess::open(pid)?;
        let is_inside = bound.group(hierarchy).is_some_and(|found| found == *group);
        is_inside.then_some(bound)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.handle.has_exited().unwrap_or(true)
    }

    /// The group that it is in; `None` if it has ended.
    pub(super) fn group(&self, hierarchy: &Hierarchy) -> Option<Cgroup> {
        let group = hierarchy.group_of(self.pid).ok()?;
        (!self.has_ended()).then_some(group)
    }

    /// Moves it into a group (steps 2 and 3). Call [`BoundProcess::group`] before.
    ///
    /// # Errors
    /// See [`Cgroup::add`].
    pub(super) fn move_to(&self, to: &Cgroup, hierarchy: &Hierarchy) -> Result<(), CgroupError> {
        let moved = to.add(self.pid);
        if moved.is_ok() && self.has_ended() {
            self.give_back(to, hierarchy);
        }
        moved
    }

    /// Moves another process that has got the number of this one, and so its group, to the group of
    /// its parent.
    fn give_back(&self, group: &Cgroup, hierarchy: &Hierarchy) {
        // A process that waits for its parent still has its number.
        if thread_state(self.pid, self.pid) == Ok(ThreadState::Dead) {
            return;
        }
        let Some(other) = BoundProcess::in_group(self.pid, group, hierarchy) else { return };
        let parent = process_facts(self.pid).map(|facts| facts.parent);
        let born_in = parent.and_then(|parent| hierarchy.group_of(parent).ok());
        if let Some(born_in) = born_in.filter(|born_in| born_in != group)
            && !other.has_ended()
        {
            // Fails only if that one has ended, too.
            let _ = born_in.add(self.pid);
        }
    }
}

/// Moves process `pid` from one group to another. Returns whether it was there.
///
/// # Errors
/// See [`Cgroup::add`].
pub(super) fn move_between(
    (from, to): (&Cgroup, &Cgroup),
    pid: u32,
    hierarchy: &Hierarchy,
) -> Result<bool, CgroupError> {
    match BoundProcess::in_group(pid, from, hierarchy) {
        None => Ok(false),
        Some(bound) => bound.move_to(to, hierarchy).map(|()| true),
    }
}

/// The threads of the processes of a group, each bound while it is looked at. Threads of the
/// real-time class are left out: the share of a group does not bound them, and they may be those of
/// a domain, which must stay on their CPU.
pub(super) fn threads_in<'g>(
    group: &'g Cgroup,
    hierarchy: &'g Hierarchy,
) -> impl Iterator<Item = ThreadHandle> + 'g {
    let processes = group.processes().unwrap_or_default();
    processes.into_iter().flat_map(move |pid| threads_of_process(pid, group, hierarchy))
}

/// As [`threads_in`], of one process.
pub(super) fn threads_of_process<'g>(
    pid: u32,
    group: &'g Cgroup,
    hierarchy: &'g Hierarchy,
) -> impl Iterator<Item = ThreadHandle> + 'g {
    let threads = threads_of(pid).unwrap_or_default().into_iter();
    threads.filter_map(move |tid| {
        let thread = ThreadHandle::open(pid, tid).ok()?;
        let is_inside = hierarchy.group_of(tid).is_ok_and(|found| found == *group);
        let is_fair = |class| matches!(class, Class::Ordinary | Class::Batch | Class::Idle);
        // The last one of these also says that the thread has not ended.
        (is_inside && thread.class().is_ok_and(is_fair)).then_some(thread)
    })
}

/// Lets a thread run on these CPUs, with this slice. Returns the CPUs that it had; `None` if it has
/// ended.
pub(super) fn pin(thread: &ThreadHandle, cpus: &[u32], slice: Option<Span>) -> Option<Vec<u32>> {
    let former = thread.allowed_cpus().ok()?;
    // These fail if the thread has ended, or if a user's daemon lacks a right.
    let _ = thread.pin(cpus);
    let _ = thread.set_slice(slice.map(Span::as_nanos));
    if !thread.has_ended() {
        return Some(former);
    }
    let tid = thread.tid();
    if former != cpus && allowed_cpus_of(tid).is_ok_and(|found| found == cpus) {
        let _ = (pin_thread_of(tid, &former), set_slice_of(tid, None));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicU32, Ordering};
    use upcall_sys::process::{Child, SpawnOptions, spawn};
    use upcall_sys::schedule::allowed_cpus;

    /// Two groups for one test.
    struct TwoGroups {
        hierarchy: Hierarchy,
        from: Cgroup,
        to: Cgroup,
    }

    impl TwoGroups {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let hierarchy = Hierarchy::find().unwrap();
            let above = hierarchy.writable().unwrap();
            // Relaxed: a count.
            let (own, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let create = |name| above.create(&format!("bound-{own}-{number}-{name}")).unwrap();
            TwoGroups { from: create("from"), to: create("to"), hierarchy }
        }

        fn group_of(&self, pid: u32) -> Cgroup {
            self.hierarchy.group_of(pid).unwrap()
        }
    }

    impl Drop for TwoGroups {
        fn drop(&mut self) {
            for group in [&self.from, &self.to] {
                let removed = (0..1_000).any(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    group.remove().is_ok()
                });
                assert!(removed || std::thread::panicking(), "a process is in {group:?}");
            }
        }
    }

    fn sleeper() -> Child {
        let command = ["sleep", "1000"].map(str::to_owned);
        spawn(&command, &allowed_cpus().unwrap(), SpawnOptions::default()).unwrap()
    }

    /// A process with this number. `None` without the right to choose numbers, or if other programs
    /// keep taking it.
    fn with_number(pid: u32) -> Option<Child> {
        (0..1_000).find_map(|_| {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            Some(sleeper()).filter(|child| child.pid() == pid)
        })
    }

    #[test]
    #[ignore = "needs root: control groups, and chooses the number of a process"]
    fn another_process_with_the_number_is_neither_moved_nor_pinned() {
        let groups = TwoGroups::new();
        let TwoGroups { hierarchy, from, to } = &groups;
        let first = sleeper();
        let pid = first.pid();
        from.add(pid).unwrap();
        let bound = BoundProcess::in_group(pid, from, hierarchy).unwrap();
        let thread = threads_of_process(pid, from, hierarchy).next().unwrap();
        let listed = process_facts(pid).unwrap();
        assert!(BoundProcess::of(&listed).is_some());
        assert!(BoundProcess::in_group(pid, to, hierarchy).is_none());
        drop(first);
        // The start of a process is counted in hundredths of a second.
        std::thread::sleep(Duration::from_millis(30));
        let Some(_second) = with_number(pid) else {
            let what = "another_process_with_the_number_is_neither_moved_nor_pinned";
            // `eprintln` would be captured.
            let _ = writeln!(std::io::stderr(), "skipped: {what}: no such number");
            return;
        };
        let (born_in, cpus) = (groups.group_of(pid), allowed_cpus_of(pid).unwrap());
        assert!(bound.has_ended() && bound.group(hierarchy).is_none());
        assert!(BoundProcess::of(&listed).is_none());
        assert_eq!(threads_of_process(pid, from, hierarchy).count(), 0);
        assert_eq!(move_between((from, to), pid, hierarchy), Ok(false));
        assert_eq!(pin(&thread, &cpus[..1], None), None);
        assert_eq!((groups.group_of(pid), allowed_cpus_of(pid)), (born_in.clone(), Ok(cpus)));
        // Step 3: the move has reached the other process.
        bound.move_to(to, hierarchy).unwrap();
        assert_eq!(groups.group_of(pid), born_in);
    }

    #[test]
    #[ignore = "needs root: control groups"]
    fn a_bound_process_is_moved_and_its_thread_is_pinned() {
        let groups = TwoGroups::new();
        let TwoGroups { hierarchy, from, to } = &groups;
        let child = sleeper();
        from.add(child.pid()).unwrap();
        let cpus = allowed_cpus().unwrap();
        let thread = threads_in(from, hierarchy).next().unwrap();
        assert_eq!(pin(&thread, &cpus[..1], None), Some(cpus.clone()));
        assert_eq!(allowed_cpus_of(child.pid()).as_deref(), Ok(&cpus[..1]));
        assert_eq!(move_between((from, to), child.pid(), hierarchy), Ok(true));
        assert_eq!(&groups.group_of(child.pid()), to);
        // It is in this group, and not in the other one.
        assert_eq!(move_between((from, to), child.pid(), hierarchy), Ok(false));
        drop(child);
    }
}
