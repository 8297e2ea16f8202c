//! The daemon's log: `tracing` events become lines on standard error.
//!
//! By default a line is the event's message behind `upcalld:`. With `RUST_LOG` set and
//! without `--quiet`, a line has time, level and fields, and that filter decides which
//! events are shown. In both forms an event is one line: see [`OneLine`].

use std::fmt::{self, Write};
use std::io;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

/// Begins to write events; `quiet`: warnings only, whatever `RUST_LOG` says.
/// Has no effect if this process has a subscriber already.
pub(super) fn start(quiet: bool) {
    // The subscriber would report a full standard error on standard error, and panic there.
    let to_stderr = fmt().with_writer(|| OneLine(io::stderr())).log_internal_errors(false);
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
}

/// `RUST_LOG`; `None` if it is absent, empty or no filter.
fn filter() -> Option<EnvFilter> {
    let text = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty())?;
    EnvFilter::try_new(text).ok()
}

/// Writes each event as one line. Clients choose names and reasons: control characters are
/// escaped, so that none can forge a line or steer a terminal.
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

/// `upcalld: ` and the message.
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

    /// What is written of an event of a client that tries to forge a line, in both forms.
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
        // With RUST_LOG, too.
        assert!(with_fields.contains("event=\"attached\"") && with_fields.ends_with('\n'));
        let visible = with_fields.trim_end_matches('\n');
        assert!(visible.contains("`a\\nupcalld: b"), "{visible}");
        assert!(!visible.chars().any(char::is_control), "{visible:?}");
    }
}
