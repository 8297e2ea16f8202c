//! Bytes as a spec file.

use upcall_cli::spec::{FAULTS_MAX, Spec};

#[path = "../../../crates/cli/src/spec/tests/form.rs"]
mod form;

/// Whatever a file holds, it is read or refused in the form that errors have.
pub fn spec(data: &[u8]) {
    form::check(data);
}
