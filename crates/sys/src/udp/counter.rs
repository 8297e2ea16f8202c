//! A 32-bit counter of the kernel, continued in 64 bits.

/// `known`, carried on to the next moment at which a 32-bit counter that has
/// gone on since stands at `counter`.
pub(super) fn count_on(known: u64, counter: u32) -> u64 {
    let known_low = (known & 0xFFFF_FFFF) as u32; // the low half is what the kernel counted
    known + u64::from(counter.wrapping_sub(known_low))
}
