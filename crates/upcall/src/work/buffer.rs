//! Buffers that cause no page fault after they were made.

/// A buffer of `bytes`, all of whose pages are in memory: it is written, not only reserved.
pub(super) fn touched(bytes: usize) -> Vec<u8> {
    // For a fill with zero the kernel would map each page on its first use.
    vec![0xa5; bytes]
}
