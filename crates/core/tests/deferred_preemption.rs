//! Compares admission under deferred preemption with a simulation. In the simulation, domains
//! continue with their own worse ranks while all activities that outrank them were released less
//! than the deferral ago (decision 0014).

#![expect(clippy::unwrap_used, reason = "a test")]

use upcall_core::activity::{ActivityParams, Terms};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;

const SETS: u64 = 400;
const DOMAINS: u64 = 3;

/// Lehmer's generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        self.0 % bound
    }
}

/// An activity and its present job, in ns.
struct Job {
    params: ActivityParams,
    domain: u64,
    /// The release of the oldest job that has not ended; in the future if there is none.
    release: u64,
    pdus: u32,
    worst: u64,
}

impl Job {
    fn is_there(&self, now: u64) -> bool {
        self.release <= now
    }

    /// PDUs of the next quantum.
    fn quantum(&self) -> u32 {
        self.params.quantum.min(self.params.batch - self.pdus)
    }
}

/// Runs `jobs`, best rank first, until `end`, quantum by quantum, by the rules of the runtime's
/// virtual processor. Returns how often the CPU went to another domain.
fn run(jobs: &mut [Job], defer_preemption: u64, end: u64) -> u64 {
    let (mut now, mut last, mut switches) = (0, None, 0);
    while now < end {
        let Some(best) = jobs.iter().position(|job| job.is_there(now)) else {
            now = jobs.iter().map(|job| job.release).min().unwrap();
            continue;
        };
        let own = jobs.iter().position(|job| Some(job.domain) == last && job.is_there(now));
        let goes_on = own.filter(|&own| {
            let mut better = jobs[..own].iter().filter(|job| job.is_there(now));
            better.all(|job| job.release + defer_preemption > now)
        });
        let job = &mut jobs[goes_on.unwrap_or(best)];
        if last.replace(job.domain) != Some(job.domain) {
            switches += 1;
        }
        now += job.params.pdu_cost.as_nanos() * u64::from(job.quantum());
        job.pdus += job.quantum();
        if job.pdus == job.params.batch {
            job.worst = job.worst.max(now - job.release);
            job.pdus = 0;
            job.release += job.params.period.as_nanos();
        }
    }
    switches
}

/// No reservations, on one CPU that may be full.
fn reservations(defer_preemption: Span) -> Reservations {
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption,
    };
    Reservations::new(platform, &RMDP)
}

fn params(chance: &mut Chance, count: u64) -> ActivityParams {
    let period_ns = 1_000 * (10 + chance.below(90));
    let quantum = 1 + u32::try_from(chance.below(3)).unwrap();
    let batch = quantum * (1 + u32::try_from(chance.below(4)).unwrap());
    let share = 1 + chance.below(18);
    let pdu_ns = (period_ns * share / 10 / count / u64::from(batch)).max(1);
    ActivityParams::new(Span::from_nanos(period_ns), Span::from_nanos(pdu_ns))
        .batch(batch)
        .quantum(quantum)
}

#[test]
fn no_response_is_longer_than_admitted_and_switches_are_saved() {
    let mut chance = Chance(1991);
    let (mut kept, mut tight, mut with, mut without) = (0, 0, 0, 0);
    for _ in 0..SETS {
        let count = 2 + chance.below(6);
        let defer_preemption = chance.below(20_000);
        let mut reservations = reservations(Span::from_nanos(defer_preemption));
        let mut set: Vec<_> = (0..count)
            .filter_map(|number| {
                let params = params(&mut chance, count);
                let granted = reservations.reserve(&number.to_string(), params, &Terms::default());
                granted.ok().map(|granted| (granted.id, params, chance.below(DOMAINS)))
            })
            .collect();
        // The sort is stable: activities of equal periods keep their order.
        set.sort_by_key(|(_, params, _)| params.period);
        if set.is_empty() {
            continue;
        }
        for phases in 0..6 {
            let mut jobs: Vec<Job> = set
                .iter()
                .map(|&(_, params, domain)| {
                    let period_ns = params.period.as_nanos();
                    let release = if phases == 0 { 0 } else { chance.below(period_ns) };
                    Job { params, domain, release, pdus: 0, worst: 0 }
                })
                .collect();
            with += run(&mut jobs, defer_preemption, 2_000_000);
            for (job, (id, ..)) in jobs.iter().zip(&set) {
                let bound = reservations.response_max(*id).unwrap();
                assert!(
                    job.worst <= bound.as_nanos(),
                    "{} > {bound:?}, {defer_preemption}",
                    job.worst
                );
                kept += 1;
                tight += u64::from(job.worst + defer_preemption / 2 > bound.as_nanos());
            }
            jobs.iter_mut().for_each(|job| job.release = 0);
            without += run(&mut jobs, 0, 2_000_000);
        }
    }
    assert!(kept > 5_000 && tight > kept / 20, "{tight} of {kept}");
    assert!(with < without, "{with} switches, {without} without deferred preemption");
}

#[test]
fn deferred_preemption_costs_at_most_its_length() {
    let with = |defer_preemption_us| {
        let mut reservations = reservations(Span::from_micros(defer_preemption_us));
        let params = ActivityParams::new(Span::from_millis(10), Span::from_millis(4));
        let terms = Terms::default();
        let first = reservations.reserve("first", params, &terms).map(|granted| granted.id);
        first.map(|id| reservations.response_max(id).unwrap())
    };
    assert_eq!(with(0).unwrap(), Span::from_millis(4));
    assert_eq!(with(6_000).unwrap(), Span::from_millis(10));
    assert!(with(6_001).is_err(), "it might end a microsecond late");
}
