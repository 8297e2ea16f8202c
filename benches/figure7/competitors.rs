//! Programs that compete for the machine, as `primes`, `netscape` and `make` did
//! in the paper: one that computes, one that makes system calls, and one that
//! starts processes and reads files.

use upcall::load::BackgroundLoad;
use upcall::time::Span;

pub const DESCRIPTION: &str =
    "beside it, on the handlers' CPU: a spinning thread; dd if=/dev/zero of=/dev/null bs=64k;
         a shell that lists and reads files, a process each";

/// How this program is told to be the spinning one.
const SPIN_OPTION: &str = "--spin-threads";

/// Starts processes, walks directories, reads files.
const FILES: &str = "while :; do ls -R /usr/include /etc /usr/share/doc; \
                     for file in /etc/*; do cat \"$file\"; done; done >/dev/null 2>&1";

/// If this process was started to spin: with how many threads.
pub fn spin_threads(arguments: &[String]) -> Option<u32> {
    match arguments {
        [option, threads] if option == SPIN_OPTION => threads.parse().ok(),
        _ => None,
    }
}

/// All of them, running until stopped or dropped.
pub struct Competitors(Vec<BackgroundLoad>);

impl Competitors {
    /// Starts each kind on `cpu`. Not on the other CPUs too: a virtual machine
    /// whose every CPU is busy is stopped by its host for 100 ms at a time, which
    /// says nothing of what is measured here.
    ///
    /// # Errors
    /// A program that cannot be started.
    pub fn start(cpu: u32) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let commands = [
            vec![this.to_string_lossy().into_owned(), SPIN_OPTION.to_owned(), "1".to_owned()],
            ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"].map(str::to_owned).to_vec(),
            ["sh", "-c", FILES].map(str::to_owned).to_vec(),
        ];
        let started = commands.iter().map(|command| {
            BackgroundLoad::start(command, &[cpu])
                .map_err(|error| format!("{}: {error}", command[0]))
        });
        Ok(Competitors(started.collect::<Result<_, _>>()?))
    }

    /// Ends them; the CPU time they took.
    pub fn stop(self) -> Span {
        self.0.into_iter().fold(Span::ZERO, |sum, load| sum + load.stop())
    }
}
