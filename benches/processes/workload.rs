//! The handlers of a process and the variants in which they are scheduled.

use upcall::activity::ActivityParams;
use upcall::time::Span;

/// The periods of the handlers of each process.
pub const PERIODS_MS: [u64; 6] = [40, 50, 60, 70, 80, 90];
/// Iterations of a job. At 85 % and with 96 handlers, each takes 3.7 to 8.3 us.
pub const BATCH: u32 = 96;
/// The part of an iteration's cost that its boundary takes. The handler spins for the rest.
pub const BOUNDARY_NS: u64 = 300;
/// The deferral of [`Variant::Deferred`].
pub const DEFER_PREEMPTION: Span = Span::from_millis(5);

pub fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

/// When a handler is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The kernel preempts at once. Each handler has a thread.
    Fifo,
    Immediate,
    Delayed,
    /// As delayed. In addition, a domain continues while others have waited for less than
    /// [`DEFER_PREEMPTION`].
    Deferred,
}

impl Variant {
    pub const ALL: [Variant; 4] =
        [Variant::Fifo, Variant::Immediate, Variant::Delayed, Variant::Deferred];

    pub fn name(self) -> &'static str {
        match self {
            Variant::Fifo => "fifo",
            Variant::Immediate => "immediate",
            Variant::Delayed => "delayed",
            Variant::Deferred => "deferred",
        }
    }

    pub fn quantum(self) -> u32 {
        match self {
            Variant::Fifo | Variant::Immediate => 1,
            Variant::Delayed | Variant::Deferred => BATCH,
        }
    }

    pub fn defer_preemption(self) -> Span {
        if self == Variant::Deferred { DEFER_PREEMPTION } else { Span::ZERO }
    }
}

impl std::str::FromStr for Variant {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        Variant::ALL.into_iter().find(|variant| variant.name() == name).ok_or(())
    }
}

/// The parameters of a handler in a process that uses `share_ppm` of the CPU.
pub fn need(period_ms: u64, share_ppm: u64, quantum: u32) -> ActivityParams {
    let period = Span::from_millis(period_ms);
    let handlers = PERIODS_MS.len() as u64;
    let pdu_ns = period.as_nanos() * share_ppm / 1_000_000 / handlers / u64::from(BATCH);
    ActivityParams::new(period, Span::from_nanos(pdu_ns)).batch(BATCH).quantum(quantum)
}

/// A number for each handler of all processes, from Lehmer's generator with Park and Miller's
/// numbers (CACM 1988).
pub fn offsets(phases: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(phases), |chance| Some(chance * 48_271 % 0x7fff_ffff)).skip(1)
}
