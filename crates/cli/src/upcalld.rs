//! `upcalld`: the daemon under the name that service managers expect.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use upcall_cli::daemon::{DaemonArgs, serve};
use upcall_cli::standard_error::say;

/// Upcall's daemon: one order of handlers over all processes, and who keeps it.
#[derive(Debug, Parser)]
#[command(name = "upcalld", version, max_term_width = 100)]
struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,
}

fn main() -> ExitCode {
    match serve(&Args::parse().daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(failure);
            ExitCode::from(2)
        }
    }
}
