//! A daemon that a command starts because none answers.
//!
//! `upcall run` and `upcall exec` use it. The daemon is this program, started again. It ends when
//! its last domain and its last program have gone, and serves other commands until then.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use upcall::clock;
use upcall::time::Span;
use upcall_cli::standard_error::say;

use crate::background::own_command;
use crate::exit::Failure;

/// Time within which a daemon must listen.
const LISTEN_WITHIN: Span = Span::from_secs(60);
/// Time within which a daemon must notice that its last client has gone.
const END_WITHIN: Span = Span::from_secs(1);
/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(2);

/// A daemon that this process started. Drop it after the last domain, or the program, has gone.
pub struct OwnDaemon {
    child: Child,
    /// The lines that the daemon printed and this process passed on.
    printed: mpsc::Receiver<String>,
    /// The thread that passes them on. `None`: there is none, or it was waited for.
    passes_on: Option<JoinHandle<()>>,
    /// Whether a domain or a program of this process was attached. From then on the daemon ends by
    /// itself.
    attached: bool,
}

/// Starts a daemon at `socket` with the options `arguments`, and waits until it listens. `None` if
/// another program started one there first.
///
/// # Errors
/// The daemon does not start, or the system cannot check the socket.
pub fn start(socket: &Path, arguments: &[String]) -> Result<Option<OwnDaemon>, Failure> {
    let mut own = OwnDaemon::start(socket, arguments)?;
    let give_up = clock::now() + LISTEN_WITHIN;
    while clock::now() < give_up {
        let ended = own.has_ended();
        if answers(socket)? {
            // If this process's daemon ended, another program started one first.
            return Ok((!ended).then_some(own));
        }
        if ended {
            let last = own.printed.iter().last();
            let last = last.unwrap_or_else(|| "it ended and said nothing".to_owned());
            return Err(Failure::new(format_args!("the daemon did not start: {last}")));
        }
        std::thread::sleep(CHECK_EVERY);
    }
    Err(Failure::new("the daemon did not start: it does not listen"))
}

/// Whether a daemon listens at `socket`.
///
/// # Errors
/// The system cannot check the socket.
pub fn answers(socket: &Path) -> Result<bool, Failure> {
    upcall::daemon_answers(socket).map_err(|error| Failure::of_file(socket, error))
}

impl OwnDaemon {
    fn start(socket: &Path, arguments: &[String]) -> Result<Self, Failure> {
        let own = own_command("daemon")?;
        let mut child = Command::new(&own[0])
            .args(&own[1..])
            .args(["--exit-when-idle", "--quiet"])
            .args(arguments)
            .arg("--socket")
            .arg(socket)
            // A service manager that started this process waits for it, not for its daemon.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal is for the parent.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Failure::new(format_args!("the daemon did not start: {error}")).because(error)
            })?;
        let (printed_in, printed) = mpsc::channel();
        let passes_on = child.stderr.take().map(|stderr| {
            let thread = std::thread::Builder::new().name("upcall-daemon".into());
            thread.spawn(move || pass_on(stderr, &printed_in)).map_err(Failure::of_error)
        });
        let passes_on = passes_on.transpose()?;
        Ok(OwnDaemon { child, printed, passes_on, attached: false })
    }

    /// Call this when the first domain, or the program, is attached.
    pub fn mark_attached(&mut self) {
        self.attached = true;
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        if !self.attached {
            let _ = (self.child.kill(), self.child.wait());
            // The daemon has ended, so its lines do, and none follows what is printed next.
            let _ = self.passes_on.take().map(JoinHandle::join);
            return;
        }
        let give_up = clock::now() + END_WITHIN;
        while !self.has_ended() && clock::now() < give_up {
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

/// Passes on the daemon's standard error, where it prints only failures.
fn pass_on(stderr: ChildStderr, printed: &mpsc::Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        say(&line);
        let _ = printed.send(line);
    }
}
