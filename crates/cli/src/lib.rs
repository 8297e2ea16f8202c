//! The part of the `upcall` command that reads what strangers write: the spec file, and
//! recorded arrivals; and the daemon, which is a command of its own besides.
//!
//! A library of its own so that the fuzz targets reach it. The command is the binary
//! beside it; programs that want Upcall itself import the crate `upcall`.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod daemon;
pub mod spec;
