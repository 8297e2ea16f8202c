//! The end that writes. It writes message after message in batches. When there is no room, it
//! sleeps or polls at random. If the stream has a `B_start`, the sender is a passive source, which
//! rests instead of sleeping for room.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use upcall_shm::stream::{Closed, End, StreamError, StreamForm, WriteChunk, Writer};
use upcall_sys::futex;

use crate::job::{Job, Position};
use crate::message::{BYTES_MAX, Random, WORDS_MAX, bytes_of, compose, compose_bytes};
use crate::shared::{Shared, progress, sleep};

/// The writing end of one stream.
pub struct Sender<'a> {
    job: &'a Job,
    form: StreamForm,
    writer: Writer<&'a [AtomicU64]>,
    /// The same stream, for the wake word of a reader after the writer has ended.
    view: Shared<'a>,
    progress: &'a [AtomicU64],
    random: Random,
    /// The positions up to which messages are staged and committed.
    staged: Position,
    committed: Position,
    /// Units staged.
    units: u64,
    /// The message that stands in `bytes`, for the forms that copy.
    composed: Option<u64>,
    bytes: Box<[u8; BYTES_MAX]>,
}

impl<'a> Sender<'a> {
    /// Becomes the writer of `stream`.
    pub fn new(
        job: &'a Job,
        stream: Shared<'a>,
        view: Shared<'a>,
        progress: &'a [AtomicU64],
    ) -> Result<Self, String> {
        Ok(Sender {
            job,
            form: stream.form(),
            writer: stream.writer().map_err(|error| error.to_string())?,
            view,
            progress,
            random: Random::new(job.seed ^ job.generation << 1),
            staged: job.begin,
            committed: job.begin,
            units: 0,
            composed: None,
            bytes: Box::new([0; BYTES_MAX]),
        })
    }

    /// Writes until the reader is gone, or until all is written and the stream ended. Returns the
    /// reason and the position committed.
    pub fn run(mut self) -> Result<(Closed, Position), String> {
        while self.staged.number < self.job.end {
            if let Err(error) = self.batch() {
                return match error {
                    StreamError::Closed(closed) => Ok((closed, self.committed)),
                    other => Err(other.to_string()),
                };
            }
        }
        if self.writer.end() {
            futex::wake_shared(self.view.wait_word(End::Reader), 1);
        }
        Ok((Closed::Ended, self.committed))
    }

    fn batch(&mut self) -> Result<(), StreamError> {
        for _ in 0..self.random.batch(self.job.batch) {
            if self.staged.number >= self.job.end {
                break;
            }
            while !self.stage()? {
                self.wait()?;
            }
        }
        self.commit()
    }

    /// Stages the next message, or some bytes. `false`: there is no room.
    fn stage(&mut self) -> Result<bool, StreamError> {
        let Position { number, byte } = self.staged;
        let bytes = bytes_of(self.job.seed, number);
        let units = match self.form {
            StreamForm::Slots { .. } | StreamForm::Buffers { .. } => {
                let Some(room) = self.writer.reserve(bytes)? else { return Ok(false) };
                compose_in_place(&room, number, bytes);
                room.stage(bytes);
                1
            }
            StreamForm::Messages { .. } => {
                self.compose(number, bytes);
                if !self.writer.push(&self.bytes[..bytes])? {
                    return Ok(false);
                }
                8 + bytes.next_multiple_of(8)
            }
            StreamForm::Bytes { .. } => {
                self.compose(number, bytes);
                let left = bytes - byte;
                let part = if self.random.chance(75) { left } else { self.part_of(left) };
                if !self.writer.push(&self.bytes[byte..byte + part])? {
                    return Ok(false);
                }
                self.units += part as u64;
                self.staged.byte += part;
                if self.staged.byte < bytes {
                    return Ok(true);
                }
                0
            }
        };
        self.units += units as u64;
        self.staged = Position { number: number + 1, byte: 0 };
        Ok(true)
    }

    fn part_of(&mut self, bytes: usize) -> usize {
        1 + usize::try_from(self.random.below(bytes as u64)).unwrap_or(0)
    }

    fn compose(&mut self, number: u64, bytes: usize) {
        if self.composed != Some(number) {
            compose_bytes(number, bytes, &mut self.bytes);
            self.composed = Some(number);
        }
    }

    fn commit(&mut self) -> Result<(), StreamError> {
        self.about_to_commit();
        let due = self.writer.commit();
        // The commit also counts in a stream whose reader is gone.
        self.has_committed();
        if due?.wake {
            futex::wake_shared(self.writer.peer_wait_word(), 1);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), StreamError> {
        if !self.random.chance(self.job.sleeps) {
            if self.committed != self.staged {
                self.commit()?;
            }
            spin_loop();
            return Ok(());
        }
        if self.writer.rests() {
            self.about_to_commit();
            let wait = self.writer.rest_until_started();
            self.has_committed();
            sleep(wait, self.writer.wait_word(), self.writer.peer_wait_word());
            self.writer.finish_wait();
            return Ok(());
        }
        // Waits for room for the next message, or for some more.
        let bytes = bytes_of(self.job.seed, self.staged.number);
        let more = if self.random.chance(50) { bytes } else { bytes + self.part_of(BYTES_MAX) };
        let more = if let StreamForm::Slots { .. } | StreamForm::Buffers { .. } = self.form {
            bytes
        } else {
            more
        };
        self.about_to_commit();
        let wait = self.writer.wait(more);
        self.has_committed();
        sleep(wait, self.writer.wait_word(), self.writer.peer_wait_word());
        self.writer.finish_wait();
        Ok(())
    }

    fn about_to_commit(&self) {
        // Relaxed, here and below: the stream's own release store and fence stand between the two
        // stores, and the supervisor reads them after this process is dead.
        self.progress[progress::COMMITTING].store(self.units, Relaxed);
    }

    fn has_committed(&mut self) {
        self.progress[progress::COMMITTED].store(self.units, Relaxed);
        self.committed = self.staged;
    }
}

fn compose_in_place(room: &WriteChunk<'_, &[AtomicU64]>, number: u64, bytes: usize) {
    let mut words = [0; WORDS_MAX];
    compose(number, bytes, &mut words);
    // Slots and buffers always have their words in place.
    for (place, word) in room.payload().words().unwrap_or_default().iter().zip(words) {
        place.store(word, Relaxed);
    }
}
