//! The spec file: valid content, and the error for each mistake.

use super::{Spec, SpecError};

mod bad_file;
mod bad_group;
mod bad_same_cpu;
mod bad_stream;
mod bad_task;
mod fuzz;
mod good;

/// A valid stream; the edits of the tests change it.
const STREAM: &str = r#"[[stream]]
name = "camera"
class = "continuous-media"
rate = "90/s"
pdu = "1470 B"
delay = "50 ms"
cost = "5 ms"
receive = "udp://127.0.0.1:5004"
"#;

/// A valid task.
const TASK: &str = r#"[[task]]
name = "t1"
period = "40 ms"
cost = "250 us"
"#;

fn parse(text: &str) -> Result<Spec, SpecError> {
    Spec::parse("spec.toml", text.as_bytes())
}

/// `base` with each edit made. `key = value` replaces the line of that key or comes last; `-key`
/// removes the line.
fn edited(base: &str, edits: &[&str]) -> String {
    let mut lines: Vec<&str> = base.lines().collect();
    for edit in edits {
        let key = edit.split([' ', '=']).next().unwrap_or_default();
        let start = format!("{} =", key.trim_start_matches('-'));
        match lines.iter().position(|line| line.starts_with(&start)) {
            Some(at) if key.starts_with('-') => drop(lines.remove(at)),
            Some(at) => lines[at] = edit,
            None => lines.push(edit),
        }
    }
    lines.join("\n") + "\n"
}

/// Asserts that exactly these errors are found, each without `spec.toml:`.
fn assert_errors(text: &str, expected: &[&str]) {
    let error = match parse(text) {
        Ok(_) => panic!("accepted, expected {expected:#?}:\n{text}"),
        Err(error) => error,
    };
    let lines: Vec<&str> =
        error.lines().map(|line| line.strip_prefix("spec.toml:").unwrap()).collect();
    assert_eq!(lines, expected, "in\n{text}");
}
