//! What the registry grants to a domain, and what it shows of it. Plain data.

use upcall_core::activity::ActivityParams;
use upcall_core::time::Span;

/// An activity with a place, for whoever looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'r> {
    /// Its place in the order of admission.
    pub order: u32,
    /// Where it runs.
    pub cpu: u32,
    /// As its domain calls it.
    pub name: &'r str,
    /// What it needs.
    pub params: &'r ActivityParams,
    /// Of the CPU, in millionths.
    pub reserved_ppm: u64,
    /// Worst response as admitted now; `None` where nothing is promised.
    pub response_max: Option<Span>,
    /// Admission refused it.
    pub unscreened: bool,
}

/// What a domain may use of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The longest time it may go on after it was asked to yield.
    pub quantum_max: Span,
    /// Of the CPU, in millionths.
    pub share_ppm: u64,
    /// One job of each of its activities.
    pub compute: Span,
    /// Some of it admission refused: nothing is promised.
    pub unscreened: bool,
}

/// An activity with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// On this CPU.
    pub cpu: u32,
    /// Its place in the order of admission, and its name.
    pub order: u32,
    /// Worst response as admitted now; `None` where nothing is promised.
    pub response_max: Option<Span>,
}

/// An activity that a domain says it has had since before this daemon was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Where it runs.
    pub cpu: u32,
    /// Its place in the order of admission, as the former daemon granted it.
    pub order: u32,
    /// To be placed even if the tests fail, now as then.
    pub unscreened: bool,
    /// Taken at its word: the CPU's own test need not pass again. What the former
    /// daemon promised stands, though this one may have measured a dearer hand-off, or
    /// have admitted newcomers meanwhile.
    pub trusted: bool,
}
