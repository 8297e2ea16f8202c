//! Runs that are repeated until the host is calm, and the rule that chooses the judged one.
//!
//! On a virtual machine the host may run something else on a CPU (its steal time). No scheduler
//! inside the machine can prevent that, so a run with steal time proves little. [`Calm::runs`]
//! waits for a calm host, runs, and repeats the run if the host was not calm. The rule is fixed
//! before the first run: the judged run is the *first* that the host left alone, never the best
//! one. The caller prints all tries with [`Try::marked`]. If no run was calm, none is judged.
//!
//! A real-time thread of another program on the measured CPU disturbs a run in the same way
//! (`rivals`). What the run itself starts never counts as another program: this process becomes
//! the parent of all its orphans (`PR_SET_CHILD_SUBREAPER`). A run has to end by itself.

use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};

use crate::{machine_steal_ms, measured_cpu};

mod rivals;

/// Most time that the host may take in the second before a run, over all CPUs.
const BEFORE_MS_MAX: u64 = 10;

/// The rule: how calm a run must be, and how many tries it has.
#[derive(Clone, Copy, Debug)]
pub struct Calm {
    /// The most tries. At least one.
    pub tries_max: usize,
    /// The most steal time of a calm run, over all CPUs.
    pub stolen_ms_max: u64,
    /// The most seconds to wait for a calm host before each try. Then the run begins anyway.
    pub wait_s_max: u64,
}

/// One run, and what the host did meanwhile.
#[derive(Clone, Debug)]
pub struct Try<T> {
    /// The result of the run.
    pub result: T,
    /// Time for which the host ran something else on the machine's CPUs, in steps of a tick.
    pub stolen_ms: u64,
    /// The name of a program whose real-time thread ran on the measured CPU meanwhile.
    pub disturbed_by: Option<String>,
    /// Whether this is the run that counts.
    pub judged: bool,
}

impl<T> Try<T> {
    /// The steal time, with `*` if this run is judged, and `!` if another program disturbed it.
    pub fn marked(&self) -> String {
        let mark = match self {
            Try { judged: true, .. } => "*",
            Try { disturbed_by: Some(_), .. } => "!",
            _ => " ",
        };
        format!("{}{mark}", self.stolen_ms)
    }
}

impl Calm {
    /// One try without waiting, judged whatever the host does: for runs that only show that the
    /// bench works.
    pub const ONCE: Calm = Calm { tries_max: 1, stolen_ms_max: u64::MAX, wait_s_max: 0 };

    /// The rule in words, for the head of a table.
    pub fn describe(self) -> String {
        if self.tries_max == 1 && self.stolen_ms_max == u64::MAX {
            return "one try each, judged whatever the host does".to_owned();
        }
        let Calm { tries_max, stolen_ms_max, wait_s_max } = self;
        format!(
            "up to {tries_max} tries each, all printed; before a try the bench waits until the host took at \
             most {BEFORE_MS_MAX} ms\nof all CPUs in one second, for {wait_s_max} s at most; the first try \
             during which it took at most {stolen_ms_max} ms is judged (*),\nunless a real-time \
             thread of another program ran on the measured CPU (!)"
        )
    }

    /// Runs until the host was calm, or until no tries are left. Returns every try. Blocks.
    pub fn runs<T>(self, mut run: impl FnMut() -> T) -> Vec<Try<T>> {
        let mut tries = Vec::new();
        // Else the children of a process that the run has killed would look like other programs.
        let _ = set_child_subreaper(Some(getpid()));
        for _ in 0..self.tries_max.max(1) {
            self.wait();
            let (before_ms, rivals) = (machine_steal_ms(), rivals::Rivals::now());
            let result = run();
            let stolen_ms = machine_steal_ms().saturating_sub(before_ms);
            let disturbed_by = rivals.that_ran_on(measured_cpu());
            // Without a limit every run is judged, whatever disturbs it.
            let is_calm = stolen_ms <= self.stolen_ms_max && disturbed_by.is_none();
            let judged = is_calm || self.stolen_ms_max == u64::MAX;
            tries.push(Try { result, stolen_ms, disturbed_by, judged });
            if judged {
                break;
            }
        }
        tries
    }

    /// Waits until the host leaves the machine alone for a second.
    fn wait(self) {
        for _ in 0..self.wait_s_max {
            let before_ms = machine_steal_ms();
            std::thread::sleep(Duration::from_secs(1));
            if machine_steal_ms().saturating_sub(before_ms) <= BEFORE_MS_MAX {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries whose steal time nobody can meet: with `stolen_ms_max` of 0 a run may still be calm,
    /// so these tests use the two rules that do not depend on the host.
    #[test]
    fn one_try_is_judged_whatever_the_host_does() {
        let mut runs = 0;
        let tries = Calm::ONCE.runs(|| runs += 1);
        assert_eq!((runs, tries.len()), (1, 1));
        assert!(tries[0].judged && tries[0].marked().ends_with('*'));
    }

    #[test]
    fn the_first_calm_try_is_judged_and_ends_the_runs() {
        let calm = Calm { tries_max: 5, stolen_ms_max: u64::MAX, wait_s_max: 0 };
        let mut values = [3, 1, 2].into_iter();
        let tries = calm.runs(|| values.next());
        assert_eq!(tries.len(), 1, "no second run looks for a better result");
        assert_eq!(tries[0].result, Some(3));
    }

    /// The tests of one program share this process, so they share the setting.
    #[test]
    fn orphans_of_a_run_become_children_of_this_process() {
        let orphan_of = || {
            // The shell ends at once and leaves a child.
            let script = "sleep 60 >/dev/null 2>&1 & echo $!";
            let output = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap()
        };
        let tries = Calm::ONCE.runs(orphan_of);
        let pid = tries[0].result;
        let is_own = rivals::is_descendant(pid);
        let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        assert!(is_own);
    }

    #[test]
    fn a_disturbed_try_is_marked() {
        let disturbed_by = Some("other".to_owned());
        let tried = Try { result: (), stolen_ms: 3, disturbed_by, judged: false };
        assert_eq!(tried.marked(), "3!");
    }

    #[test]
    fn the_rule_is_printed() {
        let text = Calm { tries_max: 5, stolen_ms_max: 20, wait_s_max: 60 }.describe();
        assert!(
            text.contains("up to 5 tries") && text.contains("at most 20 ms is judged"),
            "{text}"
        );
    }
}
