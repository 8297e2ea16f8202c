//! The reason for a refusal: which activity would miss, by how much, and one change that would fit.

use super::hint::Hint;
use super::program::TimedProgram;
use super::test_result::TestResult;
use super::verdict::{Failure, Verdict};
use crate::activity::{ParamError, Window};
use crate::share::{Share, percent};
use crate::time::Span;
use core::fmt;

/// An activity was not admitted: the reason, and one change that would fit. The text states both in
/// one line.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// The activity that asked for a place.
    pub name: String,
    /// The reason, on the CPU where the activity came nearest.
    pub reason: Reason,
    /// One change that was tried and fits; `None` if none was found.
    pub hint: Option<Hint>,
    /// The tests of that CPU with the refused activity on it: the deciding one
    /// did not pass. Empty if the parameters themselves are out of range.
    pub tests: Vec<TestResult>,
}

/// Why an activity was not admitted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The parameters are out of range.
    Params(ParamError),
    /// A deadline would be missed.
    MissesDeadline {
        /// The CPU.
        cpu: u32,
        /// The activity that would miss most, compared with its deadline: the new one or one
        /// admitted before.
        victim: String,
        /// The worst response of its jobs.
        response: Span,
        /// The longest permitted response.
        deadline: Span,
        /// Whether that is the worst of all jobs. If not, it is the worst of the jobs that the
        /// analysis reached.
        exact: bool,
        /// Whether it would fit if all activities on the CPU belonged to one user
        /// ([`Reservations::isolate_users`](super::Reservations::isolate_users)).
        by_users: bool,
    },
    /// The demand would be more than the CPU has.
    FallsBehind {
        /// The CPU.
        cpu: u32,
        /// The best-ranked activity that would end later with every period.
        victim: String,
        /// Sum of `C / T`, hand-offs included. Above 1.
        utilization: f64,
    },
    /// Every deadline would be kept, but more would be granted than the limit.
    OverLimit {
        /// The CPU.
        cpu: u32,
        /// Sum of `C / T`, hand-offs included.
        utilization: f64,
        /// The upper limit.
        limit: Share,
    },
    /// The CPU would be so nearly full that the search for the worst response was given up.
    Undecided {
        /// The CPU.
        cpu: u32,
        /// The activity whose response was not found.
        victim: String,
    },
    /// DWCS: the periods that may not be missed would take more than the CPU.
    WindowsOverCpu {
        /// The CPU.
        cpu: u32,
        /// Sum of `(1 - x/y) C / T`, hand-offs included. Above 1.
        utilization: f64,
    },
    /// DWCS: more periods of a window would be missed than permitted.
    ViolatesWindow {
        /// The CPU.
        cpu: u32,
        /// The owner of the window: the new activity or one admitted before.
        victim: String,
        /// The window.
        window: Window,
    },
    /// DWCS: not all jobs can be done, and no test shows that only permitted misses occur.
    WindowsUnproven {
        /// The CPU.
        cpu: u32,
    },
    /// A program below would get less than its cost in some period
    /// ([`super::program::CpuPrograms`]).
    BreaksProgram {
        /// The CPU.
        cpu: u32,
        /// The program, which was admitted before.
        program: Box<TimedProgram>,
        /// What it would get in each period.
        supplied: Span,
    },
    /// The activity asked for the CPU of another one, and does not fit there.
    SameCpu {
        /// The CPU.
        cpu: u32,
        /// The activity that is there already.
        other: String,
        /// Why this one does not fit beside it.
        reason: Box<Reason>,
    },
    /// A program asked for an event server's share, but the policy has no event server.
    NoEventServer {
        /// The policy.
        policy: &'static str,
    },
    /// The daemon that admits refuses.
    ByDaemon {
        /// Why, in one line, and what would fit.
        told: Box<str>,
    },
    /// The policy takes neither shares nor weights.
    NotShared {
        /// The policy.
        policy: &'static str,
    },
    /// PS: a share was claimed for an adaptive activity, or a weight for a real-time one.
    OtherKind {
        /// Whether the activity is real-time, so that it has a share.
        real_time: bool,
    },
}

impl Refusal {
    pub(super) fn of_params(name: &str, error: ParamError) -> Self {
        let reason = Reason::Params(error);
        Refusal::without_hint(name.to_owned(), reason, Vec::new())
    }

    /// A refusal for which nothing else was tried.
    pub(super) fn without_hint(name: String, reason: Reason, tests: Vec<TestResult>) -> Self {
        Refusal { name, reason, hint: None, tests }
    }
}

impl Reason {
    /// `victim` names the activity at an index of the verdict, and `programs` are those of the CPU
    /// that have a period.
    pub(super) fn of(
        (cpu, programs): (u32, &[TimedProgram]),
        verdict: &Verdict,
        limit: Share,
        victim: impl Fn(usize) -> String,
    ) -> Self {
        let utilization = verdict.utilization;
        match verdict.failure {
            Some(Failure::Misses { index, response, deadline, exact }) => {
                let (victim, by_users) = (victim(index), false);
                Reason::MissesDeadline { cpu, victim, response, deadline, exact, by_users }
            }
            Some(Failure::FallsBehind { index }) => {
                Reason::FallsBehind { cpu, victim: victim(index), utilization }
            }
            Some(Failure::Undecided { index }) => Reason::Undecided { cpu, victim: victim(index) },
            Some(Failure::WindowsOverCpu) => Reason::WindowsOverCpu { cpu, utilization },
            Some(Failure::ViolatesWindow { index, window }) => {
                Reason::ViolatesWindow { cpu, victim: victim(index), window }
            }
            Some(Failure::WindowsUnproven) => Reason::WindowsUnproven { cpu },
            Some(Failure::BreaksProgram { index, supplied }) => {
                let program = Box::new(programs[index].clone());
                Reason::BreaksProgram { cpu, program, supplied }
            }
            Some(Failure::OverLimit) | None => Reason::OverLimit { cpu, utilization, limit },
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Params(error) => error.fmt(f),
            Reason::MissesDeadline { cpu, victim, response, deadline, exact, by_users } => {
                let (late, at_least) =
                    (response.saturating_sub(*deadline), if *exact { "" } else { "at least " });
                write!(
                    f,
                    "with it on CPU {cpu}, `{victim}` would end {at_least}{late} after its \
                     deadline of {deadline} (worst response {at_least}{response})"
                )?;
                match by_users {
                    true => f.write_str(BY_USERS),
                    false => Ok(()),
                }
            }
            Reason::FallsBehind { cpu, victim, utilization } => write!(
                f,
                "with it, {} of CPU {cpu} would be asked for, and `{victim}` would fall \
                 further behind with every period",
                percent_above(*utilization, Share::WHOLE)
            ),
            Reason::OverLimit { cpu, utilization, limit } => write!(
                f,
                "with it, {} of CPU {cpu} would be reserved, more than the limit of {limit}",
                percent_above(*utilization, *limit)
            ),
            Reason::Undecided { cpu, victim } => write!(
                f,
                "with it, CPU {cpu} would be so nearly full that the worst response of \
                 `{victim}` was not found within the step limit"
            ),
            Reason::WindowsOverCpu { cpu, utilization } => write!(
                f,
                "with it, the periods that may not be missed would take {} of CPU {cpu}",
                percent_above(*utilization, Share::WHOLE)
            ),
            Reason::ViolatesWindow { cpu, victim, window: Window { misses, periods } } => write!(
                f,
                "with it, `{victim}` would miss more than {misses} of {periods} periods on CPU \
                 {cpu}"
            ),
            Reason::BreaksProgram { cpu, program, supplied } => {
                let TimedProgram { id, name, cost, period, .. } = &**program;
                write!(
                    f,
                    "with it, program {id} (`{name}`) on CPU {cpu} would get {supplied} in each \
                     {period}, and was promised {cost}"
                )
            }
            Reason::SameCpu { cpu, other, reason } => {
                write!(f, "it must be on CPU {cpu}, the CPU of `{other}`: {reason}")
            }
            Reason::NoEventServer { policy } => {
                write!(f, "the policy `{policy}` has no event server, expected `dwcs`")
            }
            Reason::ByDaemon { told } => f.write_str(told),
            Reason::NotShared { policy } => {
                write!(f, "the policy `{policy}` takes neither shares nor weights, expected `ps`")
            }
            Reason::OtherKind { real_time: true } => f.write_str(
                "it was admitted with a share and can claim another share, not a weight",
            ),
            Reason::OtherKind { real_time: false } => f.write_str(
                "it was admitted with a weight and can claim another weight, not a share",
            ),
            Reason::WindowsUnproven { cpu } => write!(
                f,
                "with it, CPU {cpu} could not do every job, and no test shows that only permitted \
                 periods would be missed: such a test needs equal periods, deadlines and offsets, \
                 and no task, handler of a stream or event server; among processes also one user, \
                 and windows x/y with x = y - 1 or x = 0"
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is refused: {}", self.name, self.reason)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Follows the reason where one user alone would have no refusal.
const BY_USERS: &str = ", for other users may be ahead of their reservations there; activities \
                        of one user alone would fit";

crate::debug_as_display!(Refusal);

impl core::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.reason {
            Reason::Params(error) => Some(error),
            _ => None,
        }
    }
}

/// A utilization beyond `limit`, for messages. Rounded up to a tenth of a percent, except for the
/// error of a sum of floats. A value over the limit must not print as the limit.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn percent_above(utilization: f64, limit: Share) -> String {
    let tenths = (utilization * 1e3 - 1e-9).ceil() as u64;
    percent(tenths.max(u64::from(limit.ppm()) / 1_000 + 1).saturating_mul(1_000))
}
