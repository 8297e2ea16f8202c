//! What an attack is, and the parts from which most are made. `attacks.rs` lists the attacks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Batch, Config, Runtime};
use upcall_benches::measured_cpu;
use upcall_shm::user_area::Rank;
use upcall_sys::clock;

use crate::raw::{Raw, need};

/// One way to do harm.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The action of the process. It may never return.
    pub(crate) act: fn(&Path),
    /// The action on the process from outside.
    pub(crate) outside: Outside,
    /// Whether the process runs as another user than the victims, [`OTHER_USER`].
    pub(crate) other_user: bool,
    /// Whether the process ends by the attack. Otherwise it acts until the bench ends it.
    pub(crate) ends: bool,
    /// The options of the daemon.
    pub(crate) daemon: DaemonOptions,
    /// Which processes the attack harms or spares.
    pub(crate) beside: Beside,
    /// The work of the victims, if there are any.
    pub(crate) victims: Victims,
    /// Whether a domain of another user than the attacker attaches again and again meanwhile.
    pub(crate) arrivals: bool,
    /// Whether the attack may keep a CPU in the kernel for milliseconds: it starts or ends
    /// processes or threads, is traced, or floods sockets. A late timer then proves nothing about
    /// the host, and excuses no try.
    pub(crate) long_calls: bool,
}

/// The work of each of the two victims: two handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victims {
    /// The periods of the handlers, in microseconds.
    pub(crate) periods_us: [u64; 2],
    /// PDUs a job.
    pub(crate) pdus: u32,
    /// The time that a PDU takes.
    pub(crate) pdu_us: u64,
    /// The time that the handler declares for it.
    pub(crate) cost_us: u64,
}

impl Victims {
    /// Periods of 10 ms and 20 ms, 1 ms of work each: 30 % of a CPU for two victims.
    pub(crate) const USUAL: Victims =
        Victims { periods_us: [10_000, 20_000], pdus: 4, pdu_us: 250, cost_us: 275 };
    /// Periods of 1 ms and 2 ms, which miss if something costs them a millisecond.
    pub(crate) const QUICK: Victims =
        Victims { periods_us: [1_000, 2_000], pdus: 1, pdu_us: 20, cost_us: 50 };
}

/// The options of a daemon. It admits all users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DaemonOptions {
    /// Whether the daemon kills a domain after demoting it.
    pub(crate) kill: bool,
    /// The limit of its open files (RLIMIT_NOFILE, getrlimit(2)). 0: as this process has it.
    pub(crate) descriptors_max: u64,
    /// How long after its start the daemon takes claims, in seconds.
    pub(crate) claims_within_s: u64,
    /// Whether it also has the other CPUs of this process, after the measured one. The victims fit
    /// onto that one.
    pub(crate) all_cpus: bool,
}

impl DaemonOptions {
    /// Kills nobody, with the limits of this process. Takes claims for as long as `upcalld` does.
    pub(crate) const USUAL: DaemonOptions =
        DaemonOptions { kill: false, descriptors_max: 0, claims_within_s: 10, all_cpus: false };
}

/// The processes beside the attacker, on the same CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Two victims: domains with reservations.
    Victims,
    /// Two victims, and a spinning program of ordinary class, whose CPU time is counted.
    VictimsAndOrdinary,
    /// The ordinary program alone.
    Ordinary,
}

/// The user `nobody`.
pub(crate) const OTHER_USER: u32 = 65534;

/// The action of the parent process on the attacker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    Nothing,
    /// SIGSTOP, and SIGCONT later.
    StopAndContinue,
    Kill,
    /// `strace -f`, which stops the process at each system call.
    Trace,
    /// `gdb` stops the process for a second and lets it continue.
    Debugger,
    /// The daemon is killed and started again at the same socket.
    RestartDaemon,
}

impl Attack {
    /// Whether a measure against the victims' user is one against the attacker, too.
    pub(crate) fn shares_user(&self) -> bool {
        // The rows `none` attack nobody.
        !self.other_user && !self.name.starts_with("none")
    }
}

/// An attack by the same user, beside two victims, under a daemon with its default options.
pub(crate) const fn attack(name: &'static str, what: &'static str, act: fn(&Path)) -> Attack {
    Attack {
        name,
        what,
        act,
        outside: Outside::Nothing,
        other_user: false,
        ends: false,
        daemon: DaemonOptions::USUAL,
        beside: Beside::Victims,
        victims: Victims::USUAL,
        arrivals: false,
        long_calls: false,
    }
}

/// Tells the bench that the attack acts now. Each attack calls it once it has all that it needs,
/// at the moment from which it does harm. A row whose attacker does not call it does not hold.
/// Later calls do nothing.
pub(crate) fn attacking() {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: it orders no other memory.
    if !SAID.swap(true, Relaxed) {
        println!("{ATTACKING}");
    }
}

/// Tells the bench that a defence failed, as the attacker sees it. The row then does not hold.
pub(crate) fn breach(what: &str) {
    println!("{BREACH}{what}");
}

/// The line of [`attacking`].
pub(crate) const ATTACKING: &str = "attacking";
/// The begin of the line of [`breach`].
pub(crate) const BREACH: &str = "breach ";

/// Runs one handler that is released every 5 ms for 0.1 ms. Its rank is above those of all victims.
pub(crate) fn run(socket: &Path, handler: impl FnMut(&mut Batch<'_>) + Send + 'static) {
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

/// The CPU of the victims. Called before the daemon pins the thread.
pub(crate) fn cpu_of_victims() -> u32 {
    measured_cpu()
}

/// Attaches to a daemon with [`DaemonOptions::all_cpus`]. The reservation does not fit beside the
/// victims, so it is admitted on another CPU.
pub(crate) fn attach_elsewhere(socket: &Path) -> Raw {
    let cpu = cpu_of_victims();
    let raw = Raw::attach_with(socket, "attacker", need(10_000_000, 7_500_000));
    assert_ne!(raw.turn.cpu(), cpu, "it is on the CPU of the victims");
    raw
}

pub(crate) fn spin(span_ns: u64) {
    let until = clock::monotonic_ns() + span_ns;
    while clock::monotonic_ns() < until {}
}

pub(crate) fn behave(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            spin(80_000);
        }
        attacking();
    });
}

/// Never ends, but calls `proceed`: a job that is longer than declared.
pub(crate) fn endless_asking(socket: &Path) {
    run(socket, |batch| {
        attacking();
        while batch.proceed() {
            spin(3_000_000);
        }
    });
}

/// Claims that the domain has work of this rank.
pub(crate) fn claim(raw: &mut Raw, rank: Rank) {
    raw.owner.publish(Some(rank.into()));
    if raw.turn.set_need_resched() {
        notify_daemon(raw);
    }
}

/// Waits for the turn, as the rules require.
pub(crate) fn be_ready(raw: &mut Raw) {
    let rank = raw.rank;
    claim(raw, rank);
    while raw.turn.holder() != Ok(raw.me) {
        sleep(raw);
    }
}

pub(crate) fn notify_daemon(raw: &Raw) {
    let wake_word = raw.turn.wake_word(upcall_shm::DomainId::DAEMON);
    if wake_word.notify() {
        upcall_sys::futex::wake_shared(wake_word.word(), 1);
    }
}

pub(crate) fn sleep(raw: &Raw) {
    let wake_word = raw.turn.wake_word(raw.me);
    if wake_word.prepare_wait() {
        let asleep = upcall_shm::wake_word::ASLEEP;
        upcall_sys::futex::wait_shared_until(wake_word.word(), asleep, None);
    }
    wake_word.finish_wait();
}
