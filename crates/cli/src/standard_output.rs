//! What a command prints on standard output: tables for people, or one JSON object.

use std::io::Write;

use crate::exit::Failure;

/// Prints one JSON object.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::of_error)?;
    print(&format!("{text}\n"))
}

/// Prints to standard output. A reader that went away is not an error.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("standard output: {error}")).because(error))
        }
        _ => Ok(()),
    }
}
