//! What a program with a share and one with a deadline have in common: its name, its start, and the
//! objects of `--json`.

use std::ffi::OsString;
use std::path::Path;

use upcall::program::{HeldProgram, RefusedProgram, RunningProgram};
use upcall_cli::standard_error::say;

use super::signals::Signals;
use crate::args::ExecArgs;
use crate::exit::{Exit, Failure};
use crate::program_request::{self, Refusal};

/// The exit status of a program that cannot be executed, as of env(1).
const NOT_EXECUTABLE: u8 = 126;
/// The exit status of a program that is not there, as of env(1).
const NOT_FOUND: u8 = 127;

/// Lets the program run. If it cannot, says so, and returns how the command ends. After a signal it
/// does not run, as if it had got the signal before its first instruction.
pub fn release(
    held: HeldProgram,
    name: &str,
    signals: &mut Signals,
) -> Result<RunningProgram, Exit> {
    if let Some(signal) = signals.first() {
        return Err(Exit::Program(128 + signal));
    }
    held.release().map_err(|error| {
        say(format_args!("upcall: {name}: {error}"));
        Exit::Program(if error.is_not_found() { NOT_FOUND } else { NOT_EXECUTABLE })
    })
}

/// Says that nothing was run, and returns how the command ends.
pub fn say_not_run(args: &ExecArgs, name: &str, refused: &RefusedProgram) -> Result<Exit, Failure> {
    let exit = program_request::say_refused(name, refused, "nothing was run");
    if args.json {
        say_json(&Refusal::of(name, refused))?;
    }
    Ok(exit)
}

/// The name of a program, for display: the last part of its path.
pub fn name_of(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).unwrap_or_else(|| Path::new(""));
    let name = program.file_name().unwrap_or(program.as_os_str());
    name.to_string_lossy().into_owned()
}

/// One object on one line of standard error.
pub fn say_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    say(serde_json::to_string(value).map_err(Failure::of_error)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_is_the_last_part_of_its_path() {
        for (command, name) in [("/usr/bin/ffmpeg", "ffmpeg"), ("ls", "ls"), ("/", "/"), ("", "")] {
            assert_eq!(name_of(&[command.into()]), name);
        }
    }
}
