//! The parts of the `upcall` command that other programs use: readers of untrusted files (specs and
//! recorded arrivals), the daemon's command, and lines on standard error.
//!
//! This is a library so that fuzz targets and `upcalld` can link it. The command itself is the
//! binary beside it. Programs that want Upcall import the crate `upcall`.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod arrivals;
pub mod cpu_lock;
pub mod daemon;
pub mod spec;
pub mod standard_error;
