//! What a run promised, and how much of it was kept, in figures.

use crate::outcome::promises_any;
use crate::output::{Activity, Platform, Promise, Run, Stream};

/// The counts by which a run is judged, in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Released jobs of activities to which deadlines are promised.
    pub jobs: u64,
    /// Jobs that did not end by their deadline.
    pub missed: u64,
    /// Offered packets, and how many of them were lost or were later than their stream's delay.
    pub packets: u64,
    pub lost: u64,
    pub late: u64,
    /// Whether windows are promised to any activity, and how many of them were violated.
    pub windowed: bool,
    pub violated: u64,
}

impl Counts {
    /// The counts of everything that ran.
    pub fn of(run: &Run) -> Self {
        Self::of_named(run, |_| true)
    }

    /// The counts of the activities and streams whose names `accepts` takes.
    pub fn of_named(run: &Run, accepts: impl Fn(&str) -> bool) -> Self {
        let mut counts = Counts::default();
        for activity in run.activities.iter().filter(|activity| accepts(&activity.name)) {
            let Activity { promise, jobs, misses, window_violations, .. } = activity;
            if *promise == Promise::Deadlines {
                counts.jobs += jobs;
                counts.missed += misses;
            }
            if *promise == Promise::Windows {
                counts.windowed = true;
                counts.violated += window_violations.unwrap_or_default();
            }
        }
        for Stream { offered, dropped, late, .. } in run.streams.iter().filter(|s| accepts(&s.name))
        {
            counts.packets += offered;
            counts.lost += dropped.total();
            counts.late += late.unwrap_or_default();
        }
        counts
    }

    /// The counts in one line; packets only if there are streams.
    pub fn line(&self) -> String {
        let mut line = match (self.jobs, self.windowed) {
            (0, true) => String::new(),
            _ => format!("{} of {} deadlines missed", self.missed, self.jobs),
        };
        if self.windowed {
            let separator = if line.is_empty() { "" } else { ", " };
            line += &format!("{separator}{} windows violated", self.violated);
        }
        if self.packets > 0 {
            let Counts { lost, packets, late, .. } = self;
            line += &format!(", {lost} of {packets} packets lost, {late} late");
        }
        line
    }
}

/// One line each: what was promised, what was kept, and what was broken.
pub fn verdict(run: &Run) -> String {
    let figures = Counts::of(run).line();
    let word = if run.promised { "BROKEN" } else { "not kept:" };
    let broken: String = run.broken.iter().map(|line| format!("{word} {line}\n")).collect();
    let promise = match (run.promised, run.mode) {
        (true, _) => format!("promised: {}\n", promises(run)),
        (false, mode @ ("threads" | "fifo")) => {
            format!("promised: nothing, mode {mode} has no admission; by upcall's promises:\n")
        }
        (false, _) if !promises_any(&run.activities) => {
            "promised: nothing, no activity has a deadline or a window\n".into()
        }
        (false, _) if lacks_class(run) => {
            "promised: nothing, no right to the real-time class; judged anyway:\n".into()
        }
        (false, _) => "promised: nothing with --soft; judged anyway:\n".into(),
    };
    let kept = match (run.kept, run.promised) {
        (true, true) => ": every promise kept",
        (true, false) => ": nothing broken",
        (false, _) => "",
    };
    format!("{promise}outcome: {figures}{kept}\n{broken}")
}

/// What was promised to which activities.
fn promises(run: &Run) -> String {
    let of = |promise| run.activities.iter().filter(move |activity| activity.promise == promise);
    let names =
        |promise| of(promise).map(|activity| activity.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    let deadlines = of(Promise::Deadlines).count();
    if deadlines == run.activities.len() {
        parts.push("every job ends by its deadline".to_owned());
    } else if deadlines > 0 {
        parts.push(format!("every job of {} ends by its deadline", names(Promise::Deadlines)));
    }
    for activity in of(Promise::Windows) {
        let window = activity.window.as_deref().unwrap_or_default();
        let (misses, periods) = window.split_once('/').unwrap_or_default();
        let name = &activity.name;
        parts.push(format!("{name} misses at most {misses} of {periods} periods"));
    }
    if of(Promise::Nothing).count() > 0 {
        parts.push(format!("no deadline to {}", names(Promise::Nothing)));
    }
    if !run.streams.is_empty() {
        parts.push("no packet lost at its socket or later; none later than its delay".to_owned());
    }
    parts.join("; ")
}

/// Whether mode upcall lacked the real-time class, without which it promises nothing.
pub fn lacks_class(run: &Run) -> bool {
    run.mode == "upcall"
        && matches!(&run.platform, Platform::Machine(machine) if !machine.real_time)
}
