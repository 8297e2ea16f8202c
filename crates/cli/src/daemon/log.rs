//! The daemon's log: `tracing` events become lines on standard error.
//!
//! By default a line is the event's message behind `upcalld:`. With `RUST_LOG` set and
//! without `--quiet`, a line has time, level and fields, and that filter decides which
//! events are shown.

use std::fmt::{self, Write};

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
    let to_stderr = fmt().with_writer(std::io::stderr).log_internal_errors(false);
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

/// The message of an event, without its other fields. Clients choose names and reasons:
/// their control characters are escaped, so that none can forge a line.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != "message" {
            return;
        }
        for character in format!("{value:?}").chars() {
            // Writing to a String does not fail.
            let _ = match character.is_control() {
                true => write!(self.0, "{}", character.escape_default()),
                false => self.0.write_char(character),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
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

    #[test]
    fn a_line_is_the_message_and_a_name_cannot_forge_another() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = fmt().with_writer(move || writer.clone()).event_format(Plain).finish();
        tracing::subscriber::with_default(subscriber, || {
            let name = "a\nupcalld: b";
            tracing::info!(event = "attached", name, "domain 1 `{name}`");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "upcalld: domain 1 `a\\nupcalld: b`\n");
    }
}
