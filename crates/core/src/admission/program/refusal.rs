//! Why a program gets no share, with the numbers that would fit.

use crate::share::{Share, percent};
use crate::time::Span;
use core::fmt;

use super::limits::{PROGRAM_QUANTUM_MAX, PROGRAM_QUANTUM_MIN, PROGRAM_WEIGHT_MAX};

/// Why a program was not admitted.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramRefusal {
    /// It asks for no share, no cost and no weight.
    Nothing,
    /// It asks for a weight, and for a share or a cost.
    Both,
    /// It has a cost without a period, or a period without a cost.
    Incomplete,
    /// The weight is out of range.
    Weight(u32),
    /// The quantum is out of range.
    Quantum(Span),
    /// The cost is zero or longer than the period.
    Cost {
        /// The cost.
        cost: Span,
        /// The period.
        period: Span,
    },
    /// The share supplies less than the cost in some period.
    ShareTooSmall {
        /// The share.
        asked: Share,
        /// The least share that would do.
        needed: Share,
        /// The largest share that is free, in millionths of the CPU.
        free_ppm: u32,
    },
    /// No share supplies the cost in each period.
    PeriodTooShort {
        /// The cost.
        cost: Span,
        /// The period.
        period: Span,
        /// For how long handlers may keep the CPU.
        burst: Span,
        /// The quantum of the CPU.
        quantum: Span,
    },
    /// More than the CPU's limit would be given away.
    OverLimit {
        /// The CPU.
        cpu: u32,
        /// The share that was asked for, or that the cost needs.
        share: Share,
        /// The largest share that is free, in millionths of the CPU.
        free_ppm: u32,
    },
}

impl fmt::Display for ProgramRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramRefusal::Nothing => {
                f.write_str("nothing is asked for, expected a share, cost and period, or a weight")
            }
            ProgramRefusal::Both => f.write_str(
                "a weight and a share are asked for, expected one: a share is kept whatever else \
                 runs, a weight divides what shares leave",
            ),
            ProgramRefusal::Incomplete => f.write_str("expected cost and period, or neither"),
            ProgramRefusal::Weight(weight) => {
                write!(f, "weight {weight}, expected 1 to {PROGRAM_WEIGHT_MAX}")
            }
            ProgramRefusal::Quantum(quantum) => write!(
                f,
                "quantum {quantum}, expected {PROGRAM_QUANTUM_MIN} to {PROGRAM_QUANTUM_MAX}"
            ),
            ProgramRefusal::Cost { cost, period } => {
                write!(f, "cost {cost} in {period}, expected more than 0 and at most the period")
            }
            ProgramRefusal::ShareTooSmall { asked, needed, free_ppm } => {
                write!(f, "{asked} is too small a share for cost and period; {needed} would do")?;
                match needed.ppm() <= *free_ppm {
                    true => Ok(()),
                    false => write!(f, ", and {} is free", percent(u64::from(*free_ppm))),
                }
            }
            ProgramRefusal::PeriodTooShort { cost, period, burst, quantum } => write!(
                f,
                "no share supplies {cost} in each {period}: handlers keep the CPU for up to \
                 {burst}, and two quanta take {}",
                quantum.saturating_mul(2)
            ),
            ProgramRefusal::OverLimit { cpu, share, free_ppm } => write!(
                f,
                "a share of {share} does not fit on CPU {cpu}: {} is free",
                percent(u64::from(*free_ppm))
            ),
        }
    }
}

crate::debug_as_display!(ProgramRefusal);

impl core::error::Error for ProgramRefusal {}
