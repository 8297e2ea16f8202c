//! If no miss is allowed, DWCS is earliest deadline first. Its upcalls equal those of a simple
//! scheduler that uses only deadlines.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

use dwcs_drive::{Chance, Conditions, Task, admit, deciding, drive, task};
use upcall_core::time::Span;

#[allow(dead_code, reason = "each test looks at what it needs")]
mod dwcs_drive;

/// A job: deadline, index in the file, quanta left.
type Job = (u64, usize, u32);

/// The start and the number of each job that runs, quantum by quantum; consecutive quanta of a job
/// count as one. Releases come before picks. Equal deadlines do not preempt. Among equal deadlines,
/// the first activity in the file begins.
fn earliest_deadline_first(set: &[Task], until_ns: u64) -> Vec<(u64, u32)> {
    let mut next: Vec<u64> = set.iter().map(|(params, _)| params.offset.as_nanos()).collect();
    let mut ready: Vec<Job> = Vec::new();
    let (mut now, mut running, mut upcalls) = (0, None::<Job>, Vec::new());
    while now < until_ns {
        for (index, (params, _)) in set.iter().enumerate() {
            while next[index] <= now {
                let deadline = next[index] + params.deadline.as_nanos();
                ready.push((deadline, index, params.batch.div_ceil(params.quantum)));
                next[index] += params.period.as_nanos();
            }
        }
        ready.sort_unstable();
        if let Some(first) = ready.first()
            && running.is_none_or(|running| first.0 < running.0)
        {
            ready.extend(running.take());
            ready.sort_unstable();
            let job = ready.remove(0);
            upcalls.push((now, job.1 as u32));
            running = Some(job);
        }
        let Some((deadline, index, quanta)) = running.take() else {
            now = *next.iter().min().unwrap();
            continue;
        };
        let params = set[index].0;
        let last = params.last_quantum();
        let pdus = if quanta == 1 { last } else { params.quantum };
        now += params.pdu_cost.as_nanos() * u64::from(pdus);
        running = (quanta > 1).then_some((deadline, index, quanta - 1));
    }
    upcalls
}

#[test]
fn with_no_miss_allowed_the_schedule_is_that_of_earliest_deadline_first() {
    let mut chance = Chance(1973);
    let (mut sets, mut full, mut upcalls) = (0, 0, 0);
    while sets < 800 {
        let count = 2 + chance.below(5);
        let set: Vec<Task> = (0..count)
            .map(|_| {
                let period_ns = chance.one_of(&[12u64, 20, 30, 60]);
                let batch = 1 + chance.below(4);
                let cost_ns = 1 + chance.below(period_ns * 2 / (count * batch));
                let (params, terms) = task(period_ns, cost_ns, 0, 1);
                let offset = Span::from_nanos(chance.one_of(&[0, 0, 1, 5]));
                let quantum = 1 + chance.below(batch) as u32;
                (params.batch(batch as u32).quantum(quantum).offset(offset), terms)
            })
            .filter(|(params, _)| params.validated().is_ok())
            .collect();
        if set.is_empty() {
            continue;
        }
        let (reservations, true) = admit(&set, &Conditions::default()) else { continue };
        if deciding(&reservations).name != "edf-demand" {
            continue;
        }
        let (seen, found) = drive(&set, Conditions::default(), 240);
        assert!(seen.iter().all(|seen| seen.counters.misses == 0));
        let expected = earliest_deadline_first(&set, 240);
        assert_eq!(found, expected, "{set:?}");
        sets += 1;
        upcalls += found.len();
        full += u32::from(set.iter().map(|(p, _)| p.utilization()).sum::<f64>() > 0.99);
    }
    println!("{sets} sets, {full} full, {upcalls} upcalls");
    assert!(full > 5 && upcalls > 10_000);
}
