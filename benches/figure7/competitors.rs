//! Programs that compete for the machine, as `primes`, `netscape` and `make` did
//! in the paper: one that computes, one that makes system calls, and one that
//! starts processes and reads files.

use upcall::load::BackgroundLoad;
use upcall::time::Span;

pub const DESCRIPTION: &str =
    "beside it, on the handlers' CPU and again on every CPU: a spinning thread a CPU;
         dd if=/dev/zero of=/dev/null bs=64k; a shell that lists and reads files, a process each";

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
    /// Starts each kind on `cpu`, and each kind on every CPU.
    ///
    /// # Errors
    /// A program that cannot be started.
    pub fn start(cpu: u32) -> Result<Self, String> {
        let allowed = upcall::allowed_cpus().map_err(|error| error.to_string())?;
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut loads = Vec::new();
        for cpus in [&[cpu][..], &allowed] {
            let threads = cpus.len().to_string();
            let commands = [
                vec![this.to_string_lossy().into_owned(), SPIN_OPTION.to_owned(), threads],
                ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"].map(str::to_owned).to_vec(),
                ["sh", "-c", FILES].map(str::to_owned).to_vec(),
            ];
            for command in commands {
                let started = BackgroundLoad::start(&command, cpus)
                    .map_err(|error| format!("{}: {error}", command[0]))?;
                loads.push(started);
            }
        }
        Ok(Competitors(loads))
    }

    /// Ends them; the CPU time they took.
    pub fn stop(self) -> Span {
        self.0.into_iter().fold(Span::ZERO, |sum, load| sum + load.stop())
    }
}
