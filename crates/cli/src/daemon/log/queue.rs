//! The queue of lines between the threads that log and standard error.
//!
//! The server's thread logs, and must not wait for the reader of standard error: a stopped terminal
//! or a full pipe would stop all attachments. So one thread, `upcall-log`, writes the lines. If the
//! queue is full, lines are lost and counted. The next line that is written comes after their
//! number.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The lines that wait at most.
const LINES_MAX: usize = 1_000;
/// How long the end of the program waits for the reader.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

enum Entry {
    Line(Vec<u8>),
    /// All entries before it are written: the sender is dropped.
    Flush(#[expect(dead_code, reason = "its drop is the answer")] SyncSender<()>),
}

/// The writing end. Its clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// Starts the thread that writes to `output`.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (entries, incoming) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let thread = std::thread::Builder::new().name("upcall-log".into());
        thread.spawn(move || write_all(output, &incoming, &counted))?;
        Ok(Queue { entries, lost })
    }

    /// How many lines were lost so far.
    pub(super) fn lost(&self) -> Arc<AtomicU64> {
        self.lost.clone()
    }

    /// Waits until all lines so far are written, for a second at most.
    pub(super) fn flush(&self) {
        let (written, done) = sync_channel(0);
        let until = Instant::now() + FLUSH_WITHIN;
        let mut entry = Entry::Flush(written);
        while let Err(full) = self.entries.try_send(entry) {
            if Instant::now() >= until {
                return;
            }
            let (std::sync::mpsc::TrySendError::Full(unsent)
            | std::sync::mpsc::TrySendError::Disconnected(unsent)) = full;
            entry = unsent;
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = done.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl Write for Queue {
    /// Takes `line` into the queue, or counts it as lost. Does not block; allocates.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.entries.try_send(Entry::Line(line.to_vec())).is_err() {
            // Relaxed: a count.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until all ends of the queue are dropped. Errors of `output` are ignored.
fn write_all(mut output: impl Write, incoming: &Receiver<Entry>, lost: &AtomicU64) {
    let mut told = 0;
    for entry in incoming {
        let Entry::Line(line) = entry else { continue };
        // Relaxed: a count.
        let now = lost.load(Ordering::Relaxed);
        let since = now - std::mem::replace(&mut told, now);
        if since > 0 {
            let _ =
                writeln!(output, "upcalld: {since} lines of the log were lost: its reader is slow");
        }
        let _ = output.write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn a_reader_that_stalls_costs_lines_and_delays_nobody() {
        let (reader, writer) = io::pipe().unwrap();
        let mut queue = Queue::start(writer).unwrap();
        let line = [b"x".repeat(999), vec![b'\n']].concat();
        // Far more than the pipe and the queue hold. Without the queue this never returned.
        let sent = 2 * LINES_MAX as u64;
        for _ in 0..sent {
            assert_eq!(queue.write(&line).unwrap(), line.len());
        }
        let lost = queue.lost.load(Ordering::Relaxed);
        assert!(lost > 0 && lost < sent, "{lost}");
        let read = std::thread::spawn(move || {
            BufReader::new(reader).lines().map_while(Result::ok).collect::<Vec<_>>()
        });
        // On a slow machine this second is too short for all lines, so the last one waits for room.
        queue.flush();
        queue.entries.send(Entry::Line(b"last\n".to_vec())).unwrap();
        drop(queue);
        let lines = read.join().unwrap();
        // The thread writes while the test sends: each pause of the losses has its note.
        let noted = |line: &String| {
            let count = line.strip_prefix("upcalld: ")?;
            let count = count.strip_suffix(" lines of the log were lost: its reader is slow")?;
            count.parse::<u64>().ok()
        };
        let notes: Vec<_> = lines.iter().filter_map(noted).collect();
        assert_eq!((notes.iter().sum::<u64>(), lines.last().unwrap().as_str()), (lost, "last"));
        assert_eq!(lines.len() as u64, sent - lost + notes.len() as u64 + 1);
    }
}
