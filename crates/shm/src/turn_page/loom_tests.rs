//! The protocols in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release turn_page`

use super::*;
use crate::edge::{check, check_up_to, each_breaks};
use crate::user_area::{Owner, Peer, Rank};
use core::iter::repeat_with;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// Memory that all ends own. Loom does not track this `Arc`: its own `Arc` would panic a second
/// time when a model that hangs is dropped.
type Memory = Arc<[AtomicU64]>;

/// A model of a futex. A waiter compares the word and begins to wait in one step. A wake reaches
/// only threads that already wait.
#[derive(Default)]
struct Futex(Mutex<()>, Condvar);

impl Futex {
    fn wait(&self, word: &WakeWord<'_>) {
        let guard = self.0.lock().unwrap();
        if word.is_asleep() {
            drop(self.1.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        let _guard = self.0.lock().unwrap();
        self.1.notify_one();
    }
}

/// A page and the futexes of its first three wake words.
struct Cpu {
    page: TurnPage<Memory>,
    futexes: [Futex; 3],
    /// Handed on with the turn.
    work: AtomicU64,
    /// How many threads act as the holder.
    acting: AtomicU64,
}

const A: DomainId = DomainId::new(1).unwrap();
const B: DomainId = DomainId::new(2).unwrap();

fn zeros(count: usize) -> Memory {
    repeat_with(|| AtomicU64::new(0)).take(count).collect()
}

impl Cpu {
    /// A new page with the turn at `holder`. Made before any thread starts: the loom tests of
    /// `load_page` say why.
    fn new(holder: DomainId) -> Arc<Cpu> {
        let page = TurnPage::create(zeros(PAGE_WORDS), 0).unwrap();
        page.reset(holder);
        let (work, acting) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Cpu { page, futexes: Default::default(), work, acting })
    }

    fn notify(&self, to: DomainId) {
        if self.page.wake_word(to).notify() {
            self.futexes[to.line()].wake();
        }
    }

    fn pass(&self, seen: Turn, to: DomainId) {
        assert!(self.page.pass(seen, to), "the turn was taken from the holder");
        self.notify(to);
    }

    fn sleep(&self, me: DomainId) {
        let wake_word = self.page.wake_word(me);
        if wake_word.prepare_wait() {
            self.futexes[me.line()].wait(&wake_word);
        }
        wake_word.finish_wait();
    }

    fn wait_for_turn(&self, me: DomainId) -> Turn {
        loop {
            match self.page.turn().unwrap() {
                turn if turn.holder() == me => return turn,
                _ => self.sleep(me),
            }
        }
    }

    /// Acts as the holder and checks that `work` is as the previous holder left it.
    fn act(&self, before: u64) {
        assert_eq!(self.acting.fetch_add(1, Relaxed), 0, "two act at once");
        assert_eq!(self.work.load(Relaxed), before, "passed too early");
        self.work.store(before + 1, Relaxed);
        self.acting.fetch_sub(1, Relaxed);
    }
}

/// A passes to B, and B passes back to A. Each sleeps while it does not have the turn.
fn there_and_back() {
    let cpu = Cpu::new(A);
    let first = cpu.page.turn().unwrap();
    let b = {
        let cpu = cpu.clone();
        thread::spawn(move || {
            let turn = cpu.wait_for_turn(B);
            cpu.act(1);
            cpu.pass(turn, A);
        })
    };
    cpu.act(0);
    cpu.pass(first, B);
    cpu.wait_for_turn(A);
    cpu.act(2);
    b.join().unwrap();
}

/// A passes to B while the daemon takes the turn from A for itself. Exactly one of them succeeds.
fn taken_during_a_pass() {
    let cpu = Cpu::new(A);
    let seen = cpu.page.turn().unwrap();
    let a = {
        let cpu = cpu.clone();
        thread::spawn(move || cpu.page.pass(seen, B))
    };
    let taken = cpu.page.pass(seen, DomainId::DAEMON);
    let passed = a.join().unwrap();
    assert!(taken != passed, "the turn was given to two");
    let holder = if taken { DomainId::DAEMON } else { B };
    assert_eq!(cpu.page.holder(), Ok(holder));
}

/// The daemon sleeps and looks by turns until it finds what B published.
fn daemon_looks(cpu: &Cpu) {
    let daemon = DomainId::DAEMON;
    while !(cpu.page.holder() == Ok(daemon) && cpu.page.take_need_resched_idle()) {
        cpu.sleep(daemon);
    }
    assert_eq!(cpu.work.load(Relaxed), 7, "looked too early");
}

/// B publishes and sets `need_resched`.
fn sets_need_resched(cpu: Arc<Cpu>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        cpu.work.store(7, Relaxed);
        if cpu.page.set_need_resched() {
            cpu.notify(DomainId::DAEMON);
        }
    })
}

/// B sets `need_resched` while the turn becomes the daemon's. The daemon sleeps once it finds
/// nothing to do.
fn need_resched_of_an_idle_cpu() {
    let cpu = Cpu::new(A);
    let turn = cpu.page.turn().unwrap();
    let b = sets_need_resched(cpu.clone());
    assert!(cpu.page.pass(turn, DomainId::DAEMON));
    daemon_looks(&cpu);
    b.join().unwrap();
}

/// The same with A as a third thread, which passes the turn to the daemon and wakes it.
fn need_resched_as_the_cpu_goes_idle() {
    let cpu = Cpu::new(A);
    let turn = cpu.page.turn().unwrap();
    let a = {
        let cpu = cpu.clone();
        thread::spawn(move || cpu.pass(turn, DomainId::DAEMON))
    };
    let b = sets_need_resched(cpu.clone());
    daemon_looks(&cpu);
    a.join().unwrap();
    b.join().unwrap();
}

/// B publishes in its user area and sets `need_resched`. The holder takes the request and reads.
fn need_resched_of_a_holder() {
    let cpu = Cpu::new(A);
    let area = zeros(crate::user_area::words_of(1));
    let mut owner = Owner::create(area.clone(), B, 1).unwrap();
    let peer = Peer::attach(area, B, 1).unwrap();
    let ready = Rank::new(5, 6);
    let b = {
        let cpu = cpu.clone();
        thread::spawn(move || {
            owner.publish(Some(ready.into()));
            assert!(!cpu.page.set_need_resched());
        })
    };
    if cpu.page.take_need_resched() {
        assert_eq!(peer.best(0), Ok(Some(ready)), "looked too early");
    }
    b.join().unwrap();
}

/// B was passed over as blocked and is back. A counts B as blocked until B's wake word says
/// `ASLEEP`. A looks when it takes the request, and not again.
fn back_from_the_kernel(prepares: fn(&Cpu), asks: fn(&Cpu)) {
    let cpu = Cpu::new(A);
    let b = {
        let cpu = cpu.clone();
        thread::spawn(move || {
            prepares(&cpu);
            asks(&cpu);
        })
    };
    if cpu.page.take_need_resched() {
        assert!(cpu.page.wake_word(B).is_asleep(), "counted as blocked");
    }
    b.join().unwrap();
}

fn prepares_wait(cpu: &Cpu) {
    assert!(cpu.page.wake_word(B).prepare_wait());
}

fn requests(cpu: &Cpu) {
    assert!(!cpu.page.set_need_resched());
}

/// B sleeps, and a thread of its process wakes it. A looks when it takes the request, and must then
/// find that B was woken.
fn woken_without_the_turn(first: fn(&Cpu), second: fn(&Cpu)) {
    let cpu = Cpu::new(A);
    prepares_wait(&cpu);
    let waker = {
        let cpu = cpu.clone();
        thread::spawn(move || {
            first(&cpu);
            second(&cpu);
        })
    };
    if cpu.page.take_need_resched() {
        assert!(cpu.page.wake_word(B).is_pending(), "not known to be woken");
    }
    waker.join().unwrap();
}

fn notifies(cpu: &Cpu) {
    assert!(cpu.page.wake_word(B).notify(), "it sleeps");
}

fn woken_and_requested() {
    woken_without_the_turn(notifies, requests);
}

fn requested_before_woken() {
    woken_without_the_turn(requests, notifies);
}

fn back_and_asleep() {
    back_from_the_kernel(prepares_wait, requests);
}

fn back_and_asks_too_early() {
    back_from_the_kernel(requests, prepares_wait);
}

#[test]
fn the_turn_goes_there_and_back_and_no_wake_is_lost() {
    check(None, there_and_back);
}

#[test]
fn a_turn_goes_to_one_domain_only() {
    check(None, taken_during_a_pass);
}

#[test]
fn no_need_resched_flag_is_missed_by_a_sleeper() {
    check(None, need_resched_of_an_idle_cpu);
    // Without a bound it passes too, in 2 minutes.
    check_up_to(3, need_resched_as_the_cpu_goes_idle);
}

#[test]
fn a_holder_that_takes_the_request_sees_what_was_published() {
    check(None, need_resched_of_a_holder);
}

#[test]
fn a_domain_back_from_the_kernel_is_found_asleep_with_its_request() {
    check(None, back_and_asleep);
}

#[test]
#[should_panic(expected = "counted as blocked")]
fn a_domain_that_asks_before_it_prepares_to_wait_may_be_missed() {
    check(None, back_and_asks_too_early);
}

#[test]
fn a_holder_that_takes_the_request_of_a_waker_finds_the_woken_domain() {
    check(None, woken_and_requested);
}

#[test]
#[should_panic(expected = "not known to be woken")]
fn a_domain_may_be_missed_if_its_waker_requests_before_it_notifies() {
    check(None, requested_before_woken);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::Pass, there_and_back, "passed too early"),
        (Edge::Holder, there_and_back, "passed too early"),
        (Edge::WakeNotify, there_and_back, "deadlock"),
        (Edge::WakeAcknowledge, there_and_back, "deadlock"),
        (Edge::RequestFence, need_resched_of_an_idle_cpu, "deadlock"),
        (Edge::IdleFence, need_resched_of_an_idle_cpu, "deadlock"),
        (Edge::NeedReschedSet, need_resched_of_a_holder, "looked too early"),
        (Edge::NeedReschedTake, need_resched_of_a_holder, "looked too early"),
        (Edge::NeedReschedSet, back_and_asleep, "counted as blocked"),
        (Edge::NeedReschedTake, back_and_asleep, "counted as blocked"),
        (Edge::NeedReschedSet, woken_and_requested, "not known to be woken"),
        (Edge::NeedReschedTake, woken_and_requested, "not known to be woken"),
    ]);
}
