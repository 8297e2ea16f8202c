//! Programs that compete for the machine, as `primes`, `netscape` and `make` did in the paper. The
//! first computes, the second makes system calls, and the third starts processes and reads files.

use upcall::load::BackgroundLoad;
use upcall::time::Span;

pub const DESCRIPTION: &str =
    "beside it, on the handlers' CPU: a spinning thread; dd if=/dev/zero of=/dev/null bs=64k;
         a shell that lists and reads files, a process each";

/// The option that makes this program the spinning competitor.
const SPIN_OPTION: &str = "--spin-threads";

/// Starts processes, walks directories, reads files.
const FILES: &str = "while :; do ls -R /usr/include /etc /usr/share/doc; \
                     for file in /etc/*; do cat \"$file\"; done; done >/dev/null 2>&1";

/// The number of threads with which to spin, if this process was started to spin.
pub fn spin_threads(arguments: &[String]) -> Option<u32> {
    match arguments {
        [option, threads] if option == SPIN_OPTION => threads.parse().ok(),
        _ => None,
    }
}

/// All competitors. They run until they are stopped or dropped.
pub struct Competitors(Vec<BackgroundLoad>);

impl Competitors {
    /// Starts each kind on `cpu`, and none on the other CPUs. If every CPU of a virtual machine is
    /// busy, its host stops the machine for 100 ms at a time, which would disturb the measurement.
    ///
    /// # Errors
    /// A program cannot be started.
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

    /// Ends the competitors and returns their CPU time.
    pub fn stop(self) -> Span {
        self.0.into_iter().fold(Span::ZERO, |sum, load| sum + load.stop())
    }
}
