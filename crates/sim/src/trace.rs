//! The trace file: what crossed the core's interface, live or simulated, in a
//! form that <https://ui.perfetto.dev> draws and [`Trace::replay`] checks.
//!
//! It is a Perfetto trace (protobuf, `Trace` of `TracePacket`). For people there
//! is a row a CPU with the handler that runs, and a row an activity, below its
//! domain's, with a slice an upcall and instants `release`, `deadline`,
//! `yield request` and `miss`; a flow goes from the release of a job to its first
//! upcall. For the replay there is a row `core` a CPU, with one instant for each
//! [`Record`] in their order, its name the kind and its annotations the
//! arguments. The rows for people are derived from these and never read back.
//!
//! Times are nanoseconds of the driver's clock, [`Clock`]: `CLOCK_MONOTONIC`
//! (which stops while the machine is suspended) or virtual time from 0. The file
//! holds them as they are, without a clock's name that a user interface would
//! convert; what it shows counts from the first event.
//!
//! Release and deadline are known when a job ended, and stand behind it in the
//! file; a job that never ended has none. Readers sort by time.
//!
//! ```text
//! header (policy, capacity, clock) of each CPU, groups, activities  ->  records
//! ```
//!
//! Several processes on the same CPUs, each with a scheduler of its own on each of them,
//! have one file: what each of them wrote, cut between packets and put together in any
//! way that keeps its own order. [`Header::process`] keeps them apart, and
//! [`read_all`] gives a [`Trace`] of each, which replays by itself.

use core::fmt;
use upcall_core::activity::ActivityId;
use upcall_core::discipline::{self, Discipline};
use upcall_core::policy::ps;
use upcall_core::scheduler::Scheduler;
use upcall_core::time::{Instant, Span};
use upcall_core::trace::{Divergence, Replayed};

mod fields;
mod proto;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{CAPACITY_MAX, Cause, PACKET_BYTES_MAX, ReadError, read, read_all};
pub use upcall_core::trace::{Crossing, Record};
pub use writer::Writer;

use crate::spec::SimSpec;

/// Number of the format; a reader refuses others.
pub const FORMAT: u32 = 1;

/// What is known before the first record.
#[derive(Clone, Debug)]
pub struct Header {
    /// Which of the processes in the file: 0 if it is the only one. No two have the same.
    pub process: u16,
    /// The policy of every CPU.
    pub discipline: &'static Discipline,
    /// Its time quantum, if it has one: the file may have another than the
    /// discipline of that name.
    pub time_quantum: Option<Span>,
    /// Its groups, likewise.
    pub groups: Vec<ps::Group>,
    /// Whose nanoseconds.
    pub clock: Clock,
    /// When it begins, by that clock.
    pub start: Instant,
    /// The CPUs, each with the capacity of its scheduler.
    pub cpus: Vec<(u32, u32)>,
    /// Who is who.
    pub activities: Vec<Named>,
}

impl Header {
    /// Of a simulation.
    pub fn of(spec: &SimSpec) -> Header {
        let mut cpus: Vec<_> = spec.cpus.iter().map(|&cpu| (cpu, 0)).collect();
        let mut activities = Vec::new();
        for activity in &spec.activities {
            if let Some((cpu, capacity)) = cpus.iter_mut().find(|(cpu, _)| *cpu == activity.cpu) {
                activities.push(Named {
                    cpu: *cpu,
                    id: ActivityId(*capacity),
                    name: activity.name.clone(),
                    domain: format!("{}", activity.domain),
                });
                *capacity += 1;
            }
        }
        Header {
            process: 0,
            discipline: spec.discipline,
            time_quantum: spec.discipline.time_quantum,
            groups: spec.discipline.groups.clone(),
            clock: Clock::Virtual,
            start: Instant::ZERO,
            cpus,
            activities,
        }
    }
}

/// What the nanoseconds are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC` of the machine that ran it.
    Monotonic,
    /// Virtual time, from 0.
    Virtual,
}

impl Clock {
    const ALL: [Clock; 2] = [Clock::Monotonic, Clock::Virtual];

    /// The word for it in the file and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Clock::Monotonic => "monotonic",
            Clock::Virtual => "virtual",
        }
    }
}

/// Who an activity's number is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its CPU.
    pub cpu: u32,
    /// Its number there.
    pub id: ActivityId,
    /// Its name.
    pub name: String,
    /// The domain it belongs to.
    pub domain: String,
}

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

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The rows of a process, each its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Cpu(u32),
    Core(u32),
    /// By the order in which domains are first named.
    Domain(u32),
    /// By its place in [`Header::activities`].
    Activity(u32),
}

impl Row {
    fn uuid(self, process: u16) -> u64 {
        let (kind, number) = match self {
            Row::Cpu(number) => (1, number),
            Row::Core(number) => (2, number),
            Row::Domain(number) => (3, number),
            Row::Activity(number) => (4, number),
        };
        u64::from(process) << 40 | kind << 32 | u64::from(number)
    }

    /// The process and the CPU whose core's row this is.
    fn core_of(uuid: u64) -> Option<(u16, u32)> {
        if uuid >> 32 & 0xff != 2 {
            return None;
        }
        Some((u16::try_from(uuid >> 40).ok()?, u32::try_from(uuid & 0xffff_ffff).ok()?))
    }
}
