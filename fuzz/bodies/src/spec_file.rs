//! Bytes as a spec file.

use upcall_cli::spec::{FAULTS_MAX, Spec};

#[path = "../../../crates/cli/src/spec/tests/form.rs"]
mod form;

/// Reads `data` as a spec file. Panics if an error does not have the form of errors.
pub fn spec(data: &[u8]) {
    form::check(data);
}
