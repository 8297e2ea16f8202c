//! Lines on standard error.
//!
//! Both programs use this in place of `eprintln!`, which panics if standard error cannot be
//! written: on a full disk, or after its reader has gone.

use std::fmt;
use std::io::Write;

/// Writes `line` and a line feed to standard error. A line that cannot be written is lost: a run,
/// and the domains of a daemon, matter more than their messages. Blocks while a pipe's reader is
/// slow; allocates.
pub fn say(line: impl fmt::Display) {
    // One write, so that lines of several threads and processes do not mix.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
