//! What the watchdog does about a domain that does not yield.

/// What the daemon did about a process that kept its CPU. Of the first three, each is harder than the
/// one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Its thread is beneath everyone else's until it comes to a boundary.
    OutPrioritised = 1,
    /// Its thread is of ordinary class.
    Demoted = 2,
    /// Its process gets SIGKILL.
    Killed = 3,
    /// As [`Measure::OutPrioritised`], since it showed a rank that it was not admitted with:
    /// it has nothing, for the others, until it shows the right ones.
    Disbelieved = 4,
}

impl Measure {
    /// The measure that a message numbers so; `None`: there is none.
    pub fn of_number(number: u32) -> Option<Self> {
        use Measure::{Demoted, Disbelieved, Killed, OutPrioritised};
        [OutPrioritised, Demoted, Killed, Disbelieved]
            .into_iter()
            .find(|&measure| measure as u32 == number)
    }
}

impl core::fmt::Display for Measure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Measure::OutPrioritised => "others go first",
            Measure::Demoted => "demoted to the ordinary class",
            Measure::Killed => "killed",
            Measure::Disbelieved => "showed a rank it was not admitted with, others go first",
        })
    }
}
