//! The daemon's log: `tracing` events become lines on standard error.
//!
//! By default a line is `upcalld:` and the event's message. With `RUST_LOG` set and without
//! `--quiet`, a line has time, level and fields, and the filter in `RUST_LOG` selects the events.
//! In both forms an event is one line: see [`OneLine`]. A thread writes the lines: see [`queue`].

use std::fmt::{self, Write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

use queue::Queue;

mod queue;

/// The log of this program. Its end waits for the reader of standard error, for a second at most.
#[derive(Debug)]
pub(super) struct Log(Queue);

impl Log {
    /// How many lines were lost so far because the reader of standard error was slow.
    pub(super) fn lost_lines(&self) -> Arc<AtomicU64> {
        self.0.lost()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Starts to write events. With `quiet` it writes warnings only, whatever `RUST_LOG` says. Has no
/// effect if this process already has a subscriber.
///
/// # Errors
/// The system has no more threads.
pub(super) fn start(quiet: bool) -> io::Result<Log> {
    let log = Log(Queue::start(io::stderr())?);
    let queue = log.0.clone();
    // If standard error is full, the subscriber would report that on standard error, and panic.
    let to_stderr = fmt().with_writer(move || OneLine(queue.clone())).log_internal_errors(false);
    let _ = match filter().filter(|_| !quiet) {
        Some(filter) => {
            tracing::subscriber::set_global_default(to_stderr.with_env_filter(filter).finish())
        }
        None => {
            let level = if quiet { LevelFilter::WARN } else { LevelFilter::INFO };
            let plain = to_stderr.with_max_level(level).event_format(Plain).finish();
            tracing::subscriber::set_global_default(plain)
        }
    };
    Ok(log)
}

/// The filter in `RUST_LOG`; `None` if it is absent, empty or invalid.
fn filter() -> Option<EnvFilter> {
    let text = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty())?;
    EnvFilter::try_new(text).ok()
}

/// Writes each event as one line. Clients choose names and reasons, so control characters are
/// escaped: no name can forge a line or control a terminal.
struct OneLine<W>(W);

impl<W: io::Write> io::Write for OneLine<W> {
    /// Takes all of `event`: the subscriber writes each event by one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = String::with_capacity(text.len());
        for character in text.strip_suffix('\n').unwrap_or(&text).chars() {
            match character.is_control() {
                true => line.extend(character.escape_default()),
                false => line.push(character),
            }
        }
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Formats an event as `upcalld: ` and its message.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message(String::new());
        event.record(&mut message);
        writeln!(writer, "upcalld: {}", message.0)
    }
}

/// The message of an event, without its other fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a String does not fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines of an event whose client tries to forge a line, in both forms.
    fn written() -> [String; 2] {
        [true, false].map(|is_plain| {
            let lines = Lines::default();
            let writer = lines.clone();
            let to_lines = fmt().with_writer(move || OneLine(writer.clone())).without_time();
            let event = || {
                let name = "a\nupcalld: b\r\x1b[2Jc";
                tracing::info!(event = "attached", name, "domain 1 `{name}`");
            };
            match is_plain {
                true => {
                    let plain = to_lines.event_format(Plain).finish();
                    tracing::subscriber::with_default(plain, event);
                }
                false => tracing::subscriber::with_default(to_lines.finish(), event),
            }
            let text = lines.0.lock().unwrap().clone();
            String::from_utf8(text).unwrap()
        })
    }

    #[test]
    fn a_line_is_the_message_and_a_name_cannot_forge_another() {
        let [plain, with_fields] = written();
        assert_eq!(plain, "upcalld: domain 1 `a\\nupcalld: b\\r\\u{1b}[2Jc`\n");
        // The form with RUST_LOG escapes, too.
        assert!(with_fields.contains("event=\"attached\"") && with_fields.ends_with('\n'));
        let visible = with_fields.trim_end_matches('\n');
        assert!(visible.contains("`a\\nupcalld: b"), "{visible}");
        assert!(!visible.chars().any(char::is_control), "{visible:?}");
    }
}
