//! The report of `upcall exec`: what was promised beside what was measured.

use serde::Serialize;
use upcall::Latency;
use upcall::admission::Share;
use upcall::admission::program::{ProgramNeed, Supply};
use upcall::program::{AdmittedProgram, Exit, ProgramLag, ProgramUsage};
use upcall::time::Span;

use super::received::Received;
use crate::show;

/// What was measured while the program ran.
pub struct Measured {
    /// The last terms.
    pub admitted: AdmittedProgram,
    /// Whether the daemon kept them to the end.
    pub is_kept: bool,
    /// Whether they were changed meanwhile.
    pub was_changed: bool,
    /// From admission to the end of the program's first process.
    pub duration: Span,
    pub usage: ProgramUsage,
    pub lag: ProgramLag,
    /// What its packet quotas did.
    pub receive: Vec<Received>,
}

/// The object of `--json`. Documented in docs/contract.md.
#[derive(Debug, Serialize)]
pub struct Report {
    program: String,
    pid: u32,
    admitted: bool,
    /// The status with which this command ends.
    pub exit_status: u8,
    /// The signal that ended the program.
    signal: Option<i32>,
    cpu: u32,
    /// As parts of the CPU. Null: a weight.
    share: Option<f64>,
    weight: Option<u32>,
    /// Whether the daemon kept share or weight to the end.
    kept_to_end: bool,
    /// Whether share or weight was changed meanwhile. The promise is that of the last one.
    changed: bool,
    duration_ns: u64,
    cpu_ns: u64,
    /// How long the program wanted the CPU. Null: it had too many threads.
    wanted_ns: Option<u64>,
    /// CPU time by duration.
    share_of_time: f64,
    /// CPU time by the time in which it was wanted.
    share_of_wanted: Option<f64>,
    /// Null without a share, and where waits were not counted.
    lag_ns: Option<LagNs>,
    /// The mean of the run-queue waits: waits by slices.
    wait_ns_mean: Option<u64>,
    /// Of the means of the samples, not of single waits, which the kernel does not count.
    wait_ns_by_sample: Option<WaitNs>,
    slices: Option<u64>,
    /// Until when each cost was done, by the greatest lag of the samples: `(cost + lag) / f`. Null
    /// without a cost.
    completion_ns_by_lag: Option<u64>,
    /// Null: a weight promises nothing.
    promise: Option<Promise>,
    receive: Vec<Received>,
}

/// The lag at the samples.
#[derive(Clone, Copy, Debug, Serialize)]
struct LagNs {
    /// At the last sample.
    now: u64,
    p99: u64,
    max: u64,
    samples: u64,
}

/// The mean wait of each sample in which the program got the CPU.
#[derive(Clone, Copy, Debug, Serialize)]
struct WaitNs {
    p50: u64,
    p99: u64,
    max: u64,
    samples: u64,
}

/// What a share promises.
#[derive(Clone, Copy, Debug, Serialize)]
struct Promise {
    /// `B`.
    burst_ns: u64,
    /// `q`.
    quantum_ns: u64,
    /// `f B + 2 q`.
    lag_ns_max: u64,
    /// For the cost of the command line.
    completion_ns_max: Option<u64>,
    /// Whether a ticker keeps the quantum.
    ticker: bool,
}

impl Report {
    pub fn new(
        program: &str,
        pid: u32,
        need: &ProgramNeed,
        exit: Exit,
        measured: &Measured,
    ) -> Self {
        let Measured { admitted, is_kept, was_changed, duration, usage, lag, receive } = measured;
        let share = Share::from_ppm(admitted.share_ppm);
        let (used_ns, wanted_ns) = (usage.used.as_nanos(), lag.wanted().as_nanos());
        let counted = !usage.is_partial;
        let lags = lag.lags();
        let of = |span: Span| span.as_nanos();
        let lag_ns = LagNs {
            now: of(lag.now()),
            p99: of(lags.percentile(99.0)),
            max: of(lags.max()),
            samples: lags.count(),
        };
        let lag_ns = Some(lag_ns).filter(|lag| counted && lag.samples > 0);
        let completion = |cost: Span| {
            let (share, lag) = (share?, lag_ns?);
            let (burst, quantum) = (Span::ZERO, Span::ZERO);
            let work = cost + Span::from_nanos(lag.max);
            Some(of(Supply { share, burst, quantum }.completion(work)))
        };
        let (exit_status, signal) = status_of(exit);
        Report {
            program: program.to_owned(),
            pid,
            admitted: true,
            exit_status,
            signal,
            cpu: admitted.cpu,
            share: share.map(Share::as_f64),
            weight: Some(admitted.weight).filter(|&weight| weight > 0),
            kept_to_end: *is_kept,
            changed: *was_changed,
            duration_ns: of(*duration),
            cpu_ns: used_ns,
            wanted_ns: counted.then_some(wanted_ns),
            share_of_time: part(used_ns, of(*duration)),
            share_of_wanted: counted.then(|| part(used_ns, wanted_ns)),
            lag_ns,
            wait_ns_mean: (counted && usage.slices > 0)
                .then(|| usage.waited.as_nanos() / usage.slices),
            wait_ns_by_sample: WaitNs::of(lag.waits()).filter(|_| counted),
            slices: counted.then_some(usage.slices),
            completion_ns_by_lag: need.cost.and_then(completion),
            promise: share.map(|share| Promise::of(admitted, share, need.cost)),
            receive: receive.clone(),
        }
    }

    /// The report for people. Does not end with a line feed.
    pub fn text(&self) -> String {
        let Report { program, cpu, .. } = self;
        let end = match self.signal {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with {}", self.exit_status),
        };
        let after = show::span(self.duration_ns);
        let mut text = format!("upcall: {program} {end} after {after} on CPU {cpu}\n");
        let mut table = show::table(&["", "promised", "measured"], 3);
        let rows = [self.share_row(), self.lag_row(), self.wait_row(), self.completion_row()];
        for row in rows.into_iter().flatten() {
            table.add_row(row);
        }
        let lines = table.to_string();
        text += &lines.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        let mut note = |line: &str| {
            text += "\n";
            text += line;
        };
        self.receive.iter().for_each(|received| note(&received.line()));
        if !self.kept_to_end {
            note("The daemon did not keep this to the end.");
        }
        if self.changed {
            note("The share was changed meanwhile; the promise is that of the last one.");
        }
        if self.promise.is_some_and(|promise| !promise.ticker) {
            note(
                "No ticker kept the quantum (it needs the real-time class): the kernel's tick did, \
                 and the lag may be longer.",
            );
        }
        text
    }

    fn share_row(&self) -> Option<[String; 3]> {
        let promised = match (self.share, self.weight) {
            (Some(share), _) => format!("{} while it wants the CPU", percent(share)),
            (None, Some(weight)) => format!("weight {weight}: nothing"),
            (None, None) => return None,
        };
        let of_time = percent(self.share_of_time);
        let measured = match (self.share_of_wanted, self.wanted_ns) {
            (Some(share), Some(wanted_ns)) => format!(
                "{} of the {} in which it wanted the CPU, {of_time} of all time",
                percent(share),
                show::span(wanted_ns)
            ),
            _ => format!("{of_time} of all time; it had too many threads to count waits"),
        };
        Some(["share".to_owned(), promised, measured])
    }

    fn lag_row(&self) -> Option<[String; 3]> {
        let promise = self.promise?;
        let promised = format!("at most {}", show::span(promise.lag_ns_max));
        let measured = match self.lag_ns {
            Some(LagNs { now, p99, max, samples }) => format!(
                "now {}, p99 {}, max {}, at {samples} samples",
                show::span(now),
                show::span(p99),
                show::span(max)
            ),
            None => "not measured".to_owned(),
        };
        Some(["lag".to_owned(), promised, measured])
    }

    fn wait_row(&self) -> Option<[String; 3]> {
        let row = |measured| Some(["wake-up latency".to_owned(), "-".to_owned(), measured]);
        let (Some(mean_ns), Some(slices)) = (self.wait_ns_mean, self.slices) else {
            return row("not measured".to_owned());
        };
        let mut text = format!("mean {} of all waits before {slices} slices", show::span(mean_ns));
        if let Some(WaitNs { p50, p99, max, .. }) = self.wait_ns_by_sample {
            let [p50, p99, max] = [p50, p99, max].map(show::span);
            text += &format!("; means of samples: p50 {p50}, p99 {p99}, max {max}");
        }
        row(text + "; single waits: not measured")
    }

    fn completion_row(&self) -> Option<[String; 3]> {
        let within = show::span(self.promise?.completion_ns_max?);
        let measured = match self.completion_ns_by_lag {
            Some(ns) => {
                format!("within {} by the max lag; single jobs: not measured", show::span(ns))
            }
            None => "not measured".to_owned(),
        };
        Some(["completion".to_owned(), format!("within {within} for each cost"), measured])
    }
}

impl WaitNs {
    fn of(waits: &Latency) -> Option<Self> {
        let at = |percent| waits.percentile(percent).as_nanos();
        let (p50, p99, max) = (at(50.0), at(99.0), waits.max().as_nanos());
        (waits.count() > 0).then(|| WaitNs { p50, p99, max, samples: waits.count() })
    }
}

impl Promise {
    fn of(admitted: &AdmittedProgram, share: Share, cost: Option<Span>) -> Self {
        let burst = Span::from_nanos(admitted.burst_ns);
        let quantum = Span::from_nanos(admitted.quantum_ns);
        let supply = Supply { share, burst, quantum };
        // In a burst the program may miss its share of the burst, and two quanta at the ends.
        let part = u128::from(admitted.burst_ns) * u128::from(share.ppm());
        let part_ns = u64::try_from(part.div_ceil(u128::from(Share::WHOLE.ppm())));
        let quanta_ns = quantum.saturating_mul(2).as_nanos();
        let lag_ns_max = part_ns.unwrap_or(u64::MAX).saturating_add(quanta_ns);
        Promise {
            burst_ns: admitted.burst_ns,
            quantum_ns: admitted.quantum_ns,
            lag_ns_max,
            completion_ns_max: cost.map(|cost| supply.completion(cost).as_nanos()),
            ticker: admitted.ticker,
        }
    }
}

/// The exit status of a command that stands for a program, and the signal that ended it.
pub(super) fn status_of(exit: Exit) -> (u8, Option<i32>) {
    let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    match exit {
        Exit::Code(code) => (byte(code), None),
        Exit::Signal(signal) => (byte(128 + signal), Some(signal)),
    }
}

fn part(ns: u64, of_ns: u64) -> f64 {
    ns as f64 / of_ns.max(1) as f64
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall::time::Instant;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// 10 s with 45 %, in which it got 4.4 of 4.5 s.
    fn measured() -> Measured {
        let admitted = AdmittedProgram {
            id: 1,
            cpu: 1,
            share_ppm: 450_000,
            weight: 0,
            burst_ns: 2 * MS,
            quantum_ns: MS,
            ticker: true,
        };
        let usage = ProgramUsage {
            used: Span::from_millis(4_400),
            waited: Span::from_millis(5_600),
            slices: 1_000,
            is_partial: false,
        };
        let mut lag = ProgramLag::new(Instant::from_nanos(0), ProgramUsage::default());
        lag.add(Instant::from_nanos(10 * S), usage, Share::from_ppm(450_000));
        let (duration, receive) = (Span::from_secs(10), Vec::new());
        Measured { admitted, is_kept: true, was_changed: false, duration, usage, lag, receive }
    }

    fn need() -> ProgramNeed {
        ProgramNeed {
            share: Share::from_ppm(450_000),
            cost: Some(Span::from_millis(5)),
            period: Some(Span::from_millis(20)),
            ..ProgramNeed::default()
        }
    }

    #[test]
    fn the_promise_stands_beside_what_was_measured() {
        let report = Report::new("player", 7, &need(), Exit::Code(0), &measured());
        let json = serde_json::to_value(&report).unwrap();
        let promise = &json["promise"];
        // f B + 2 q = 0.45 * 2 ms + 2 * 1 ms; (5 ms + 2 q) / f + B.
        assert_eq!(promise["lag_ns_max"], 2_900_000);
        assert_eq!(promise["completion_ns_max"], 17_555_556);
        assert_eq!(json["lag_ns"]["max"], 100 * MS);
        assert_eq!(json["share_of_time"], 0.44);
        assert_eq!(json["wait_ns_mean"], 5_600_000);
        assert_eq!(json["wait_ns_by_sample"]["max"], 5_600_000);
        assert_eq!(json["completion_ns_by_lag"], 233_333_334);
        let text = report.text();
        for part in [
            "upcall: player ended with 0 after 10 s on CPU 1",
            "45.0 % while it wants the CPU",
            "44.0 % of the 10 s in which it wanted the CPU, 44.0 % of all time",
            "at most 2.9 ms",
            "now 100 ms, p99 100 ms, max 100 ms, at 1 samples",
            "mean 5.6 ms of all waits before 1000 slices",
            "means of samples: p50 5.6 ms, p99 5.6 ms, max 5.6 ms; single waits: not measured",
            "within 17.6 ms for each cost",
            // (5 ms + 100 ms) / 0.45.
            "within 233 ms by the max lag; single jobs: not measured",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        assert!(!text.contains("ticker") && !text.contains("The daemon"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_reported() {
        let mut partial = measured();
        partial.usage.is_partial = true;
        partial.admitted.ticker = false;
        (partial.is_kept, partial.was_changed) = (false, true);
        let need = ProgramNeed { cost: None, period: None, ..need() };
        let report = Report::new("bomb", 7, &need, Exit::Code(1), &partial);
        let json = serde_json::to_value(&report).unwrap();
        for unknown in [
            "wanted_ns",
            "share_of_wanted",
            "lag_ns",
            "wait_ns_mean",
            "wait_ns_by_sample",
            "slices",
            "completion_ns_by_lag",
        ] {
            assert!(json[unknown].is_null(), "{unknown}");
        }
        assert!(json["promise"]["completion_ns_max"].is_null());
        let text = report.text();
        for part in ["too many threads", "not measured", "did not keep", "changed", "No ticker"] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }

    #[test]
    fn a_weight_promises_nothing() {
        let mut measured = measured();
        (measured.admitted.share_ppm, measured.admitted.weight) = (0, 2);
        let need = ProgramNeed { weight: Some(2), ..ProgramNeed::default() };
        let report = Report::new("batch", 7, &need, Exit::Code(0), &measured);
        let text = report.text();
        assert!(text.contains("weight 2: nothing") && !text.contains("lag"), "{text}");
        assert!(serde_json::to_value(&report).unwrap()["promise"].is_null());
    }

    #[test]
    fn the_exit_status_is_that_of_the_program() {
        assert_eq!(status_of(Exit::Code(0)), (0, None));
        assert_eq!(status_of(Exit::Code(3)), (3, None));
        assert_eq!(status_of(Exit::Signal(9)), (137, Some(9)));
        let report = Report::new("player", 7, &need(), Exit::Signal(15), &measured());
        assert_eq!((report.exit_status, report.signal), (143, Some(15)));
        assert!(report.text().contains("was killed by signal 15 after"), "{}", report.text());
    }
}
