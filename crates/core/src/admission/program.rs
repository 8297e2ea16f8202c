//! Admission of programs that nobody changed: a share of a CPU below its handlers.
//!
//! The daemon calls this module. The kernel's fair class (EEVDF) divides what the handlers of a CPU
//! leave, and the daemon gives a program with the share `f` the part `f` of the CPU by the weights
//! of control groups. A thread, the *ticker*, makes the kernel choose again after each quantum.
//! This module says what that supplies, and who fits.
//!
//! Handlers take at most `U t + b` of any time `t` ([`CpuLoad::burst`]), the ticker takes `U_t t`.
//! A program with share `f` gets at least
//!
//! ```text
//! s(t) = f (t - B) - 2 q        B = b / (1 - U - U_t), q: the quantum
//! ```
//!
//! `B` is at least as long as the longest time for which handlers keep the CPU. The fair class
//! serves a group at most one quantum too little at each end of `t`, hence `2 q`. So a cost `C` in
//! each period `P` is done in time if `s(P) >= C`. The sum of all is limited as for handlers:
//! `U + U_t + sum f <= limit`. Programs do not enter the analysis of handlers: they run below the
//! real-time class.

use super::ahead::part_of;
use super::load::CpuLoad;
use crate::share::Share;
use crate::time::Span;
pub use limits::{PROGRAM_QUANTUM, PROGRAM_QUANTUM_MAX, PROGRAM_QUANTUM_MIN, PROGRAM_WEIGHT_MAX};
pub use refusal::ProgramRefusal;

mod limits;
mod refusal;
#[cfg(test)]
mod tests;

/// What a program asks for: a share, or a cost in each period, or both, or else a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramNeed {
    /// The part of the CPU that it gets whatever else runs.
    pub share: Option<Share>,
    /// `1 ..=` [`PROGRAM_WEIGHT_MAX`]: its part of what programs with shares leave, relative to
    /// other programs with weights, and to all other processes together, which have weight 1. All
    /// programs of a user with weights together get what the heaviest of them would.
    pub weight: Option<u32>,
    /// The CPU time that it needs in each period.
    pub cost: Option<Span>,
    /// The period. Only with a cost.
    pub period: Option<Span>,
    /// The CPU; `None` leaves the choice to the daemon.
    pub cpu: Option<u32>,
    /// The time after which the kernel chooses again, [`PROGRAM_QUANTUM_MIN`] to
    /// [`PROGRAM_QUANTUM_MAX`]; `None` for [`PROGRAM_QUANTUM`]. The least of a CPU holds for all
    /// its programs.
    pub quantum: Option<Span>,
}

/// What is promised to a program with a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// `f`, the share.
    pub share: Share,
    /// `B`: handlers keep the CPU for at most so long.
    pub burst: Span,
    /// `q`: the kernel chooses again after so long.
    pub quantum: Span,
}

impl Supply {
    /// The least CPU time that the program gets in any time of length `t` in which it is always
    /// ready: `f (t - B) - 2 q`. Rounded down.
    pub fn in_any(&self, t: Span) -> Span {
        let t = t.saturating_sub(self.burst);
        // Rounded up, so that the rest is rounded down.
        let of_others = part_of(t.as_nanos(), (Share::WHOLE.ppm() - self.share.ppm()).into());
        let served = t.saturating_sub(Span::from_nanos(of_others));
        served.saturating_sub(self.quantum.saturating_mul(2))
    }

    /// The longest time in which `cost` of CPU time is done: `(cost + 2 q) / f + B`. Rounded up.
    /// [`Span::MAX`] if it is too long to count.
    pub fn completion(&self, cost: Span) -> Span {
        let served = u128::from((cost + self.quantum.saturating_mul(2)).as_nanos());
        let whole = u128::from(Share::WHOLE.ppm());
        let ns = (served * whole).div_ceil(u128::from(self.share.ppm()));
        u64::try_from(ns).map_or(Span::MAX, Span::from_nanos) + self.burst
    }
}

/// What is given away of a CPU before a program asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgramCpu {
    /// The handlers.
    pub load: CpuLoad,
    /// `U_t`: what the ticker takes with the program's quantum, in millionths of the CPU.
    pub ticker_ppm: u32,
    /// The shares of the other programs together, in millionths of the CPU.
    pub programs_ppm: u32,
    /// `q` of the promise: the quantum that the program asks for. That of the CPU may be shorter,
    /// as long as another program keeps it so.
    pub quantum: Span,
}

/// What programs have of a CPU, for the admission of handlers there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPrograms {
    /// The shares and the ticker together, in millionths of the CPU.
    pub reserved_ppm: u32,
    /// `U_t`: what the ticker takes, in millionths of the CPU.
    pub ticker_ppm: u32,
    /// The programs that were admitted with a cost in each period.
    pub timed: Vec<TimedProgram>,
}

/// A program that was admitted with a cost in each period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedProgram {
    /// Its number.
    pub id: u64,
    /// Its name, for messages.
    pub name: String,
    /// `f`, the share.
    pub share: Share,
    /// `q` of its promise.
    pub quantum: Span,
    /// `C`, the cost.
    pub cost: Span,
    /// `P`, the period.
    pub period: Span,
}

impl CpuPrograms {
    /// The first program whose cost is not supplied in each period beside handlers with this load,
    /// and what is supplied: `f (P - B) - 2 q < C`.
    pub fn broken_by(&self, load: &CpuLoad) -> Option<(usize, Span)> {
        let burst = burst_beside(load, self.ticker_ppm);
        let supplied = self.timed.iter().map(|program| {
            let TimedProgram { share, quantum, .. } = *program;
            Supply { share, burst, quantum }.in_any(program.period)
        });
        let mut all = supplied.zip(&self.timed).enumerate();
        let (index, (supplied, _)) = all.find(|(_, (ns, program))| *ns < program.cost)?;
        Some((index, supplied))
    }
}

/// `B`; [`Span::MAX`] if the handlers and the ticker need the whole CPU.
fn burst_beside(load: &CpuLoad, ticker_ppm: u32) -> Span {
    let left = 1.0 - load.utilization - f64::from(ticker_ppm) / WHOLE_PPM;
    match load.burst {
        Span::ZERO => Span::ZERO,
        burst if left > 0.0 => ceil_ns(burst.as_nanos() as f64 / left),
        _ => Span::MAX,
    }
}

impl ProgramCpu {
    /// The largest share that fits, in millionths of the CPU.
    pub fn free_ppm(&self) -> u32 {
        let handlers = self.load.utilization * WHOLE_PPM;
        let free = self.load.limit * WHOLE_PPM - handlers - self.given_ppm();
        // A sum of floats may be off by less than a millionth of the CPU, up or down.
        floor_ppm(free + 1e-6)
    }

    /// `B`; [`Span::MAX`] if the handlers and the ticker need the whole CPU.
    pub fn burst(&self) -> Span {
        burst_beside(&self.load, self.ticker_ppm)
    }

    /// Decides on a need. Returns what is promised; `None` for a program with a weight, which is
    /// always admitted and to which nothing is promised.
    ///
    /// # Errors
    /// See [`ProgramRefusal`].
    pub fn admit(&self, need: &ProgramNeed) -> Result<Option<Supply>, ProgramRefusal> {
        let timing = need.validated()?;
        let (burst, quantum) = (self.burst(), self.quantum);
        let needed = match timing {
            Some((cost, period)) => Some(self.share_for(cost, period)?),
            None => None,
        };
        let share = match (need.share, needed) {
            (Some(asked), Some(needed)) if asked < needed => {
                let free_ppm = self.free_ppm();
                return Err(ProgramRefusal::ShareTooSmall { asked, needed, free_ppm });
            }
            (Some(share), _) | (None, Some(share)) => share,
            (None, None) => return Ok(None),
        };
        let free_ppm = self.free_ppm();
        if share.ppm() > free_ppm {
            let cpu = self.load.cpu;
            return Err(ProgramRefusal::OverLimit { cpu, share, free_ppm });
        }
        Ok(Some(Supply { share, burst, quantum }))
    }

    /// The least share with which `cost` is done in each `period`.
    fn share_for(&self, cost: Span, period: Span) -> Result<Share, ProgramRefusal> {
        let (burst, quantum) = (self.burst(), self.quantum);
        let never = ProgramRefusal::PeriodTooShort { cost, period, burst, quantum };
        let served = period.saturating_sub(burst);
        if served.is_zero() {
            return Err(never);
        }
        let wanted = u128::from((cost + quantum.saturating_mul(2)).as_nanos());
        let whole = u128::from(Share::WHOLE.ppm());
        let ppm = (wanted * whole).div_ceil(u128::from(served.as_nanos()));
        u32::try_from(ppm).ok().and_then(Share::from_ppm).ok_or(never)
    }

    fn given_ppm(&self) -> f64 {
        f64::from(self.ticker_ppm) + f64::from(self.programs_ppm)
    }
}

impl ProgramNeed {
    /// Checks the ranges. Returns cost and period if they are given.
    ///
    /// # Errors
    /// [`ProgramRefusal::Nothing`], [`ProgramRefusal::Both`], [`ProgramRefusal::Incomplete`],
    /// [`ProgramRefusal::Weight`], [`ProgramRefusal::Quantum`] and [`ProgramRefusal::Cost`].
    pub fn validated(&self) -> Result<Option<(Span, Span)>, ProgramRefusal> {
        let timing = match (self.cost, self.period) {
            (None, None) => None,
            (Some(cost), Some(period)) => Some((cost, period)),
            _ => return Err(ProgramRefusal::Incomplete),
        };
        let has_share = self.share.is_some() || timing.is_some();
        match (has_share, self.weight) {
            (false, None) => return Err(ProgramRefusal::Nothing),
            (true, Some(_)) => return Err(ProgramRefusal::Both),
            (false, Some(weight)) if !(1..=PROGRAM_WEIGHT_MAX).contains(&weight) => {
                return Err(ProgramRefusal::Weight(weight));
            }
            _ => {}
        }
        if let Some(quantum) = self.quantum
            && !(PROGRAM_QUANTUM_MIN..=PROGRAM_QUANTUM_MAX).contains(&quantum)
        {
            return Err(ProgramRefusal::Quantum(quantum));
        }
        match timing {
            Some((cost, period)) if cost.is_zero() || cost > period => {
                Err(ProgramRefusal::Cost { cost, period })
            }
            timing => Ok(timing),
        }
    }
}

const WHOLE_PPM: f64 = 1e6;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn floor_ppm(ppm: f64) -> u32 {
    ppm.floor() as u32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn ceil_ns(ns: f64) -> Span {
    Span::from_nanos(ns.ceil() as u64)
}
