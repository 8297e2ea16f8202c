//! The code that the six programs share: they print the notices of a runtime and check counts.
//!
//! The programs were written from the rustdoc of `upcall` alone. `cargo xtask newcomer` builds and
//! runs them.

use std::error::Error;
use std::fmt::{Debug, Display};

use upcall::Runtime;

/// The result of `main` and its helpers. Any error ends the program with exit status 1.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Prints a line for each missing right. The program runs without these rights.
pub fn print_notices(upcall: &Runtime) {
    for notice in upcall.notices() {
        eprintln!("{notice}");
    }
}

/// Fails unless the count `found` is the count `expected`.
///
/// # Errors
///
/// A text that names the count, with the found and the expected number.
pub fn expect<T: PartialEq + Debug>(what: impl Display, found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}
