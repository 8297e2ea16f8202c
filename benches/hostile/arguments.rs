//! The arguments of the bench `hostile`.
//!
//! This file uses nothing of the bench. So the tests of this package can check it.

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Help,
    /// The rows whose names contain this, or all.
    Run {
        row: Option<String>,
    },
}

/// Reads the arguments. The option `--smoke` is read elsewhere, and cargo adds `--bench`.
///
/// # Errors
/// An unknown option, more than one name, or a name that no row has.
pub(crate) fn parse(
    arguments: impl Iterator<Item = String>,
    names: &[&str],
) -> Result<Request, String> {
    let mut row: Option<String> = None;
    for argument in arguments {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Request::Help),
            "--smoke" | "--bench" => {}
            option if option.starts_with('-') => return Err(format!("unknown option `{option}`")),
            name if !names.iter().any(|row| row.contains(name)) => {
                return Err(format!("no row has `{name}` in its name"));
            }
            name => {
                if let Some(first) = row.replace(name.to_owned()) {
                    return Err(format!("found `{first}` and `{name}`, expected one name"));
                }
            }
        }
    }
    Ok(Request::Run { row })
}
