//! A process of a cell, from outside: started, told when to work, asked what it counted, ended.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::DeserializeOwned;

use super::role::READY;
use crate::exit::Failure;

/// Time between two looks at an interruption.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time within which a process must be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Time between a request to end and a kill.
const END_WITHIN: Duration = Duration::from_secs(5);

/// See the module's head. Dropping it ends the process.
pub struct Process {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    /// Lines of standard output and standard error.
    printed: mpsc::Receiver<String>,
    said: mpsc::Receiver<String>,
}

impl Process {
    /// Starts `command`, in a process group of its own: Ctrl-C in a terminal is for this process.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(name: &'static str, mut command: Command) -> Result<Process, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(format_args!("{name} did not start: {error}")).because(error)
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let input = child.stdin.take();
        let printed = lines_of(child.stdout.take());
        let said = lines_of(child.stderr.take());
        Ok(Process { name, child, input, printed, said })
    }

    /// Waits until it is ready. False after an interruption.
    ///
    /// # Errors
    /// It ended, or takes too long.
    pub fn is_ready(&mut self, interrupted: &AtomicBool) -> Result<bool, Failure> {
        let line = self.line(Instant::now() + READY_WITHIN, interrupted)?;
        match line.as_deref() {
            None => Ok(false),
            Some(READY) => Ok(true),
            Some(other) => Err(self.failed(&format!("found `{other}`, expected `{READY}`"))),
        }
    }

    /// Tells it when to work.
    pub fn set_times(&mut self, (begin_ns, end_ns): (u64, u64)) {
        if let Some(input) = &mut self.input {
            // A process that has ended has no counts, which is found later.
            let _ = writeln!(input, "{begin_ns} {end_ns}");
        }
    }

    /// Waits for what it counted. `None` after an interruption.
    ///
    /// # Errors
    /// It ended without counts, or takes longer than until `deadline`.
    pub fn counts<T: DeserializeOwned>(
        &mut self,
        deadline: Instant,
        interrupted: &AtomicBool,
    ) -> Result<Option<T>, Failure> {
        let Some(line) = self.line(deadline, interrupted)? else { return Ok(None) };
        let counts = serde_json::from_str(&line);
        counts.map(Some).map_err(|error| self.failed(&error.to_string()))
    }

    /// The next line. `None` after an interruption.
    fn line(
        &mut self,
        deadline: Instant,
        interrupted: &AtomicBool,
    ) -> Result<Option<String>, Failure> {
        loop {
            match self.printed.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(Some(line)),
                Err(_) if interrupted.load(Ordering::Relaxed) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    // Its reason comes before the end of standard error.
                    let said = self.said.iter().last();
                    return Err(self.failed(&said.unwrap_or_else(|| "it said nothing".to_owned())));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    return Err(self.failed("it takes too long"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::new(format_args!("upcall bench livelock: {}: {why}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that waits for its times ends without them.
        drop(self.input.take());
        let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if has_ended(&mut self.child) {
            return;
        }
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + END_WITHIN;
        while Instant::now() < deadline {
            if has_ended(&mut self.child) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The lines of a stream. The thread that reads them ends with the stream.
fn lines_of(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(stream) = stream {
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
    }
    lines
}
