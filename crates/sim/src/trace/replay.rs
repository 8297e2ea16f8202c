//! A trace that was read, and its replay.

use super::header::Header;
use upcall_core::policy::ps;
use upcall_core::scheduler::Scheduler;
use upcall_core::trace::{Divergence, Record, Replayed};

/// A trace that was read. Parameters of an activity stand in the record of its
/// [`Input::Create`](upcall_core::scheduler::Input::Create).
#[derive(Clone, Debug)]
pub struct Trace {
    /// What was known before.
    pub header: Header,
    /// In the order of [`Header::cpus`], each CPU's records in their order.
    pub records: Vec<Vec<Record>>,
}

/// What came of one CPU's replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuReplay {
    /// Which.
    pub cpu: u32,
    /// What was the same, or the first that was not.
    pub outcome: Result<Replayed, Box<Divergence>>,
}

impl Trace {
    /// Hands every input to a fresh scheduler, one a CPU, and compares all that
    /// comes out; see [`upcall_core::trace::replay`]. O(log n) a record.
    pub fn replay(&self) -> Vec<CpuReplay> {
        self.replay_seen(|_, _, _| {})
    }

    /// As [`Trace::replay`], and shows `seen` each CPU's scheduler behind every
    /// record that was as recorded; see [`upcall_core::trace::replay_seen`].
    pub fn replay_seen(&self, mut seen: impl FnMut(u32, &Scheduler, &Record)) -> Vec<CpuReplay> {
        let Header { discipline, time_quantum, groups, .. } = &self.header;
        let same = *time_quantum == discipline.time_quantum && *groups == discipline.groups;
        // The reader takes no groups that cannot be.
        let other = time_quantum.filter(|_| !same);
        let other = other.and_then(|quantum| ps::with_groups(quantum, groups.clone()).ok());
        let discipline = other.as_ref().unwrap_or(self.header.discipline);
        let cpus = self.header.cpus.iter().zip(&self.records);
        cpus.map(|(&(cpu, capacity), records)| {
            let records = records.iter().copied();
            let seen = |scheduler: &Scheduler, record: &Record| seen(cpu, scheduler, record);
            let outcome = upcall_core::trace::replay_seen(discipline, capacity, records, seen);
            CpuReplay { cpu, outcome }
        })
        .collect()
    }
}
