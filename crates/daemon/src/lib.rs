//! The kernel-level scheduler of Upcall: one order of handlers over all processes
//! of a machine (split-level-1991 §3; docs/decisions/0008).
//!
//! Started by `upcalld`, or by `upcall run` when none is there. It stays off the
//! path: domains hand the CPU to each other.

#![forbid(unsafe_code)]

pub mod registry;
