//! Bytes in words that a peer may write at any moment.

use super::copy;
use crate::AtomicU64;
use crate::Ordering::Relaxed;

#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// A message in shared memory, or the reserved space for one.
///
/// The memory is a slice of atomic words. A faulty peer may change them while they are read, and a
/// `&[u8]` would not allow that. Copy once, then check, then use.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The words that hold the message. It continues at their start after their end.
    words: &'a [AtomicU64],
    /// The first byte of the message in the words.
    start: usize,
    len: usize,
}

impl<'a> Payload<'a> {
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], start: usize, len: usize) -> Self {
        Payload { words, start, len }
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words in place. The last one may be used in part. Always present for slots and buffers.
    /// `None` in a ring of bytes, where the bytes may be in two pieces. O(1).
    #[inline]
    pub fn words(&self) -> Option<&'a [AtomicU64]> {
        let whole = self.start.is_multiple_of(8) && self.start + self.len <= self.words.len() * 8;
        whole.then(|| &self.words[self.start / 8..(self.start + self.len).div_ceil(8)])
    }

    /// Writes `bytes` from its byte `at` on, and returns how many fit. O(bytes).
    #[inline]
    pub fn fill(&self, at: usize, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.len.saturating_sub(at))];
        let place = self.place(at);
        let (first, rest) = bytes.split_at(bytes.len().min(self.words.len() * 8 - place));
        store(self.words, place, first);
        if !rest.is_empty() {
            store(self.words, 0, rest);
        }
        bytes.len()
    }

    /// Copies from its byte `at` on into `bytes`, and returns how many. O(bytes).
    #[inline]
    pub fn copy_to(&self, at: usize, bytes: &mut [u8]) -> usize {
        let len = bytes.len().min(self.len.saturating_sub(at));
        let place = self.place(at);
        let (first, rest) = bytes[..len].split_at_mut(len.min(self.words.len() * 8 - place));
        load(self.words, place, first);
        if !rest.is_empty() {
            load(self.words, 0, rest);
        }
        len
    }

    /// Copies `from` to its start, and returns how many bytes fit. O(bytes). The bytes go through
    /// the first cache in pieces, because either side may begin anywhere in a word.
    pub fn copy_from(&self, from: &Payload<'_>) -> usize {
        let mut piece = [0; 512];
        let len = self.len.min(from.len);
        for at in (0..len).step_by(piece.len()) {
            let bytes = (len - at).min(piece.len());
            from.copy_to(at, &mut piece[..bytes]);
            self.fill(at, &piece[..bytes]);
        }
        len
    }

    /// The place of byte `at` of the message in the words. Any place if there is no such byte.
    #[inline]
    fn place(&self, at: usize) -> usize {
        let bytes = self.words.len() * 8;
        let place = self.start + at.min(self.len);
        if place < bytes { place } else { place - bytes }
    }
}

/// Copies `bytes` into `words`. All stores are Relaxed: the index that is stored afterwards hands
/// the bytes over.
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

/// Stores a part of a word by a load and a store. That need not be one atomic operation, because
/// only one end stores to the data. The other bytes of the word keep their values.
#[inline]
fn merge(word: &AtomicU64, offset: usize, bytes: &[u8]) {
    let mut whole = word.load(Relaxed).to_ne_bytes();
    copy_short(&mut whole[offset..], bytes);
    word.store(u64::from_ne_bytes(whole), Relaxed);
}

/// Copies from `words`. All loads are Relaxed: the earlier load of an index has acquired the bytes.
#[inline]
fn load(words: &[AtomicU64], place: usize, bytes: &mut [u8]) {
    if copy::load_bytes(words, place, bytes) {
        return;
    }
    let offset = place % 8;
    let head = bytes.len().min((8 - offset) % 8);
    let (head, bytes) = bytes.split_at_mut(head);
    let mut word = place / 8;
    if !head.is_empty() {
        let whole = words[word].load(Relaxed).to_ne_bytes();
        copy_short(head, &whole[offset..]);
        word += 1;
    }
    let (body, tail) = bytes.as_chunks_mut::<8>();
    if !body.is_empty() {
        copy::load(&words[word..word + body.len()], body);
        word += body.len();
    }
    if !tail.is_empty() {
        let whole = words[word].load(Relaxed).to_ne_bytes();
        copy_short(tail, &whole);
    }
}

/// Copies `from` to `to` as far as both reach, at most 7 bytes. A call of `memcpy` for so few would
/// take longer than all the rest of a short datagram.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    let len = to.len().min(from.len());
    let (to, from) = (&mut to[..len], &from[..len]);
    if len & 4 != 0 {
        to[..4].copy_from_slice(&from[..4]);
    }
    let at = len & 4;
    if len & 2 != 0 {
        to[at..at + 2].copy_from_slice(&from[at..at + 2]);
    }
    let at = len & 6;
    if len & 1 != 0 {
        to[at] = from[at];
    }
}
