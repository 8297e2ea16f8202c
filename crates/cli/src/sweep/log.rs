//! The file of results: one row for each set and policy, in the order of the sets. The file is the
//! same for any number of threads and any number of interruptions.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The columns. The first is the fingerprint of the sweep.
pub const HEADER: &str = "sweep,set,policy,utilization,activities,quantum,switch_cost_ns,admitted,\
                          test,jobs,misses,switches,busy_ns,duration_ns\n";

/// An open file of results.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// Whole sets in the file.
    pub done: u64,
}

impl Log {
    /// Opens the file and continues after the last whole set. Drops a half-written one.
    ///
    /// # Errors
    /// The system's error, or a file of another kind or sweep, which stays as it is.
    pub fn open(path: &Path, fingerprint: &str, rows_a_set: usize) -> Result<Log, Failure> {
        let failure = |error| Failure::of_file(path, error);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(failure)?;
        // A pipe or a device cannot be continued; some have no end.
        if !file.metadata().map_err(failure)?.is_file() {
            return Err(Failure::about_file(path, "found no regular file, expected one"));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failure)?;
        if !HEADER.starts_with(&text) && !text.starts_with(HEADER) {
            return Err(Failure::about_file(
                path,
                "found another kind of file, expected none or one to continue",
            ));
        }
        let rows = text.get(HEADER.len()..).unwrap_or("");
        let whole: Vec<&str> =
            rows.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
        if whole.iter().any(|line| line.split(',').next() != Some(fingerprint)) {
            return Err(Failure::about_file(
                path,
                "found the results of another sweep, expected those of this one",
            ));
        }
        let sets = whole.len() / rows_a_set;
        let kept: usize = whole[..sets * rows_a_set].iter().map(|line| line.len()).sum();
        let kept = (HEADER.len() + kept) as u64;
        let begun = if text.len() < HEADER.len() {
            file.set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| file.write_all(HEADER.as_bytes()))
        } else {
            file.set_len(kept).and_then(|()| file.seek(SeekFrom::End(0)).map(drop))
        };
        begun.map_err(failure)?;
        Ok(Log { path: path.to_owned(), file, done: sets as u64 })
    }

    /// Writes the rows of the next set.
    ///
    /// # Errors
    /// The system's error, such as a full disk. The file stays as it is and can be continued.
    pub fn write(&mut self, rows: &str) -> Result<(), Failure> {
        self.file.write_all(rows.as_bytes()).map_err(|error| {
            let kept = self.done;
            Failure::about_file(
                &self.path,
                format_args!("{error}; {kept} sets are in it, the same command continues"),
            )
            .because(error)
        })?;
        self.done += 1;
        Ok(())
    }

    /// All rows, without the header.
    ///
    /// # Errors
    /// The system's error.
    pub fn rows(mut self) -> Result<String, Failure> {
        let mut text = String::new();
        self.file
            .seek(SeekFrom::Start(HEADER.len() as u64))
            .and_then(|_| self.file.read_to_string(&mut text))
            .map_err(|error| Failure::of_file(&self.path, error))?;
        Ok(text)
    }
}
