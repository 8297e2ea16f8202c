//! The protocols under every interleaving and every reordering that the memory
//! model allows, and the proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release`

use super::*;
use crate::edge::{check, check_up_to, each_breaks};
use crate::user_area::{Owner, Peer, Rank};
use core::iter::repeat_with;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// Memory that all ends own; loom need not watch that. (Nor may it: it would
/// panic for a second time when a model that is found to hang lets go of it.)
type Memory = Arc<[AtomicU64]>;

/// A futex, as far as it matters: who waits compares the word where who wakes
/// cannot come between, and a wake finds only who waits by then.
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
    /// How many act as the holder.
    acting: AtomicU64,
}

const A: DomainId = DomainId::new(1).unwrap();
const B: DomainId = DomainId::new(2).unwrap();

fn zeros(count: usize) -> Memory {
    repeat_with(|| AtomicU64::new(0)).take(count).collect()
}

impl Cpu {
    /// Of a new page, the turn at `holder`. Before any thread is started:
    /// `load_page`'s loom tests say why.
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
        assert!(self.page.pass(seen, to), "taken from the holder");
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

    /// What the holder does: finds `work` as the one before left it.
    fn act(&self, before: u64) {
        assert_eq!(self.acting.fetch_add(1, Relaxed), 0, "two act at once");
        assert_eq!(self.work.load(Relaxed), before, "passed too early");
        self.work.store(before + 1, Relaxed);
        self.acting.fetch_sub(1, Relaxed);
    }
}

/// A passes to B, and B back to A; both sleep while it is not their turn.
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

/// A passes to B as the daemon takes the turn from A to give it to itself: it
/// goes to one of them.
fn taken_amid_a_pass() {
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

/// The daemon sleeps and looks in turn until it finds what B published.
fn daemon_looks(cpu: &Cpu) {
    let daemon = DomainId::DAEMON;
    while !(cpu.page.holder() == Ok(daemon) && cpu.page.take_recheck_idle()) {
        cpu.sleep(daemon);
    }
    assert_eq!(cpu.work.load(Relaxed), 7, "looked too early");
}

/// B publishes, and asks for a new look.
fn asks(cpu: Arc<Cpu>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        cpu.work.store(7, Relaxed);
        if cpu.page.request_recheck() {
            cpu.notify(DomainId::DAEMON);
        }
    })
}

/// B asks for a new look as the turn becomes the daemon's, which sleeps once it
/// finds nothing to do.
fn recheck_of_an_idle_cpu() {
    let cpu = Cpu::new(A);
    let turn = cpu.page.turn().unwrap();
    let b = asks(cpu.clone());
    assert!(cpu.page.pass(turn, DomainId::DAEMON));
    daemon_looks(&cpu);
    b.join().unwrap();
}

/// The same with A as a third: it gives the daemon the turn, and wakes it.
fn recheck_as_the_cpu_goes_idle() {
    let cpu = Cpu::new(A);
    let turn = cpu.page.turn().unwrap();
    let a = {
        let cpu = cpu.clone();
        thread::spawn(move || cpu.pass(turn, DomainId::DAEMON))
    };
    let b = asks(cpu.clone());
    daemon_looks(&cpu);
    a.join().unwrap();
    b.join().unwrap();
}

/// B publishes in its user area and asks for a new look; the holder takes the
/// request and reads.
fn recheck_of_a_holder() {
    let cpu = Cpu::new(A);
    let area = zeros(crate::user_area::words_of(1));
    let mut owner = Owner::create(area.clone(), B, 1).unwrap();
    let peer = Peer::attach(area, B, 1).unwrap();
    let ready = Rank::new(5, 6);
    let b = {
        let cpu = cpu.clone();
        thread::spawn(move || {
            owner.publish(Some(ready.into()));
            assert!(!cpu.page.request_recheck());
        })
    };
    if cpu.page.take_recheck() {
        assert_eq!(peer.best(0), Ok(Some(ready)), "looked too early");
    }
    b.join().unwrap();
}

/// B was passed over as blocked and is back. A, which takes it to be away as long as its
/// wake word does not say that it sleeps, looks when it takes the request, and not again.
fn back_from_the_kernel(says_it_sleeps: fn(&Cpu), asks: fn(&Cpu)) {
    let cpu = Cpu::new(A);
    let b = {
        let cpu = cpu.clone();
        thread::spawn(move || {
            says_it_sleeps(&cpu);
            asks(&cpu);
        })
    };
    if cpu.page.take_recheck() {
        assert!(cpu.page.wake_word(B).is_asleep(), "taken to be away");
    }
    b.join().unwrap();
}

fn prepares_wait(cpu: &Cpu) {
    assert!(cpu.page.wake_word(B).prepare_wait());
}

fn requests(cpu: &Cpu) {
    assert!(!cpu.page.request_recheck());
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
    check(None, taken_amid_a_pass);
}

#[test]
fn no_request_for_a_new_look_is_slept_through() {
    check(None, recheck_of_an_idle_cpu);
    // Without a bound it passes too, in 2 minutes.
    check_up_to(3, recheck_as_the_cpu_goes_idle);
}

#[test]
fn who_takes_the_request_sees_what_was_published() {
    check(None, recheck_of_a_holder);
}

#[test]
fn who_is_back_from_the_kernel_is_seen_asleep_by_who_takes_its_request() {
    check(None, back_and_asleep);
}

#[test]
#[should_panic(expected = "taken to be away")]
fn who_asks_before_its_wake_word_says_that_it_sleeps_may_be_missed() {
    check(None, back_and_asks_too_early);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::Pass, there_and_back, "passed too early"),
        (Edge::Holder, there_and_back, "passed too early"),
        (Edge::WakeNotify, there_and_back, "deadlock"),
        (Edge::WakeAcknowledge, there_and_back, "deadlock"),
        (Edge::RequestFence, recheck_of_an_idle_cpu, "deadlock"),
        (Edge::IdleFence, recheck_of_an_idle_cpu, "deadlock"),
        (Edge::RecheckRequest, recheck_of_a_holder, "looked too early"),
        (Edge::RecheckTake, recheck_of_a_holder, "looked too early"),
        (Edge::RecheckRequest, back_and_asleep, "taken to be away"),
        (Edge::RecheckTake, back_and_asleep, "taken to be away"),
    ]);
}
