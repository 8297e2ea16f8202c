//! The header of a trace file, before its first record.

use crate::spec::{SimActivity, SimSpec};
use core::fmt;
use upcall_core::activity::ActivityId;
use upcall_core::discipline::Discipline;
use upcall_core::policy::ps;
use upcall_core::time::{Instant, Span};

/// Number of the format. A reader refuses other numbers. From 2 on the core keeps budgets, and
/// would answer the inputs of an older trace differently.
pub const FORMAT: u32 = 2;

/// The properties known before the first record.
#[derive(Clone, Debug)]
pub struct Header {
    /// Number of the process in the file, unique there; 0 if it is the only one.
    pub process: u16,
    /// The policy of every CPU.
    pub discipline: &'static Discipline,
    /// The time quantum, if the policy has one. The file may have another quantum than the
    /// discipline of that name.
    pub time_quantum: Option<Span>,
    /// The groups, which may also differ from the discipline's.
    pub groups: Vec<ps::Group>,
    /// The clock of all times.
    pub clock: Clock,
    /// The start, by that clock.
    pub start: Instant,
    /// The CPUs, each with the capacity of its scheduler.
    pub cpus: Vec<(u32, u32)>,
    /// The names of the activities.
    pub activities: Vec<Named>,
}

impl Header {
    /// The headers for a simulation, one for each process ([`SimSpec::processes`]).
    pub fn all(spec: &SimSpec) -> Vec<Header> {
        let processes = spec.processes();
        if processes.is_empty() {
            return vec![Header::of(spec)];
        }
        let of = |(domain, process): (u32, u16)| {
            let mut header = Header::of_process(spec, |activity| activity.domain == domain);
            header.process = process;
            header.cpus.retain(|&(_, capacity)| capacity > 0);
            header
        };
        processes.into_iter().zip(1..).map(of).collect()
    }

    /// The header for a simulation in which all domains are one process.
    pub fn of(spec: &SimSpec) -> Header {
        Header::of_process(spec, |_| true)
    }

    fn of_process(spec: &SimSpec, has: impl Fn(&SimActivity) -> bool) -> Header {
        let mut cpus: Vec<_> = spec.cpus.iter().map(|&cpu| (cpu, 0)).collect();
        let mut activities = Vec::new();
        for activity in spec.activities.iter().filter(|activity| has(activity)) {
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

/// The clock of a trace's nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC` of the machine that ran it.
    Monotonic,
    /// Virtual time, from 0.
    Virtual,
}

impl Clock {
    pub(super) const ALL: [Clock; 2] = [Clock::Monotonic, Clock::Virtual];

    /// The clock's name in the file and in JSON.
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

/// The name of an activity's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// CPU of the activity.
    pub cpu: u32,
    /// Number of the activity on that CPU.
    pub id: ActivityId,
    /// Name of the activity.
    pub name: String,
    /// Domain of the activity.
    pub domain: String,
}
