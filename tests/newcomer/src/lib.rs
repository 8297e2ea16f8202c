//! What the six programs share: the notices of a runtime, and a check that ends a program.
//!
//! The programs were written from the rustdoc of `upcall` alone. `cargo xtask newcomer` builds and
//! runs them.

use std::error::Error;
use std::fmt::{Debug, Display};

use upcall::Runtime;

/// What `main` and its helpers return: any error ends the program with exit status 1.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Prints which rights are missing, one line each. The program runs all the same.
pub fn print_notices(upcall: &Runtime) {
    for notice in upcall.notices() {
        eprintln!("{notice}");
    }
}

/// Fails unless a count is what it should be.
///
/// # Errors
///
/// A text that names the count, what was found and what was expected.
pub fn expect<T: PartialEq + Debug>(what: impl Display, found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}
