//! Actions on the attacker from outside: signals, debuggers, and a daemon that starts again.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use upcall_benches::smoke;
use upcall_sys::process::{PidFd, Signal};

use crate::attack::Outside;
use crate::daemon::Server;

/// Acts on the attacker from outside during `rest`.
pub(crate) fn act(
    how: Outside,
    server: &mut Server,
    attacker: &Child,
    rest: Duration,
) -> Option<Child> {
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
        Outside::RestartDaemon => {
            server.restart();
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
pub(crate) fn debug(server: &Server, attacker: &Child, rest: Duration) -> String {
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
