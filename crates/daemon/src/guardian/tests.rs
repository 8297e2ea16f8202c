//! Where it runs, in threads; what it remembers, in numbers.

use std::collections::BTreeSet;

use super::*;
use crate::hall::Limits;

fn sites(cpus: &[u32]) -> Vec<Arc<Site>> {
    cpus.iter().map(|&cpu| Arc::new(Site::new(cpu))).collect()
}

#[test]
fn it_is_beside_the_domains_where_there_is_a_cpu_without_any() {
    assert_eq!(beside(&sites(&[1]), &[0, 1]), [0]);
    assert_eq!(beside(&sites(&[1, 3]), &[0, 1, 2, 3]), [0, 2]);
    assert_eq!(beside(&sites(&[0, 1]), &[0, 1]), []);
    assert_eq!(beside(&sites(&[0]), &[0]), []);
}

#[test]
fn its_thread_is_allowed_on_no_cpu_of_a_site_if_there_is_another() {
    let allowed = schedule::allowed_cpus().unwrap();
    for scheduled in [&allowed[..1], &allowed[..]] {
        let sites = sites(scheduled);
        let quit = Arc::new(AtomicBool::new(true));
        let rules = Rules { real_time: false, grace: Span::ZERO, kill: false };
        let guardian = Guardian::new((&sites, &allowed), rules, quit, |_| {});
        let run = move || {
            guardian.run();
            schedule::allowed_cpus().unwrap()
        };
        let its_own: BTreeSet<u32> = std::thread::spawn(run).join().unwrap().into_iter().collect();
        let free = allowed.iter().filter(|cpu| !scheduled.contains(cpu));
        let expected: BTreeSet<u32> = free.copied().collect();
        let all = allowed.iter().copied().collect();
        assert_eq!(its_own, if expected.is_empty() { all } else { expected });
    }
}

/// A domain that uses all of the CPU, on an account looked at every tick for so long.
fn greedy(limits: &Limits, millis: u64) -> Account {
    let mut account = Account::default();
    for at in (0..=millis).step_by(5).map(Span::from_millis) {
        let now = Instant::ZERO + at;
        account.enter(look(now, at, Span::ZERO), limits, GRACE);
    }
    account
}

const GRACE: Span = Span::from_millis(5);
const KERNEL_TICK: Span = Span::from_millis(4);

fn look(now: Instant, count: Span, still: Span) -> Look {
    Look { now, count_ns: count.as_nanos(), wants_cpu: true, still, kernel_tick: KERNEL_TICK }
}

/// A tenth of the CPU, in jobs of that length.
fn tenth(job_ms: u64) -> Limits {
    let limits = Limits::default();
    limits.share_ppm.store(100_000, Relaxed);
    limits.compute_ns.store(job_ms * 1_000_000, Relaxed);
    limits
}

#[test]
fn overuse_is_found_however_long_the_jobs_are() {
    for job_ms in [1, 10, 48, 60, 500] {
        let limits = tenth(job_ms);
        // Within its rights: two jobs at once.
        let within = greedy(&limits, 2 * job_ms);
        assert_eq!(within.overuse_ns(&limits, GRACE), None, "{job_ms} ms");
        let owed_ns = greedy(&limits, 20 * job_ms + 100).overuse_ns(&limits, GRACE);
        assert!(owed_ns.is_some_and(|owed| owed > 2 * job_ms * 1_000_000), "{job_ms} ms");
        limits.unscreened.store(true, Relaxed);
        assert_eq!(greedy(&limits, 20 * job_ms + 100).overuse_ns(&limits, GRACE), None);
    }
}

#[test]
fn what_is_owed_without_end_is_not_remembered_without_end() {
    let limits = tenth(60);
    let owed = |millis| greedy(&limits, millis).owed_ns;
    assert_eq!(owed(2_000), owed(20_000));
}
