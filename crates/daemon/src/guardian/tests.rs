//! Where it runs, in threads.

use std::collections::BTreeSet;

use super::*;

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
