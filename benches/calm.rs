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
//!
//! The machine may also deliver timers late without any steal time. A rule for runs with short
//! deadlines limits that, too: a probe beside the run watches the timers (`timers`).

use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};

use crate::{machine_steal_ms, measured_cpu, steal_ms};
use timers::Probe;

mod rivals;
mod timers;

pub use timers::Timers;

/// Most time that the host may take in the second before a run, over all CPUs.
const BEFORE_MS_MAX: u64 = 10;

/// The rule: how calm a run must be, and how many tries it has.
#[derive(Clone, Copy, Debug)]
pub struct Calm {
    /// The most tries. At least one.
    pub tries_max: usize,
    /// The most steal time of the measured CPU in a calm run. A host that takes time from another
    /// CPU delays the watchdog alone, which makes a run harder. A run that keeps all CPUs busy
    /// often makes the host do so.
    pub stolen_ms_max: u64,
    /// The most seconds to wait for a calm host before each try. Then the run begins anyway.
    pub wait_s_max: u64,
    /// The most lateness of a timer during a calm run. `None`: no probe runs.
    pub timer_late_us_max: Option<u64>,
    /// The CPUs of these timers.
    pub timers_of: TimersOf,
}

/// CPUs whose timers a rule limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimersOf {
    /// The measured CPU.
    MeasuredCpu,
    /// All CPUs that this process may use: the measured one, and those from which the watchdog and
    /// the kernel act on it.
    AllowedCpus,
}

/// One run, and what the host did meanwhile.
#[derive(Clone, Debug)]
pub struct Try<T> {
    /// The result of the run.
    pub result: T,
    /// Time for which the host ran something else on the measured CPU, in steps of a tick.
    pub stolen_ms: u64,
    /// The name of a program whose real-time thread ran on the measured CPU meanwhile.
    pub disturbed_by: Option<String>,
    /// What the probe found, if the rule has a limit for timers.
    pub timers: Option<Timers>,
    /// Whether this is the run that counts.
    pub judged: bool,
}

impl<T> Try<T> {
    /// The steal time, with `*` if this run is judged, `!` if another program disturbed it, and
    /// `~` if timers came late.
    pub fn marked(&self) -> String {
        let mark = match self {
            Try { judged: true, .. } => "*",
            Try { disturbed_by: Some(_), .. } => "!",
            _ if self.timers_came_late() => "~",
            _ => " ",
        };
        format!("{}{mark}", self.stolen_ms)
    }

    /// Whether a timer came later than the rule allows.
    pub fn timers_came_late(&self) -> bool {
        self.timers.is_some_and(|timers| timers.late > 0)
    }
}

/// Why none of the tries of a row is judged, for the verdict.
pub fn why_none_is_judged<T>(tries: &[Try<T>]) -> &'static str {
    if tries.iter().all(Try::timers_came_late) {
        "timers of the machine came late"
    } else if tries.iter().any(Try::timers_came_late) {
        "the host was not calm, or timers of the machine came late"
    } else {
        "the host was never calm"
    }
}

impl Calm {
    /// One try without waiting, judged whatever the host does: for runs that only show that the
    /// bench works.
    pub const ONCE: Calm = Calm {
        tries_max: 1,
        stolen_ms_max: u64::MAX,
        wait_s_max: 0,
        timer_late_us_max: None,
        timers_of: TimersOf::MeasuredCpu,
    };

    /// The rule in words, for the head of a table.
    pub fn describe(self) -> String {
        if self.tries_max == 1 && self.stolen_ms_max == u64::MAX {
            return "one try each, judged whatever the host does".to_owned();
        }
        let Calm { tries_max, stolen_ms_max, wait_s_max, timer_late_us_max, timers_of } = self;
        let whose = match timers_of {
            TimersOf::MeasuredCpu => "that CPU",
            TimersOf::AllowedCpus => "any CPU",
        };
        let text = format!(
            "up to {tries_max} tries each, all printed; before a try the bench waits until the host took at \
             most {BEFORE_MS_MAX} ms\nof all CPUs in one second, for {wait_s_max} s at most; the first try \
             during which it took at most {stolen_ms_max} ms of the measured CPU is judged (*),\nunless a \
             real-time thread of another program ran there (!)"
        );
        match timer_late_us_max {
            None => text,
            Some(us) => format!(
                "{text}\nor a timer of {whose} came more than {us} us late (~): a probe watches the timers; \
                 before a try they are in time for a second"
            ),
        }
    }

    /// Runs until the host was calm, or until no tries are left. Returns every try. Blocks.
    pub fn runs<T>(self, mut run: impl FnMut() -> T) -> Vec<Try<T>> {
        let mut tries = Vec::new();
        let here_ms = || steal_ms(measured_cpu()).unwrap_or(0);
        // Else the children of a process that the run has killed would look like other programs.
        let _ = set_child_subreaper(Some(getpid()));
        for _ in 0..self.tries_max.max(1) {
            self.wait();
            let (before_ms, rivals) = (here_ms(), rivals::Rivals::now());
            let probes = self.probes();
            let result = run();
            let timers = probes.map(Timers::of_all);
            let stolen_ms = here_ms().saturating_sub(before_ms);
            let disturbed_by = rivals.that_ran_on(measured_cpu());
            let tried = Try { result, stolen_ms, disturbed_by, timers, judged: false };
            let judged = self.is_calm(&tried);
            tries.push(Try { judged, ..tried });
            if judged {
                break;
            }
        }
        tries
    }

    /// Whether nothing disturbed a run more than the rule allows.
    fn is_calm<T>(self, tried: &Try<T>) -> bool {
        let is_steady = tried.disturbed_by.is_none() && !tried.timers_came_late();
        // Without a limit every run is calm, whatever disturbs it.
        let is_unlimited = self.stolen_ms_max == u64::MAX && self.timer_late_us_max.is_none();
        is_unlimited || (is_steady && tried.stolen_ms <= self.stolen_ms_max)
    }

    /// Starts the probes of the timers, if the rule has a limit for them.
    fn probes(self) -> Option<Vec<Probe>> {
        let late_ns_max = self.timer_late_us_max?.saturating_mul(1_000);
        let cpus = match self.timers_of {
            TimersOf::MeasuredCpu => vec![measured_cpu()],
            TimersOf::AllowedCpus => {
                upcall::allowed_cpus().unwrap_or_else(|_| vec![measured_cpu()])
            }
        };
        Some(cpus.into_iter().map(|cpu| Probe::start(cpu, late_ns_max)).collect())
    }

    /// Waits until the host leaves the machine alone for a second.
    fn wait(self) {
        for _ in 0..self.wait_s_max {
            let (before_ms, probes) = (machine_steal_ms(), self.probes());
            std::thread::sleep(Duration::from_secs(1));
            let timers = probes.map(Timers::of_all).unwrap_or_default();
            let stolen_ms = machine_steal_ms().saturating_sub(before_ms);
            if stolen_ms <= BEFORE_MS_MAX && timers.late == 0 {
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
        let calm = Calm { tries_max: 5, ..Calm::ONCE };
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
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        // "PID (NAME) STATE PARENT ..."
        let parent = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1);
        assert_eq!(parent, Some(std::process::id().to_string().as_str()));
    }

    /// A try of which the host took 3 ms.
    fn tried(disturbed_by: Option<&str>, timers: Option<Timers>) -> Try<()> {
        let disturbed_by = disturbed_by.map(str::to_owned);
        Try { result: (), stolen_ms: 3, disturbed_by, timers, judged: false }
    }

    const LATE: Option<Timers> = Some(Timers { wakes: 9, late: 1, worst_ns: 300_000 });
    const IN_TIME: Option<Timers> = Some(Timers { wakes: 9, late: 0, worst_ns: 90_000 });

    #[test]
    fn a_disturbed_try_is_marked() {
        assert_eq!(tried(Some("other"), None).marked(), "3!");
        assert_eq!(tried(Some("other"), LATE).marked(), "3!");
        assert_eq!(tried(None, LATE).marked(), "3~");
        assert_eq!(tried(None, IN_TIME).marked(), "3 ");
        assert_eq!(Try { judged: true, ..tried(None, IN_TIME) }.marked(), "3*");
    }

    #[test]
    fn a_rule_excludes_what_disturbs_a_run() {
        let calm = Calm { stolen_ms_max: 3, timer_late_us_max: Some(250), ..Calm::ONCE };
        assert!(calm.is_calm(&tried(None, IN_TIME)));
        assert!(!calm.is_calm(&tried(None, LATE)));
        assert!(!calm.is_calm(&tried(Some("other"), IN_TIME)));
        assert!(!Calm { stolen_ms_max: 2, ..calm }.is_calm(&tried(None, IN_TIME)));
        // Without the right to a probe the rule says nothing about timers.
        assert!(calm.is_calm(&tried(None, Some(Timers::default()))));
        // The limit holds alone, too.
        let of_timers = Calm { stolen_ms_max: u64::MAX, ..calm };
        assert!(!of_timers.is_calm(&tried(None, LATE)) && of_timers.is_calm(&tried(None, IN_TIME)));
        assert!(Calm::ONCE.is_calm(&tried(Some("other"), LATE)));
    }

    #[test]
    fn a_row_without_a_calm_try_says_why() {
        let why = |one, other| why_none_is_judged(&[tried(None, one), tried(None, other)]);
        assert_eq!(why(LATE, LATE), "timers of the machine came late");
        assert!(why(IN_TIME, LATE).contains(" or timers of the machine came late"));
        assert_eq!(why(IN_TIME, IN_TIME), "the host was never calm");
    }

    /// The limit of 0 makes each wake of the probe late.
    #[test]
    fn a_try_with_late_timers_is_repeated_and_not_judged() {
        for timers_of in [TimersOf::MeasuredCpu, TimersOf::AllowedCpus] {
            let calm = Calm { tries_max: 2, timer_late_us_max: Some(0), timers_of, ..Calm::ONCE };
            let tries = calm.runs(|| std::thread::sleep(Duration::from_millis(20)));
            let has_right = upcall_sys::schedule::fifo_permission(99).is_ok();
            assert_eq!(tries[0].timers_came_late(), has_right);
            if has_right {
                assert_eq!(tries.len(), 2);
                assert!(tries.iter().all(|tried| !tried.judged && !tried.marked().ends_with('*')));
            }
        }
    }

    #[test]
    fn the_rule_is_printed() {
        let calm = Calm { tries_max: 5, stolen_ms_max: 20, wait_s_max: 60, ..Calm::ONCE };
        let text = calm.describe();
        assert!(
            text.contains("up to 5 tries")
                && text.contains("at most 20 ms of the measured CPU is judged"),
            "{text}"
        );
        assert!(!text.contains("probe"), "{text}");
        let text = Calm { timer_late_us_max: Some(250), ..calm }.describe();
        assert!(text.contains("a timer of that CPU came more than 250 us late (~)"), "{text}");
        let timers_of = TimersOf::AllowedCpus;
        let text = Calm { timer_late_us_max: Some(250), timers_of, ..calm }.describe();
        assert!(text.contains("a timer of any CPU came more than 250 us late (~)"), "{text}");
    }
}
