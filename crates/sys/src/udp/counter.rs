//! A 32-bit counter of the kernel, continued in 64 bits.

/// The next value from `known` on whose low 32 bits are `counter`.
pub(super) fn count_on(known: u64, counter: u32) -> u64 {
    let known_low = (known & 0xFFFF_FFFF) as u32; // the low half is the kernel's earlier count
    known + u64::from(counter.wrapping_sub(known_low))
}
