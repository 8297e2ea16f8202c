//! The parent's handle of a domain's process.
//!
//! The process is this program, started again. A thread of the parent reads its messages. The
//! process ends when its handle is dropped, or when the parent has gone, because its input then
//! ends. It has a process group of its own: Ctrl-C in a terminal reaches only the parent, which
//! then ends the process in order.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use upcall::clock;
use upcall::time::Span;

use super::message::{ChildMessage, ParentMessage};
use crate::background::own_command;
use crate::exit::Failure;

/// Time within which the process must reply. The parent notices at once if the process dies; this
/// limit is for a busy machine that gives the process little time.
const REPLY_WITHIN: Span = Span::from_secs(60);
/// Time within which the process must end after its input has ended.
const END_WITHIN: Span = Span::from_secs(2);
/// Time between two checks whether the process has ended.
const CHECK_EVERY: Duration = Duration::from_millis(2);

/// See the module's head.
pub struct Process {
    pub domain: String,
    child: Child,
    /// The process's input; dropped to end the process.
    input: Option<ChildStdin>,
    messages: mpsc::Receiver<Result<ChildMessage, String>>,
    /// Why the process sends no more messages.
    gone: Option<String>,
}

impl Process {
    /// Starts the process, which then waits for its setup.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(domain: &str) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format_args!("domain `{domain}`: its process did not start: {error}"))
        };
        let command = own_command(crate::args::DOMAIN_COMMAND)?;
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error).because(error))?;
        let (messages_in, messages) = mpsc::channel();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let process = Process { domain: domain.to_owned(), child, input, messages, gone: None };
        let output = output.ok_or_else(|| failed(&"it has no output"))?;
        std::thread::Builder::new()
            .name("upcall-replies".into())
            .spawn(move || read(output, &messages_in))
            .map_err(|error| failed(&error).because(error))?;
        Ok(process)
    }

    /// Sends a message. If the process has ended, the next [`Process::receive`] says why.
    pub fn send(&mut self, message: &ParentMessage) {
        let Some(input) = &mut self.input else { return };
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        let _ = input.write_all(&line);
    }

    /// Waits for the next message; returns `None` if none came `within` this time.
    ///
    /// # Errors
    /// The process has ended or sent a line that is no message; the text says how. Every later call
    /// returns the same error.
    pub fn receive(&mut self, within: Duration) -> Result<Option<ChildMessage>, String> {
        if let Some(gone) = &self.gone {
            return Err(gone.clone());
        }
        let gone = match self.messages.recv_timeout(within) {
            Ok(Ok(message)) => return Ok(Some(message)),
            Err(mpsc::RecvTimeoutError::Timeout) => return Ok(None),
            Ok(Err(nonsense)) => nonsense,
            Err(mpsc::RecvTimeoutError::Disconnected) => self.end(),
        };
        self.gone = Some(gone.clone());
        Err(gone)
    }

    /// Waits for the reply to a message of the setup.
    ///
    /// # Errors
    /// The process has ended, failed, or did not reply.
    pub fn reply(&mut self) -> Result<ChildMessage, Failure> {
        let reason = match self.receive(REPLY_WITHIN.into()) {
            Ok(Some(ChildMessage::Failed { message })) => return Err(Failure::new(message)),
            Ok(Some(message)) => return Ok(message),
            Ok(None) => "it did not answer".to_owned(),
            Err(gone) => gone,
        };
        Err(Failure::new(format_args!("domain `{}`: {reason} before the run began", self.domain)))
    }

    /// Ends the process, and describes how it ended.
    fn end(&mut self) -> String {
        self.input = None;
        let give_up = clock::now() + END_WITHIN;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return describe_exit(status),
                Ok(None) if clock::now() < give_up => std::thread::sleep(CHECK_EVERY),
                Ok(None) => break,
                Err(error) => return format!("its process is lost: {error}"),
            }
        }
        let _ = (self.child.kill(), self.child.wait());
        "its process did not end and was killed".to_owned()
    }
}

/// How a process ended: in order, failed, or killed.
fn describe_exit(status: ExitStatus) -> String {
    match status.signal() {
        Some(_) => format!("its process was killed ({status})"),
        None if status.success() => "its process ended in order".to_owned(),
        None => format!("its process failed ({status})"),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The failure of a message that came in place of the expected one.
pub fn unexpected(process: &Process, message: &ChildMessage) -> Failure {
    Failure::new(format_args!("domain `{}`: unexpected message {message:?}", process.domain))
}

fn read(output: ChildStdout, messages: &mpsc::Sender<Result<ChildMessage, String>>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        let message = serde_json::from_str(&line)
            .map_err(|error| format!("its process sent an invalid message: {error}"));
        let is_last = message.is_err();
        if messages.send(message).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_failure_and_kill_are_distinguished() {
        for (status, text) in [
            (0, "its process ended in order"),
            (3 << 8, "its process failed (exit status: 3)"),
            (9, "its process was killed (signal: 9 (SIGKILL))"),
        ] {
            assert_eq!(describe_exit(ExitStatus::from_raw(status)), text);
        }
    }
}
