//! `upcalld`: the daemon under the name that service managers expect.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use upcall_cli::daemon::{Program, serve};

fn main() -> ExitCode {
    match serve(&Program::parse().daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}
