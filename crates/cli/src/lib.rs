//! The part of the `upcall` command that reads what strangers write: the spec file, and
//! recorded arrivals; the daemon, which is a command of its own besides; and how both
//! programs write to standard error.
//!
//! A library of its own so that the fuzz targets reach it. The command is the binary
//! beside it; programs that want Upcall itself import the crate `upcall`.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod arrivals;
pub mod daemon;
pub mod spec;
pub mod standard_error;
