//! Reads a stream's memory after its ends are gone: the counters, and the messages between them.
//! The code follows the layout in the head of `upcall_shm::stream` and does not use that module's
//! code.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use upcall_shm::stream::{HEADER_BYTES, StreamForm};

use crate::job::{Position, position};
use crate::message::{BYTES_MAX, bytes_of, check, check_bytes, compose_bytes};

/// Word numbers of `N_write` and `N_read`.
const WRITTEN: usize = 8;
const READ: usize = 16;
const DATA: usize = HEADER_BYTES / 8;

/// A stream to which no process writes any more.
pub struct Page<'a> {
    /// All words of its memory.
    pub words: &'a [AtomicU64],
    /// The form in which its data moves.
    pub form: StreamForm,
    /// Seed of all messages.
    pub seed: u64,
    /// The position at which the stream began.
    pub begin: Position,
    /// Buffers that its reader kept before it gave them back.
    pub group: u64,
}

impl Page<'_> {
    /// `N_write`: everything below is committed.
    pub fn written(&self) -> u64 {
        self.load(WRITTEN)
    }

    /// `N_read`: everything below is released.
    pub fn read(&self) -> u64 {
        self.load(READ)
    }

    /// Checks every message from `N_read` up to `N_write`. Returns the number of their units.
    ///
    /// # Errors
    /// A message is missing or damaged.
    pub fn check_unread(&self) -> Result<u64, String> {
        let (read, written) = (self.read(), self.written());
        let first = position(self.form, self.seed, self.begin, read)?;
        match self.form {
            StreamForm::Bytes { .. } => self.bytes(first)?,
            StreamForm::Messages { .. } => self.messages(first.number)?,
            StreamForm::Slots { slots, slot_bytes } => {
                let stride = (1 + slot_bytes as usize / 8).next_multiple_of(8);
                for index in read..written {
                    let at = DATA + place(index, slots) * stride;
                    self.at(self.begin.number + index, self.load(at), at + 1)?;
                }
            }
            StreamForm::Buffers { .. } => return self.buffers(),
        }
        Ok(written - read)
    }

    fn bytes(&self, first: Position) -> Result<(), String> {
        let StreamForm::Bytes { capacity } = self.form else { return Ok(()) };
        let mut number = first.number;
        // Computes again the released part of the first message.
        let mut part = made(self.seed, number)[..first.byte].to_vec();
        for index in self.read()..self.written() {
            let byte = place(index, capacity);
            part.push(self.load(DATA + byte / 8).to_ne_bytes()[byte % 8]);
            if part.len() == bytes_of(self.seed, number) {
                check_bytes(self.seed, number, &part)?;
                part.clear();
                number += 1;
            }
        }
        if made(self.seed, number).starts_with(&part) {
            return Ok(());
        }
        Err(format!("the first {} bytes of message {number} are damaged", part.len()))
    }

    fn messages(&self, first: u64) -> Result<(), String> {
        let StreamForm::Messages { capacity } = self.form else { return Ok(()) };
        let word = |index| self.load(DATA + place(index, capacity) / 8);
        let (mut index, mut number) = (self.read(), first);
        while index < self.written() {
            let bytes = usize_of(word(index));
            let words =
                (1..=bytes.min(BYTES_MAX).div_ceil(8) as u64).map(|at| word(index + 8 * at));
            check(self.seed, number, bytes, words)?;
            index += 8 + bytes.next_multiple_of(8) as u64;
            number += 1;
        }
        Ok(())
    }

    /// The reader gives a group of buffers back in random order. So the buffers it still holds are
    /// those that appear in no entry of the buffers given back. Their descriptors may be
    /// overwritten, even by messages that were never committed. In that case the contents of the
    /// buffers identify them.
    fn buffers(&self) -> Result<u64, String> {
        let StreamForm::Buffers { buffers, buffer_bytes } = self.form else { return Ok(0) };
        let (read, written) = (self.read(), self.written());
        let ring = (buffers as usize).next_multiple_of(8);
        let stride = (buffer_bytes as usize / 8).next_multiple_of(8);
        let buffer = |number: u64| DATA + 2 * ring + usize_of(number) * stride;
        let group = read / self.group * self.group;
        let back: Vec<u64> =
            (group..read).map(|index| self.load(DATA + ring + place(index, buffers))).collect();
        let mut found = 0;
        for index in group..written {
            let number = self.begin.number + index;
            if index < read {
                let is = |at: &u64| !back.contains(at) && self.load(buffer(*at)) == number;
                let Some(at) = (0..u64::from(buffers)).find(is) else { continue };
                self.at(number, bytes_of(self.seed, number) as u64, buffer(at))?;
            } else {
                let descriptor = self.load(DATA + place(index, buffers));
                let at = descriptor & u64::from(u32::MAX);
                if index < group + self.group && back.contains(&at) {
                    continue;
                }
                if at >= u64::from(buffers) {
                    return Err(format!("message {number} is in buffer {at} of {buffers}"));
                }
                self.at(number, descriptor >> 32, buffer(at))?;
            }
            found += 1;
        }
        if found == written - read {
            return Ok(found);
        }
        Err(format!("{found} buffers are out, expected {}", written - read))
    }

    /// Checks that message `number`, of `bytes` by its entry, stands at word `at`.
    fn at(&self, number: u64, bytes: u64, at: usize) -> Result<(), String> {
        let bytes = usize_of(bytes);
        let words = bytes.min(BYTES_MAX).div_ceil(8);
        check(self.seed, number, bytes, (at..at + words).map(|word| self.load(word)))
    }

    fn load(&self, word: usize) -> u64 {
        self.words[word].load(Relaxed)
    }
}

/// The place of `index` in a ring of `count`, a power of two.
fn place(index: u64, count: u32) -> usize {
    usize_of(index % u64::from(count))
}

fn made(seed: u64, number: u64) -> [u8; BYTES_MAX] {
    let mut bytes = [0; BYTES_MAX];
    compose_bytes(number, bytes_of(seed, number), &mut bytes);
    bytes
}

/// Converts a number that a peer wrote. It may be anything; the caller checks it.
fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
