//! Buffers that cause no page fault later.

/// A buffer of `bytes` whose pages are all there: written, not merely reserved.
pub(super) fn touched(bytes: usize) -> Vec<u8> {
    // A fill with zero would be left to the kernel, page by page, on first use.
    vec![0xa5; bytes]
}
