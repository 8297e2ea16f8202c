//! One end of a stream, in a process of its own, that may be killed at any moment.
//!
//! Started by the supervisor. It is told a [`Job`] in a line of its standard input, does it until
//! the stream is closed, says in a line of its standard output how far it is, and waits for the
//! next: an end that outlives its peer goes on with a new stream from where it is by its own
//! count, and finds out whether the supervisor thinks the same.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use upcall_shm::stream::{Closed, Stream, WAITING, Wait};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::{futex, schedule};

use crate::job::{Job, Place, Position};
use crate::receiver::Receiver;
use crate::sender::Sender;

/// Words of the memory in which each end says, apart from the stream, how far it is in units of
/// the stream's indexes: before it commits (releases), and after.
pub mod account {
    /// Writer: what it is about to commit.
    pub const COMMITTING: usize = 0;
    /// Writer: what the stream said is committed.
    pub const COMMITTED: usize = 8;
    /// Reader: what it is about to release.
    pub const RELEASING: usize = 16;
    /// Reader: what the stream said is released.
    pub const RELEASED: usize = 24;
    /// Reader: how often it started a source that rested.
    pub const STARTS: usize = 25;
    /// All words.
    pub const WORDS: usize = 32;
}

/// A stream in a child.
pub type Shared<'a> = Stream<&'a [AtomicU64]>;

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
        let said = match Job::parse(&line).and_then(|job| run(role, &job, &mut at)) {
            Ok(how) => format!("{how} {}", at.unwrap_or_default()),
            Err(error) => format!("error {error}"),
        };
        // A supervisor that is gone reads nothing, and the loop ends.
        let _ = writeln!(std::io::stdout(), "{said}");
    }
}

fn run(role: Role, job: &Job, at: &mut Option<Position>) -> Result<&'static str, String> {
    let own = *at.get_or_insert(job.begin);
    if own != job.begin {
        return Err(format!("is at `{own}` by its own count, was told `{}`", job.begin));
    }
    schedule::pin_thread(&[job.cpu]).map_err(|error| error.to_string())?;
    let (memory, accounts) = (map(job.memory)?, map(job.accounts)?);
    let stream = || Stream::attach(memory.words(), job.generation).map_err(|e| e.to_string());
    let (closed, reached) = match role {
        Role::Sender => Sender::new(job, stream()?, stream()?, accounts.words())?.run()?,
        Role::Receiver => Receiver::new(job, stream()?, accounts.words())?.run()?,
    };
    *at = Some(reached);
    match closed {
        Closed::Ended => Ok("ended"),
        Closed::Died => Ok("died"),
        other => Err(other.to_string()),
    }
}

/// Another process's memory, by its descriptor in `/proc`.
fn map((pid, fd, bytes): Place) -> Result<SharedMapping, String> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let fd = OwnedFd::from(file.map_err(|error| format!("{path}: {error}"))?);
    SharedMapping::from_fd(fd, bytes).map_err(|error| error.to_string())
}

/// Does what is due, and sleeps if that was wished for.
pub fn sleep(wait: Wait, own: &AtomicU64, peer: &AtomicU64) {
    if wait.due.wake {
        futex::wake_shared(peer, 1);
    }
    if wait.sleep {
        futex::wait_shared_until(own, WAITING, None);
    }
}
