//! Bytes that stand in words which a peer may write at any moment.

use super::copy;
use crate::AtomicU64;
use crate::Ordering::Relaxed;

#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// A message, or the room for one, where it stands in the shared memory.
///
/// Words, not bytes: a peer that does not keep to the protocol may change them while they
/// are looked at, which a `&[u8]` rules out. Copy once, then check, then use.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// What it stands in; goes on at the start after the end.
    words: &'a [AtomicU64],
    /// Its first byte there.
    start: usize,
    len: usize,
}

impl<'a> Payload<'a> {
    #[inline]
    pub(super) fn new(words: &'a [AtomicU64], start: usize, len: usize) -> Self {
        Payload { words, start, len }
    }

    /// In bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words in place, the last one perhaps not all used: always for slots and buffers;
    /// `None` in a ring of bytes, where they may be in two pieces. O(1).
    #[inline]
    pub fn words(&self) -> Option<&'a [AtomicU64]> {
        let whole = self.start.is_multiple_of(8) && self.start + self.len <= self.words.len() * 8;
        whole.then(|| &self.words[self.start / 8..(self.start + self.len).div_ceil(8)])
    }

    /// Writes `bytes` from its byte `at` on; says how many found room. O(bytes).
    #[inline]
    pub fn fill(&self, at: usize, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.len.saturating_sub(at))];
        let place = self.place(at);
        let (first, rest) = bytes.split_at(bytes.len().min(self.words.len() * 8 - place));
        store(self.words, place, first);
        store(self.words, 0, rest);
        bytes.len()
    }

    /// Copies from its byte `at` on into `bytes`; says how many there were. O(bytes).
    #[inline]
    pub fn copy_to(&self, at: usize, bytes: &mut [u8]) -> usize {
        let len = bytes.len().min(self.len.saturating_sub(at));
        let place = self.place(at);
        let (first, rest) = bytes[..len].split_at_mut(len.min(self.words.len() * 8 - place));
        load(self.words, place, first);
        load(self.words, 0, rest);
        len
    }

    /// Where its byte `at` stands; anywhere if it has none.
    #[inline]
    fn place(&self, at: usize) -> usize {
        let bytes = self.words.len() * 8;
        let place = self.start + at.min(self.len);
        if place < bytes { place } else { place - bytes }
    }
}

/// Relaxed, all of it: the index that is stored afterwards hands it over.
#[inline]
fn store(words: &[AtomicU64], place: usize, bytes: &[u8]) {
    let offset = place % 8;
    let (head, bytes) = bytes.split_at(bytes.len().min((8 - offset) % 8));
    let mut word = place / 8;
    if !head.is_empty() {
        merge(&words[word], offset, head);
        word += 1;
    }
    let (body, tail) = bytes.as_chunks::<8>();
    if !body.is_empty() {
        copy::store(&words[word..word + body.len()], body);
        word += body.len();
    }
    if !tail.is_empty() {
        merge(&words[word], 0, tail);
    }
}

/// Part of a word. Not atomic, nor need it be: one end alone stores to the data, and the
/// bytes that it leaves keep their values.
#[inline]
fn merge(word: &AtomicU64, offset: usize, bytes: &[u8]) {
    let mut whole = word.load(Relaxed).to_ne_bytes();
    whole[offset..offset + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(whole), Relaxed);
}

/// As [`store`], after the load of an index.
#[inline]
fn load(words: &[AtomicU64], place: usize, bytes: &mut [u8]) {
    let offset = place % 8;
    let head = bytes.len().min((8 - offset) % 8);
    let (head, bytes) = bytes.split_at_mut(head);
    let mut word = place / 8;
    if !head.is_empty() {
        let whole = words[word].load(Relaxed).to_ne_bytes();
        head.copy_from_slice(&whole[offset..offset + head.len()]);
        word += 1;
    }
    let (body, tail) = bytes.as_chunks_mut::<8>();
    if !body.is_empty() {
        copy::load(&words[word..word + body.len()], body);
        word += body.len();
    }
    if !tail.is_empty() {
        let whole = words[word].load(Relaxed).to_ne_bytes();
        tail.copy_from_slice(&whole[..tail.len()]);
    }
}
