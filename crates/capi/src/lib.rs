//! Upcall's C API: the calls of rtu-1995 Table 1 over the facade.
//!
//! For programs in C and C++; they read `include/upcall.h`, where every call,
//! struct and error code is documented, and link `libupcall_c` (`pkg-config upcall`;
//! `install.sh` puts both in place). Rust programs use the facade.
//!
//! ```text
//!   rts_create, rts_run ...   |calls|  --->  |library|  one runtime a process, descriptors,
//!   null, sizes, panics                              collector thread
//!   rts_proceed (inline)                      |upcall|   trampoline: Batch <-> struct rts_shared
//!        \-- quantum over: rts_boundary --------^
//! ```
//!
//! What a C program sees of the scheduler is `struct rts_shared`. The inline
//! `rts_proceed` counts up to `pdu_granted`, which is the end of a quantum; beyond it
//! asks [`calls::rts_boundary`], which asks the [`upcall::Batch`]. So nothing in the
//! header knows who schedules: this process alone, or a daemon (`setup`).
//!
//! No panic leaves here: each entry catches it. No entry trusts a pointer to be
//! there, a size, a descriptor or a count; what it must trust (that a pointer
//! which is not null is good) is what C can promise, and the header asks it.

pub mod abi;
pub mod calls;
mod error;
mod library;
mod setup;
mod signals;
mod upcall_page;
