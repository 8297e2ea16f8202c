//! A call of the core's interface and its answer, as a record.

use crate::scheduler::{Command, Input};
use crate::time::Instant;

/// One crossing and its time. Plain data, at most 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The `now` of the call. For a call without one, the `now` of the previous call.
    pub now: Instant,
    /// The call and its answer.
    pub crossing: Crossing,
}

/// A call and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// A call of `Scheduler::handle`.
    Input {
        /// The input.
        input: Input,
        /// Whether the scheduler refused it and changed nothing.
        refused: bool,
    },
    /// A call of `Scheduler::poll_command`.
    Command(Option<Command>),
    /// A call of `Scheduler::poll_notice`.
    Notice(Option<Command>),
    /// Not a call: this many crossings were not noted, because the sink was full.
    Lost {
        /// At least 1.
        records: u64,
    },
}

/// Takes records. Every call of the scheduler calls the sink, so the sink must not block. In a
/// runtime it must not allocate either.
pub trait Sink {
    /// Takes one more record.
    fn note(&mut self, record: Record);
}

impl Sink for Vec<Record> {
    /// Keeps all records. Allocates.
    fn note(&mut self, record: Record) {
        self.push(record);
    }
}
