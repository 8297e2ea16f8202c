//! Checks the output of the command for programs: a plan in JSON.

use super::reader::Reader;
use crate::child;
use crate::gate::Failure;
use serde_json::Value;
use std::time::Duration;

const SCRIPT: &str = "target/release/upcall plan --json examples/conference.toml";

/// Checks that the plan of the main example is a JSON object that says the set was admitted.
///
/// # Errors
/// If it is not, or if the command fails.
pub fn is_admitted(reader: &Reader) -> Result<(), Failure> {
    let output = child::output(&mut reader.shell(SCRIPT, Duration::from_secs(60)))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure(format!("`{SCRIPT}`: {}", output.status)));
    }
    admitted(&output.stdout).map_err(|found| Failure(format!("`{SCRIPT}`: {found}")))
}

/// Checks that `json` is a plan that was admitted. The error says what it is.
fn admitted(json: &[u8]) -> Result<(), String> {
    let plan: Value = serde_json::from_slice(json).map_err(|error| format!("no JSON: {error}"))?;
    match plan.get("admitted") {
        Some(Value::Bool(true)) => Ok(()),
        found => Err(format!("`admitted` is {found:?}, expected true")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_an_object_that_admits() {
        assert_eq!(admitted(br#"{"admitted": true, "policy": "rmdp"}"#), Ok(()));
        assert!(admitted(br#"{"admitted": false}"#).is_err());
        assert!(
            admitted(b"plan: admitted").is_err()
                && admitted(b"").is_err()
                && admitted(b"[]").is_err()
        );
    }
}
