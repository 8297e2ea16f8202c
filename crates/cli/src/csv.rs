//! `--csv`: one line per job, in rt-app's columns.
//!
//! The columns mean what rt-app's documentation says (doc/tutorial.txt, "Log and gnuplot"), in
//! whole microseconds. `period` is the time from the start of the previous job to the start of this
//! one. `run` is the time inside the handler. `wakeup_latency` is the time from release to start
//! (rt-app's `wu_lat`). `slack` is the time from the end to the deadline, negative after a miss.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use upcall::{Job, Mode};

use crate::log_file::{empty, open_kept};

/// What the log has of a job, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct CsvRow {
    /// On the monotonic clock.
    start_ns: u64,
    run_ns: u64,
    wakeup_latency_ns: u64,
    slack_ns: i64,
}

impl From<&Job> for CsvRow {
    fn from(job: &Job) -> Self {
        let record = &job.record;
        CsvRow {
            start_ns: record.start.as_nanos(),
            run_ns: record.run.as_nanos(),
            wakeup_latency_ns: record.wakeup_latency().as_nanos(),
            slack_ns: record.slack_ns(),
        }
    }
}

/// An open job log.
#[derive(Debug)]
pub struct JobLog {
    file: BufWriter<File>,
    with_mode: bool,
    begun: bool,
    /// Start of the previous job, by mode and activity.
    starts: HashMap<(Mode, String), u64>,
    /// The first error; later lines are not written.
    error: Option<io::Error>,
}

impl JobLog {
    /// Opens the file for writing. It keeps its content until [`JobLog::begin`].
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path, with_mode: bool) -> io::Result<Self> {
        let file = open_kept(path)?;
        Ok(JobLog {
            file: BufWriter::new(file),
            with_mode,
            begun: false,
            starts: HashMap::new(),
            error: None,
        })
    }

    /// At the first call, empties the file and writes the header.
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let mode = if self.with_mode { "mode," } else { "" };
        self.error = empty(self.file.get_ref())
            .and_then(|()| writeln!(self.file, "{mode}name,period,run,wakeup_latency,slack"))
            .err();
    }

    /// Writes a job. Keeps an error, such as a full disk, for `finish`.
    pub fn write(&mut self, mode: Mode, name: &str, line: &CsvRow) {
        let before = self.starts.insert((mode, name.to_owned()), line.start_ns);
        let nanos = |ns: u64| micros(i64::try_from(ns).unwrap_or(i64::MAX));
        let period_us =
            before.map_or(String::new(), |before| nanos(line.start_ns.saturating_sub(before)));
        if self.error.is_some() {
            return;
        }
        let mode = if self.with_mode { format!("{},", mode.name()) } else { String::new() };
        let written = writeln!(
            self.file,
            "{mode}{name},{period_us},{},{},{}",
            nanos(line.run_ns),
            nanos(line.wakeup_latency_ns),
            micros(line.slack_ns),
        );
        self.error = written.err();
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// The first error of any write.
    pub fn finish(mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.file.flush(),
        }
    }
}

/// Rounds to the nearest microsecond, but a miss always stays negative.
fn micros(ns: i64) -> String {
    let rounded = (ns + if ns < 0 { -999 } else { 500 }) / 1000;
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::micros;

    #[test]
    fn a_miss_by_a_nanosecond_is_not_rounded_away() {
        assert_eq!(micros(-1), "-1");
        assert_eq!(micros(-1_000), "-1");
        assert_eq!(micros(499), "0");
        assert_eq!(micros(1_500), "2");
    }
}
