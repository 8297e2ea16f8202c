//! The CPUs and the slice of a program's threads: changed while it has its share, and given back.

use std::collections::{BTreeMap, BTreeSet};

use upcall_core::time::Span;
use upcall_sys::cgroup::{Cgroup, Hierarchy};
use upcall_sys::process::ThreadHandle;

use super::bound::{self, THREADS_MAX, threads_in, threads_of_process};
use super::error::ProgramError;

/// Looks for threads that were started meanwhile.
const LOOKS_MAX: usize = 8;

/// The CPUs that the threads of a program could use before.
#[derive(Debug)]
pub(super) struct FormerCpus {
    /// Of the first process; for threads that were started later.
    of_first: Vec<u32>,
    /// By number and start.
    of_threads: BTreeMap<(u32, u64), Vec<u32>>,
}

impl FormerCpus {
    /// Nothing changed so far. `pid` is the first process.
    pub(super) fn of(pid: u32) -> Result<Self, ProgramError> {
        let first = ThreadHandle::open(pid, pid).and_then(|thread| thread.allowed_cpus());
        let of_first = first.map_err(|_| ProgramError::Gone { pid })?;
        Ok(FormerCpus { of_first, of_threads: BTreeMap::new() })
    }

    /// Lets all threads of a group run on one CPU, with this slice.
    ///
    /// # Errors
    /// [`ProgramError::Grows`], with the first process `pid`: there were more and more threads.
    pub(super) fn pin(
        &mut self,
        (pid, group): (u32, &Cgroup),
        (cpu, slice): (u32, Span),
        hierarchy: &Hierarchy,
    ) -> Result<(), ProgramError> {
        for look in 0..LOOKS_MAX {
            let mut is_new = false;
            for thread in threads_in(group, hierarchy) {
                let Ok(started) = thread.started() else { continue };
                let key = (thread.tid(), started);
                if self.of_threads.contains_key(&key) {
                    continue;
                }
                if self.of_threads.len() == THREADS_MAX {
                    return Err(ProgramError::Grows { pid, taken: THREADS_MAX });
                }
                let Some(former) = bound::pin(&thread, &[cpu], Some(slice)) else { continue };
                if look > 0 && former == [cpu] {
                    // A pinned thread has started it meanwhile.
                    continue;
                }
                is_new = true;
                self.of_threads.insert(key, former);
            }
            if !is_new {
                return Ok(());
            }
        }
        Err(ProgramError::Grows { pid, taken: self.of_threads.len() })
    }

    /// Undoes [`FormerCpus::pin`] for a process of a group.
    pub(super) fn restore(&self, pid: u32, group: &Cgroup, hierarchy: &Hierarchy) {
        let mut seen = BTreeSet::new();
        for _ in 0..LOOKS_MAX {
            let before = seen.len();
            for thread in threads_of_process(pid, group, hierarchy) {
                let Ok(started) = thread.started() else { continue };
                let key = (thread.tid(), started);
                if seen.insert(key) {
                    let former = self.of_threads.get(&key).unwrap_or(&self.of_first);
                    let _ = bound::pin(&thread, former, None);
                }
            }
            if seen.len() == before {
                return;
            }
        }
    }
}
