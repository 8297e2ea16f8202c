//! What crosses the core's interface, one fixed-size record a crossing.
//!
//! A driver that holds its [`Scheduler`] in a [`Traced`] has every call and every
//! answer noted by a [`Sink`]; [`replay`] gives the same inputs to a fresh
//! scheduler and compares the answers. The core knows nothing but its inputs,
//! so they determine all it says: a live run can be looked at
//! again, step by step, on another machine.
//!
//! Nothing here reads a clock, writes a file or knows a name; the file format is
//! the simulator's (`upcall_sim::trace`).

use crate::policy::Discipline;
use crate::scheduler::{Command, Input, InputError, Scheduler};
use crate::time::Instant;

mod replay;
#[cfg(test)]
mod tests;

pub use replay::{Divergence, Found, INSTANT_MAX, Replayed, replay, replay_seen};

/// One crossing, and when. Plain data, at most 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The `now` of the call; where a call has none, that of the call before.
    pub now: Instant,
    /// What went in or came out.
    pub crossing: Crossing,
}

/// A call and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// [`Scheduler::handle`].
    Input {
        /// What was told.
        input: Input,
        /// Whether it did not fit, and changed nothing.
        refused: bool,
    },
    /// [`Scheduler::poll_command`].
    Command(Option<Command>),
    /// [`Scheduler::poll_notice`].
    Notice(Option<Command>),
    /// Not a call: so many crossings were not noted, because the sink was full.
    Lost {
        /// How many; at least 1.
        records: u64,
    },
}

/// Takes records. Called on the path of the scheduler: must not block, and in a
/// runtime not allocate.
pub trait Sink {
    /// One more record.
    fn note(&mut self, record: Record);
}

impl Sink for Vec<Record> {
    /// Keeps all of them. Allocates.
    fn note(&mut self, record: Record) {
        self.push(record);
    }
}

/// A scheduler whose crossings are noted, if it has a sink. What only looks at
/// the scheduler goes past it ([`core::ops::Deref`]); what changes it does not.
#[derive(Debug)]
pub struct Traced<S> {
    scheduler: Scheduler,
    sink: Option<S>,
    /// Of the last call that had one.
    now: Instant,
}

impl<S: Sink> Traced<S> {
    /// As [`Scheduler::new`]. Until it has a sink nothing is noted, at the cost of
    /// one branch a call.
    pub fn new(capacity: u32, discipline: &Discipline) -> Self {
        Traced { scheduler: Scheduler::new(capacity, discipline), sink: None, now: Instant::ZERO }
    }

    /// From now on crossings go to `sink`. Only what is noted from the first
    /// call on can be replayed.
    pub fn set_sink(&mut self, sink: S) {
        self.sink = Some(sink);
    }

    /// As [`Scheduler::handle`].
    ///
    /// # Errors
    /// See there.
    pub fn handle(&mut self, now: Instant, input: Input) -> Result<(), InputError> {
        self.now = now;
        let told = self.scheduler.handle(now, input);
        self.note(|| Crossing::Input { input, refused: told.is_err() });
        told
    }

    /// As [`Scheduler::poll_command`].
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.now = now;
        let command = self.scheduler.poll_command(now);
        self.note(|| Crossing::Command(command));
        command
    }

    /// As [`Scheduler::poll_notice`].
    pub fn poll_notice(&mut self) -> Option<Command> {
        let notice = self.scheduler.poll_notice();
        self.note(|| Crossing::Notice(notice));
        notice
    }

    /// The sink, to take out what it holds.
    pub fn sink_mut(&mut self) -> Option<&mut S> {
        self.sink.as_mut()
    }

    #[inline]
    fn note(&mut self, crossing: impl FnOnce() -> Crossing) {
        // A crossing is large: it is made only where it is wanted.
        if let Some(sink) = &mut self.sink {
            sink.note(Record { now: self.now, crossing: crossing() });
        }
    }
}

impl<S> core::ops::Deref for Traced<S> {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}
