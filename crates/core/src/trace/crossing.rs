//! A call of the core's interface and its answer, as a record.

use crate::scheduler::{Command, Input};
use crate::time::Instant;

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
