//! A child that waits before it executes its program, and the program after that.
//!
//! `upcall exec` starts programs with this module. The child has a number while it waits, so the
//! daemon can put it into a group before the program has run one instruction. The program gets
//! everything of this process: terminal, process group, folder, class and CPUs.
//!
//! ```text
//!          (1) hold             (2) release               (4) reap
//!  [none] ----------> waiting ---------------> running ----------------> reaped
//!                        |                        | (3) exit
//!                        +-- (5) dropped          v
//!                                              zombie
//! ```
//!
//! 1. The standard library starts a child, and waits until it has executed its program or failed.
//!    A thread does that meanwhile, `upcall-start`. The child writes its number to a pipe.
//! 2. The child reads a byte from another pipe, and executes the program.
//! 3. Its descriptor becomes readable. Nobody else may wait for it.
//! 4. Until it is reaped, the kernel gives its number to no other process.
//! 5. The pipe ends, and the child exits. The same happens if this process is killed.

use super::{Exit, PidFd, Signal};
use crate::OsError;
use rustix::process::{WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::JoinHandle;

/// A child that waits. Dropping it ends it.
#[derive(Debug)]
pub struct HeldChild {
    pid: u32,
    /// Dropped to end the child.
    release: Option<PipeWriter>,
    starter: Option<JoinHandle<io::Result<u32>>>,
}

/// A child that executes its program. Dropping it changes nothing: the program runs on.
#[derive(Debug)]
pub struct StartedChild {
    pid: u32,
    process: PidFd,
}

/// Starts a child that waits. `command` is the program, looked up in `PATH` later, and its
/// arguments. Starts a thread. Blocks for a moment. Allocates.
///
/// # Errors
/// `EINVAL` for an empty command. `EMFILE`, `EAGAIN`, `ENOMEM`.
pub fn hold(command: &[OsString]) -> Result<HeldChild, OsError> {
    const OPERATION: &str = "spawn";
    let failed = || OsError::of_io(OPERATION);
    let (program, arguments) = command.split_first().ok_or(OsError::new("execve", libc::EINVAL))?;
    let (mut pid_reader, pid_writer) = io::pipe().map_err(OsError::of_io("pipe2"))?;
    let (release_reader, release) = io::pipe().map_err(OsError::of_io("pipe2"))?;
    let numbers = Numbers {
        pid_writer: pid_writer.as_raw_fd(),
        release_reader: release_reader.as_raw_fd(),
        release: release.as_raw_fd(),
    };
    let mut child = Command::new(program);
    child.args(arguments);
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
    // allowed. `wait_for_release` makes system calls, and neither allocates nor takes a lock.
    unsafe { child.pre_exec(move || Ok(wait_for_release(&numbers)?)) };
    let starter = std::thread::Builder::new().name("upcall-start".into());
    let starter = starter.spawn(move || {
        let started = child.spawn();
        // The child had copies of these.
        drop((pid_writer, release_reader));
        // Dropping the standard library's handle neither kills the child nor waits for it.
        started.map(|child| child.id())
    });
    let mut held =
        HeldChild { pid: 0, release: Some(release), starter: Some(starter.map_err(failed())?) };
    let mut pid = [0; 4];
    match pid_reader.read_exact(&mut pid) {
        Ok(()) => {
            held.pid = u32::from_ne_bytes(pid);
            Ok(held)
        }
        // No child was made.
        Err(_) => Err(held.join().err().unwrap_or(OsError::new(OPERATION, libc::EIO))),
    }
}

impl HeldChild {
    /// The number of the process, which the program keeps.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute its program. Blocks until the program is loaded.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` or `ENOEXEC` if the program cannot run, and others of execve(2). The
    /// child is gone then.
    pub fn release(mut self) -> Result<StartedChild, OsError> {
        if let Some(mut release) = self.release.take() {
            // If the child was killed, the standard library says so.
            let _ = release.write_all(&[1]);
        }
        let pid = self.join()?;
        // The child is not reaped, so the number is still its own.
        Ok(StartedChild { pid, process: PidFd::open(pid)? })
    }

    fn join(&mut self) -> Result<u32, OsError> {
        const OPERATION: &str = "execve";
        let Some(starter) = self.starter.take() else {
            return Err(OsError::new(OPERATION, libc::ECHILD));
        };
        let started = starter.join().map_err(|_| OsError::new(OPERATION, libc::ECHILD))?;
        started.map_err(OsError::of_io(OPERATION))
    }
}

impl Drop for HeldChild {
    fn drop(&mut self) {
        drop(self.release.take());
        // The standard library has reaped the child when this returns.
        let _ = self.join();
    }
}

impl StartedChild {
    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends the process a signal, as [`PidFd::send_signal`]. A process that has ended ignores it.
    ///
    /// # Errors
    /// As [`PidFd::send_signal`].
    pub fn send_signal(&self, signal: Signal) -> Result<(), OsError> {
        self.process.send_signal(signal)
    }

    /// Blocks until the process has ended, or until the deadline (`None`: without limit). Returns
    /// whether it has ended. It stays a zombie.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`).
    pub fn wait(&self, deadline_ns: Option<u64>) -> Result<bool, OsError> {
        self.process.wait(deadline_ns)
    }

    /// Blocks until the process has ended, and reaps it.
    ///
    /// # Errors
    /// `ECHILD` if it was reaped before, also by other code of this process.
    pub fn reap(&self) -> Result<Exit, OsError> {
        const OPERATION: &str = "waitid";
        let options = WaitIdOptions::EXITED;
        let status = rustix::io::retry_on_intr(|| {
            rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), options)
        });
        let status = status.map_err(OsError::of(OPERATION))?;
        let status = status.ok_or(OsError::new(OPERATION, libc::ECHILD))?;
        let code = status.exit_status().map(Exit::Code);
        code.or_else(|| status.terminating_signal().map(Exit::Signal))
            .ok_or(OsError::new(OPERATION, libc::ECHILD))
    }
}

/// Descriptors of the child.
#[derive(Clone, Copy)]
struct Numbers {
    pid_writer: RawFd,
    release_reader: RawFd,
    /// The child's copy of the end that releases it.
    release: RawFd,
}

/// In the child: reports its number, and waits. Async-signal-safe.
fn wait_for_release(numbers: &Numbers) -> Result<(), OsError> {
    let pid = std::process::id().to_ne_bytes();
    // SAFETY: the kernel reads four bytes from `pid`. The descriptor is open: this process is a
    // copy of one that holds it.
    let written = unsafe { libc::write(numbers.pid_writer, pid.as_ptr().cast(), pid.len()) };
    if written < 0 {
        return Err(OsError::last("write"));
    }
    // SAFETY: the call takes only a number. No code of the child uses this descriptor. While it is
    // open, the pipe would not end with the parent.
    unsafe { libc::close(numbers.release) };
    let mut byte = [0u8];
    loop {
        // SAFETY: `byte` is valid for a write of one byte. The descriptor is open, as above.
        match unsafe { libc::read(numbers.release_reader, byte.as_mut_ptr().cast(), 1) } {
            1 => return Ok(()),
            0 => return Err(OsError::new("read", libc::ECANCELED)),
            _ => {
                let error = OsError::last("read");
                if error.raw_os_error() != libc::EINTR {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{ThreadState, thread_state};

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_child_runs_its_program_only_after_its_release() {
        let folder = std::env::temp_dir().join(format!("upcall-held-{}", std::process::id()));
        let _ = std::fs::remove_file(&folder);
        let text = format!("echo $$ > {}; exit 7", folder.display());
        let held = hold(&command(&["sh", "-c", &text])).unwrap();
        while thread_state(held.pid(), held.pid()).unwrap() != ThreadState::Sleeping {
            std::thread::yield_now();
        }
        assert!(!folder.exists());
        let pid = held.pid();
        let started = held.release().unwrap();
        assert_eq!(started.pid(), pid);
        assert!(started.wait(None).unwrap());
        assert_eq!(started.reap(), Ok(Exit::Code(7)));
        assert_eq!(started.reap().unwrap_err().raw_os_error(), libc::ECHILD);
        assert_eq!(std::fs::read_to_string(&folder).unwrap().trim(), pid.to_string());
        std::fs::remove_file(&folder).unwrap();
    }

    #[test]
    fn a_signal_ends_a_program_and_is_reported() {
        let started = hold(&command(&["sleep", "1000"])).unwrap().release().unwrap();
        started.send_signal(Signal::Terminate).unwrap();
        assert_eq!(started.reap(), Ok(Exit::Signal(libc::SIGTERM)));
    }

    #[test]
    fn a_program_that_cannot_run_is_an_error_of_its_release() {
        let held = hold(&command(&["/nonexistent/program"])).unwrap();
        assert_eq!(held.release().unwrap_err().raw_os_error(), libc::ENOENT);
        let held = hold(&command(&["/"])).unwrap();
        assert_eq!(held.release().unwrap_err().raw_os_error(), libc::EACCES);
        assert_eq!(hold(&[]).unwrap_err().raw_os_error(), libc::EINVAL);
    }

    #[test]
    fn a_dropped_child_is_gone_and_has_run_nothing() {
        let held = hold(&command(&["sleep", "1000"])).unwrap();
        let pid = held.pid();
        drop(held);
        assert_eq!(thread_state(pid, pid), Ok(ThreadState::Dead));
    }
}
