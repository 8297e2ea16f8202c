//! What a run of an attack showed, and what breaks its promise.
//!
//! This file uses nothing of the bench. So the tests of this package can check the verdict:
//! `outcome_tests.rs`.

use std::time::Duration;

/// The part of the CPU that an ordinary program must get. The victims use 30 %, and a demoted
/// attacker shares the rest.
const ORDINARY_PERCENT_MIN: u64 = 25;
/// The part of its time that an attacker must act, in percent.
const ACTED_PERCENT_MIN: u32 = 25;

/// What a victim reports at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct VictimReport {
    /// Jobs whose deadlines were in the run, by their periods.
    pub(crate) due: u64,
    /// Those of them that ended late or never ran.
    pub(crate) missed: u64,
    /// The longest response of a job that ended.
    pub(crate) worst_ns: u64,
    /// Whether the victim reported at all. If not, all its jobs are missed.
    pub(crate) reported: bool,
}

/// What the domains report that attached during the attack.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalReport {
    /// How many attached.
    pub(crate) count: u64,
    /// The longest time from the connection to the answer about a reservation.
    pub(crate) worst: Duration,
    /// Why one was not attached.
    pub(crate) refused: Option<String>,
}

/// The size of the daemon's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) resident_kib: u64,
    pub(crate) descriptors: usize,
    pub(crate) mappings: usize,
}

/// The daemon's growth while domains attached and were killed. Its allocator may keep some memory.
pub(crate) const RESIDENT_KIB_MAX: u64 = 256;
pub(crate) const MAPPINGS_MAX: usize = 8;

/// Whether the daemon saw each of so many domains leave, and did not grow. Returns a sentence.
///
/// # Errors
/// The same sentence and what does not hold.
pub(crate) fn judge_growth(
    rounds: usize,
    detached: usize,
    before: Size,
    after: Size,
) -> Result<String, String> {
    let found = format!(
        "{rounds} domains attached, placed on a CPU, reserving, and killed: {detached} detached; the daemon's resident \
         memory {} -> {} KiB, descriptors {} -> {}, mappings {} -> {}",
        before.resident_kib,
        after.resident_kib,
        before.descriptors,
        after.descriptors,
        before.mappings,
        after.mappings
    );
    // A process without these was not read.
    let is_read = [before, after].iter().all(|size| size.resident_kib > 0 && size.descriptors > 0);
    let checks = [
        (is_read, "its size is unknown"),
        (detached == rounds, "not each domain was detached"),
        (after.resident_kib <= before.resident_kib + RESIDENT_KIB_MAX, "its memory grew"),
        (after.descriptors == before.descriptors, "its descriptors are not the same"),
        (after.mappings <= before.mappings + MAPPINGS_MAX, "its mappings grew"),
    ];
    let broken: Vec<_> = checks.iter().filter(|(holds, _)| !holds).map(|(_, why)| *why).collect();
    if broken.is_empty() { Ok(found) } else { Err(format!("{found} ({})", broken.join(", "))) }
}

/// What is known of the attacker.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttackerReport {
    /// For how long it acted. `None`: it never said that it acts.
    pub(crate) acted: Option<Duration>,
    /// Defences that failed, as the attacker saw them.
    pub(crate) breaches: Vec<String>,
    /// The message of a panic.
    pub(crate) panic: Option<String>,
    /// How its process ended, if it did.
    pub(crate) ended: Option<String>,
}

/// What one run of an attack cost the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// How long the victims ran.
    pub(crate) millis: u64,
    /// How long the attacker could act.
    pub(crate) attack: Duration,
    pub(crate) victims: Vec<VictimReport>,
    /// The CPU time of the ordinary program, if the row has one. `Some(None)`: no report.
    pub(crate) ordinary_ms: Option<Option<u64>>,
    /// The domains that attached meanwhile, if the row has any. `Some(None)`: no report.
    pub(crate) arrivals: Option<Option<ArrivalReport>>,
    /// The longest time in which a domain must attach meanwhile.
    pub(crate) arrival_max: Duration,
    pub(crate) attacker: AttackerReport,
    /// Whether the attacker belongs to the user of the victims. Then measures against that user
    /// are against the attacker.
    pub(crate) shares_user: bool,
    /// Whether the attacker's process must end by the attack. If not, it must not end.
    pub(crate) ends: bool,
    /// What the watchdog did.
    pub(crate) measures: Vec<String>,
    /// What the action from outside showed.
    pub(crate) outside: String,
    /// What the bench itself found: an action from outside that failed, or a daemon that ended.
    pub(crate) troubles: Vec<String>,
}

/// How a measure against a victim begins.
pub(crate) const VICTIM: &str = "VICTIM ";
/// How a measure against the user of the victims begins.
pub(crate) const VICTIMS_USER: &str = "VICTIMS' USER ";

impl Outcome {
    pub(crate) fn missed(&self) -> u64 {
        self.victims.iter().map(|report| report.missed).sum()
    }

    pub(crate) fn due(&self) -> u64 {
        self.victims.iter().map(|report| report.due).sum()
    }

    /// The longest response of a victim's job that ended, in milliseconds.
    pub(crate) fn worst_ms(&self) -> f64 {
        let worst_ns = self.victims.iter().map(|report| report.worst_ns).max();
        worst_ns.unwrap_or_default() as f64 / 1e6
    }

    /// What became of the attacker: what was seen from outside, each measure, and its end.
    pub(crate) fn became(&self) -> String {
        let ended = self.attacker.ended.as_deref().unwrap_or("runs");
        let measures = self.measures.iter().map(|measure| format!("{measure}, "));
        format!("{}{}{ended}", self.outside, measures.collect::<String>())
    }

    /// All that breaks the promise of the row. It holds if there is nothing.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.troubles.clone();
        faults.extend(self.faults_of_the_attack());
        if self.missed() > 0 {
            faults.push(format!("{} of {} jobs missed", self.missed(), self.due()));
        }
        let silent = self.victims.iter().filter(|report| !report.reported).count();
        if silent > 0 {
            faults.push(format!("{silent} victims did not report"));
        }
        let accuses = |measure: &&String| {
            let of_user = measure.starts_with(VICTIMS_USER) && !self.shares_user;
            measure.starts_with(VICTIM) || of_user
        };
        let accused = self.measures.iter().filter(accuses).count();
        if accused > 0 {
            faults.push(format!("{accused} measures against victims"));
        }
        match self.ordinary_ms {
            Some(None) => faults.push("the ordinary program did not report".to_owned()),
            Some(Some(ms)) if ms * 100 < self.millis * ORDINARY_PERCENT_MIN => {
                faults.push(format!("the ordinary program got {ms} ms"));
            }
            _ => {}
        }
        faults.extend(self.fault_of_arrivals());
        faults
    }

    fn faults_of_the_attack(&self) -> Vec<String> {
        let AttackerReport { acted, breaches, panic, ended } = &self.attacker;
        let mut faults = breaches.clone();
        if let Some(panic) = panic {
            faults.push(format!("ERROR: the attacker panicked: {panic}"));
        }
        match acted {
            None => {
                let ended = ended.as_deref().unwrap_or("runs");
                faults.push(format!("ERROR: the attacker did not attack ({ended})"));
            }
            Some(acted) if *acted * 100 < self.attack * ACTED_PERCENT_MIN => {
                faults.push(format!("ERROR: the attacker acted for {acted:.1?} only"));
            }
            Some(_) => match (ended, self.ends) {
                (Some(ended), false) => {
                    faults.push(format!("ERROR: the attacker ended before the row ({ended})"));
                }
                (None, true) => faults.push("ERROR: the attacker did not end".to_owned()),
                _ => {}
            },
        }
        faults
    }

    fn fault_of_arrivals(&self) -> Option<String> {
        let Some(report) = self.arrivals.as_ref()? else {
            return Some("the domains that attach did not report".to_owned());
        };
        if let Some(why) = &report.refused {
            return Some(format!("after {} domains one did not attach: {why}", report.count));
        }
        if report.count == 0 {
            return Some("no domain attached meanwhile".to_owned());
        }
        let is_late = report.worst > self.arrival_max;
        is_late.then(|| format!("a domain attached after {:.1?}", report.worst))
    }
}
