//! One end of a stream, in a process of its own that may be killed at any moment.
//!
//! The supervisor starts the process and writes a [`Job`] as a line to its standard input. The
//! process does the job until the stream is closed. Then it prints its position as a line to
//! standard output and waits for the next job. An end that outlives its peer continues with a new
//! stream from its own position, and checks that the supervisor has found the same position.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::fd::OwnedFd;

use upcall_shm::stream::{Closed, Stream};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::schedule;

use crate::job::{Job, Position, RemoteMemory};
use crate::receiver::Receiver;
use crate::sender::Sender;

/// The end of a stream that a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The writing end.
    Sender,
    /// The reading end.
    Receiver,
}

impl Role {
    /// The argument with which a process of this role is started.
    pub const fn word(self) -> &'static str {
        match self {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        }
    }
}

/// Does jobs until standard input ends. Prints errors to standard output.
pub fn serve(role: Role) {
    let mut at = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let output = match Job::parse(&line).and_then(|job| run(role, &job, &mut at)) {
            Ok(how) => format!("{how} {}", at.unwrap_or_default()),
            Err(error) => format!("error {error}"),
        };
        // If the supervisor is gone, the write fails and the loop ends.
        let _ = writeln!(std::io::stdout(), "{output}");
    }
}

fn run(role: Role, job: &Job, at: &mut Option<Position>) -> Result<&'static str, String> {
    let own = *at.get_or_insert(job.begin);
    if own != job.begin {
        return Err(format!("is at `{own}` by its own count, expected `{}`", job.begin));
    }
    schedule::pin_thread(&[job.cpu]).map_err(|error| error.to_string())?;
    let (memory, progress) = (map(job.memory)?, map(job.progress)?);
    let stream = || Stream::attach(memory.words(), job.generation).map_err(|e| e.to_string());
    let (closed, reached) = match role {
        Role::Sender => Sender::new(job, stream()?, stream()?, progress.words())?.run()?,
        Role::Receiver => Receiver::new(job, stream()?, progress.words())?.run()?,
    };
    *at = Some(reached);
    match closed {
        Closed::Ended => Ok("ended"),
        Closed::Died => Ok("died"),
        other => Err(other.to_string()),
    }
}

/// Maps memory of another process through its descriptor in `/proc`.
fn map((pid, fd, bytes): RemoteMemory) -> Result<SharedMapping, String> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let fd = OwnedFd::from(file.map_err(|error| format!("{path}: {error}"))?);
    SharedMapping::from_fd(fd, bytes).map_err(|error| error.to_string())
}
