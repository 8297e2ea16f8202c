//! `upcalld`: the daemon under the name that service managers expect.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use upcall_cli::daemon::{Program, serve, supervise_if_asked};
use upcall_cli::standard_error::say;

fn main() -> ExitCode {
    if let Some(exit) = supervise_if_asked() {
        return exit;
    }
    match serve(&Program::parse().daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(failure);
            ExitCode::from(2)
        }
    }
}
