//! The figures of enforcement that the watchdog and the account of departed threads share.

use upcall_core::time::Span;

/// The time between two ticks of the watchdog.
pub(crate) const TICK: Span = Span::from_millis(5);
/// From this number of offences on, a domain is demoted at once.
pub(crate) const OFFENCES_MAX: u64 = 3;
/// The CPU time that a domain, and that all domains of a group together, may use beyond the
/// reservation, in millionths of the CPU. It covers wake-ups and the runtime's own work. Hand-offs
/// are counted as admission counts them.
pub(crate) const SHARE_GRACE_PPM: u64 = 50_000;
