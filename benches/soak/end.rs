//! One end of a stream, in a process of its own, that may be killed at any moment.
//!
//! Started by the supervisor. It is told a [`Job`] in a line of its standard input, does it until
//! the stream is closed, says in a line of its standard output how far it is, and waits for the
//! next: an end that outlives its peer goes on with a new stream from where it is by its own
//! count, and finds out whether the supervisor thinks the same.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::fd::OwnedFd;

use upcall_shm::stream::{Closed, Stream};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::schedule;

use crate::job::{Job, Position, RemoteMemory};
use crate::receiver::Receiver;
use crate::sender::Sender;

/// Which end a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Which writes.
    Sender,
    /// Which reads.
    Receiver,
}

impl Role {
    /// What a process of this role is started with.
    pub const fn word(self) -> &'static str {
        match self {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        }
    }
}

/// Does jobs until standard input ends; an error is said on standard output.
pub fn serve(role: Role) {
    let mut at = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let output = match Job::parse(&line).and_then(|job| run(role, &job, &mut at)) {
            Ok(how) => format!("{how} {}", at.unwrap_or_default()),
            Err(error) => format!("error {error}"),
        };
        // A supervisor that is gone reads nothing, and the loop ends.
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

/// Another process's memory, by its descriptor in `/proc`.
fn map((pid, fd, bytes): RemoteMemory) -> Result<SharedMapping, String> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let fd = OwnedFd::from(file.map_err(|error| format!("{path}: {error}"))?);
    SharedMapping::from_fd(fd, bytes).map_err(|error| error.to_string())
}
