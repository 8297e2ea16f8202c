//! What a trace file says before its first record.

use crate::spec::SimSpec;
use core::fmt;
use upcall_core::activity::ActivityId;
use upcall_core::policy::{Discipline, ps};
use upcall_core::time::{Instant, Span};

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
    pub(super) const ALL: [Clock; 2] = [Clock::Monotonic, Clock::Virtual];

    /// The word for it in the file and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Clock::Monotonic => "monotonic",
            Clock::Virtual => "virtual",
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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
