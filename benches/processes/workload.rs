//! The handlers of a process and the variants in which they are scheduled.

use upcall::activity::ActivityParams;
use upcall::time::Span;

/// Of the handlers of each process.
pub const PERIODS_MS: [u64; 6] = [40, 50, 60, 70, 80, 90];
/// Iterations of a job: at 85 % and 96 handlers, 3.7 to 8.3 us each.
pub const BATCH: u32 = 96;
/// Of an iteration's cost, what its boundary takes; the rest is spun.
pub const BOUNDARY_NS: u64 = 300;
/// The deferral of `Way::Deferred`.
pub const DEFER_PREEMPTION: Span = Span::from_millis(5);

pub fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// Who is preempted when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// A thread a handler, by the kernel at once.
    Fifo,
    Immediate,
    Delayed,
    /// As delayed, and a domain goes on while others have waited for less than [`DEFER_PREEMPTION`].
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

/// Of a handler of a process that is to use so much of the CPU.
pub fn need(period_ms: u64, share_ppm: u64, quantum: u32) -> ActivityParams {
    let period = Span::from_millis(period_ms);
    let handlers = PERIODS_MS.len() as u64;
    let pdu_ns = period.as_nanos() * share_ppm / 1_000_000 / handlers / u64::from(BATCH);
    ActivityParams::new(period, Span::from_nanos(pdu_ns)).batch(BATCH).quantum(quantum)
}

/// A number for each handler of all processes: Lehmer's generator with Park and Miller's
/// numbers (CACM 1988).
pub fn offsets(phases: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(phases), |chance| Some(chance * 48_271 % 0x7fff_ffff)).skip(1)
}
