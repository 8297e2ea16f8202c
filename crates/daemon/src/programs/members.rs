//! The processes of a program: who may be taken, how they come into its group, and how they go.
//!
//! A process is bound by a descriptor before it is moved, and is looked at again afterwards
//! ([`super::bound`]). What it starts later is in the group by itself, with the same CPU and slice.

use std::time::{Duration, Instant};

use upcall_core::time::Span;
use upcall_sys::cgroup::{Cgroup, CgroupError, Hierarchy};
use upcall_sys::process::{
    ThreadHandle, UserIdFile, cpu_time_of, descendants_of, process_facts, threads_of,
};
use upcall_sys::schedule::allowed_cpus_of;

use super::bound::{BoundProcess, MOVES_MAX, THREADS_MAX, move_between, threads_of_process};
use super::error::ProgramError;
use super::former_cpus::FormerCpus;
use super::leaving::Leaving;

/// Looks for processes and threads that were started meanwhile.
const LOOKS_MAX: usize = 8;
/// Processes of a program whose CPUs a turn looks at.
const LOOKED_MAX: usize = 64;
/// How long the descendants of a process are moved at most, beside one look and one move.
const TAKE_WITHIN: Duration = Duration::from_millis(500);

/// A process that a user may make a program of.
#[derive(Debug)]
pub(super) struct Candidate {
    process: BoundProcess,
    user: u32,
}

impl Candidate {
    /// Binds process `pid` for a user.
    pub(super) fn new(pid: u32, user: u32) -> Result<Self, ProgramError> {
        if pid <= 1 || pid == std::process::id() {
            return Err(ProgramError::System { pid });
        }
        let process = BoundProcess::open(pid).ok_or(ProgramError::Gone { pid })?;
        Candidate::checked(process, user)
    }

    fn checked(process: BoundProcess, user: u32) -> Result<Self, ProgramError> {
        let candidate = Candidate { process, user };
        candidate.check()?;
        Ok(candidate)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Whether it still is the process, and the user may have it.
    fn check(&self) -> Result<(), ProgramError> {
        let (pid, user) = (self.process.pid, self.user);
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
        if self.process.has_ended() { Err(gone) } else { Ok(()) }
    }

    /// The group that it is in.
    pub(super) fn group(&self, hierarchy: &Hierarchy) -> Result<Cgroup, ProgramError> {
        self.process.group(hierarchy).ok_or(ProgramError::Gone { pid: self.pid() })
    }

    /// Moves the process into a group. If the user may not have it any more then, it goes back.
    fn move_to(&self, group: &Cgroup, hierarchy: &Hierarchy) -> Result<(), ProgramError> {
        let pid = self.pid();
        let before = self.group(hierarchy)?;
        self.process.move_to(group, hierarchy).map_err(|error| match error {
            error if error.is_gone() => ProgramError::Gone { pid },
            error if error.is_invalid() => ProgramError::RealTime { pid },
            error => error.into(),
        })?;
        self.check().inspect_err(|_| {
            if !self.process.has_ended() {
                let _ = self.process.move_to(&before, hierarchy);
            }
        })
    }

    /// Moves the process and its descendants into a group. Descendants of other users, and those
    /// that `is_taken`, stay where they are.
    ///
    /// # Errors
    /// [`ProgramError::Grows`]: there were more and more. Some are in the group.
    pub(super) fn take(
        &self,
        group: &Cgroup,
        hierarchy: &Hierarchy,
        is_taken: impl Fn(u32) -> bool,
    ) -> Result<(), ProgramError> {
        let begun = Instant::now();
        self.move_to(group, hierarchy)?;
        let (pid, mut taken) = (self.pid(), 1);
        for _ in 0..LOOKS_MAX {
            let (inside, before) = (group.processes()?, taken);
            let missing = descendants_of(pid)?.into_iter();
            let missing = missing.filter(|of| inside.binary_search(&of.pid).is_err());
            for listed in missing.filter(|of| !is_taken(of.pid)) {
                if taken == MOVES_MAX || begun.elapsed() >= TAKE_WITHIN {
                    return Err(ProgramError::Grows { pid, taken });
                }
                let process = BoundProcess::of(&listed);
                let candidate = process.and_then(|of| Candidate::checked(of, self.user).ok());
                if candidate.is_some_and(|of| of.move_to(group, hierarchy).is_ok()) {
                    taken += 1;
                }
            }
            if taken == before {
                // Those that were started while their parent was moved.
                group.complete_account();
                return Ok(());
            }
        }
        Err(ProgramError::Grows { pid, taken })
    }

    /// Lets the first thread run on one CPU.
    ///
    /// # Errors
    /// The kernel's error: a cpuset may forbid the CPU.
    pub(super) fn pin(&self, cpu: u32) -> Result<(), ProgramError> {
        let pid = self.pid();
        let pinned = ThreadHandle::open(pid, pid)
            .and_then(|thread| self.check().is_ok().then(|| thread.pin(&[cpu])).transpose());
        match pinned {
            Ok(Some(())) => Ok(()),
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Err(ProgramError::Gone { pid }),
        }
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
    /// Pins the threads that may run elsewhere to the CPU. Looks at [`LOOKED_MAX`] processes, at
    /// others in the next turn, and at [`THREADS_MAX`] threads at most. Real-time threads are left
    /// out ([`threads_of_process`]).
    pub(super) fn pin_again(&self, cpu: u32, hierarchy: &Hierarchy, turn: usize) {
        let processes = self.group.processes().unwrap_or_default();
        let first = turn.wrapping_mul(LOOKED_MAX) % processes.len().max(1);
        let looked_at = processes.iter().cycle().skip(first).take(processes.len().min(LOOKED_MAX));
        let mut threads = 0;
        for &pid in looked_at {
            let all = threads_of(pid).unwrap_or_default();
            threads += all.len();
            if threads > THREADS_MAX {
                return;
            }
            let is_pinned = |tid: &u32| allowed_cpus_of(*tid).is_ok_and(|cpus| cpus == [cpu]);
            if all.iter().all(is_pinned) {
                continue;
            }
            for thread in threads_of_process(pid, &self.group, hierarchy) {
                if thread.allowed_cpus().is_ok_and(|cpus| cpus != [cpu]) {
                    // Fails if the thread has ended, or if a cpuset forbids the CPU by now.
                    let _ = thread.pin(&[cpu]);
                }
            }
        }
    }

    /// Moves all to a new group, as far as that is done in a turn. Returns the former group, for
    /// the rest.
    pub(super) fn move_to(
        &mut self,
        group: Cgroup,
        hierarchy: &Hierarchy,
    ) -> Result<Leaving, CgroupError> {
        for pid in self.group.processes()?.into_iter().take(MOVES_MAX) {
            // Fails only if the process has ended.
            let _ = move_between((&self.group, &group), pid, hierarchy);
        }
        self.earlier += cpu_time(&self.group);
        let former = core::mem::replace(&mut self.group, group);
        Ok(Leaving::new(former, self.group.clone(), None))
    }
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
