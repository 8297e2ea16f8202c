//! The words of a page. Their number was checked.

use crate::{AtomicU64, DOMAINS_MAX, LayoutError, Ordering};
use Ordering::Relaxed;

/// Bytes of a cache line. Two writers should not share a line, because each store would slow the
/// other one down.
pub(crate) const LINE_BYTES: usize = 64;

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / 8;

/// The words that name the CPU, and the greatest number of domains, in a page that all domains of a
/// CPU share. They follow magic and version.
pub(crate) const CPU: usize = 2;
pub(crate) const DOMAINS: usize = 3;

/// Distinguishes one kind of page from other kinds and from other versions of this kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The name of the page in errors.
    pub(crate) page: &'static str,
    /// The first word of the page.
    pub(crate) magic: u64,
    /// The second word of the page.
    pub(crate) version: u32,
}

/// A slice of words whose length was checked.
#[derive(Debug)]
pub(crate) struct Words<W>(pub(crate) W);

impl<W: AsRef<[AtomicU64]>> Words<W> {
    /// Checks that there are `expected` words.
    pub(crate) fn new(kind: Kind, words: W, expected: usize) -> Result<Self, LayoutError> {
        match words.as_ref().len() {
            found if found == expected => Ok(Words(words)),
            found => Err(LayoutError::Length { page: kind.page, found, expected }),
        }
    }

    #[inline]
    pub(crate) fn at(&self, word: usize) -> &AtomicU64 {
        &self.0.as_ref()[word]
    }

    /// The cache line that begins at `word`. Its bounds are checked once for all eight words.
    #[inline]
    pub(crate) fn line(&self, word: usize) -> &[AtomicU64; LINE_WORDS] {
        let (line, _) = self.0.as_ref()[word..].split_first_chunk().expect("a whole line");
        line
    }

    #[inline]
    pub(crate) fn load(&self, word: usize, order: Ordering) -> u64 {
        self.at(word).load(order)
    }

    #[inline]
    pub(crate) fn store(&self, word: usize, value: u64, order: Ordering) {
        self.at(word).store(value, order);
    }

    /// Makes `words`, all zero, a page of `kind` for all domains of a CPU.
    pub(crate) fn create_of_cpu(
        kind: Kind,
        words: W,
        expected: usize,
        cpu: u32,
    ) -> Result<Self, LayoutError> {
        let words = Words::new(kind, words, expected)?;
        words.check_unused(kind, |_| true)?;
        words.mark_of_cpu(kind, cpu);
        Ok(words)
    }

    /// Writes the words that identify such a page. Relaxed: the hand-over of the memory orders the
    /// stores.
    pub(crate) fn mark_of_cpu(&self, kind: Kind, cpu: u32) {
        self.mark(kind);
        self.store(CPU, u64::from(cpu), Relaxed);
        self.store(DOMAINS, u64::from(DOMAINS_MAX), Relaxed);
    }

    /// Attaches to such a page that another process created. Also returns the page's CPU.
    pub(crate) fn attach_of_cpu(
        kind: Kind,
        words: W,
        expected: usize,
        is_reserved: impl Fn(usize) -> bool,
    ) -> Result<(Self, u32), LayoutError> {
        let words = Words::new(kind, words, expected)?;
        let cpu = words.check_of_cpu(kind)?;
        words.check_unused(kind, is_reserved)?;
        Ok((words, cpu))
    }

    /// Checks that this is such a page, and returns its CPU.
    pub(crate) fn check_of_cpu(&self, kind: Kind) -> Result<u32, LayoutError> {
        self.check_kind(kind)?;
        let cpu = self.identity(kind, "CPU", CPU, (0, u64::from(u32::MAX)))?;
        let domains = u64::from(DOMAINS_MAX);
        self.identity(kind, "domains", DOMAINS, (domains, domains))?;
        Ok(u32::try_from(cpu).unwrap_or(u32::MAX)) // was checked
    }

    /// Writes the first two words. Relaxed: the page is not shared yet.
    pub(crate) fn mark(&self, kind: Kind) {
        self.store(0, kind.magic, Relaxed);
        self.store(1, u64::from(kind.version), Relaxed);
    }

    /// Checks that the first two words are those of `kind`. Relaxed: the hand-over of the memory
    /// (by a message on a socket) orders the loads.
    pub(crate) fn check_kind(&self, kind: Kind) -> Result<(), LayoutError> {
        let Kind { page, magic: expected, version } = kind;
        let found = self.load(0, Relaxed);
        if found != expected {
            return Err(LayoutError::Magic { page, found, expected });
        }
        let found = self.load(1, Relaxed);
        if found != u64::from(version) {
            return Err(LayoutError::Version { page, found, expected: version });
        }
        Ok(())
    }

    /// A word of the identity, if it is in `min..=max`.
    pub(crate) fn identity(
        &self,
        kind: Kind,
        name: &'static str,
        word: usize,
        (min, max): (u64, u64),
    ) -> Result<u64, LayoutError> {
        match self.load(word, Relaxed) {
            found if (min..=max).contains(&found) => Ok(found),
            found => Err(LayoutError::Value { page: kind.page, name, found, min, max }),
        }
    }

    /// Byte offset of the first word picked by `which` that is not 0.
    pub(crate) fn first_used(&self, which: impl Fn(usize) -> bool) -> Option<usize> {
        let words = self.0.as_ref();
        (0..words.len())
            .find(|&word| which(word) && words[word].load(Relaxed) != 0)
            .map(|at| at * 8)
    }

    /// Checks that the words picked by `which` are 0.
    pub(crate) fn check_unused(
        &self,
        kind: Kind,
        which: impl Fn(usize) -> bool,
    ) -> Result<(), LayoutError> {
        match self.first_used(which) {
            Some(offset) => Err(LayoutError::Used { page: kind.page, offset }),
            None => Ok(()),
        }
    }
}
