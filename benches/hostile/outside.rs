//! Actions on the attacker from outside: signals, debuggers, and a daemon that starts again.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use upcall_benches::smoke;
use upcall_sys::process::{PidFd, Signal};

use crate::attack::Outside;
use crate::daemon::Server;

/// How long gdb may take.
const GDB_LIMIT: Duration = Duration::from_secs(20);

/// What an action from outside left behind.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// A program that still acts.
    pub(crate) tracer: Option<Child>,
    /// What it showed, for the table.
    pub(crate) showed: String,
    /// Why it failed, if it did.
    pub(crate) trouble: Option<String>,
    /// What a daemon that was killed had reported.
    pub(crate) measures: Vec<String>,
}

/// Acts on the attacker from outside during `rest`.
pub(crate) fn act(how: Outside, server: &mut Server, attacker: &Child, rest: Duration) -> Done {
    if how == Outside::Nothing {
        return Done::default();
    }
    std::thread::sleep(rest / 4);
    match try_act(how, server, attacker, rest) {
        Ok(done) => done,
        Err(why) => Done { trouble: Some(format!("ERROR: {why}")), ..Done::default() },
    }
}

fn try_act(
    how: Outside,
    server: &mut Server,
    attacker: &Child,
    rest: Duration,
) -> Result<Done, String> {
    let process = PidFd::open(attacker.id()).map_err(|error| error.to_string())?;
    let send = |signal| process.send_signal(signal).map_err(|error| error.to_string());
    let mut done = Done::default();
    match how {
        Outside::Nothing => {}
        Outside::Kill => send(Signal::Kill)?,
        Outside::StopAndContinue => {
            send(Signal::Stop)?;
            std::thread::sleep(rest / 4);
            let state = thread_state_of(attacker.id());
            send(Signal::Continue)?;
            if state != Some('T') {
                return Err(format!("SIGSTOP did not stop it (state {state:?})"));
            }
        }
        Outside::RestartDaemon => done.measures = server.restart()?.measures,
        Outside::Trace => {
            let tracer = trace(attacker.id())?;
            std::thread::sleep(rest / 4);
            done.tracer = Some(tracer);
            if !is_traced(attacker.id()) {
                done.trouble = Some("ERROR: strace did not attach".to_owned());
            }
        }
        Outside::Debugger => done.showed = debug(server, attacker, rest)?,
    }
    Ok(done)
}

fn trace(pid: u32) -> Result<Child, String> {
    Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-p", &pid.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("strace: {error}"))
}

/// Whether a debugger is attached to a process (proc_pid_status(5)).
fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// Stops an attacker with gdb and lets it continue. Returns the state of its thread meanwhile, and
/// the number of jobs that it ended afterwards.
fn debug(server: &Server, attacker: &Child, rest: Duration) -> Result<String, String> {
    let hold = format!("shell sleep {}", if smoke() { 0.2 } else { 1.0 });
    let mut gdb = Command::new("gdb")
        .args(["-batch", "-nx", "-p", &attacker.id().to_string(), "-ex", &hold, "-ex", "detach"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("gdb: {error}"))?;
    let deadline = Instant::now() + GDB_LIMIT;
    let (mut traced, mut daemon_state) = (false, String::new());
    while gdb.try_wait().is_ok_and(|ended| ended.is_none()) {
        if Instant::now() > deadline {
            let _ = (gdb.kill(), gdb.wait());
            return Err(format!("gdb did not end within {GDB_LIMIT:?}"));
        }
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
    if !traced {
        return Err("gdb did not stop its thread".to_owned());
    }
    Ok(format!("thread state t, to the daemon {daemon_state}; {since} jobs after, "))
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
