//! What a run promised, and how much of it was kept, in figures.

use crate::output::{Activity, Platform, Run, Stream};

/// The counts by which a run is judged, in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Released jobs.
    pub jobs: u64,
    /// Jobs that did not end by their deadline.
    pub missed: u64,
    /// Offered packets, and how many of them were lost or were later than their stream's delay.
    pub packets: u64,
    pub lost: u64,
    pub late: u64,
}

impl Counts {
    /// The counts of everything that ran.
    pub fn of(run: &Run) -> Self {
        Self::of_named(run, |_| true)
    }

    /// The counts of the activities and streams whose names `accepts` takes.
    pub fn of_named(run: &Run, accepts: impl Fn(&str) -> bool) -> Self {
        let mut counts = Counts::default();
        for Activity { jobs, misses, .. } in run.activities.iter().filter(|a| accepts(&a.name)) {
            counts.jobs += jobs;
            counts.missed += misses;
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
        let deadlines = format!("{} of {} deadlines missed", self.missed, self.jobs);
        if self.packets == 0 {
            return deadlines;
        }
        format!("{deadlines}, {} of {} packets lost, {} late", self.lost, self.packets, self.late)
    }
}

/// One line each: what was promised, what was kept, and what was broken.
pub fn verdict(run: &Run) -> String {
    let figures = Counts::of(run).line();
    let word = if run.promised { "BROKEN" } else { "not kept:" };
    let broken: String = run.broken.iter().map(|line| format!("{word} {line}\n")).collect();
    let promise = match (run.promised, run.mode) {
        (true, _) => {
            let streams = match run.streams.is_empty() {
                true => "",
                false => "; no packet lost at its socket or later; none later than its delay",
            };
            format!("promised: every job ends by its deadline{streams}\n")
        }
        (false, mode @ ("threads" | "fifo")) => {
            format!("promised: nothing, mode {mode} has no admission; by upcall's promises:\n")
        }
        (false, _) if lacks_class(run) => {
            "promised: nothing, no right to the real-time class; judged anyway:\n".into()
        }
        (false, _) => "promised: nothing, admission refused the set; judged anyway:\n".into(),
    };
    let kept = match (run.kept, run.promised) {
        (true, true) => ": every promise kept",
        (true, false) => ": nothing broken",
        (false, _) => "",
    };
    format!("{promise}outcome: {figures}{kept}\n{broken}")
}

/// Whether mode upcall lacked the real-time class, without which it promises nothing.
pub fn lacks_class(run: &Run) -> bool {
    run.mode == "upcall"
        && matches!(&run.platform, Platform::Machine(machine) if !machine.real_time)
}
