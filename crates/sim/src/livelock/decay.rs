//! The decay usage scheduler of 4.4BSD (McKusick et al. 1996 §4.4), which FreeBSD 2.2 has.
//!
//! The priority of a program is worse the more CPU time it used lately. Once a second its usage
//! decays, by more if few programs want the CPU. Programs of one class of priorities take turns, a
//! quantum each.

use super::programs::Programs;
use upcall_core::time::{Instant, Span};

/// The usage of one class. The statistics clock ticks 128 times a second, a priority is worse by 1
/// for each 4 ticks, and a class has 4 priorities.
const CLASS: Span = Span::from_millis(125);

#[derive(Clone, Copy, Debug, Default)]
struct Program {
    usage: Span,
    is_ready: bool,
    /// When it last came to the end of its class.
    queued: u64,
}

impl Program {
    fn class(&self) -> u64 {
        self.usage.as_nanos() / CLASS.as_nanos()
    }
}

#[derive(Debug)]
pub(super) struct Decay {
    programs: Vec<Program>,
    queued: u64,
    is_running: bool,
}

impl Decay {
    pub(super) fn new(programs: usize) -> Self {
        let programs = vec![Program::default(); programs];
        Decay { programs, queued: 0, is_running: false }
    }

    fn queue(&mut self, program: usize) {
        self.queued += 1;
        let program = &mut self.programs[program];
        (program.is_ready, program.queued) = (true, self.queued);
    }

    /// The best class of a ready program.
    fn best(&self) -> Option<u64> {
        let ready = self.programs.iter().filter(|program| program.is_ready);
        ready.map(Program::class).min()
    }
}

impl Programs for Decay {
    fn ready(&mut self, program: usize, _: Instant) {
        self.queue(program);
    }

    fn pick(&mut self, _: Instant) -> Option<usize> {
        let ready = self.programs.iter().enumerate().filter(|(_, program)| program.is_ready);
        let (picked, _) = ready.min_by_key(|(_, program)| (program.class(), program.queued))?;
        self.programs[picked].is_ready = false;
        self.is_running = true;
        Some(picked)
    }

    fn is_preempted(&self, running: usize) -> bool {
        self.best().is_some_and(|best| best < self.programs[running].class())
    }

    fn gives_way(&mut self, running: usize, _: Instant, _: Instant) -> bool {
        self.best().is_some_and(|best| best <= self.programs[running].class())
    }

    fn stopped(&mut self, program: usize, used: Span, is_done: bool, _: Instant) {
        self.is_running = false;
        self.programs[program].usage += used;
        if !is_done {
            self.queue(program);
        }
    }

    fn second_passed(&mut self) {
        let ready = self.programs.iter().filter(|program| program.is_ready).count();
        let load = (ready + usize::from(self.is_running)).max(1) as u64;
        for program in &mut self.programs {
            let left = u128::from(program.usage.as_nanos()) * u128::from(2 * load)
                / u128::from(2 * load + 1);
            program.usage = Span::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        }
    }

    fn gap(&self, _: usize) -> Span {
        Span::ZERO
    }
}
