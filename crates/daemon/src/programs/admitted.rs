//! What was granted to a program, and what it has used. Plain data.

use upcall_core::admission::Share;
use upcall_core::time::Span;

/// Identifies a program of a daemon. From 1 on, and never used again.
pub type ProgramId = u64;

/// A program that was taken, or whose share was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The program.
    pub id: ProgramId,
    /// The CPU where it runs.
    pub cpu: u32,
    /// Its share; `None`: it has a weight, and nothing is promised.
    pub share: Option<Share>,
    /// Its weight; `None`: it has a share.
    pub weight: Option<u32>,
    /// `B`: handlers keep the CPU for at most so long.
    pub burst: Span,
    /// `q`: the kernel chooses again after so long, or sooner while another program needs it.
    pub quantum: Span,
    /// Whether a ticker keeps the quantum. Without the right to the real-time class there is none:
    /// then the quantum is at least the kernel's own tick.
    pub ticker: bool,
}

/// A program, as an inspector sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStatus {
    /// The program.
    pub id: ProgramId,
    /// The user who asked for it.
    pub user: u32,
    /// Its first process, which may have ended.
    pub pid: u32,
    /// The CPU where it runs.
    pub cpu: u32,
    /// Its share; `None`: it has a weight, and nothing is promised.
    pub share: Option<Share>,
    /// Its weight; `None`: it has a share.
    pub weight: Option<u32>,
    /// The CPU time of all its processes since it was taken; of the present ones where the kernel
    /// does not count for groups.
    pub cpu_time: Span,
    /// How many processes it has.
    pub processes: usize,
    /// `B` at present.
    pub burst: Span,
    /// `q` at present.
    pub quantum: Span,
}
