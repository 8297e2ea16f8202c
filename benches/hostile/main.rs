//! The cost of hostile and broken domains for the others. One attacker at a time runs beside two
//! victims. All are processes of their own on one CPU under one daemon.
//!
//! For each attack the bench prints the victims' jobs, misses and worst response, and how the
//! attacker ended. The daemon must survive all attacks and must attach the next domain. It must not
//! have grown after thousands of domains that were killed. `-- NAME` runs only attacks whose name
//! contains NAME.

#![forbid(unsafe_code)]

mod attacks;
mod raw;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, Runtime};
use upcall_benches::{heading, measured_cpu, smoke};
use upcall_daemon::server::{self, Access, Daemon, DaemonEvent, Stopper};
use upcall_sys::clock;
use upcall_sys::process::{PidFd, Signal};

use attacks::{ATTACKS, Attack, OTHER_USER, Outside};

/// The environment variable that gives a process started by this one its role.
const ROLE: &str = "UPCALL_BENCH_ROLE";
/// Time from the victims' start to the attacker's start, and from the attacker's end to theirs.
const LEAD: Duration = Duration::from_millis(300);

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split('|').collect::<Vec<_>>()) {
        Err(_) => suite(),
        Ok(role) => match role[..] {
            ["victim", name, socket, millis] => {
                victim(Path::new(socket), name, millis.parse().expect("a number"));
            }
            ["attack", name, socket] => {
                let attack = ATTACKS.iter().find(|attack| attack.name == name).expect("known");
                (attack.act)(Path::new(socket));
            }
            ["attach", socket] => {
                let _raw = raw::Raw::attach(Path::new(socket), "short");
                println!("attached");
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            _ => panic!("unknown role {role:?}"),
        },
    }
}

fn suite() {
    let (millis, rounds) = if smoke() { (900, 50) } else { (4_000, 10_000) };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!("{}", heading("hostile"));
    println!(
        "victims: 2 processes of 2 handlers with periods of 10 ms and 20 ms, 1 ms of work each, {millis} ms an attack"
    );
    println!();
    println!(
        "{:<18} {:>6} {:>6} {:>10} {:>7}  {:<60} what it does",
        "attack", "jobs", "missed", "worst ms", "silent", "what became of the attacker"
    );
    for kill in [false, true] {
        let server = Server::start(kill);
        let of_server = ATTACKS.iter().filter(|attack| attack.kill == kill);
        for attack in of_server.filter(|attack| chosen(attack, only.as_deref())) {
            let outcome = run_attack(&server, attack, millis);
            println!("{outcome}  {}", attack.what);
        }
        if kill && only.is_none() {
            println!();
            println!("{}", attach_and_kill(&server, rounds));
        }
        server.stop();
    }
}

fn chosen(attack: &Attack, only: Option<&str>) -> bool {
    only.is_none_or(|only| attack.name.contains(only))
}

/// The daemon, in this process.
struct Server {
    socket: PathBuf,
    stopper: Stopper,
    serving: JoinHandle<()>,
    events: Arc<Mutex<Vec<DaemonEvent>>>,
}

impl Server {
    /// Starts a daemon. `kill`: whether it kills a domain after demoting it.
    fn start(kill: bool) -> Self {
        let cpu = measured_cpu();
        let socket = std::env::temp_dir().join(format!("upcall-hostile-{}", std::process::id()));
        let mut config = server::Config::new(socket.clone(), vec![cpu]);
        (config.access, config.kill) = (Access::Everyone, kill);
        let daemon = Daemon::start(config).expect("a daemon");
        let (stopper, events) = (daemon.stopper(), Arc::new(Mutex::new(Vec::new())));
        let recorded = events.clone();
        let serving = std::thread::spawn(move || {
            daemon.run(|event, _| recorded.lock().expect("no thread panicked").push(event.clone()));
        });
        Server { socket, stopper, serving, events }
    }

    fn take_events(&self) -> Vec<DaemonEvent> {
        std::mem::take(&mut self.events.lock().expect("no thread panicked"))
    }

    fn stop(self) {
        self.stopper.stop();
        self.serving.join().expect("the daemon does not panic, whatever domains do");
    }
}

/// Runs one attack and returns its line of the table.
fn run_attack(server: &Server, attack: &Attack, millis: u64) -> String {
    let socket = server.socket.display();
    let mut victims: Vec<Child> = ["one", "two"]
        .iter()
        .map(|name| start(&format!("victim|{name}|{socket}|{millis}")))
        .collect();
    std::thread::sleep(LEAD);
    let role = format!("attack|{}|{socket}", attack.name);
    let mut attacker = if attack.other_user { start_as_other(&role) } else { start(&role) };
    let rest = Duration::from_millis(millis).saturating_sub(2 * LEAD);
    let (tracer, seen) = match attack.outside {
        Outside::Debugger => (None, debug(server, &attacker, rest)),
        how => (outside(how, &attacker, rest), String::new()),
    };
    let reports: Vec<VictimReport> = victims.iter_mut().map(VictimReport::read).collect();
    let ended = attacker.try_wait().ok().flatten();
    let _ = attacker.kill();
    let _ = attacker.wait();
    for mut process in victims.into_iter().chain(tracer) {
        let _ = process.kill();
        let _ = process.wait();
    }
    // The daemon reports the detachment last.
    std::thread::sleep(Duration::from_millis(50));
    let mut outcome = seen;
    for event in server.take_events() {
        if let DaemonEvent::Offence { measure, name, held, .. } = event {
            let held_ms = held.as_secs_f64() * 1e3;
            let _ = write!(
                outcome,
                "{}{measure} ({held_ms:.1} ms)",
                if name == "attacker" { "" } else { "VICTIM " }
            );
            outcome.push_str(", ");
        }
    }
    outcome.push_str(&match ended {
        Some(status) => status.to_string(),
        None => "runs".to_owned(),
    });
    let sum = |of: fn(&VictimReport) -> u64| reports.iter().map(of).sum::<u64>();
    let worst_ns = reports.iter().map(|report| report.worst_ns).max().unwrap_or_default();
    format!(
        "{:<18} {:>6} {:>6} {:>10.2} {:>7}  {outcome:<60}",
        attack.name,
        sum(|report| report.jobs),
        sum(|report| report.misses),
        worst_ns as f64 / 1e6,
        reports.iter().filter(|report| report.jobs == 0).count(),
    )
}

/// Acts on the attacker from outside during `rest`.
fn outside(how: Outside, attacker: &Child, rest: Duration) -> Option<Child> {
    std::thread::sleep(rest / 4);
    let process = PidFd::open(attacker.id()).ok();
    let send = |signal| process.as_ref().map(|process| process.send_signal(signal));
    match how {
        Outside::Nothing | Outside::Debugger => None,
        Outside::Kill => {
            send(Signal::Kill);
            None
        }
        Outside::StopAndContinue => {
            send(Signal::Stop);
            std::thread::sleep(rest / 4);
            send(Signal::Continue);
            None
        }
        Outside::Trace => Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-p", &attacker.id().to_string()])
            .stderr(Stdio::null())
            .spawn()
            .inspect_err(|error| println!("strace: {error}"))
            .ok(),
    }
}

/// Stops an attacker with gdb and lets it continue. Returns the state of its thread meanwhile, and
/// the number of jobs that it ended afterwards.
fn debug(server: &Server, attacker: &Child, rest: Duration) -> String {
    std::thread::sleep(rest / 4);
    let hold = format!("shell sleep {}", if smoke() { 0.2 } else { 1.0 });
    let gdb = Command::new("gdb")
        .args(["-batch", "-nx", "-p", &attacker.id().to_string(), "-ex", &hold, "-ex", "detach"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut gdb = match gdb {
        Ok(gdb) => gdb,
        Err(error) => return format!("gdb: {error}, "),
    };
    let (mut traced, mut daemon_state) = (false, String::new());
    while gdb.try_wait().is_ok_and(|ended| ended.is_none()) {
        if let Some((tid, state, _)) = virtual_processor_of(server)
            && thread_state_of(tid) == Some('t')
        {
            traced = true;
            daemon_state = state;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let jobs = || virtual_processor_of(server).map_or(0, |(_, _, jobs)| jobs);
    let before = jobs();
    std::thread::sleep(rest / 8);
    let since = jobs().saturating_sub(before);
    let state = if traced { "t" } else { "never t" };
    format!("thread state {state}, to the daemon {daemon_state}; {since} jobs after, ")
}

/// The attacker's thread, state and jobs, as the daemon reports them.
fn virtual_processor_of(server: &Server) -> Option<(u32, String, u64)> {
    let status = upcall::status::status(&server.socket).ok()?;
    let attacker = status.domains.into_iter().find(|domain| domain.name == "attacker")?;
    let virtual_processor = attacker.virtual_processors.first()?;
    Some((
        virtual_processor.tid,
        format!("{:?}", virtual_processor.state),
        virtual_processor.counters.jobs,
    ))
}

/// The state letter of a thread in `/proc/TID/stat`.
fn thread_state_of(tid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The report of a victim at its end.
#[derive(Debug, Default)]
struct VictimReport {
    jobs: u64,
    misses: u64,
    worst_ns: u64,
}

impl VictimReport {
    fn read(child: &mut Child) -> VictimReport {
        let output = child.stdout.take().expect("the pipe exists");
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let numbers: Option<Vec<u64>> = line
                .strip_prefix("victim ")
                .map(|rest| rest.split(' ').filter_map(|word| word.parse().ok()).collect());
            if let Some(&[jobs, misses, worst_ns]) = numbers.as_deref() {
                return VictimReport { jobs, misses, worst_ns };
            }
            println!("{line}");
        }
        VictimReport::default()
    }
}

fn victim(socket: &Path, name: &str, millis: u64) {
    let daemon = Some(Attach { socket: socket.into(), name: name.to_owned() });
    let mut runtime = Runtime::start(Config { daemon, ..Config::default() }).expect("attached");
    let ids: Vec<_> = [10, 20]
        .map(|period_ms| {
            let need = ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(275));
            let created = runtime.handler(&period_ms.to_string(), need.batch(4), |batch| {
                while batch.proceed() {
                    let until = clock::monotonic_ns() + 250_000;
                    while clock::monotonic_ns() < until {}
                }
            });
            created.expect("the queue has room")
        })
        .into();
    runtime.run_at(&ids, upcall::clock::now()).expect("the executor runs");
    std::thread::sleep(Duration::from_millis(millis));
    let report = runtime.stop(|_, _| {});
    let (mut jobs, mut misses, mut worst_ns) = (0, 0, 0);
    for activity in &report.activities {
        let Some(counters) = activity.counters else { continue };
        jobs += counters.completed;
        misses += counters.misses;
        worst_ns = worst_ns.max(activity.statistics.response.max().as_nanos());
    }
    println!("victim {jobs} {misses} {worst_ns}");
}

/// Attaches domains, gives each a thread and a reservation, and kills them.
fn attach_and_kill(server: &Server, rounds: usize) -> String {
    let round = || {
        let mut child = start(&format!("attach|{}", server.socket.display()));
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("the pipe exists");
        let _ = BufReader::new(output).read_line(&mut line);
        assert_eq!(line, "attached\n", "the daemon still attaches domains");
        let _ = child.kill();
        let _ = child.wait();
    };
    // The first rounds allocate everything that the daemon allocates only once.
    (0..rounds / 10).for_each(|_| round());
    std::thread::sleep(Duration::from_millis(200));
    server.take_events();
    let before = own_size();
    let mut detached = 0;
    let mut count = || {
        let events = server.take_events();
        detached +=
            events.iter().filter(|event| matches!(event, DaemonEvent::Detached { .. })).count();
    };
    for _ in 0..rounds {
        round();
        count();
    }
    std::thread::sleep(Duration::from_millis(200));
    count();
    let after = own_size();
    format!(
        "{rounds} domains attached, placed on a CPU, reserving, and killed: {detached} detached; the daemon's resident \
         memory {} -> {} KiB, descriptors {} -> {}, mappings {} -> {}",
        before.0, after.0, before.1, after.1, before.2, after.2
    )
}

/// Resident KiB, descriptors and mappings of this process, which contains the daemon.
fn own_size() -> (u64, usize, usize) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mappings =
        std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
    (pages * 4, descriptors, mappings)
}

fn start(role: &str) -> Child {
    command(role).spawn().expect("this program can be started")
}

/// Starts the process as another user, if this process is root.
fn start_as_other(role: &str) -> Child {
    use std::os::unix::process::CommandExt;
    let mut command = command(role);
    if upcall_sys::process::effective_user() == 0 {
        command.uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
    } else {
        println!("not root: the next attacker is no other user");
    }
    command.spawn().expect("other users may start this program")
}

fn command(role: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    // Attackers may print anything.
    let stderr = if role.starts_with("attack|") { Stdio::null() } else { Stdio::inherit() };
    let mut command = Command::new(program);
    command.env(ROLE, role).stdout(Stdio::piped()).stderr(stderr);
    command
}
