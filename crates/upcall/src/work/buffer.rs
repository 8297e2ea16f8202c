//! Buffers that cause no page fault after they were made.

/// A buffer of `bytes`. All its pages are in memory, because every byte is written here.
pub(super) fn touched(bytes: usize) -> Vec<u8> {
    // For a fill with zero the kernel would map each page on its first use.
    vec![0xa5; bytes]
}
