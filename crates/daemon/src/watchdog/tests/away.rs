//! Domains that wait in the kernel while no domain gets the CPU (`super::super::away`).

use std::cell::Cell;
use std::sync::atomic::AtomicU32;

use rustix::thread::futex as pi;
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::futex;
use upcall_sys::process::cpu_time_of;

use super::super::arming::LOOK_MIN;
use super::super::standstill::{Ask, CHOICE_MAX, Kept};
use super::*;

/// More than any test lets the waiting thread have.
const LOCKS: usize = 8;

fn lock(word: &AtomicU32) {
    pi::lock_pi(word, pi::Flags::PRIVATE, None).unwrap();
}

fn unlock(word: &AtomicU32) {
    pi::unlock_pi(word, pi::Flags::PRIVATE).unwrap();
}

/// A thread that gives its number, and then waits.
fn waiting(wait: impl FnOnce() + Send + 'static) -> (u32, JoinHandle<()>) {
    let (tid_sender, tid) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tid_sender.send(thread_id()).unwrap();
        wait();
    });
    let tid = tid.recv().unwrap();
    while thread_state(std::process::id(), tid) == Ok(ThreadState::Running) {
        std::thread::yield_now();
    }
    (tid, thread)
}

/// Two users. A domain of the first one waits for a lock in the kernel, and claims to sleep on its
/// wake word; another one sleeps there. The domain of the second user has work, and its KLS thread
/// is ready.
struct Stuck {
    watch: CpuWatch,
    groups: [Arc<DomainGroup>; 2],
    waits: Arc<Member>,
    sleeps: Arc<Member>,
    sleeper_tid: u32,
    /// Locks of the thread of the test. The waiting thread waits for one after the other.
    locks: Arc<[AtomicU32; LOCKS]>,
    /// How many of them it has had.
    unlocked: Cell<usize>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _owners: [Owner<SharedMapping>; 3],
    _kls: Busy,
}

impl Stuck {
    fn start() -> Stuck {
        let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
        let locks = Arc::new([const { AtomicU32::new(0) }; LOCKS]);
        locks.iter().for_each(lock);
        let waited_for = locks.clone();
        let (waiter_tid, waiter) = waiting(move || {
            for word in waited_for.iter() {
                lock(word);
                unlock(word);
            }
        });
        let unlocked = Cell::new(0);
        let over = Arc::new(AtomicBool::new(false));
        let (group, flag) = (groups[0].clone(), over.clone());
        let (sleeper_tid, sleeper) = waiting(move || {
            let wake_word = group.turn.wake_word(DomainId::new(2).unwrap());
            while !flag.load(Relaxed) {
                if wake_word.prepare_wait() {
                    futex::wait_shared_until(wake_word.word(), ASLEEP, None);
                }
                wake_word.finish_wait();
            }
        });
        let pid = std::process::id();
        let (waits, one) = member(&groups[0], 1, (pid, waiter_tid));
        let (sleeps, two) = member(&groups[0], 2, (pid, sleeper_tid));
        let (victim, mut three) = member(&groups[1], 1, (pid, thread_id()));
        waits.limits.share_ppm.store(100_000, Relaxed);
        waits.limits.compute_ns.store(2_000_000, Relaxed);
        assert!(groups[0].turn.wake_word(waits.domain).prepare_wait());
        admit(&groups[1], &victim, 0);
        three.publish(Some(Rank::new(7, 0).into()));
        // Its thread is not a domain of either group.
        let kls = Busy::start(&DomainGroup::new(0, 3).unwrap(), 1);
        groups[1].set_kls_of(kls.member.thread.tid());
        let cpu_state = Arc::new(CpuState::new(0));
        cpu_state.set_groups(|list| list.extend(groups.clone()));
        let mut watch = CpuWatch::new(cpu_state);
        assert_eq!(step(&mut watch, THEN, true), []);
        let threads = vec![waiter, sleeper];
        let _owners = [one, two, three];
        Stuck {
            watch,
            groups,
            waits,
            sleeps,
            sleeper_tid,
            locks,
            unlocked,
            over,
            threads,
            _owners,
            _kls: kls,
        }
    }

    /// Waits until the sleeping thread, which was woken, has run.
    fn wait_for_sleeper(&self, before_ns: u64) {
        while self.sleeper_ns() == before_ns {
            std::thread::yield_now();
        }
    }

    fn sleeper_ns(&self) -> u64 {
        cpu_time_of(std::process::id(), self.sleeper_tid).unwrap()
    }

    /// The looks up to the one that lowers the waiting domain.
    fn lower(&mut self, from: Instant) -> Instant {
        let before_ns = self.sleeper_ns();
        assert_eq!(step(&mut self.watch, from + CHOICE_MAX, false), []);
        // The thread of the test is ready, so it is raised first.
        assert!(matches!(self.watch.kept, Some(Kept::LetRun { kept: None, .. })));
        assert_eq!(step(&mut self.watch, from + CHOICE_MAX + LOOK_MIN, false), []);
        assert!(self.waits.is(State::Attached));
        self.wait_for_sleeper(before_ns);
        let judged = from + CHOICE_MAX + LOOK_MIN * 2;
        assert_eq!(self.watch.next_look(), Some(judged));
        assert_eq!(step(&mut self.watch, judged, false), []);
        judged
    }

    fn claim_to_sleep(&self) {
        let wake_word = self.groups[0].turn.wake_word(self.waits.domain);
        wake_word.finish_wait();
        assert!(wake_word.prepare_wait());
    }

    /// The next sample of its CPU time is larger.
    fn let_waiter_run(&self) {
        let (pid, tid) = (std::process::id(), self.waits.thread.tid());
        let before = cpu_time_of(pid, tid).unwrap();
        self.unlock_next();
        while cpu_time_of(pid, tid).unwrap() == before
            || thread_state(pid, tid) == Ok(ThreadState::Running)
        {
            std::thread::yield_now();
        }
    }

    /// The waiting thread runs for a moment.
    fn unlock_next(&self) {
        unlock(&self.locks[self.unlocked.get()]);
        self.unlocked.set(self.unlocked.get() + 1);
    }

    fn end(self) {
        while self.unlocked.get() < LOCKS {
            self.unlock_next();
        }
        let Stuck { groups, over, threads, .. } = self;
        over.store(true, Relaxed);
        let wake_word = groups[0].turn.wake_word(DomainId::new(2).unwrap());
        for thread in threads {
            while !thread.is_finished() {
                let _ = wake_word.notify();
                futex::wake_shared(wake_word.word(), 1);
                std::thread::yield_now();
            }
            thread.join().unwrap();
        }
    }
}

/// Found by an attack: a domain waited for a priority-inheritance lock whose owner looped.
#[test]
fn a_domain_that_waits_in_the_kernel_is_ordinary_while_no_domain_gets_the_cpu() {
    let mut stuck = Stuck::start();
    assert_eq!(stuck.watch.next_look(), Some(THEN + CHOICE_MAX));
    stuck.lower(THEN);
    assert!(stuck.waits.is(State::Demoted), "it is not on its wake word");
    assert!(stuck.sleeps.is(State::Attached), "it was woken");
    assert_eq!(stuck.waits.offences(), 0);
    stuck.end();
}

#[test]
fn a_domain_that_was_away_takes_turns_again_only_when_it_has_run() {
    let mut stuck = Stuck::start();
    let judged = stuck.lower(THEN);
    stuck.watch.lowered = None;
    stuck.watch.settle(600_000);
    stuck.claim_to_sleep();
    step(&mut stuck.watch, judged + TICK, true);
    assert!(stuck.waits.is(State::Demoted), "it only claims to sleep");
    stuck.let_waiter_run();
    // Its group owes 0.6 ms and what the thread used just now, and pays 0.25 ms a tick.
    let takes_turns = (2..20).any(|ticks| {
        // The CPU was given away meanwhile, so nobody is away.
        stuck.watch.cpu_state.grant(&stuck.groups[1]);
        stuck.watch.cpu_state.grant_none();
        step(&mut stuck.watch, judged + TICK * ticks, true);
        stuck.waits.is(State::Attached)
    });
    assert!(takes_turns && stuck.waits.offences() == 0);
    stuck.end();
}

#[test]
fn the_time_for_which_others_were_kept_from_the_cpu_is_charged() {
    let mut stuck = Stuck::start();
    let judged = stuck.lower(THEN);
    stuck.watch.lowered = None;
    stuck.watch.settle(20_000_000);
    stuck.let_waiter_run();
    stuck.claim_to_sleep();
    step(&mut stuck.watch, judged + TICK, true);
    assert!(stuck.waits.is(State::Demoted), "it owes 20 ms");
    // Its group waits until it is within its reservation and one job: it pays 0.5 ms a tick.
    let mut ticks = 1;
    while stuck.waits.is(State::Demoted) {
        ticks += 1;
        step(&mut stuck.watch, judged + TICK * ticks, true);
        assert!(ticks < 100);
    }
    assert!(ticks > 30, "{ticks}");
    stuck.end();
}

/// Found by reading: each domain of a swarm paid for its own standstill at its own rate.
#[test]
fn a_domain_that_was_away_takes_turns_again_when_its_group_owes_nothing() {
    let mut stuck = Stuck::start();
    let judged = stuck.lower(THEN);
    stuck.watch.lowered = None;
    stuck.watch.settle(2_000_000);
    // As much as other domains of the group were charged for.
    stuck.watch.record_of(&stuck.sleeps).unwrap().kept_ns = 10_000_000;
    stuck.let_waiter_run();
    stuck.claim_to_sleep();
    let mut ticks = 1;
    step(&mut stuck.watch, judged + TICK, true);
    while stuck.waits.is(State::Demoted) {
        ticks += 1;
        step(&mut stuck.watch, judged + TICK * ticks, true);
        assert!(ticks < 100);
    }
    // Alone it owes 2 ms, which is one job. The group owes 12 ms, and pays 0.25 ms a tick.
    assert!(ticks > 10, "{ticks}");
    stuck.end();
}

#[test]
fn a_domain_that_was_away_while_nobody_was_kept_from_the_cpu_is_not_charged() {
    let mut stuck = Stuck::start();
    let judged = stuck.lower(THEN);
    stuck.watch.lowered = None;
    stuck.watch.settle(0);
    stuck.claim_to_sleep();
    assert_eq!(step(&mut stuck.watch, judged + LOOK_MIN, false), []);
    assert!(stuck.waits.is(State::Attached));
    stuck.end();
}

/// The thread that waits and the owner of the lock may be on different CPUs.
#[test]
fn a_domain_on_another_cpu_is_woken_and_lowered_too() {
    let mut stuck = Stuck::start();
    let before_ns = stuck.sleeper_ns();
    let rules = Rules { band: Some(Band::WHOLE), grace: GRACE, kill: false };
    for (us, ask) in [(1, Ask::Wake), (101, Ask::Lower), (201, Ask::Settle(20_000_000))] {
        let now = THEN + Span::from_micros(us);
        let report = &mut |report: Report| panic!("{report:?}");
        let (stalled, kernel_tick) = (Span::ZERO, KERNEL_TICK);
        let mut tick = Tick { now, stalled, kernel_tick, rules: &rules, report };
        stuck.watch.answer(ask, &mut tick);
        stuck.wait_for_sleeper(before_ns);
    }
    assert!(stuck.waits.is(State::Demoted) && stuck.sleeps.is(State::Attached));
    let record = stuck.watch.record_of(&stuck.waits).unwrap();
    assert!(record.account.owed_ns >= 20_000_000);
    stuck.end();
}

#[test]
fn a_domain_that_is_ready_without_the_turn_may_finish_its_quantum_first() {
    let mut stuck = Stuck::start();
    let back = Busy::start(&stuck.groups[0], 3);
    stuck.watch.cpu_state.grant(&stuck.groups[1]);
    stuck.watch.cpu_state.grant_none();
    let now = THEN + TICK;
    step(&mut stuck.watch, now, true);
    let mut is_woken_at = |at| {
        step(&mut stuck.watch, at, false);
        stuck.watch.record_of(&stuck.waits).unwrap().woken_ns.is_some()
    };
    let limit = QUANTUM + Span::from_micros(900);
    assert!(!is_woken_at(now + CHOICE_MAX));
    assert!(!is_woken_at(now + CHOICE_MAX + limit), "it is raised first");
    assert!(is_woken_at(now + CHOICE_MAX + limit + LOOK_MIN));
    drop(back);
    stuck.end();
}

/// The time without progress ends with each grant and with each turn. A choice alone is none: a KLS
/// thread left the choice to another one, and a lock's owner kept that one from running.
#[test]
fn no_domain_is_woken_while_the_kls_threads_choose_or_sleep() {
    let mut stuck = Stuck::start();
    stuck.watch.cpu_state.grant(&stuck.groups[1]);
    stuck.watch.cpu_state.grant_none();
    let now = THEN + CHOICE_MAX;
    step(&mut stuck.watch, now, false);
    assert_eq!(stuck.watch.next_look(), Some(now + CHOICE_MAX));
    stuck.groups[1].set_kls_of(0);
    for looks in 0..3 {
        step(&mut stuck.watch, now + CHOICE_MAX + LOOK_MIN * looks, false);
    }
    assert!(stuck.waits.is(State::Attached));
    stuck.end();
}

/// Found by a trace of an attack: see above.
#[test]
fn a_choice_that_gives_the_cpu_to_nobody_is_no_progress() {
    let mut stuck = Stuck::start();
    drop(stuck.watch.cpu_state.lock_choice());
    stuck.lower(THEN);
    assert!(stuck.waits.is(State::Demoted));
    stuck.end();
}

/// Found by an attack: the holder responds, so the looks between two ticks did not read its count.
/// The sleeping domains of another user were woken, and seemed to keep the holder from running.
#[test]
fn no_domain_is_woken_beside_a_holder_that_runs_between_two_ticks() {
    let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
    let mut holder = Busy::start(&groups[0], 1);
    admit(&groups[0], &holder.member, 0);
    groups[0].turn.wake_word(holder.member.domain).finish_wait();
    holder.owner.publish(Some(Rank::new(8, 0).into()));
    let mut watch = watch_of(&groups[0], &holder.member);
    watch.cpu_state.set_groups(|list| list.push(groups[1].clone()));
    step(&mut watch, THEN, true);
    holder.run_for(Span::from_millis(5));
    let at = THEN + KERNEL_TICK + Span::from_micros(700);
    holder.owner.set_asked(at.as_nanos());
    assert_eq!(step(&mut watch, at, false), []);
    assert!(watch.asks.is_empty(), "{:?}", watch.asks);
}

/// Two users, each with a domain that loops. The first has the turn, and nobody else wants the CPU.
struct Lone {
    watch: CpuWatch,
    holder: Busy,
    _other: (Arc<Member>, Owner<SharedMapping>),
    limit: Span,
}

impl Lone {
    fn start() -> Lone {
        Lone::of([1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap())))
    }

    fn of(groups: [Arc<DomainGroup>; 2]) -> Lone {
        let holder = Busy::start(&groups[0], 1);
        let other = member(&groups[1], 1, sleeping_thread());
        let mut watch = watch_of(&groups[0], &holder.member);
        watch.cpu_state.set_groups(|list| list.push(groups[1].clone()));
        assert!(groups[1].turn.wake_word(other.0.domain).prepare_wait());
        holder.owner.set_running(Some(0), THEN.as_nanos());
        assert_eq!(step(&mut watch, THEN, true), []);
        let limit = QUANTUM + Span::from_micros(900);
        Lone { watch, holder, _other: other, limit }
    }

    /// The look that raises the holder.
    fn raise(&mut self) -> Instant {
        assert_eq!(self.watch.next_look(), Some(THEN + self.limit));
        step(&mut self.watch, THEN + self.limit, false);
        assert_eq!(self.watch.next_look(), Some(THEN + self.limit + LOOK_MIN));
        THEN + self.limit + LOOK_MIN
    }
}

/// Found by an attack: the looks came only with ticks while no other domain had work.
#[test]
fn a_silent_holder_that_waits_is_found_although_nobody_else_wants_the_cpu() {
    // Threads inherit the CPU, so two that loop wait for each other.
    schedule::pin_thread(&schedule::allowed_cpus().unwrap()[..1]).unwrap();
    let mut lone = Lone::start();
    let _beside = Busy::start(&DomainGroup::new(0, 3).unwrap(), 1);
    while lone.holder.member.thread.by_watchdog().wait_time().unwrap() < 1_000_000 {
        std::thread::yield_now();
    }
    let at = lone.raise();
    let Some(Kept::Raised { waited_ns, .. }) = &mut lone.watch.kept else { panic!("not raised") };
    // As if it had been raised before its waits.
    *waited_ns = 0;
    step(&mut lone.watch, at, false);
    let Some(Kept::Woken { kept_ns, .. }) = lone.watch.kept else { panic!("it waited") };
    assert!(kept_ns >= 1_000_000);
    step(&mut lone.watch, at + LOOK_MIN, false);
    assert!(lone.watch.kept.is_none() && lone.holder.member.is(State::Attached));
}

/// Found by a trace of an attack: the wait for the lock had timed out, so the thread did not sleep.
/// It was ready behind the owner, which kept its priority.
#[test]
fn a_thread_that_is_ready_beside_a_kept_holder_runs_before_the_sleepers_are_woken() {
    // Threads inherit the CPU, so the two wait for each other.
    schedule::pin_thread(&schedule::allowed_cpus().unwrap()[..1]).unwrap();
    let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
    let ready = Busy::start(&groups[1], 2);
    assert!(groups[1].turn.wake_word(ready.member.domain).prepare_wait(), "it claims to sleep");
    let mut lone = Lone::of(groups);
    while lone.holder.member.thread.by_watchdog().wait_time().unwrap() < 1_000_000 {
        std::thread::yield_now();
    }
    let at = lone.raise();
    let Some(Kept::Raised { waited_ns, .. }) = &mut lone.watch.kept else { panic!("not raised") };
    // As if it had been raised before its waits.
    *waited_ns = 0;
    step(&mut lone.watch, at, false);
    let Some(Kept::LetRun { ready: raised, .. }) = &lone.watch.kept else { panic!("they wait") };
    assert!(raised.len() == 1 && Arc::ptr_eq(&raised[0], &ready.member));
    step(&mut lone.watch, at + LOOK_MIN, false);
    assert!(matches!(lone.watch.kept, Some(Kept::Woken { kept_ns: 1_000_000.., .. })));
    step(&mut lone.watch, at + LOOK_MIN * 2, false);
    assert!(lone.watch.kept.is_none() && ready.member.is(State::Attached), "it runs");
}

#[test]
fn a_silent_holder_that_runs_wakes_nobody_and_is_asked_again_after_its_limit() {
    let mut lone = Lone::start();
    let at = lone.raise();
    let Some(Kept::Raised { waited_ns, .. }) = &mut lone.watch.kept else { panic!("not raised") };
    // Other programs of this machine may have its CPU.
    *waited_ns = u64::MAX;
    step(&mut lone.watch, at, false);
    assert!(lone.watch.kept.is_none());
    assert!(lone.watch.asks.iter().all(|ask| matches!(ask, Ask::CheckCpus)), "it wakes nobody");
    step(&mut lone.watch, at + LOOK_MIN, false);
    assert!(lone.watch.kept.is_none(), "it was raised a moment ago");
    assert_eq!(lone.watch.next_look(), Some(THEN + lone.limit * 2));
}

/// Found by an attack: two domains were preempted, and the owner of a lock kept both from the CPU
/// until the end. No other domain wanted the CPU, so nobody looked for the cause.
#[test]
fn a_preempted_domain_that_is_kept_from_the_cpu_is_raised_too() {
    let mut lone = Lone::start();
    let Lone { watch, holder, limit, .. } = &mut lone;
    let group = watch.view.groups().next().unwrap().0.clone();
    group.set_state(&holder.member, State::Demoted);
    group.turn.reset(DomainId::DAEMON);
    let record = watch.record_of(&holder.member).unwrap();
    record.penalty = Some(record.penalty_from(THEN, false));
    // Otherwise the review ends the penalty.
    record.account.owed_ns = 10_000_000_000;
    step(watch, THEN + *limit, false);
    let Some(Kept::Raised { holder: raised, .. }) = &watch.kept else { panic!("not raised") };
    assert!(Arc::ptr_eq(raised, &holder.member));
}

/// Found by an attack: all domains of a user were finishing their quanta, and the owner of a lock
/// kept them from the CPU until the end. Such a domain shows no work, and so does one that was
/// woken and has not run yet.
#[test]
fn a_domain_without_the_turn_that_is_kept_from_the_cpu_is_raised_too() {
    for state in [State::Blocked, State::Stopped, State::Attached] {
        let mut lone = Lone::start();
        let Lone { watch, holder, limit, .. } = &mut lone;
        let group = watch.view.groups().next().unwrap().0.clone();
        group.set_state(&holder.member, state);
        group.turn.reset(DomainId::DAEMON);
        step(watch, THEN + *limit, false);
        let Some(Kept::Raised { holder: raised, .. }) = &watch.kept else { panic!("{state:?}") };
        assert!(Arc::ptr_eq(raised, &holder.member));
    }
}

#[test]
fn a_domain_that_sleeps_without_the_turn_is_not_raised() {
    let mut lone = Lone::start();
    let Lone { watch, holder, limit, .. } = &mut lone;
    let group = watch.view.groups().next().unwrap().0.clone();
    assert!(group.turn.wake_word(holder.member.domain).prepare_wait());
    group.turn.reset(DomainId::DAEMON);
    step(watch, THEN + *limit, false);
    assert!(watch.kept.is_none());
}

/// Found by reading: an ordinary thread of the user renewed the turn without end, and each look
/// took that for progress.
#[test]
fn a_turn_that_is_renewed_is_no_progress() {
    let mut stuck = Stuck::start();
    let before_ns = stuck.sleeper_ns();
    stuck.watch.cpu_state.grant(&stuck.groups[0]);
    let mut look = |at| {
        stuck.groups[0].turn.reset(stuck.waits.domain);
        step(&mut stuck.watch, at, false);
    };
    // The first look finds the grant. Then others are raised, sleepers woken, and one is away.
    let spans = [Span::ZERO, CHOICE_MAX, CHOICE_MAX + LOOK_MIN];
    spans.into_iter().for_each(|span| look(THEN + Span::from_micros(1) + span));
    stuck.wait_for_sleeper(before_ns);
    stuck.groups[0].turn.reset(stuck.waits.domain);
    let last = THEN + Span::from_micros(1) + CHOICE_MAX + LOOK_MIN * 2;
    step(&mut stuck.watch, last, false);
    assert!(stuck.waits.is(State::Demoted) && stuck.sleeps.is(State::Attached));
    stuck.end();
}

/// Found by reading: only the first domain was looked at, and an attacker could be the first.
#[test]
fn each_domain_that_is_ready_without_the_turn_is_raised_in_time() {
    let groups = [1, 2].map(|uid| Arc::new(DomainGroup::new(0, uid).unwrap()));
    let second = Busy::start(&groups[1], 2);
    let mut lone = Lone::of(groups);
    let Lone { watch, holder, limit, .. } = &mut lone;
    let group = watch.view.groups().next().unwrap().0.clone();
    group.turn.reset(DomainId::DAEMON);
    let mut raised = Vec::new();
    for round in 1..=2 {
        // Each may wait for the quantum of the other.
        let at = THEN + *limit * 2 * round;
        // The first claims to respond, the second does not.
        holder.owner.set_asked(THEN.as_nanos());
        step(watch, at, false);
        let Some(Kept::Raised { holder, waited_ns, .. }) = &mut watch.kept else { panic!("none") };
        raised.push(holder.thread.tid());
        // Other programs of this machine may have its CPU.
        *waited_ns = u64::MAX;
        step(watch, at + LOOK_MIN, false);
        assert!(watch.kept.is_none());
    }
    raised.sort_unstable();
    let mut both = [holder.member.thread.tid(), second.member.thread.tid()];
    both.sort_unstable();
    assert_eq!(raised, both);
}
