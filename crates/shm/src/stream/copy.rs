//! Copies into shared memory and out of it, as many bytes at a time as the machine can.
//!
//! Only [`super::Payload`] uses this module. A peer may write the memory at the same moment. For
//! such memory Rust offers atomic loads and stores of one word and none wider. The compiler might
//! merge a plain `memcpy` with the later read of its copy. The memory would then be read twice, and
//! a check of the first read would not hold for the second. The compiler cannot merge, split or
//! repeat assembly. The assembly here does what a loop of relaxed loads and stores would do, in a
//! half to a third of the time. Other CPUs see the stores of a string instruction before any later
//! store (Intel SDM volume 3, "Memory-Ordering Principles for String Operations"). So the index
//! hands these bytes over as it does any other store.

use crate::AtomicU64;
use crate::Ordering::Relaxed;

/// From this size on the string instruction is faster than four registers at a time. On Cascade
/// Lake it copies 2 KiB in and out in 0.13 microseconds, and four registers take 0.17.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const LONG_BYTES: usize = 2048;
/// Words that four registers hold.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const BLOCK_BYTES: usize = 64;
/// Bytes that one register holds.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const PIECE_BYTES: usize = 16;

/// Stores `from` in `to`, as far as both reach. Relaxed: the index that is stored afterwards hands
/// the words over.
#[inline]
pub(super) fn store(to: &[AtomicU64], from: &[[u8; 8]]) {
    let count = to.len().min(from.len());
    let (to, from) = (&to[..count], &from[..count]);
    let done = store_wide(to, from);
    for (word, chunk) in to[done..].iter().zip(&from[done..]) {
        word.store(u64::from_ne_bytes(*chunk), Relaxed);
    }
}

/// Loads `from` into `to`, as far as both reach. Relaxed: the load of the index has acquired the
/// words.
#[inline]
pub(super) fn load(from: &[AtomicU64], to: &mut [[u8; 8]]) {
    for (word, chunk) in from.iter().zip(to) {
        *chunk = word.load(Relaxed).to_ne_bytes();
    }
}

/// Loads the bytes of `from` from byte `place` on into `to`, wherever they begin in a word.
/// `false`: nothing was loaded. They are fewer than a register holds, or not all inside of `from`.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
pub(super) fn load_bytes(from: &[AtomicU64], place: usize, to: &mut [u8]) -> bool {
    let bytes = to.len();
    let is_inside = place.checked_add(bytes).is_some_and(|end| end <= from.len() * 8);
    if bytes < PIECE_BYTES || !is_inside {
        return false;
    }
    let to = to.as_mut_ptr();
    // SAFETY: `from` has `bytes` from `place` on, and `to` as many. `to` is borrowed for writing,
    // so it does not overlap `from`. A peer may write `from` meanwhile, and any bytes are valid.
    unsafe {
        let from = from.as_ptr().cast::<u8>().add(place);
        let done = copy(to, from, bytes);
        copy_end(to, from, done, bytes);
    }
    true
}

/// Stores the first words, of slices of one length, and returns how many.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
fn store_wide(to: &[AtomicU64], from: &[[u8; 8]]) -> usize {
    let to_bytes = to.as_ptr().cast_mut().cast::<u8>();
    // SAFETY: both are `from.len()` words long, as `store` ensures. The destination is atomics,
    // which may be written through a shared reference. It does not overlap `from`, which is
    // borrowed and so not written.
    unsafe { copy(to_bytes, from.as_ptr().cast(), from.len() * 8) / 8 }
}

/// Copies the first of `bytes` and returns how many: all of them, or those of whole blocks.
///
/// # Safety
/// `to` is valid for writes and `from` for reads of `bytes`, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> usize {
    use core::arch::asm;
    if bytes >= LONG_BYTES {
        // SAFETY: reads and writes `bytes` from the two pointers on, by this function's own terms.
        // The direction flag is clear on entry to every asm block.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") bytes => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
        }
        return bytes;
    }
    let blocks = bytes / BLOCK_BYTES;
    if blocks > 0 {
        // SAFETY: as above, for `blocks` whole blocks. Every x86-64 has the registers of SSE2, and
        // `movups` takes any address.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {blocks}",
                "jnz 2b",
                blocks = inout(reg) blocks => _,
                to = inout(reg) to => _,
                from = inout(reg) from => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    blocks * BLOCK_BYTES
}

/// Copies the bytes from `done` up to `bytes`, fewer than a block. The last register overlaps what
/// was copied before it: those bytes are loaded twice, and the copy has the later ones.
///
/// # Safety
/// As [`copy`], and `bytes` are at least [`PIECE_BYTES`].
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
unsafe fn copy_end(to: *mut u8, from: *const u8, mut done: usize, bytes: usize) {
    use core::arch::asm;
    while done < bytes {
        let at = done.min(bytes - PIECE_BYTES);
        // SAFETY: reads and writes one register from `at` on, which ends at `bytes` at most.
        unsafe {
            asm!(
                "movups {a}, [{from} + {at}]",
                "movups [{to} + {at}], {a}",
                at = in(reg) at,
                to = in(reg) to,
                from = in(reg) from,
                a = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
        done = at + PIECE_BYTES;
    }
}

/// On other machines nothing wider than a word is used. Loom's words are objects of loom and not
/// plain memory.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
#[inline]
fn store_wide(_: &[AtomicU64], _: &[[u8; 8]]) -> usize {
    0
}

/// As [`store_wide`].
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
#[inline]
pub(super) fn load_bytes(_: &[AtomicU64], _: usize, _: &mut [u8]) -> bool {
    false
}
