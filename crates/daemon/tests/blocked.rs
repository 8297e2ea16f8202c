//! Domains whose handlers block in the kernel during a quantum, under a daemon with the real-time
//! class. The tests check what other domains get of the CPU, and when the blocked one goes on. The
//! majority of three tries without lost time decides ([`support::most_kept`]).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use upcall_core::activity::ActivityParams;
use upcall_core::time::Span;
use upcall_daemon::server::DaemonEvent;
use upcall_runtime::{Batch, clock};
use upcall_sys::clock::thread_cpu_ns;

use support::Server;

/// How long a handler blocks.
const BLOCKED: Span = Span::from_millis(20);

type Noted = Arc<Mutex<Vec<u64>>>;

fn note(noted: &Noted) {
    noted.lock().unwrap().push(clock::now().as_nanos());
}

fn spin() {
    let until = clock::now() + Span::from_micros(500);
    while clock::now() < until {}
}

/// Four times of each job's first quantum: when its handler fell asleep, when it should wake, when
/// it was awake, and when the next quantum began.
type Blocks = Arc<Mutex<Vec<[u64; 4]>>>;

/// A handler's quanta, across the upcalls of a job.
#[derive(Default)]
struct Blocking {
    quanta: Noted,
    blocks: Blocks,
    number: u32,
    first: Option<[u64; 3]>,
}

impl Blocking {
    /// Records every quantum. Blocks in the first quantum of each job of `a_job` quanta.
    fn upcall(&mut self, batch: &mut Batch<'_>, a_job: u32) {
        while batch.proceed() {
            note(&self.quanta);
            let at = clock::now();
            if self.number.is_multiple_of(a_job) {
                std::thread::sleep(Duration::from_nanos(BLOCKED.as_nanos()));
                let due = at + BLOCKED;
                self.first = Some([at, due, clock::now()].map(|at| at.as_nanos()));
            } else if let Some([asleep, due, awake]) = self.first.take() {
                self.blocks.lock().unwrap().push([asleep, due, awake, at.as_nanos()]);
            }
            self.number += 1;
            spin();
        }
    }
}

/// Runs a domain that blocks and one that spins, each with its period in ms and its quanta per job.
/// Returns the blocks, the quanta of the first domain, those of the second, and the daemon's
/// events.
fn run(
    (blocks_ms, blocks_quanta): (u64, u32),
    (spins_ms, spins_quanta): (u64, u32),
) -> (Vec<[u64; 4]>, Vec<u64>, Vec<u64>, Vec<DaemonEvent>) {
    let _alone = support::alone();
    let server = Server::start(|_| {});
    let (mut one, mut other) = (server.attach("blocks"), server.attach("spins"));
    let params = |ms, quanta| {
        let params = ActivityParams::new(Span::from_millis(ms), Span::from_micros(600));
        params.batch(quanta).quantum(1)
    };
    let (blocks, quanta, others): (Blocks, Noted, Noted) = Default::default();
    let mut blocking =
        Blocking { quanta: quanta.clone(), blocks: blocks.clone(), ..Blocking::default() };
    let others_in = others.clone();
    let a = one.handler("blocks", params(blocks_ms, blocks_quanta), move |batch| {
        blocking.upcall(batch, blocks_quanta);
    });
    let b = other.handler("spins", params(spins_ms, spins_quanta), move |batch| {
        while batch.proceed() {
            note(&others_in);
            spin();
        }
    });
    let at = clock::now() + Span::from_millis(20);
    one.run_at(&[a.unwrap()], at).unwrap();
    other.run_at(&[b.unwrap()], at + Span::from_millis(5)).unwrap();
    std::thread::sleep(Duration::from_millis(2_000));
    one.stop(|_, _| {});
    other.stop(|_, _| {});
    let events = server.stop();
    let taken = |noted: &Noted| std::mem::take(&mut *noted.lock().unwrap());
    let blocks = std::mem::take(&mut *blocks.lock().unwrap());
    (blocks, taken(&quanta), taken(&others), events)
}

fn begun(quanta: &[u64], from: u64, to: u64) -> usize {
    quanta.iter().filter(|&&at| (from..to).contains(&at)).count()
}

fn check_no_offence(events: &[DaemonEvent]) -> Result<(), String> {
    let mut offences = events.iter().filter(|of| matches!(of, DaemonEvent::Offence { .. }));
    offences.next().map_or(Ok(()), |of| Err(of.to_string()))
}

/// The end of the job of a series of quanta without a gap that begins after `at`; `None` if there
/// is none.
fn end_of_job(quanta: &[u64], at: u64) -> Option<u64> {
    let first = quanta.iter().position(|&begun| begun > at)?;
    let job = quanta[first..].windows(2).take_while(|two| two[1] - two[0] < 5_000_000);
    Some(job.last().map_or(quanta[first], |two| two[1]))
}

/// An error unless a condition holds.
macro_rules! check {
    ($condition:expr, $($how:tt)*) => {
        if !$condition {
            return Err(format!($($how)*));
        }
    };
}

/// The other domain did not plan for work that is late by a block. So the rest of the job waits
/// until that domain has none, or until the next release.
#[test]
#[ignore = "needs root"]
fn a_better_domain_finishes_its_quantum_when_it_wakes_and_lets_the_others_keep_their_time() {
    support::most_kept(None, || {
        let (blocks, _, others, events) = run((150, 4), (200, 100));
        check_no_offence(&events)?;
        let mut overlaps = 0;
        for [asleep, due, awake, after] in &blocks {
            let (meanwhile, since) = (begun(&others, *asleep, *due), begun(&others, *due, *awake));
            println!(
                "{meanwhile} quanta while it slept, {since} till it was awake; woke {} us late",
                (awake - due) / 1000
            );
            // A tick of the watchdog or an interrupt may come between two readings of the clock.
            check!(since <= 1, "{since} quanta of the other before it got on");
            let end = end_of_job(&others, *asleep);
            let Some(end) = end.filter(|end| meanwhile > 10 && awake < end) else { continue };
            overlaps += 1;
            let early_us = end.saturating_sub(*after) / 1000;
            check!(*after >= end, "it went on {early_us} us before the other's last");
        }
        check!(overlaps >= 3, "the CPU idled, or nothing was seen: {overlaps} of {}", blocks.len());
        Ok(())
    });
}

#[test]
#[ignore = "needs root"]
fn a_worse_domain_finishes_its_quantum_when_it_wakes_and_begins_no_other() {
    support::most_kept(None, || {
        // The better domain is released while the other is blocked.
        let (blocks, quanta, others, events) = run((400, 4), (100, 100));
        check_no_offence(&events)?;
        let mut overlaps = 0;
        for [asleep, _, awake, after] in &blocks {
            let Some(first) = others.iter().position(|at| at > asleep) else { continue };
            let Some(end) = end_of_job(&others, *asleep) else { continue };
            if others[first] < *awake && *awake < end {
                overlaps += 1;
                println!(
                    "woke {} quanta into the other's job, went on {} us after its last",
                    begun(&others, *asleep, *awake),
                    after.saturating_sub(end) / 1000
                );
                let taken = begun(&quanta, *awake, end);
                check!(taken == 0, "it took {taken} turns of a better one");
            }
        }
        check!(overlaps >= 2, "{overlaps} of {}", blocks.len());
        Ok(())
    });
}

/// A handler that blocks, one that keeps its cost, and one of worse rank that always has work
/// meanwhile. The first comes back in the middle of an upcall of the second, and takes 5 ms.
/// Returns how many upcalls it interrupted, how many quanta of the third began inside a job of the
/// second, and the misses of the second.
fn run_interrupted() -> (usize, usize, u64) {
    let _alone = support::alone();
    let server = Server::start(|_| {});
    let [mut blocks, mut keeps, mut worse] =
        ["blocks", "keeps", "worse"].map(|name| server.attach(name));
    let need = |period_ms, pdus, pdu_us| {
        let cost = Span::from_micros(pdu_us);
        ActivityParams::new(Span::from_millis(period_ms), cost).batch(pdus).quantum(1)
    };
    let [backs, quanta, others]: [Noted; 3] = Default::default();
    let (backs_in, quanta_in, others_in) = (backs.clone(), quanta.clone(), others.clone());
    let a = blocks.handler("blocks", need(40, 1, 6_000), move |batch| {
        while batch.proceed() {
            std::thread::sleep(Duration::from_millis(8));
            note(&backs_in);
            use_cpu(Span::from_micros(5_000));
        }
    });
    let b = keeps.handler("keeps", need(40, 14, 1_000), move |batch| {
        while batch.proceed() {
            note(&quanta_in);
            use_cpu(Span::from_micros(950));
        }
    });
    let c = worse.handler("worse", need(80, 26, 1_000), move |batch| {
        while batch.proceed() {
            note(&others_in);
            use_cpu(Span::from_micros(950));
        }
    });
    let at = clock::now() + Span::from_millis(20);
    blocks.run_at(&[a.unwrap()], at).unwrap();
    keeps.run_at(&[b.unwrap()], at + Span::from_millis(2)).unwrap();
    worse.run_at(&[c.unwrap()], at).unwrap();
    std::thread::sleep(Duration::from_millis(1_200));
    let misses = keeps.stop(|_, _| {}).activities[0].counters.unwrap().misses;
    blocks.stop(|_, _| {});
    worse.stop(|_, _| {});
    server.stop();
    let [backs, quanta, others] = [backs, quanta, others].map(|of| of.lock().unwrap().clone());
    let jobs = quanta.chunks_exact(14).map(|job| (job[0], job[13]));
    let interrupted = jobs.filter(|&(from, to)| begun(&backs, from, to) > 0).collect::<Vec<_>>();
    let inside = interrupted.iter().map(|&(from, to)| begun(&others, from, to)).sum();
    (interrupted.len(), inside, misses)
}

/// Uses that much CPU time.
fn use_cpu(span: Span) {
    let until_ns = thread_cpu_ns() + span.as_nanos();
    while thread_cpu_ns() < until_ns {}
}

/// The time of the domain that came back is not charged to the one that it interrupts. If it were,
/// that one would be over budget, and the domain of worse rank would go first.
#[test]
#[ignore = "needs root"]
fn an_interrupted_domain_does_not_pay_for_the_one_that_comes_back() {
    support::most_kept(None, || {
        let found @ (interrupted, inside, misses) = run_interrupted();
        println!("interrupted jobs, quanta of a worse domain inside them, misses: {found:?}");
        let is_kept = interrupted > 10 && (inside, misses) == (0, 0);
        if is_kept { Ok(()) } else { Err(format!("it was demoted: {found:?}")) }
    });
}
