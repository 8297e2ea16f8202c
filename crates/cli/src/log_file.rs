//! Files that a run writes as it goes: job logs and traces. A file keeps its old content until the
//! run begins.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens the file for writing and keeps its content.
///
/// # Errors
/// The system's error.
pub fn open_kept(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Empties the file.
///
/// # Errors
/// The system's error.
pub fn empty(file: &File) -> io::Result<()> {
    // Only a regular file has a length to cut; a pipe or a device has none.
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => file.set_len(0),
        other => other.map(drop),
    }
}
