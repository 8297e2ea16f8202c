//! The signals that `upcall exec` passes on to its program.
//!
//! | signal | goes on to the program |
//! |---|---|
//! | SIGTERM, SIGHUP | always |
//! | SIGINT, SIGQUIT | unless this process is in the foreground of a terminal: Ctrl-C and Ctrl-\ reach the program as well, and it would get them twice |
//!
//! None of them ends this process: it ends with the program.

use std::fs;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals as Received;
use upcall::program::{RunningProgram, Signal};
use upcall_cli::standard_error::say;

use crate::exit::Failure;

/// The signals that came, from [`Signals::install`] on.
pub struct Signals(Received);

impl Signals {
    /// From now on these signals do not end this process. A child gets them as before.
    ///
    /// # Errors
    /// The system's error.
    pub fn install() -> Result<Self, Failure> {
        Received::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT]).map(Signals).map_err(Failure::of_error)
    }

    /// A signal that came before the program was started. Does not block.
    pub fn first(&mut self) -> Option<u8> {
        self.0.pending().next().and_then(|signal| u8::try_from(signal).ok())
    }

    /// Passes signals on to `program` until `work` returns. Starts a thread.
    pub fn pass_on<T>(mut self, program: &RunningProgram, work: impl FnOnce() -> T) -> T {
        let handle = self.0.handle();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for signal in self.0.forever() {
                    pass(program, signal);
                }
            });
            let done = work();
            handle.close();
            done
        })
    }
}

fn pass(program: &RunningProgram, signal: i32) {
    let Some(signal) = passed(signal, is_in_foreground()) else { return };
    if let Err(error) = program.send_signal(signal) {
        say(format_args!("upcall: a signal did not reach the program: {error}"));
    }
}

fn passed(signal: i32, in_foreground: bool) -> Option<Signal> {
    match signal {
        SIGTERM => Some(Signal::Terminate),
        SIGHUP => Some(Signal::HangUp),
        SIGINT if !in_foreground => Some(Signal::Interrupt),
        SIGQUIT if !in_foreground => Some(Signal::Quit),
        _ => None,
    }
}

/// Whether a terminal sends the signals of its keys to this process, and so to the program.
fn is_in_foreground() -> bool {
    fs::read_to_string("/proc/self/stat").is_ok_and(|stat| names_foreground(&stat))
}

/// After the name: state ppid pgrp session tty_nr tpgid (proc_pid_stat(5)).
fn names_foreground(stat: &str) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = fields.split_whitespace().take(6).collect();
    let [_, _, group, _, terminal, foreground] = fields[..] else { return false };
    terminal != "0" && group == foreground
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_terminal_reach_the_program_once() {
        for (signal, expected) in [(SIGTERM, Signal::Terminate), (SIGHUP, Signal::HangUp)] {
            assert_eq!(passed(signal, true), Some(expected));
            assert_eq!(passed(signal, false), Some(expected));
        }
        for (signal, expected) in [(SIGINT, Signal::Interrupt), (SIGQUIT, Signal::Quit)] {
            assert_eq!(passed(signal, true), None);
            assert_eq!(passed(signal, false), Some(expected));
        }
    }

    #[test]
    fn the_foreground_is_the_group_that_the_terminal_names() {
        assert!(names_foreground("12 (up) call) S 1 12 10 34816 12 4194304"));
        assert!(!names_foreground("12 (upcall) S 1 12 10 34816 10 4194304"), "in the background");
        assert!(!names_foreground("12 (upcall) S 1 12 10 0 -1 4194304"), "no terminal");
        assert!(!names_foreground("12 (upcall) S 1"));
    }
}
