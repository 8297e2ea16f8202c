//! The end that reads. It checks each message, releases in batches, and keeps buffers and gives
//! them back in random order. When no message is there, it sleeps or polls at random.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use upcall_shm::stream::{Closed, Due, Kept, Message, Reader, StreamForm};
use upcall_sys::futex;

use crate::job::{Job, Position, units_of};
use crate::message::{BYTES_MAX, Random, bytes_of, check, check_bytes, compose_bytes};
use crate::shared::{Shared, progress, sleep};

/// The reading end of one stream.
pub struct Receiver<'a> {
    job: &'a Job,
    form: StreamForm,
    reader: Reader<&'a [AtomicU64]>,
    progress: &'a [AtomicU64],
    random: Random,
    /// Everything before this position is read.
    at: Position,
    /// Units that the receiver is done with.
    units: u64,
    /// The part of message `at` that has been read, in a stream of plain bytes.
    part: Vec<u8>,
    /// Buffers of this group that were not given back yet.
    kept: Vec<Kept>,
    /// Messages of this group that were read.
    grouped: u64,
}

impl<'a> Receiver<'a> {
    /// Becomes the reader of `stream`.
    pub fn new(
        job: &'a Job,
        stream: Shared<'a>,
        progress: &'a [AtomicU64],
    ) -> Result<Self, String> {
        // The part of the next message that an earlier reader had released.
        let mut before = [0; BYTES_MAX];
        compose_bytes(job.begin.number, bytes_of(job.seed, job.begin.number), &mut before);
        Ok(Receiver {
            job,
            form: stream.form(),
            reader: stream.reader().map_err(|error| error.to_string())?,
            progress,
            random: Random::new(job.seed ^ (job.generation << 1 | 1)),
            at: job.begin,
            units: 0,
            part: before[..job.begin.byte].to_vec(),
            kept: Vec::new(),
            grouped: 0,
        })
    }

    /// Reads until the stream is closed. Returns the reason and the position reached.
    pub fn run(mut self) -> Result<(Closed, Position), String> {
        loop {
            if let Some(closed) = self.batch()? {
                self.give_back();
                self.release();
                return Ok((closed, Position { byte: self.part.len(), ..self.at }));
            }
        }
    }

    fn batch(&mut self) -> Result<Option<Closed>, String> {
        for _ in 0..self.random.batch(self.job.batch) {
            loop {
                match self.next()? {
                    Ok(true) => break,
                    Ok(false) => self.wait(),
                    Err(closed) => return Ok(Some(closed)),
                }
            }
        }
        self.release();
        Ok(None)
    }

    /// Reads one message, or some bytes. Returns whether there was one.
    fn next(&mut self) -> Result<Result<bool, Closed>, String> {
        let seed = self.job.seed;
        let message = match self.reader.front() {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(Ok(false)),
            Err(closed) => return Ok(Err(closed)),
        };
        if let StreamForm::Bytes { .. } = self.form {
            let part = 1 + usize::try_from(self.random.below(BYTES_MAX as u64)).unwrap_or(0);
            let part = part.min(message.len());
            let from = self.part.len();
            self.part.resize(from + part, 0);
            message.payload().copy_to(0, &mut self.part[from..]);
            message.done_with(part);
            self.units += part as u64;
            return self.whole_messages().map(|()| Ok(true));
        }
        let number = self.at.number;
        check_message(self.form, seed, number, &message)?;
        self.at.number += 1;
        if let StreamForm::Buffers { .. } = self.form {
            self.kept.push(message.keep().ok_or("a buffer cannot be kept")?);
            self.grouped += 1;
            if self.grouped == self.job.group {
                self.give_back();
            }
        } else {
            message.done();
            self.units += units_of(self.form, seed, number);
        }
        Ok(Ok(true))
    }

    /// Checks the whole messages among the plain bytes read.
    fn whole_messages(&mut self) -> Result<(), String> {
        let mut from = 0;
        loop {
            let bytes = bytes_of(self.job.seed, self.at.number);
            let Some(found) = self.part.get(from..from + bytes) else { break };
            check_bytes(self.job.seed, self.at.number, found)?;
            from += bytes;
            self.at.number += 1;
        }
        self.part.drain(..from);
        Ok(())
    }

    /// Gives back the whole group in random order, with a release in between from time to time.
    fn give_back(&mut self) {
        self.grouped = 0;
        while !self.kept.is_empty() {
            let at = usize::try_from(self.random.below(self.kept.len() as u64)).unwrap_or(0);
            self.reader.give_back(self.kept.swap_remove(at));
            self.units += 1;
            if self.random.chance(10) {
                self.release();
            }
        }
    }

    fn release(&mut self) {
        self.about_to_release();
        let due = self.reader.release();
        self.has_released();
        self.has_started(due);
        if due.wake {
            futex::wake_shared(self.reader.peer_wait_word(), 1);
        }
    }

    fn wait(&mut self) {
        if !self.random.chance(self.job.sleeps) {
            self.release();
            return spin_loop();
        }
        // The most that the writer can have written while the reader keeps this many.
        let most = match self.form {
            StreamForm::Bytes { capacity } | StreamForm::Messages { capacity } => {
                u64::from(capacity) - 2 * (BYTES_MAX as u64 + 8)
            }
            StreamForm::Slots { slots, .. } => u64::from(slots),
            StreamForm::Buffers { buffers, .. } => u64::from(buffers) - self.job.group,
        };
        let units = self.random.batch(most);
        self.about_to_release();
        let wait = self.reader.wait(units);
        self.has_released();
        self.has_started(wait.due);
        sleep(wait, self.reader.wait_word(), self.reader.peer_wait_word());
        self.reader.finish_wait();
    }

    fn about_to_release(&self) {
        // Relaxed, here and below, for the reason given in the sender.
        self.progress[progress::RELEASING].store(self.units, Relaxed);
    }

    fn has_started(&self, due: Due) {
        if due.start {
            // Relaxed: the supervisor reads it after this process is done with the stream.
            self.progress[progress::STARTS].fetch_add(1, Relaxed);
        }
    }

    fn has_released(&self) {
        self.progress[progress::RELEASED].store(self.units, Relaxed);
    }
}

fn check_message(
    form: StreamForm,
    seed: u64,
    number: u64,
    message: &Message<'_, &[AtomicU64]>,
) -> Result<(), String> {
    let (payload, len) = (message.payload(), message.len());
    if let StreamForm::Messages { .. } = form {
        let mut bytes = [0; BYTES_MAX];
        let copied = payload.copy_to(0, &mut bytes);
        // A message longer than any valid one is rejected by its length.
        let found = if copied == len {
            check_bytes(seed, number, &bytes[..len])
        } else {
            Err(String::new())
        };
        return found.map_err(|error| format!("{error} ({len} bytes)"));
    }
    let words = payload.words().unwrap_or_default();
    check(seed, number, len, words.iter().map(|word| word.load(Relaxed)))
}
