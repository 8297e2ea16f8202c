//! The actions of hostile or broken domains. Each runs in a process of its own, on a real-time
//! thread that the daemon gave it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Batch, Config, Runtime};
use upcall_shm::user_area::{Mask, Rank};
use upcall_sys::{clock, schedule};

use crate::raw::Raw;

/// One way to do harm.
pub struct Attack {
    pub name: &'static str,
    pub what: &'static str,
    /// The action of the process. It may never return.
    pub act: fn(&Path),
    /// The action on the process from outside.
    pub outside: Outside,
    /// Whether the process runs as another user than the victims, [`OTHER_USER`].
    pub other_user: bool,
    /// Whether the daemon kills a domain after demoting it.
    pub kill: bool,
}

/// The user `nobody`.
pub const OTHER_USER: u32 = 65534;

/// The action of the parent process on the attacker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    Nothing,
    /// SIGSTOP, and SIGCONT later.
    StopAndContinue,
    Kill,
    /// `strace -f`, which stops the process at each system call.
    Trace,
    /// `gdb` stops the process for a second and lets it continue.
    Debugger,
}

pub const ATTACKS: [Attack; 25] = [
    attack("none", "a domain that keeps to the rules", behave),
    attack("endless loop", "a handler neither calls proceed() nor returns", endless),
    attack("no turn", "its thread loops without ever having the turn", without_turn),
    attack("masked", "preemption masked, then an endless loop", masked),
    attack("false life", "an endless loop that reports all the time that it asks", false_life),
    attack("false rank", "always ready with the best rank, returns the turn at once", false_rank),
    attack("greed", "always ready with the best rank, and works", greed),
    attack("greed, no lie", "the same with the rank of its admission", greed_as_admitted),
    attack("scribble", "random words over all memory it can write, without end", scribble),
    attack("scribble beside", "the same from an ordinary thread on another CPU", scribble_beside),
    attack("blocks", "a handler sleeps in the kernel, 20 ms each time", blocks),
    Attack {
        outside: Outside::StopAndContinue,
        ..attack("SIGSTOP", "stopped inside a handler, continued 1 s later", endless_asking)
    },
    Attack {
        outside: Outside::Trace,
        ..attack("strace", "`strace -f` attached while its handlers make system calls", chatty)
    },
    Attack {
        outside: Outside::Debugger,
        ..attack("debugger", "stopped by gdb, continued 1 s later", behave)
    },
    Attack {
        outside: Outside::Kill,
        ..attack("SIGKILL", "killed inside a handler", endless_asking)
    },
    attack("fork", "a handler starts busy children", forks),
    attack("exec", "a handler becomes another program, which loops", execs),
    attack("exit", "exit() inside a handler", exits),
    attack("abort", "abort() inside a handler", aborts),
    attack("highest priority", "its thread takes SCHED_FIFO 99 and loops", highest),
    attack("flood", "invalid messages and requests to the daemon's socket, from 4 threads", flood),
    Attack {
        other_user: true,
        ..attack("scribble, other", "as `scribble`, by another user's domain", scribble)
    },
    Attack {
        other_user: true,
        ..attack("beside, other", "as `scribble beside`, by another user's domain", scribble_beside)
    },
    Attack {
        kill: true,
        ..attack("endless, --kill", "as `endless loop`, under a daemon that kills", endless)
    },
    Attack {
        kill: true,
        ..attack("scribble, --kill", "as `scribble`, under a daemon that kills", scribble)
    },
];

const fn attack(name: &'static str, what: &'static str, act: fn(&Path)) -> Attack {
    Attack { name, what, act, outside: Outside::Nothing, other_user: false, kill: false }
}

/// Runs one handler that is released every 5 ms for 0.1 ms. Its rank is above those of all victims.
fn run(socket: &Path, handler: impl FnMut(&mut Batch<'_>) + Send + 'static) {
    let daemon = Some(Attach { socket: socket.into(), name: "attacker".to_owned() });
    let mut runtime =
        Runtime::start(Config { daemon, ..Config::default() }).expect("it is attached");
    let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(100));
    let id = runtime.handler("attack", need, handler).expect("it is admitted");
    runtime.run(id).expect("the executor runs");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn spin(span_ns: u64) {
    let until = clock::monotonic_ns() + span_ns;
    while clock::monotonic_ns() < until {}
}

fn behave(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            spin(80_000);
        }
    });
}

fn endless(socket: &Path) {
    run(socket, |_| {
        loop {
            spin(1_000_000);
        }
    });
}

/// Never ends, but calls `proceed`: a job that is longer than declared.
fn endless_asking(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            spin(3_000_000);
        }
    });
}

fn masked(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    let _ = raw.owner.mask(Mask::Preemption);
    be_ready(&mut raw);
    loop {
        spin(1_000_000);
    }
}

fn false_life(socket: &Path) {
    let mut raw = Raw::attach(socket, "attacker");
    be_ready(&mut raw);
    loop {
        raw.owner.set_asked(clock::monotonic_ns());
    }
}

/// A rank above all others.
const FALSE_RANK: Rank = Rank::new(0, 0);

/// Claims that the domain has work of this rank.
fn claim(raw: &mut Raw, rank: Rank) {
    raw.owner.publish(Some(rank.into()));
    if raw.turn.set_need_resched() {
        notify_daemon(raw);
    }
}

/// Waits for the turn, as the rules require.
fn be_ready(raw: &mut Raw) {
    let rank = raw.rank;
    claim(raw, rank);
    while raw.turn.holder() != Ok(raw.me) {
        sleep(raw);
    }
}

/// Loops without ready work and without the turn.
fn without_turn(socket: &Path) {
    let _raw = Raw::attach(socket, "attacker");
    loop {
        spin(1_000_000);
    }
}

fn notify_daemon(raw: &Raw) {
    let wake_word = raw.turn.wake_word(upcall_shm::DomainId::DAEMON);
    if wake_word.notify() {
        upcall_sys::futex::wake_shared(wake_word.word(), 1);
    }
}

fn sleep(raw: &Raw) {
    let wake_word = raw.turn.wake_word(raw.me);
    if wake_word.prepare_wait() {
        let asleep = upcall_shm::wake_word::ASLEEP;
        upcall_sys::futex::wait_shared_until(wake_word.word(), asleep, None);
    }
    wake_word.finish_wait();
}

/// Claims a rank without end: `rank`, or its own if that is `None`. Whenever the domain holds the
/// turn, it acts and returns the turn.
fn in_each_turn(socket: &Path, rank: Option<Rank>, mut act: impl FnMut(&Raw)) {
    let mut raw = Raw::attach(socket, "attacker");
    let rank = rank.unwrap_or(raw.rank);
    claim(&mut raw, rank);
    loop {
        match raw.turn.turn() {
            Ok(turn) if turn.holder() == raw.me => {
                act(&raw);
                raw.turn.pass(turn, upcall_shm::DomainId::DAEMON);
                notify_daemon(&raw);
            }
            _ => sleep(&raw),
        }
    }
}

fn false_rank(socket: &Path) {
    in_each_turn(socket, Some(FALSE_RANK), |_| {});
}

fn greed(socket: &Path) {
    in_each_turn(socket, Some(FALSE_RANK), work_and_ask);
}

fn greed_as_admitted(socket: &Path) {
    in_each_turn(socket, None, work_and_ask);
}

fn work_and_ask(raw: &Raw) {
    for _ in 0..10 {
        let now = clock::monotonic_ns();
        raw.owner.set_running(Some(0), now);
        raw.owner.set_asked(now);
        spin(100_000);
    }
}

fn scribble(socket: &Path) {
    scribble_for_ever(&Raw::attach(socket, "attacker"));
}

fn scribble_beside(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let others: Vec<u32> = upcall::allowed_cpus()
                .into_iter()
                .flatten()
                .filter(|&cpu| cpu != raw.turn.cpu())
                .collect();
            let _ = schedule::set_ordinary();
            let _ = schedule::pin_thread(&others);
            scribble_for_ever(&raw);
        });
        loop {
            sleep(&raw);
        }
    });
}

fn scribble_for_ever(raw: &Raw) {
    let words = raw.words();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        // Marsaglia's xorshift64 suffices, because it only has to reach every word.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state >> 20).unwrap_or_default() % words.len();
        // Small values do more harm than large ones, which the checks detect.
        words[at].store(if state & 1 == 0 { state } else { state >> 1 & 3 }, Relaxed);
    }
}

fn blocks(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

fn chatty(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            for _ in 0..20 {
                let _ = std::fs::metadata("/");
            }
        }
    });
}

fn forks(socket: &Path) {
    let mut children = 0;
    run(socket, move |batch| {
        while batch.proceed() {
            if children < 4 {
                children += 1;
                // The child ends with this process, or after some seconds.
                let _ =
                    Command::new("timeout").args(["4", "sh", "-c", "while :; do :; done"]).spawn();
            }
        }
    });
}

fn execs(socket: &Path) {
    run(socket, |_| {
        use std::os::unix::process::CommandExt;
        let error = Command::new("sh").args(["-c", "while :; do :; done"]).exec();
        eprintln!("exec: {error}");
    });
}

fn exits(socket: &Path) {
    run(socket, |_| std::process::exit(0));
}

fn aborts(socket: &Path) {
    run(socket, |_| std::process::abort());
}

fn highest(socket: &Path) {
    run(socket, |_| {
        let _ = schedule::set_fifo(99);
        loop {
            spin(1_000_000);
        }
    });
}

fn flood(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            scope.spawn(move || {
                let _ = schedule::set_ordinary();
                loop {
                    // Connecting fails after the daemon has hung up. The loop then tries again.
                    let Ok(connection) = upcall_sys::local::Connection::connect(socket) else {
                        continue;
                    };
                    for length in 1..200 {
                        if connection.send(&vec![number; length], &[]).is_err() {
                            break;
                        }
                    }
                }
            });
        }
        loop {
            sleep(&raw);
        }
    });
}
