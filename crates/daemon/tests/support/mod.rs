//! Shared by the tests of this folder: a daemon in a thread, children that play roles, and the rule
//! for tries that the host disturbs.
//!
//! A child is the test program run again, perhaps as another user. With [`ROLE`] in its environment
//! the test `child` of the program plays that role.

pub mod lost_time;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use upcall_core::discipline::Discipline;
use upcall_daemon::server::{Config, Daemon, DaemonEvent, Stopper};
use upcall_runtime::{Attach, Config as RuntimeConfig, Runtime};

use lost_time::LostTime;

/// The variable with the role of a child.
pub const ROLE: &str = "UPCALL_TEST_ROLE";

/// Held by each test: two daemons would use the same CPU unaware of each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPU of the handlers: the last of the default CPUs.
pub fn cpu() -> u32 {
    *upcall_runtime::default_cpus().unwrap().last().unwrap()
}

/// A daemon that runs in a thread of this process, for [`cpu`].
pub struct Server {
    pub socket: PathBuf,
    pub directory: tempfile::TempDir,
    discipline: &'static Discipline,
    stopper: Stopper,
    thread: JoinHandle<Vec<DaemonEvent>>,
}

impl Server {
    pub fn start(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("upcalld");
        let mut config = Config::new(socket.clone(), vec![cpu()]);
        change(&mut config);
        let discipline = config.discipline;
        let daemon = Daemon::start(config).unwrap();
        let stopper = daemon.stopper();
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            daemon.run(|event, _| events.push(event.clone()));
            events
        });
        Server { socket, directory, discipline, stopper, thread }
    }

    /// A domain of this process.
    pub fn attach(&self, name: &str) -> Runtime {
        attach(&self.socket, name, self.discipline)
    }

    /// Stops the daemon. Returns what happened.
    pub fn stop(self) -> Vec<DaemonEvent> {
        self.stopper.stop();
        self.thread.join().unwrap()
    }
}

/// Attaches this process to the daemon at `socket`.
pub fn attach(socket: &Path, name: &str, discipline: &'static Discipline) -> Runtime {
    let daemon = Some(Attach { socket: socket.to_owned(), name: name.to_owned() });
    Runtime::start(RuntimeConfig { daemon, discipline, ..RuntimeConfig::default() }).unwrap()
}

/// A copy of this program in `directory`, which other users may run.
pub fn program_for_all(directory: &Path) -> PathBuf {
    let program = directory.join("child");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [directory, &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    program
}

/// A child; killed when it is dropped.
pub struct ChildProcess {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Starts `program`, which is this program or a copy, as the user `uid`.
    pub fn start(mut program: Command, uid: u32, role: &str) -> Self {
        // Only root can set the ids, and another user need not.
        if uid != upcall_sys::process::effective_user() {
            program.uid(uid).gid(uid);
        }
        program.args(["child", "--exact", "--nocapture"]).env(ROLE, role);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        ChildProcess { child, output }
    }

    /// The rest of the next line that has `#word `. The test harness does not end its own line
    /// before the child's first one.
    pub fn read_word(&mut self, word: &str) -> String {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "no {word:?} after {said}");
            if let Some((_, rest)) = line.split_once(&format!("#{word} ")) {
                return rest.trim_end().to_owned();
            }
            said.push_str(&line);
        }
    }

    /// The numbers of such a line.
    pub fn numbers(&mut self, word: &str) -> Vec<u64> {
        self.read_word(word).split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    /// All that the child still prints, at its end.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    pub fn write_line(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// For a child: the next line of its input.
pub fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Says that the test of this thread could not check, or a part of it, even if the output of passed
/// tests is not shown. The gate `test` counts such lines.
pub fn skipped(part: Option<&str>, why: &str) {
    let thread = std::thread::current();
    let test = part.or(thread.name()).unwrap_or("main");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Tries that count, and tries in all.
const TRIES: usize = 3;
const TRIES_MAX: usize = 12;
/// On a host that is never calm no try beyond the first ones begins after this time.
const TRIES_FOR: Duration = Duration::from_secs(6);

/// Repeats `attempt` until the majority of the tries that count is known. On a virtual machine the
/// host may take the CPU away for longer than any slack. A try with such time ([`LostTime`]) does
/// not count, whether it succeeds or fails. Returns false, and says that `part` was skipped, if too
/// few tries counted.
///
/// # Panics
/// If most tries that count fail.
#[track_caller]
pub fn most_kept(part: Option<&str>, attempt: impl FnMut() -> Result<(), String>) -> bool {
    let lost = LostTime::of(cpu());
    match most_kept_of(|| lost.count(), attempt) {
        Ok(()) => true,
        Err(why) => {
            skipped(part, &why);
            false
        }
    }
}

/// As [`most_kept`], with a counter of lost time. The error says that too few tries counted.
///
/// # Panics
/// If most tries that count fail.
#[track_caller]
pub fn most_kept_of(
    mut lost: impl FnMut() -> u64,
    mut attempt: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let (begun, mut tries) = (Instant::now(), 0);
    let (mut kept, mut broken) = (0, Vec::new());
    while kept <= TRIES / 2 && broken.len() <= TRIES / 2 && tries < TRIES_MAX {
        if tries >= TRIES && begun.elapsed() > TRIES_FOR {
            break;
        }
        tries += 1;
        let before = lost();
        match attempt() {
            _ if lost() > before => {}
            Ok(()) => kept += 1,
            Err(how) => broken.push(how),
        }
    }
    assert!(broken.len() <= TRIES / 2, "{broken:#?} in {tries} tries, {kept} kept");
    let is_known = kept > TRIES / 2;
    is_known.then_some(()).ok_or_else(|| format!("{kept} of {tries} tries without lost time"))
}
