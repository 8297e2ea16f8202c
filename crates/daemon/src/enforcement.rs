//! The figures of enforcement that the watchdog and the account of departed threads share.

use upcall_core::admission::{Isolation, Share};
use upcall_core::time::Span;

/// The time between two ticks of the watchdog.
pub(crate) const TICK: Span = Span::from_millis(5);
/// From this number of offences on, a domain is demoted at once.
pub(crate) const OFFENCES_MAX: u64 = 3;
/// The CPU time that a domain, and that all domains of a group together, may use beyond the
/// reservation, in millionths of the CPU. It covers wake-ups and the runtime's own work. Hand-offs
/// are counted as admission counts them.
pub(crate) const SHARE_GRACE_PPM: u64 = SHARE_GRACE.ppm() as u64;
const SHARE_GRACE: Share = Share::from_ppm(50_000).expect("a part of the CPU");
/// What the domains of a group may use beyond one job each while a domain of another user waits. It
/// covers the time between two looks, and counts of the kernel that are out of date: of those
/// without the turn.
pub(crate) const BEYOND_MAX: Span = Span::from_micros(500);
/// As admission counts that limit. The longest quantum counts there, too.
pub(crate) const ISOLATION: Isolation = Isolation { grace: BEYOND_MAX, share: SHARE_GRACE };
