//! Files that a run writes as it goes: job logs and traces. What was in one stays
//! until the run truly begins.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens the file for writing, and keeps what is in it.
///
/// # Errors
/// The system's.
pub fn open_kept(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Empties it.
///
/// # Errors
/// The system's.
pub fn empty(file: &File) -> io::Result<()> {
    // Only a regular file has a length to cut; a pipe or a device has none.
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => file.set_len(0),
        other => other.map(drop),
    }
}
