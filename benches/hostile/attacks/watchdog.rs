//! Attacks on what the watchdog knows: it learns of new threads at ticks, and of ranks and work by
//! what the domains write. All but the first keep to the CPU time that they reserved.

use std::path::Path;
use std::sync::Mutex;

use upcall_shm::DomainId;
use upcall_shm::user_area::Rank;
use upcall_shm::wake_word::ASLEEP;
use upcall_shm::wire::Need;
use upcall_sys::schedule::{self, Class};
use upcall_sys::{clock, futex, process};

use super::{Attack, attack, attacking, be_ready, notify_daemon};
use crate::raw::{Raw, need};

const fn by_other(name: &'static str, what: &'static str, act: fn(&Path)) -> Attack {
    Attack { other_user: true, ..attack(name, what, act) }
}

/// The honest domains come first: offences of a user count for up to 10 s.
pub(crate) const ATTACKS: &[Attack] = &[
    by_other("low rank, honest", "worst rank; works for 29 ms each 100 ms, in quanta", low_rank),
    by_other(
        "big job, honest",
        "works each 9 ms for the longest job that it is granted",
        big_job_honest,
    ),
    Attack {
        long_calls: true,
        ..by_other("churn, other", "threads attach, spin for 4.7 ms, leave, attach again", churn)
    },
    by_other("inversion, other", "the same job, without a pass of the turn", inversion),
    by_other("no turn, alive", "worst rank; works 29 ms each 100 ms without the turn", no_turn),
    by_other("big job, other", "the domain of `big job, honest` works as long as it can", big_job),
    by_other("returner, other", "blocks in its turn, then runs on for 12 ms", returner),
];

/// Six threads in rotation. Each runs for less than a tick of the watchdog.
fn churn(socket: &Path) {
    let baton = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| while churn_once(socket, &baton).is_some() {});
        }
    });
}

/// `None` if the daemon refuses the domain.
fn churn_once(socket: &Path, baton: &Mutex<()>) -> Option<()> {
    // The daemon pinned the thread.
    let _ = schedule::pin_thread(&[0, 1]);
    let held = baton.lock().ok()?;
    let raw = Raw::join(socket, "churn").ok()?;
    let until = clock::monotonic_ns() + 1_000_000_000;
    let priority_now = || match schedule::class_of(process::thread_id()) {
        Ok(Class::Fifo { priority }) => Some(priority),
        _ => None,
    };
    while priority_now().is_none() && clock::monotonic_ns() < until {}
    attacking();
    let (begin, priority) = (clock::monotonic_ns(), priority_now());
    while clock::monotonic_ns() - begin < 4_700_000 && priority_now() == priority {}
    drop((held, raw));
    Some(())
}

/// 30 quanta of 1 ms each 100 ms: a worse rank than all victims.
fn low_rank_need() -> Need {
    Need { batch: 30, ..need(100_000_000, 1_000_000) }
}

/// The least that makes a job long beside those of the victims, which take 1 ms.
const BIG_QUANTA_MIN: u32 = 3;

/// As many quanta of 0.5 ms each 9 ms as the daemon grants beside the victims, with a better rank
/// than theirs. Returns the CPU time of a job, too.
fn attach_with_big_job(socket: &Path) -> (Raw, u64) {
    let mut raw = Raw::join(socket, "attacker").unwrap_or_else(|why| panic!("{why}"));
    let mut granted = (1..=9).rev().filter_map(|batch| {
        let need = Need { batch, ..need(9_000_000, 500_000) };
        let answer = raw.create(1, false, need).unwrap_or_else(|why| panic!("{why}"));
        Some((Rank::new(need.period_ns, answer.ok()?), need))
    });
    let (rank, need) = granted.next().expect("a job is granted");
    assert!(need.batch >= BIG_QUANTA_MIN, "a job of {} quanta is no big one", need.batch);
    raw.rank = rank;
    (raw, u64::from(need.batch) * need.pdu_cost_ns)
}

fn sleep_until(raw: &Raw, until_ns: u64) {
    while clock::monotonic_ns() < until_ns {
        let wake_word = raw.turn.wake_word(raw.me);
        if wake_word.prepare_wait() {
            futex::wait_shared_until(wake_word.word(), ASLEEP, Some(until_ns));
        }
        wake_word.finish_wait();
    }
}

/// Runs for so long and reports life all the time.
fn run_alive(raw: &Raw, span_ns: u64) {
    attacking();
    let end = clock::monotonic_ns() + span_ns;
    while clock::monotonic_ns() < end {
        let now = clock::monotonic_ns();
        raw.owner.set_running(Some(0), now);
        raw.owner.set_asked(now);
    }
}

fn pass_turn(raw: &Raw) {
    if let Ok(turn) = raw.turn.turn() {
        raw.turn.pass(turn, DomainId::DAEMON);
    }
    notify_daemon(raw);
}

/// Calls `job` once in each period, from then on when the former one ends.
fn each(raw: &mut Raw, period_ns: u64, mut job: impl FnMut(&mut Raw)) -> ! {
    let mut release_ns = clock::monotonic_ns();
    loop {
        sleep_until(raw, release_ns);
        job(raw);
        release_ns = clock::monotonic_ns().max(release_ns + period_ns);
    }
}

fn inversion(socket: &Path) {
    let mut raw = Raw::attach_with(socket, "attacker", low_rank_need());
    each(&mut raw, 100_000_000, |raw| {
        be_ready(raw);
        run_alive(raw, 29_000_000);
        raw.owner.publish(None);
        pass_turn(raw);
    });
}

fn no_turn(socket: &Path) {
    let mut raw = Raw::attach_with(socket, "attacker", low_rank_need());
    each(&mut raw, 100_000_000, |raw| run_alive(raw, 29_000_000));
}

fn low_rank(socket: &Path) {
    let mut raw = Raw::attach_with(socket, "attacker", low_rank_need());
    each(&mut raw, 100_000_000, |raw| {
        for _ in 0..29 {
            be_ready(raw);
            run_alive(raw, 980_000);
            pass_turn(raw);
        }
        raw.owner.publish(None);
    });
}

/// Works in its turn with the rank that it was granted, and claims to respond.
fn big_job(socket: &Path) {
    let (mut raw, _) = attach_with_big_job(socket);
    attacking();
    loop {
        be_ready(&mut raw);
        while raw.turn.holder() == Ok(raw.me) {
            let now = clock::monotonic_ns();
            raw.owner.set_running(Some(0), now);
            raw.owner.set_asked(now);
        }
    }
}

fn big_job_honest(socket: &Path) {
    let (mut raw, job_ns) = attach_with_big_job(socket);
    each(&mut raw, 9_000_000, |raw| {
        be_ready(raw);
        run_alive(raw, job_ns - 100_000);
        raw.owner.publish(None);
        pass_turn(raw);
    });
}

/// The thread of a domain that blocks is raised, to finish its quantum at once.
fn returner(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    each(&mut raw, 100_000_000, |raw| {
        be_ready(raw);
        std::thread::sleep(std::time::Duration::from_micros(200));
        run_alive(raw, 12_000_000);
        raw.owner.publish(None);
    });
}
