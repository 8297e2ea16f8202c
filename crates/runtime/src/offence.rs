//! What a domain is told when the daemon's watchdog had to act against it.

use std::fmt;

use upcall_core::time::Span;
pub use upcall_shm::Measure;

/// This process kept a CPU when it should have yielded, and the daemon acted. From
/// [`Runtime::offences`](crate::Runtime::offences).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offence {
    /// On this CPU.
    pub cpu: u32,
    /// What was done about it.
    pub measure: Measure,
    /// CPU time for which it had kept the CPU.
    pub held: Span,
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kept CPU {} for {}: {}", self.cpu, self.held, self.measure)
    }
}
