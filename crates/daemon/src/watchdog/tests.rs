//! Where it runs, in threads; what it remembers, in numbers.

use std::collections::BTreeSet;
use std::sync::mpsc;

use upcall_shm::user_area::{Owner, Rank};
use upcall_sys::memfd::SharedMapping;

use super::*;
use crate::group::Limits;
use crate::group::tests::member;
use crate::ranks::Admitted;

fn cpu_states(cpus: &[u32]) -> Vec<Arc<CpuState>> {
    cpus.iter().map(|&cpu| Arc::new(CpuState::new(cpu))).collect()
}

#[test]
fn it_is_beside_the_domains_where_there_is_a_cpu_without_any() {
    assert_eq!(beside(&cpu_states(&[1]), &[0, 1]), [0]);
    assert_eq!(beside(&cpu_states(&[1, 3]), &[0, 1, 2, 3]), [0, 2]);
    assert_eq!(beside(&cpu_states(&[0, 1]), &[0, 1]), []);
    assert_eq!(beside(&cpu_states(&[0]), &[0]), []);
}

#[test]
fn its_thread_is_allowed_on_no_cpu_of_a_site_if_there_is_another() {
    let allowed = schedule::allowed_cpus().unwrap();
    for scheduled in [&allowed[..1], &allowed[..]] {
        let cpu_states = cpu_states(scheduled);
        let quit = Arc::new(AtomicBool::new(true));
        let rules = Rules { band: None, grace: Span::ZERO, kill: false };
        let watchdog = Watchdog::new((&cpu_states, &allowed), rules, quit, |_| {});
        let run = move || {
            watchdog.run();
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

/// A domain of a user, in a thread of this process that sleeps: it has the rank `key`, if it has any.
fn asleep(
    uid: u32,
    tid: u32,
    key: Option<u64>,
) -> (Arc<DomainGroup>, Arc<Member>, Owner<SharedMapping>) {
    let group = Arc::new(DomainGroup::new(0, uid).unwrap());
    let (member, mut owner) = member(&group, 1, (std::process::id(), tid));
    owner.publish(key.map(|key| Rank::new(key, uid).into()));
    let admitted = Admitted { order: uid, key_min: 0, delay: None, wins_ties: false };
    member.limits.ranks.lock().unwrap().set(vec![admitted], Instant::ZERO);
    assert!(group.turn.wake_word(member.domain).prepare_wait());
    (group, member, owner)
}

#[test]
fn who_sleeps_on_its_turn_is_out_prioritised_at_the_fourth_look_after_it_ran() {
    let (wake, wait) = mpsc::channel::<()>();
    let (says, said) = mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        says.send(thread_id()).unwrap();
        wait.recv().unwrap_err();
    });
    let tid = said.recv().unwrap();
    while thread_state(std::process::id(), tid) == Ok(ThreadState::Running) {
        std::thread::yield_now();
    }
    let cpu_state = Arc::new(CpuState::new(0));
    let (has_turn, idler, _mine) = asleep(1, tid, Some(7));
    let (waits, _, _theirs) = asleep(2, tid, Some(8));
    cpu_state.set_groups(|groups| groups.extend([has_turn.clone(), waits]));
    cpu_state.grant(&has_turn);
    has_turn.turn.reset(idler.domain);
    let mut watch = Watch { cpu_state, known: Known::default(), asked: None, records: Vec::new() };
    let rules = Rules { band: Some(Band::WHOLE), grace: GRACE, kill: false };
    let mut look = |at: u32| {
        let mut told = None;
        let report = &mut |offence: Offence| told = Some(offence.measure);
        let (now, still, kernel_tick) = (Instant::ZERO + TICK * at, Span::ZERO, KERNEL_TICK);
        watch.look(&mut Tick { now, still, kernel_tick, rules: &rules, report });
        told
    };
    // At the first it counts as having run.
    for at in 1..=IDLE_TICKS_MAX + 1 {
        assert_eq!(look(at), None, "{at}");
    }
    assert_eq!(look(IDLE_TICKS_MAX + 2), Some(Measure::OutPrioritised));
    assert!(!has_turn.is_present(&idler) && has_turn.turn.holder() == Ok(DomainId::DAEMON));
    drop(wake);
    sleeper.join().unwrap();
}

#[test]
fn a_look_at_which_the_kls_thread_cannot_run_is_not_held_against_who_sleeps() {
    let (_, member, _owner) = asleep(1, 1, None);
    let count = |accounts: &mut dyn Iterator<Item = (bool, u64)>| {
        let mut record = Record::new(member.clone());
        record.kls_ns = 1;
        accounts.filter(|&account| record.idled_too_long(account)).count()
    };
    let ready = |kls_ns| (true, kls_ns);
    assert_eq!(count(&mut std::iter::repeat_n(ready(1), 100)), 0);
    // Whoever has it woken again and again, or for ever asleep, is found.
    assert_eq!(count(&mut (2..102).map(ready)), 25);
    assert_eq!(count(&mut std::iter::repeat_n((false, 1), 100)), 25);
    // Three before and one after: what could not be seen between counts for nothing.
    let accounts = [2, 3, 4, 4, 4, 4, 5].map(ready);
    assert_eq!(count(&mut accounts.into_iter()), 1);
}
