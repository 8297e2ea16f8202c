//! Requests about programs to a daemon, and how a command ends if one is refused.
//!
//! `upcall exec`, `share` and `adopt` use it.

use std::path::Path;

use serde::Serialize;
use upcall::admission::Share;
use upcall::admission::program::ProgramNeed;
use upcall::program::{ProgramConnection, ProgramError, RefusalCause, RefusedProgram};
use upcall_cli::standard_error::say;

use crate::args::TermsArgs;
use crate::exit::{Exit, Failure};
use crate::ps;

/// What a daemon refused, as the JSON shows it.
#[derive(Debug, Serialize)]
pub struct Refusal<'r> {
    admitted: bool,
    program: &'r str,
    cause: &'static str,
    reason: &'r str,
    /// As parts of a CPU. Null: there is none.
    share: Option<f64>,
    share_that_fits: Option<f64>,
}

/// The terms of a command line.
pub fn need(terms: &TermsArgs) -> ProgramNeed {
    let TermsArgs { share, weight, cost, period, cpu, quantum } = *terms;
    ProgramNeed { share, weight, cost, period, cpu, quantum }
}

/// Connects to the daemon at `socket`.
///
/// # Errors
/// There is no daemon: as one line.
pub fn connect(socket: &Path) -> Result<ProgramConnection, Failure> {
    ProgramConnection::open(socket).map_err(|error| ps::failed_request(socket, error))
}

/// The failure of a request that the daemon at `socket` did not answer, or the refusal.
///
/// # Errors
/// The failure.
pub fn refusal(socket: &Path, error: ProgramError) -> Result<RefusedProgram, Failure> {
    match error {
        ProgramError::Refused(refused) => Ok(refused),
        ProgramError::Daemon(error) => Err(ps::failed_request(socket, error)),
        error => Err(Failure::of_error(error)),
    }
}

/// Says that `program` was refused, and returns how the command ends.
pub fn say_refused(program: &str, refused: &RefusedProgram, consequence: &str) -> Exit {
    say(format_args!("upcall: refused {program}: {}; {consequence}", refused.reason));
    match refused.cause.is_admission() {
        true => Exit::Refused,
        false => Exit::BadInput,
    }
}

impl<'r> Refusal<'r> {
    pub fn of(program: &'r str, refused: &'r RefusedProgram) -> Self {
        let share = |ppm| Share::from_ppm(ppm).map(Share::as_f64);
        Refusal {
            admitted: false,
            program,
            cause: name_of(refused.cause),
            reason: &refused.reason,
            share: share(refused.asked_ppm),
            share_that_fits: share(refused.fits_ppm),
        }
    }
}

/// The name of a cause, in one word or two.
fn name_of(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::NoRoom => "no room",
        RefusalCause::ShareTooSmall => "share too small",
        RefusalCause::PeriodTooShort => "period too short",
        RefusalCause::Limit => "limit",
        RefusalCause::Terms => "terms",
        RefusalCause::Cpu => "CPU",
        RefusalCause::NoProcess => "no process",
        RefusalCause::OtherUser => "other user",
        RefusalCause::NoProgram => "no program",
        RefusalCause::Taken => "taken",
        RefusalCause::NoGroups => "no groups",
        RefusalCause::NoRight => "no right",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_admission_ends_with_3_and_an_error_with_2() {
        for cause in RefusalCause::ALL {
            let refused =
                RefusedProgram { cause, asked_ppm: 450_000, fits_ppm: 0, reason: "so".into() };
            let exit = say_refused("ffmpeg", &refused, "nothing was run");
            let expected = if cause.is_admission() { Exit::Refused } else { Exit::BadInput };
            assert_eq!(exit, expected, "{cause:?}");
            let json = serde_json::to_value(Refusal::of("ffmpeg", &refused)).unwrap();
            assert_eq!((&json["admitted"], &json["share"]), (&false.into(), &0.45.into()));
            assert!(json["share_that_fits"].is_null());
        }
        let causes: std::collections::BTreeSet<_> = RefusalCause::ALL.map(name_of).into();
        assert_eq!(causes.len(), RefusalCause::ALL.len());
    }
}
