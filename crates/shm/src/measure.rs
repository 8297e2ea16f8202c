//! The measures of the watchdog against a domain that does not yield.

/// A measure of a watchdog against a process that kept its CPU. The first three are in order of
/// severity. The daemon's watchdog takes all of them, the process's own takes
/// [`Measure::Demoted`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Its thread has a lower priority than the threads of all other domains until it reaches a
    /// boundary.
    OutPrioritised = 1,
    /// Its thread is in the ordinary scheduling class.
    Demoted = 2,
    /// Its process gets SIGKILL.
    Killed = 3,
    /// As [`Measure::OutPrioritised`], because the domain published a rank with which it was not
    /// admitted. The daemon and the other domains treat it as having no work until it publishes
    /// admitted ranks.
    Disbelieved = 4,
    /// Threads of its user kept waking the daemon on this CPU for nothing. For a while the daemon
    /// looks for the work of the user's domains each millisecond, and at their releases. Each
    /// domain of the user gets this measure, because the daemon does not know which of them did it.
    Slowed = 5,
    /// Its thread waited for a priority-inheritance lock (futex(2), `FUTEX_LOCK_PI`) again and
    /// again, while domains of several users were attached. It is in the ordinary scheduling class
    /// for a while: the owner of such a lock runs with the priority of a thread that waits for it.
    LockWait = 6,
    /// As [`Measure::OutPrioritised`], because its thread was allowed to run on another CPU than
    /// that of its reservations, again and again. The daemon pinned it again
    /// (sched_setaffinity(2)).
    LeftCpu = 7,
}

impl Measure {
    /// The measure with `number`, as messages carry it. `None` if there is no such measure.
    pub fn of_number(number: u32) -> Option<Self> {
        use Measure::{Demoted, Disbelieved, Killed, LeftCpu, LockWait, OutPrioritised, Slowed};
        [OutPrioritised, Demoted, Killed, Disbelieved, Slowed, LockWait, LeftCpu]
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
            Measure::Slowed => "its user woke the daemon for nothing, which now looks each 1 ms",
            Measure::LockWait => "waited for priority-inheritance locks, in the ordinary class",
            Measure::LeftCpu => "left its CPU, others go first",
        })
    }
}
