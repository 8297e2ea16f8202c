//! Domains that wait for real locks (`super::super::lock_waits`).
//!
//! The thread of a test acts as the watchdog: at its priority, on another CPU than the owner's.

use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};
use upcall_sys::inheritance::Boosts;
use upcall_sys::process::LockWait;

use super::super::lock_waits::LockWaits;
use super::super::measures::let_run;
use super::super::record::waits_for_lock;
use super::*;

const BAND: Band = Band::WHOLE;
/// More looks than any of these tests needs.
const LOOKS_MAX: u32 = 5_000;

/// Two CPUs and the records of the kernel, or a line that says what is missing.
struct Machine {
    /// The CPU of the domains, and the one of the watchdog.
    cpus: [u32; 2],
    boosts: Boosts,
    /// The thread of the test is pinned to the second of them: an owner with the priority of a
    /// domain keeps ordinary threads from the first.
    _pinned: Pinned,
}

/// The calling thread is pinned until this is dropped.
pub(super) struct Pinned {
    pub(super) allowed: Vec<u32>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        schedule::pin_thread(&self.allowed).unwrap();
    }
}

impl Machine {
    fn of(test: &str) -> Option<Machine> {
        let allowed = schedule::allowed_cpus().unwrap();
        let why = match (&allowed[..], Boosts::record(schedule::FIFO_LEAST)) {
            (&[first, .., last], Ok(boosts)) => {
                schedule::pin_thread(&[first]).unwrap();
                let _pinned = Pinned { allowed };
                return Some(Machine { cpus: [last, first], boosts, _pinned });
            }
            (_, Err(error)) => error.to_string(),
            _ => "one CPU only".to_owned(),
        };
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
        None
    }
}

/// Threads that own a lock or wait for it, until it is dropped. They stop when `over` is set.
#[derive(Default)]
struct Locks {
    words: Arc<[AtomicU32; 2]>,
    /// Domains begin when it is set.
    may_begin: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Locks {
    /// Starts a thread on a CPU. Returns its number when it has called `begin`.
    fn start(
        &mut self,
        cpu: u32,
        begin: impl FnOnce(&[AtomicU32; 2]) + Send + 'static,
        step: impl Fn(&[AtomicU32; 2]) + Send + 'static,
        end: impl FnOnce(&[AtomicU32; 2]) + Send + 'static,
    ) -> u32 {
        let (words, over, (tell, told)) = (self.words.clone(), self.over.clone(), mpsc::channel());
        self.threads.push(std::thread::spawn(move || {
            schedule::pin_thread(&[cpu]).unwrap();
            begin(&words);
            tell.send(thread_id()).unwrap();
            while !over.load(Relaxed) {
                step(&words);
            }
            end(&words);
        }));
        told.recv().unwrap()
    }

    /// An ordinary thread that owns both locks and does `step` again and again.
    fn start_owner(&mut self, cpu: u32, step: impl Fn() + Send + 'static) -> u32 {
        let begin = |words: &[AtomicU32; 2]| {
            words.iter().for_each(|word| assert!(lock(word, None)));
        };
        let end = |words: &[AtomicU32; 2]| words.iter().for_each(unlock);
        self.start(cpu, begin, move |_| step(), end)
    }

    /// As [`Locks::start_owner`]. A thread that waits for an owner that runs does not sleep: it
    /// waits in a loop of the kernel, as long as the host lets the owner run.
    fn start_sleeping_owner(&mut self, cpu: u32) -> u32 {
        self.start_owner(cpu, || sleep(Span::from_micros(200)))
    }

    /// As [`Locks::start_domain`], but it sleeps until [`Locks::begin`].
    fn start_later(&mut self, cpu: u32, step: impl Fn(&[AtomicU32; 2]) + Send + 'static) -> u32 {
        let may_begin = self.may_begin.clone();
        self.start_domain(cpu, move |words| match may_begin.load(Relaxed) {
            true => step(words),
            false => sleep(Span::from_micros(200)),
        })
    }

    fn begin(&self) {
        self.may_begin.store(true, Relaxed);
    }

    /// A thread with the priority of a domain.
    fn start_domain(&mut self, cpu: u32, step: impl Fn(&[AtomicU32; 2]) + Send + 'static) -> u32 {
        let begin = |_: &[AtomicU32; 2]| schedule::set_fifo(BAND.handlers()).unwrap();
        self.start(cpu, begin, step, |_| ())
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Waits for a lock, for so long at most. Returns whether the thread owns it.
fn lock(word: &AtomicU32, wait: Option<Span>) -> bool {
    let until = wait.map(|wait| timespec(clock::realtime_ns() + wait.as_nanos()));
    match futex::lock_pi(word, Flags::PRIVATE, until.as_ref()) {
        Ok(()) => true,
        Err(Errno::TIMEDOUT | Errno::INTR) => false,
        Err(error) => panic!("FUTEX_LOCK_PI: {error}"),
    }
}

fn unlock(word: &AtomicU32) {
    futex::unlock_pi(word, Flags::PRIVATE).unwrap();
}

fn timespec(ns: u64) -> Timespec {
    let (tv_sec, tv_nsec) = (ns / 1_000_000_000, ns % 1_000_000_000);
    Timespec { tv_sec: tv_sec.cast_signed(), tv_nsec: tv_nsec.cast_signed() }
}

fn spin(span: Span) {
    let until = now() + span;
    while now() < until {}
}

fn sleep(span: Span) {
    std::thread::sleep(std::time::Duration::from_nanos(span.as_nanos()));
}

/// A short wait for each of some locks.
fn wait_shortly(words: &[AtomicU32]) {
    for word in words {
        if lock(word, Some(Span::from_micros(90))) {
            unlock(word);
        }
    }
}

fn wait_long(words: &[AtomicU32; 2]) {
    if lock(&words[0], Some(Span::from_secs(10))) {
        unlock(&words[0]);
    }
}

/// Domains of one user that lend, and one of another user that has work on the same CPU.
struct Lending {
    watches: Vec<CpuWatch>,
    lock_waits: LockWaits,
    lenders: Vec<Arc<Member>>,
    /// Whether domains of several users are attached.
    several: bool,
    reports: Vec<Report>,
    _pinned: Pinned,
    owners: Vec<Owner<SharedMapping>>,
}

impl Lending {
    /// The calling thread becomes the watchdog. The numbers are those of the threads that lend.
    fn start(machine: Machine, tids: &[u32]) -> Lending {
        let Machine { cpus: [cpu, _], boosts, _pinned } = machine;
        schedule::set_fifo(BAND.watchdog()).unwrap();
        let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(cpu, uid).unwrap()));
        let pid = std::process::id();
        let numbered = (1..).zip(tids);
        let (lenders, mut owners): (Vec<_>, Vec<_>) =
            numbered.map(|(number, &tid)| member(&groups[0], number, (pid, tid))).unzip();
        for lender in &lenders {
            lender.limits.quantum_ns_max.store(QUANTUM.as_nanos(), Relaxed);
            lender.limits.share_ppm.store(100_000, Relaxed);
            lender.limits.compute_ns.store(QUANTUM.as_nanos(), Relaxed);
        }
        let (victim, mut owner) = member(&groups[1], 1, (pid, thread_id()));
        admit(&groups[1], &victim, 0);
        owner.publish(Some(Rank::new(7, 0).into()));
        owners.push(owner);
        let cpu_state = Arc::new(CpuState::new(cpu));
        cpu_state.set_groups(|list| list.extend(groups));
        let mut watch = CpuWatch::new(cpu_state);
        assert_eq!(step(&mut watch, now(), true), []);
        let lock_waits = LockWaits::new(boosts);
        Lending {
            watches: vec![watch],
            lock_waits,
            lenders,
            several: true,
            reports: Vec::new(),
            _pinned,
            owners,
        }
    }

    fn look(&mut self) {
        let rules = Rules { band: Some(BAND), grace: GRACE, kill: false };
        let report = &mut |report: Report| self.reports.push(report);
        let (now, stalled, kernel_tick) = (now(), Span::ZERO, KERNEL_TICK);
        let mut tick = Tick { now, stalled, kernel_tick, rules: &rules, report };
        self.lock_waits.look(&mut self.watches, (false, self.several), &mut tick);
    }

    fn is_away(&self, lender: usize) -> bool {
        let lender = &self.lenders[lender];
        let is_ordinary = lender.thread.by_watchdog().class() == Ok(schedule::Class::Ordinary);
        assert!(!is_ordinary || lender.is(State::Demoted));
        is_ordinary
    }

    /// Looks until the scans at the start are over.
    fn end_scans(&mut self) {
        self.look();
        while self.lock_waits.next_scan().is_some() {
            sleep(Span::from_micros(200));
            self.look();
        }
    }

    /// Looks until `lender` is put away.
    fn look_until_away(&mut self, lender: usize) {
        for _ in 0..LOOKS_MAX {
            sleep(Span::from_micros(200));
            self.look();
            if self.is_away(lender) {
                return;
            }
        }
        panic!("after {LOOKS_MAX} looks it still lends");
    }

    /// The daemon gives a domain its priority.
    fn raise(&self, lender: usize) {
        let thread = self.lenders[lender].thread.by_watchdog();
        thread.set_fifo_not_inherited(BAND.handlers()).unwrap();
    }

    /// The domain shows a response.
    fn respond(&self, lender: usize) {
        self.owners[lender].set_asked(now().as_nanos());
    }

    /// Ticks until the watchdog has given the class back.
    fn tick_until_back(&mut self, lender: usize) {
        for _ in 0..LOOKS_MAX {
            sleep(Span::from_micros(200));
            step(&mut self.watches[0], now(), true);
            if !self.is_away(lender) {
                return;
            }
        }
        panic!("after {LOOKS_MAX} ticks it is still away");
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        schedule::set_ordinary().unwrap();
    }
}

/// Looks at a domain that does `wait` on the CPU of the watchdog, or on its own. It is put away,
/// and has not offended.
fn assert_put_away(
    test: &str,
    is_elsewhere: bool,
    step: impl Fn() + Send + 'static,
    wait: impl Fn(&[AtomicU32; 2]) + Send + 'static,
) {
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, step);
    let tid = locks.start_later(if is_elsewhere { own } else { cpu }, wait);
    let mut lending = Lending::start(machine, &[tid]);
    // The scans at the start would find it without a boost.
    lending.end_scans();
    locks.begin();
    lending.look_until_away(0);
    assert_eq!((lending.lenders[0].offences(), &lending.reports[..]), (0, &[][..]));
}

/// Found by reading: between two looks that are 0.1 ms apart it has run. It waits so rarely that no
/// scan finds it, so only the record names it.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lends_its_priority_for_moments_again_and_again_is_put_away() {
    let test = "a_domain_that_lends_its_priority_for_moments_again_and_again_is_put_away";
    assert_put_away(test, true, std::hint::spin_loop, |words| {
        sleep(Span::from_millis(5));
        wait_shortly(&words[..1]);
    });
}

#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lends_to_two_locks_in_turn_is_put_away() {
    let test = "a_domain_that_lends_to_two_locks_in_turn_is_put_away";
    assert_put_away(test, true, std::hint::spin_loop, |words| wait_shortly(words));
}

/// Found by reading: nobody is kept from the CPU for 0.5 ms at a time.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lends_to_an_owner_which_loops_in_bursts_is_put_away() {
    let burst = || {
        spin(Span::from_micros(400));
        sleep(Span::from_micros(100));
    };
    let test = "a_domain_that_lends_to_an_owner_which_loops_in_bursts_is_put_away";
    assert_put_away(test, false, burst, wait_long);
}

/// Another thread begins each wait, so the record of the kernel does not name the domain.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_whose_wait_was_requeued_is_put_away() {
    let test = "a_domain_whose_wait_was_requeued_is_put_away";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_sleeping_owner(cpu);
    let condition = Arc::new(AtomicU32::new(0));
    let waited_for = condition.clone();
    let tid = locks.start_later(own, move |words| {
        // A look of a debug build takes longer than 90 us, and a wait that is over is not found.
        let until = timespec(clock::monotonic_ns() + 1_000_000);
        let word = &words[0];
        if futex::wait_requeue_pi(&waited_for, Flags::PRIVATE, 0, Some(&until), word).is_ok() {
            unlock(word);
        }
    });
    let requeue = move |words: &[AtomicU32; 2]| {
        let _ = futex::cmp_requeue_pi(&condition, Flags::PRIVATE, 1, &words[0], 0);
    };
    locks.start(own, |_| (), requeue, |_| ());
    let mut lending = Lending::start(machine, &[tid]);
    lending.end_scans();
    locks.begin();
    lending.look_until_away(0);
}

/// It waits before it has a priority, so the kernel records the thread that raises it.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_was_raised_while_it_waits_is_put_away() {
    let test = "a_domain_that_was_raised_while_it_waits_is_put_away";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, std::hint::spin_loop);
    let may_begin = locks.may_begin.clone();
    let wait = move |words: &[AtomicU32; 2]| match may_begin.load(Relaxed) {
        true => wait_long(words),
        false => sleep(Span::from_micros(200)),
    };
    let tid = locks.start(own, |_| (), wait, |_| ());
    let mut lending = Lending::start(machine, &[tid]);
    lending.end_scans();
    locks.begin();
    while !waits_for_lock(&lending.lenders[0]) {
        sleep(Span::from_micros(200));
    }
    lending.raise(0);
    lending.look_until_away(0);
}

/// A domain that began below the others lends that priority. Ordinary programs get no time beside
/// the owner, so the kernel gives them 50 ms of each second before all domains.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_was_preempted_does_not_lend_without_end() {
    let test = "a_domain_that_was_preempted_does_not_lend_without_end";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, std::hint::spin_loop);
    let begin = |_: &[AtomicU32; 2]| schedule::set_fifo(BAND.offender()).unwrap();
    let may_begin = locks.may_begin.clone();
    let wait = move |words: &[AtomicU32; 2]| match may_begin.load(Relaxed) {
        true => wait_long(words),
        false => sleep(Span::from_micros(200)),
    };
    let tid = locks.start(own, begin, wait, |_| ());
    let mut lending = Lending::start(machine, &[tid]);
    let lender = lending.lenders[0].clone();
    let (group, _) = lending.watches[0].view.groups().next().unwrap();
    group.set_state(&lender, State::Demoted);
    let record = lending.watches[0].record_of(&lender).unwrap();
    record.penalty = Some(record.penalty_from(now(), false));
    lending.end_scans();
    locks.begin();
    lending.look_until_away(0);
}

/// It lowers its own priority before it waits, below those of all domains.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lowers_itself_and_lends_is_put_away() {
    let test = "a_domain_that_lowers_itself_and_lends_is_put_away";
    assert_put_away(test, true, std::hint::spin_loop, |words| {
        schedule::set_fifo(schedule::FIFO_LEAST).unwrap();
        wait_long(words);
    });
}

/// The second one causes no record: the owner has the priority already.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn two_domains_that_lend_to_one_owner_are_both_put_away() {
    let test = "two_domains_that_lend_to_one_owner_are_both_put_away";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, std::hint::spin_loop);
    let tids = [(); 2].map(|()| locks.start_later(own, wait_long));
    let mut lending = Lending::start(machine, &tids);
    lending.end_scans();
    locks.begin();
    lending.look_until_away(0);
    lending.look_until_away(1);
}

/// Its wait has timed out, but the owner of the lock keeps it from running. The kernel shows no
/// wait.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lends_while_it_is_ready_is_put_away_when_it_is_raised() {
    let test = "a_domain_that_lends_while_it_is_ready_is_put_away_when_it_is_raised";
    let Some(mut machine) = Machine::of(test) else { return };
    let [cpu, _] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, std::hint::spin_loop);
    let tid = locks.start_domain(cpu, |words| {
        lock(&words[0], Some(Span::from_millis(20)));
        sleep(Span::from_millis(500));
    });
    let state = || thread_state(std::process::id(), tid);
    while state() != Ok(ThreadState::Sleeping) {
        std::hint::spin_loop();
    }
    while state() != Ok(ThreadState::Running) {
        std::hint::spin_loop();
    }
    // The record of the beginning.
    machine.boosts.take(&mut Vec::new());
    let mut lending = Lending::start(machine, &[tid]);
    lending.end_scans();
    assert!(!lending.is_away(0), "it is ready and not named");
    // As `away` does with a domain that is ready while no domain gets the CPU.
    let lender = lending.lenders[0].clone();
    let rules = Rules { band: Some(BAND), grace: GRACE, kill: false };
    // The host may stop the CPU for longer than a raised domain may run, so it repeats.
    for _ in 0..LOOKS_MAX {
        lending.watches[0].raise(&lender, |member| let_run(member, &rules));
        lending.look();
        if lending.is_away(0) {
            break;
        }
    }
    assert!(lending.is_away(0));
    let record = lending.watches[0].record_of(&lender).unwrap();
    assert!(record.account.owed_ns >= GRACE.as_nanos().cast_signed() / 5, "it pays");
}

/// The others trusted it then, so its record of that time says nothing.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lent_before_another_user_came_keeps_its_class() {
    let test = "a_domain_that_lent_before_another_user_came_keeps_its_class";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, std::hint::spin_loop);
    let may_begin = locks.may_begin.clone();
    let (tell, told) = mpsc::channel();
    let tid = locks.start_domain(own, move |words| {
        if may_begin.swap(false, Relaxed) {
            wait_shortly(&words[..1]);
            tell.send(()).unwrap();
        }
        sleep(Span::from_micros(200));
    });
    let mut lending = Lending::start(machine, &[tid]);
    lending.several = false;
    lending.look();
    for _ in 0..10 {
        locks.begin();
        told.recv().unwrap();
        // Its boost is not taken before the other user comes.
        lending.several = true;
        lending.look();
        lending.end_scans();
        assert!(!lending.is_away(0));
        lending.several = false;
        lending.look();
    }
}

#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lends_is_charged_with_its_group() {
    let test = "a_domain_that_lends_is_charged_with_its_group";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, std::hint::spin_loop);
    let tid = locks.start_later(own, wait_long);
    let mut lending = Lending::start(machine, &[tid]);
    lending.end_scans();
    locks.begin();
    lending.look_until_away(0);
    let lender = lending.lenders[0].clone();
    let record = lending.watches[0].record_of(&lender).unwrap();
    assert!(record.kept_ns >= 100_000, "{} ns", record.kept_ns);
    assert!(record.awaits_group);
    let owed_ns = u64::try_from(record.account.owed_ns).unwrap_or_default();
    assert_eq!(lender.last_sample.owed_ns.load(Relaxed), owed_ns, "it may detach now");
    let _ = step(&mut lending.watches[0], now(), true);
    let record = lending.watches[0].record_of(&lender).unwrap();
    assert_eq!(record.kept_ns, 0, "the account of the group has it");
}

/// It lends while all domains are of one user, and another user comes.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lends_is_put_away_as_soon_as_a_domain_of_another_user_comes() {
    let test = "a_domain_that_lends_is_put_away_as_soon_as_a_domain_of_another_user_comes";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_owner(cpu, std::hint::spin_loop);
    let tid = locks.start_domain(own, wait_long);
    let mut lending = Lending::start(machine, &[tid]);
    lending.several = false;
    while !waits_for_lock(&lending.lenders[0]) {
        sleep(Span::from_micros(200));
    }
    for _ in 0..10 {
        lending.look();
        assert!(!lending.is_away(0), "its user trusts it");
    }
    lending.several = true;
    lending.look_until_away(0);
}

/// The first two times it may go on when it has run. The third time within a second is an offence.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_lends_three_times_within_a_second_offends() {
    let test = "a_domain_that_lends_three_times_within_a_second_offends";
    let Some(machine) = Machine::of(test) else { return };
    let [cpu, own] = machine.cpus;
    let mut locks = Locks::default();
    locks.start_sleeping_owner(cpu);
    let tid = locks.start_domain(own, |words| {
        wait_shortly(&words[..1]);
        sleep(Span::from_millis(20));
    });
    let mut lending = Lending::start(machine, &[tid]);
    let mut times = Vec::new();
    loop {
        lending.look_until_away(0);
        times.push(now());
        if !lending.reports.is_empty() {
            break;
        }
        lending.respond(0);
        lending.tick_until_back(0);
    }
    let is_offence =
        |report: &Report| matches!(report, Report::Offence(of) if of.measure == Measure::LockWait);
    assert!(lending.reports.iter().all(is_offence), "{:?}", lending.reports);
    let [.., first, _, third] = times[..] else { panic!("an offence after {} waits", times.len()) };
    // Each within a second of the one before.
    assert!(third.since(first) < Span::from_secs(2));
    assert_eq!(lending.lenders[0].offences(), 1);
}

/// A mutex and a condition variable without priority inheritance lend nothing.
#[test]
#[ignore = "needs the rights to SCHED_FIFO and to trace: run by cargo xtask ci where they are granted"]
fn a_domain_that_waits_for_an_ordinary_mutex_keeps_its_class() {
    let test = "a_domain_that_waits_for_an_ordinary_mutex_keeps_its_class";
    let Some(machine) = Machine::of(test) else { return };
    let [_, own] = machine.cpus;
    let mut locks = Locks::default();
    let mutex = Arc::new(std::sync::Mutex::new(()));
    let (waited_for, waits) = (mutex.clone(), Arc::new(AtomicU32::new(0)));
    let counted = waits.clone();
    let tid = locks.start_domain(own, move |_| {
        drop(waited_for.lock().unwrap());
        counted.fetch_add(1, Relaxed);
        sleep(Span::from_micros(200));
    });
    let mut lending = Lending::start(machine, &[tid]);
    for _ in 0..20 {
        let (guard, before) = (mutex.lock().unwrap(), waits.load(Relaxed));
        let thread = lending.lenders[0].thread.by_watchdog();
        while thread.state() != Ok(ThreadState::Sleeping) {
            sleep(Span::from_micros(200));
        }
        assert_ne!(thread.lock_wait(), LockWait::Yes);
        // As if the other user came now.
        lending.several = false;
        lending.look();
        lending.several = true;
        lending.end_scans();
        assert!(!lending.is_away(0));
        drop(guard);
        while waits.load(Relaxed) == before {
            sleep(Span::from_micros(200));
        }
    }
}
