//! A trace that was read, and its replay.

use super::header::Header;
use upcall_core::discipline;
use upcall_core::scheduler::Scheduler;
use upcall_core::trace::{Divergence, Record, Replayed};

/// A trace that was read. The parameters of an activity are in the record of its
/// [`Input::Create`](upcall_core::scheduler::Input::Create).
#[derive(Clone, Debug)]
pub struct Trace {
    /// The header.
    pub header: Header,
    /// The records of each CPU, in the order of [`Header::cpus`].
    pub records: Vec<Vec<Record>>,
}

/// The result of one CPU's replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuReplay {
    /// Number of the CPU.
    pub cpu: u32,
    /// The counts of equal records, or the first record that differed.
    pub outcome: Result<Replayed, Box<Divergence>>,
}

impl Trace {
    /// Gives every input to a new scheduler per CPU, and compares all outputs; see
    /// [`upcall_core::trace::replay`]. O(log n) per record.
    pub fn replay(&self) -> Vec<CpuReplay> {
        self.replay_seen(|_, _, _| {})
    }

    /// As [`Trace::replay`]. Also calls `seen` with each CPU's scheduler after every equal record;
    /// see [`upcall_core::trace::replay_seen`].
    pub fn replay_seen(&self, mut seen: impl FnMut(u32, &Scheduler, &Record)) -> Vec<CpuReplay> {
        let Header { discipline, time_quantum, groups, .. } = &self.header;
        let same = *time_quantum == discipline.time_quantum && *groups == discipline.groups;
        // The reader has refused invalid groups.
        let other = time_quantum.filter(|_| !same);
        let other =
            other.and_then(|quantum| discipline::ps_with_groups(quantum, groups.clone()).ok());
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
