//! What a scheduler of programs does for the machine.
//!
//! Time is service time here: the clock stands still while interrupts or protocols of fixed
//! priority have the CPU.

use core::fmt::Debug;
use upcall_core::time::{Instant, Span};

/// A scheduler of programs, which are numbered. Calls come in the order of a core's driver: `pick`,
/// then `gives_way` at boundaries, then `stopped`.
pub(super) trait Programs: Debug {
    /// An idle program has a job.
    fn ready(&mut self, program: usize, now: Instant);

    /// The program that runs from now on.
    fn pick(&mut self, now: Instant) -> Option<usize>;

    /// Whether the running program must stop at once, because a better one became ready.
    fn is_preempted(&self, running: usize) -> bool;

    /// Whether the running program must stop at a boundary.
    fn gives_way(&mut self, running: usize, since: Instant, now: Instant) -> bool;

    /// The program stopped after `used`. Without a job it is idle; otherwise it is ready again.
    fn stopped(&mut self, program: usize, used: Span, is_done: bool, now: Instant);

    /// A second of real time has passed.
    fn second_passed(&mut self);

    /// The least time between two releases of a program in real time.
    fn gap(&self, program: usize) -> Span;
}
