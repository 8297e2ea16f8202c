//! A run from start to end. Steps the CPUs in the order of time.

use crate::cpu::{Cpu, Machine};
use crate::event::SimEvent;
use crate::outcome::Outcome;
use crate::spec::{SimSpec, SpecError};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Record;

/// A simulation, which runs once.
#[derive(Debug)]
pub struct Simulation {
    spec: SimSpec,
    machine: Machine,
    cpus: Vec<Cpu>,
}

impl Simulation {
    /// The machine of `spec`, asleep at time 0. Allocates memory for every activity.
    ///
    /// # Errors
    /// The spec is invalid; see [`SpecError`].
    pub fn new(spec: SimSpec) -> Result<Self, SpecError> {
        spec.check()?;
        let machine = Machine::new(&spec);
        let cpus = spec.cpus.iter().map(|&number| Cpu::new(&spec, &machine, number)).collect();
        Ok(Simulation { spec, machine, cpus })
    }

    /// Runs for `duration` of virtual time, and gives every event to `observe`.
    ///
    /// At the very end, only events that end something count. Releases and upcalls there belong to
    /// no run. O(log n) per step, and O(1) more for each further CPU. Eight bytes for each
    /// completed job.
    pub fn run(self, duration: Span, observe: &mut impl FnMut(&SimEvent)) -> Outcome {
        self.drive(duration, observe, &mut |_, _, _| {})
    }

    /// As [`Simulation::run`]. Also gives `record` every crossing of the core's interface, with the
    /// numbers of its process (0 if there is only one) and of its CPU, for [`crate::trace`].
    pub fn run_traced(
        mut self,
        duration: Span,
        observe: &mut impl FnMut(&SimEvent),
        record: &mut impl FnMut(u16, u32, &Record),
    ) -> Outcome {
        self.cpus.iter_mut().for_each(Cpu::trace);
        self.drive(duration, observe, record)
    }

    fn drive(
        mut self,
        duration: Span,
        observe: &mut impl FnMut(&SimEvent),
        record: &mut impl FnMut(u16, u32, &Record),
    ) -> Outcome {
        let end = Instant::ZERO + duration;
        for cpu in &mut self.cpus {
            cpu.start(&self.spec, &self.machine, observe);
            cpu.take_records(record);
        }
        loop {
            let (at, number) = self.next_step();
            if at >= end {
                break;
            }
            let cpu = &mut self.cpus[number];
            cpu.step(at, &self.machine, observe);
            cpu.take_records(record);
        }
        let mut outcome = Outcome { end, activities: Vec::new(), cpus: Vec::new(), events: 0 };
        let mut activities = Vec::new();
        for cpu in self.cpus {
            let places: Vec<_> = cpu.activities().collect();
            let (of_cpu, of_activities, events) = cpu.conclude(end, &self.machine, observe, record);
            outcome.cpus.push(of_cpu);
            outcome.events += events;
            activities.extend(places.into_iter().zip(of_activities));
        }
        activities.sort_by_key(|(place, _)| *place);
        outcome.activities = activities.into_iter().map(|(_, activity)| activity).collect();
        outcome
    }

    /// The time of the next step, and the place of its CPU. At one instant the first CPU of the
    /// spec goes first.
    fn next_step(&self) -> (Instant, usize) {
        let mut next = (Instant::FAR, 0);
        for (number, cpu) in self.cpus.iter().enumerate() {
            let at = cpu.next_at();
            if at < next.0 {
                next = (at, number);
            }
        }
        next
    }
}
