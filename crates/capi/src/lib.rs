//! Upcall's C API: the calls of rtu-1995 Table 1 over the facade.
//!
//! Programs in C and C++ use this crate. `include/upcall.h` documents every call, struct
//! and error code. Programs link `libupcall_c` (`pkg-config upcall`). `install.sh` installs
//! both. Rust programs use the facade `upcall` instead.
//!
//! ```text
//!   rts_create, rts_run ...   |calls|  --->  |library|  one runtime per process, descriptors,
//!   null, sizes, panics                              collector thread
//!   rts_proceed (inline)                      |upcall|   trampoline: Batch <-> struct rts_shared
//!        \-- quantum over: rts_boundary --------^
//! ```
//!
//! A C program sees `struct rts_shared` of the scheduler and nothing else. The inline
//! `rts_proceed` counts up to `pdu_granted`, the end of a quantum. Beyond that it calls
//! [`calls::rts_boundary`], which asks the [`upcall::Batch`]. So the header does not depend
//! on whether this process schedules alone or under a daemon (`setup`).
//!
//! Each entry catches panics, so no panic reaches C. Each entry checks for null pointers, and
//! checks sizes, descriptors and counts. An entry trusts only that a pointer other than null
//! is valid. The header requires that of the program.

pub mod abi;
pub mod calls;
mod error;
mod library;
mod setup;
mod signals;
mod upcall_page;
