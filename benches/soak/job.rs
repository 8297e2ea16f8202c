//! The job that the supervisor sends to an end, and the position that an end reports.

use std::fmt;

use upcall_shm::stream::StreamForm;

use crate::message::bytes_of;

/// A position in the sequence of all messages: the number of messages before it, and the number of
/// bytes of the next message before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The next message.
    pub number: u64,
    /// Bytes of the next message before the position. Always 0 except in a stream of plain bytes.
    pub byte: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.byte)
    }
}

impl Position {
    /// Parses a position in its displayed form.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, byte) = text.trim().split_once(' ')?;
        Some(Position { number: number.parse().ok()?, byte: byte.parse().ok()? })
    }
}

/// Memory of another process: process number, descriptor in that process, and bytes.
pub type RemoteMemory = (u32, i32, usize);

/// The work of one end for one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Generation of the stream.
    pub generation: u64,
    /// Seed of all random numbers and messages.
    pub seed: u64,
    /// The stream's memory.
    pub memory: RemoteMemory,
    /// The memory of the counts in [`crate::shared::progress`].
    pub progress: RemoteMemory,
    /// The position at which the stream begins.
    pub begin: Position,
    /// The number of the first message that is not written any more.
    pub end: u64,
    /// The percentage of cases in which an end with nothing to do sleeps.
    pub sleeps: u64,
    /// The most messages to a commit or a release.
    pub batch: u64,
    /// The number of buffers that a reader keeps before it gives them back in random order.
    pub group: u64,
    /// The CPU on which the end runs.
    pub cpu: u32,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Job { generation, seed, memory, progress, begin, end, sleeps, batch, group, cpu } =
            self;
        write!(f, "{generation} {seed} {} {} {}", memory.0, memory.1, memory.2)?;
        write!(f, " {} {} {} {begin}", progress.0, progress.1, progress.2)?;
        write!(f, " {end} {sleeps} {batch} {group} {cpu}")
    }
}

impl Job {
    /// Parses a job in its displayed form.
    ///
    /// # Errors
    /// The line is no job.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let error = |_| format!("found `{line}`, expected a job");
        macro_rules! next {
            () => {
                words.next().unwrap_or_default().parse().map_err(error)?
            };
        }
        Ok(Job {
            generation: next!(),
            seed: next!(),
            memory: (next!(), next!(), next!()),
            progress: (next!(), next!(), next!()),
            begin: Position { number: next!(), byte: next!() },
            end: next!(),
            sleeps: next!(),
            batch: next!(),
            group: next!(),
            cpu: next!(),
        })
    }
}

/// The number of units by which message `number` moves an index.
#[inline]
pub fn units_of(form: StreamForm, seed: u64, number: u64) -> u64 {
    match form {
        StreamForm::Bytes { .. } => bytes_of(seed, number) as u64,
        StreamForm::Messages { .. } => 8 + bytes_of(seed, number).next_multiple_of(8) as u64,
        _ => 1,
    }
}

/// The position of an index of `units`, in a stream that begins at `begin`.
///
/// # Errors
/// The index is inside a message, where none can be.
pub fn position(
    form: StreamForm,
    seed: u64,
    begin: Position,
    units: u64,
) -> Result<Position, String> {
    if let StreamForm::Slots { .. } | StreamForm::Buffers { .. } = form {
        return Ok(Position { number: begin.number + units, byte: 0 });
    }
    let (mut number, mut left) = (begin.number, units + begin.byte as u64);
    loop {
        let next = units_of(form, seed, number);
        if left < next {
            break;
        }
        (number, left) = (number + 1, left - next);
    }
    match form {
        StreamForm::Bytes { .. } => {
            Ok(Position { number, byte: usize::try_from(left).unwrap_or(0) })
        }
        _ if left == 0 => Ok(Position { number, byte: 0 }),
        _ => Err(format!("index {units} stands in the midst of message {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let job = Job {
            generation: 1,
            seed: 2,
            memory: (3, 4, 5),
            progress: (6, 7, 8),
            begin: Position { number: 9, byte: 10 },
            end: u64::MAX,
            sleeps: 11,
            batch: 12,
            group: 13,
            cpu: 14,
        };
        assert_eq!(Job::parse(&job.to_string()), Ok(job));
        assert!(Job::parse("1 2 three").is_err());
    }

    #[test]
    fn an_index_maps_to_a_position_among_the_messages() {
        let (seed, begin) = (5, Position { number: 40, byte: 3 });
        let first = bytes_of(seed, 40) as u64;
        let bytes = StreamForm::Bytes { capacity: 1024 };
        let at = |units| position(bytes, seed, begin, units).unwrap();
        assert_eq!(at(0), begin);
        assert_eq!(at(first - 4), Position { number: 40, byte: bytes_of(seed, 40) - 1 });
        assert_eq!(at(first - 3), Position { number: 41, byte: 0 });
        let messages = StreamForm::Messages { capacity: 1024 };
        let begin = Position { number: 40, byte: 0 };
        let two = units_of(messages, seed, 40) + units_of(messages, seed, 41);
        assert_eq!(position(messages, seed, begin, two).map(|at| at.number), Ok(42));
        assert!(position(messages, seed, begin, two - 8).is_err());
    }
}
