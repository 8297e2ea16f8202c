//! The processes of a program: who may be taken, how they come into its group, and how they go.
//!
//! A process is bound by a pidfd before it is moved, and is looked at again afterwards: only then
//! it is sure that the number was its own. What it starts later is in the group by itself, with the
//! same CPU and slice.

use std::collections::BTreeMap;

use upcall_core::time::Span;
use upcall_sys::cgroup::{Cgroup, CgroupError};
use upcall_sys::process::{
    PidFd, UserIdFile, cpu_time_of, descendants_of, process_facts, threads_of,
};
use upcall_sys::schedule::{Class, allowed_cpus_of, class_of, pin_thread_of, set_slice_of};

use super::error::ProgramError;
use super::left_over::remove_with_processes;

/// Looks for processes and threads that were started meanwhile.
const LOOKS_MAX: usize = 8;

/// A process that a user may make a program of.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) pid: u32,
    user: u32,
    handle: PidFd,
}

impl Bound {
    /// Binds process `pid` for a user.
    pub(super) fn new(pid: u32, user: u32) -> Result<Self, ProgramError> {
        if pid <= 1 || pid == std::process::id() {
            return Err(ProgramError::System { pid });
        }
        let handle = PidFd::open(pid).map_err(|error| match error.is_permission() {
            true => ProgramError::Os(error),
            false => ProgramError::Gone { pid },
        })?;
        let bound = Bound { pid, user, handle };
        bound.check()?;
        Ok(bound)
    }

    /// Whether it still is the process, and the user may have it.
    fn check(&self) -> Result<(), ProgramError> {
        let Bound { pid, user, .. } = *self;
        let gone = ProgramError::Gone { pid };
        let Some(facts) = process_facts(pid) else { return Err(gone) };
        if facts.is_kernel {
            return Err(ProgramError::System { pid });
        }
        if user != 0 {
            let ids = UserIdFile::open(pid, pid).and_then(|file| file.read());
            match ids {
                Ok(ids) if ids.are_all(user) => {}
                Ok(_) => return Err(ProgramError::Owner { pid, user }),
                Err(error) if error.is_permission() => {
                    return Err(ProgramError::Owner { pid, user });
                }
                Err(_) => return Err(gone),
            }
        }
        match self.handle.has_exited() {
            Ok(false) => Ok(()),
            _ => Err(gone),
        }
    }

    /// Moves the process into a group. If the number was not its own then, it goes `back`.
    fn move_to(&self, group: &Cgroup, back: &Cgroup) -> Result<(), ProgramError> {
        let pid = self.pid;
        group.add(pid).map_err(|error| match error {
            error if error.is_gone() => ProgramError::Gone { pid },
            error if error.is_invalid() => ProgramError::RealTime { pid },
            error => error.into(),
        })?;
        self.check().inspect_err(|_| {
            let _ = back.add(self.pid);
        })
    }

    /// Moves the process and its descendants into a group. Descendants of other users, and those
    /// that `is_taken`, stay where they are.
    pub(super) fn take(
        &self,
        group: &Cgroup,
        back: &Cgroup,
        is_taken: impl Fn(u32) -> bool,
    ) -> Result<(), ProgramError> {
        self.move_to(group, back)?;
        for _ in 0..LOOKS_MAX {
            let inside = group.processes()?;
            let missing = descendants_of(self.pid)?.into_iter();
            let missing = missing.filter(|pid| !inside.contains(pid) && !is_taken(*pid));
            let moved = missing.filter(|&pid| {
                Bound::new(pid, self.user).is_ok_and(|bound| bound.move_to(group, back).is_ok())
            });
            if moved.count() == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// The processes of a program.
#[derive(Debug)]
pub(super) struct Members {
    /// The first one.
    pub(super) pid: u32,
    pub(super) group: Cgroup,
    /// Where the first one was before.
    pub(super) origin: Cgroup,
    pub(super) former_cpus: FormerCpus,
    /// Their CPU time in groups that they have left.
    pub(super) earlier: Span,
}

impl Members {
    /// Moves all to a new group, and removes the former one.
    pub(super) fn move_to(&mut self, group: Cgroup) -> Result<(), CgroupError> {
        for pid in self.group.processes()? {
            // Fails only if the process has ended.
            let _ = group.add(pid);
        }
        let earlier = cpu_time(&self.group);
        let former = core::mem::replace(&mut self.group, group);
        self.earlier += earlier;
        remove_with_processes(&former, &self.group)
    }
}

/// The CPUs that the threads of a program could use before.
#[derive(Debug)]
pub(super) struct FormerCpus {
    /// Of the first process; for threads that were started later.
    of_first: Vec<u32>,
    of_threads: BTreeMap<u32, Vec<u32>>,
}

impl FormerCpus {
    /// Nothing changed so far. `pid` is the first process.
    pub(super) fn of(pid: u32) -> Result<Self, ProgramError> {
        let of_first = allowed_cpus_of(pid).map_err(|_| ProgramError::Gone { pid })?;
        Ok(FormerCpus { of_first, of_threads: BTreeMap::new() })
    }

    /// Lets all threads of a group run on one CPU, with this slice.
    pub(super) fn pin(&mut self, group: &Cgroup, cpu: u32, slice: Span) {
        for _ in 0..LOOKS_MAX {
            let mut is_new = false;
            for tid in threads_in(group) {
                if self.of_threads.contains_key(&tid) || is_real_time(tid) {
                    continue;
                }
                // These fail if the thread has ended, or if a user's daemon lacks a right.
                let Ok(former) = allowed_cpus_of(tid) else { continue };
                is_new = true;
                self.of_threads.insert(tid, former);
                let _ = pin_thread_of(tid, &[cpu]);
                let _ = set_slice_of(tid, Some(slice.as_nanos()));
            }
            if !is_new {
                return;
            }
        }
    }

    /// Undoes [`FormerCpus::pin`].
    pub(super) fn restore(&self, group: &Cgroup) {
        for tid in threads_in(group).into_iter().filter(|&tid| !is_real_time(tid)) {
            let former = self.of_threads.get(&tid).unwrap_or(&self.of_first);
            let _ = pin_thread_of(tid, former);
            let _ = set_slice_of(tid, None);
        }
    }
}

/// Whether the share of a group does not bound the thread. It may also be that of a domain, which
/// must stay on its CPU.
fn is_real_time(tid: u32) -> bool {
    let is_ordinary = |class| matches!(class, Class::Ordinary | Class::Batch | Class::Idle);
    class_of(tid).is_ok_and(|class| !is_ordinary(class))
}

fn threads_in(group: &Cgroup) -> Vec<u32> {
    let processes = group.processes().unwrap_or_default();
    processes.into_iter().flat_map(|pid| threads_of(pid).unwrap_or_default()).collect()
}

/// The CPU time of a group: of all that were ever in it, or, if the kernel does not count that, of
/// its present threads.
pub(super) fn cpu_time(group: &Cgroup) -> Span {
    let present_ns = || {
        let processes = group.processes().unwrap_or_default();
        let of_process = |pid: u32| {
            let threads = threads_of(pid).unwrap_or_default();
            threads.into_iter().filter_map(|tid| cpu_time_of(pid, tid).ok()).sum::<u64>()
        };
        processes.into_iter().map(of_process).sum()
    };
    Span::from_nanos(group.cpu_time_ns().unwrap_or_else(present_ns))
}
