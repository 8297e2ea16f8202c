//! The report that a watchdog acted: the daemon's against a domain, or that of the process itself.

use std::fmt;

use upcall_core::time::Span;
pub use upcall_shm::Measure;

/// This process kept a CPU when it should have yielded, and a watchdog acted: the daemon's, or that
/// of this process. From [`Runtime::offences`](crate::Runtime::offences).
///
/// It concerns all handlers of the CPU and does not name the one that caused it. That one has
/// quanta that took longer than declared
/// ([`Statistics::quantum_overruns`](crate::Statistics::quantum_overruns)), from before the offence
/// on. After it the quanta of the others take longer too, because the clock counts ordinary
/// programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offence {
    /// The CPU.
    pub cpu: u32,
    /// What the watchdog did.
    pub measure: Measure,
    /// How long the process had kept the CPU, in CPU time.
    pub held: Span,
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kept CPU {} for {}: {}", self.cpu, self.held, self.measure)
    }
}
