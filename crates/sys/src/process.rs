//! Child processes that leave nothing behind, and handles of other processes.
//!
//! The command starts competing load and its helpers with this module. The daemon uses [`PidFd`]
//! and [`ThreadHandle`] for the processes that attached to it, and for their threads. A child gets
//! its own process group, the ordinary scheduling class and a set of CPUs. When its [`Child`] is
//! dropped, the whole group is killed. [`Child::terminate`] also returns the CPU time of the whole
//! group.
//!
//! How the module makes sure that nothing is left:
//!
//! ```text
//!          (1) spawn                 (2) exit              (4) finish
//!  [none] -----------> running -----------------> zombie --------------> reaped
//!                         |    (3) SIGTERM, grace    ^
//!                         +-------- SIGKILL ---------+
//! ```
//!
//! 1. The child is the leader of a new group. This process becomes a *subreaper*
//!    (PR_SET_CHILD_SUBREAPER(2const)): grandchildren whose parent dies become its children, so it
//!    can wait for them too.
//! 2. The leader exits. It stays a zombie: this module reads its exit status without reaping it.
//!    While the zombie exists, the kernel gives its number to no other process or group. So the
//!    signals below reach only the group.
//! 3. [`Child::terminate`] sends SIGTERM first.
//! 4. The group gets SIGKILL. Then this module waits for every process of the group.
//!
//! A child of [`hold`] is different: it belongs to the user, and outlives its handle.
//!
//! A descendant that leaves the group (setsid(2)) is out of reach. If this process itself is
//! killed, the kernel kills the leader (PR_SET_PDEATHSIG), but not the leader's children.

use crate::OsError;
use crate::clock::monotonic_ns;
use crate::schedule::{cpu_set, set_class};
use core::num::NonZeroU64;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions};
use rustix::thread::CpuSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

mod family;
mod held;
mod pidfd;
#[cfg(test)]
mod tests;
mod thread;
mod thread_handle;
mod user_ids;

pub use family::{ProcessFacts, all_processes, descendants_of, process_facts, threads_of};
pub use held::{HeldChild, StartedChild, hold};
pub use pidfd::{PidFd, Signal, real_time_signals};
pub use thread::{
    LockWait, ThreadState, ThreadSwitches, ThreadTimes, cpu_time_of, set_thread_name, switches_of,
    thread_id, thread_state, times_of, wait_time_of,
};
pub use thread_handle::ThreadHandle;
pub use user_ids::{UserIdFile, UserIds};

/// The connection of a child's standard stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    /// `/dev/null`.
    #[default]
    Null,
    /// A pipe, whose other end is in [`Child`].
    Pipe,
    /// The stream of this process.
    Inherit,
}

/// The streams and the descriptor of a child. By default it gets none.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpawnOptions<'fd> {
    /// Standard input.
    pub stdin: Stream,
    /// Standard output.
    pub stdout: Stream,
    /// Standard error.
    pub stderr: Stream,
    /// A descriptor, and the number (3 or above) that it has in the child. Choose a number that
    /// this process does not open or close until `spawn` returns.
    pub inherit: Option<(BorrowedFd<'fd>, RawFd)>,
}

/// CPU time a group of processes used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUse {
    /// In user mode, nanoseconds (the kernel gives microseconds).
    pub user_ns: u64,
    /// In the kernel, nanoseconds.
    pub system_ns: u64,
}

impl ResourceUse {
    /// The sum of both.
    pub const fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The process returned this code.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
}

/// A running child, the leader of its process group. Dropping it kills the group and waits until
/// every process of the group is gone.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// Whether the group has been killed and waited for.
    finished: bool,
    /// How the leader ended, once it is reaped.
    exit: Option<Exit>,
    usage: ResourceUse,
    /// The pipe to its standard input, if asked for.
    pub stdin: Option<ChildStdin>,
    /// The pipe from its standard output, if asked for.
    pub stdout: Option<ChildStdout>,
    /// The pipe from its standard error, if asked for.
    pub stderr: Option<ChildStderr>,
}

/// Starts `command` (program, then arguments; looked up in `PATH`) in a process group of its own,
/// on `cpus` only. The child runs in the ordinary scheduling class with ordinary timer slack,
/// whatever the calling thread has.
///
/// The kernel kills the child when the calling *thread* ends, so call this from a long-lived
/// thread. Makes this process a subreaper (see the module). Allocates. Blocks until the program is
/// loaded.
///
/// # Errors
/// `EINVAL` for an empty command, no usable CPU or a number below 3. `ENOENT`, `EACCES` or
/// `ENOEXEC` if the program cannot run. `EAGAIN`, `ENOMEM`.
pub fn spawn(
    command: &[String],
    cpus: &[u32],
    options: SpawnOptions<'_>,
) -> Result<Child, OsError> {
    let (program, arguments) = command.split_first().ok_or(OsError::new("execve", libc::EINVAL))?;
    let cpus = cpu_set(cpus)?;
    let inherited = options.inherit.map(|(fd, number)| Inherited::hold(fd, number)).transpose()?;
    let passed = inherited.as_ref().map(Inherited::numbers);
    // The process number serves only as a flag here.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(OsError::of("prctl(PR_SET_CHILD_SUBREAPER)"))?;
    let parent = rustix::process::getpid();
    let mut child = Command::new(program);
    child
        .args(arguments)
        .process_group(0)
        .stdin(stdio(options.stdin))
        .stdout(stdio(options.stdout))
        .stderr(stdio(options.stderr));
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
    // allowed. `prepare_child` makes system calls, and neither allocates nor takes a lock.
    unsafe { child.pre_exec(move || Ok(prepare_child(parent, &cpus, passed)?)) };
    let mut child = child.spawn().map_err(OsError::of_io("spawn"))?;
    // Dropping the standard library's handle neither kills the child nor waits for it.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(Child {
        pid: pid.ok_or(OsError::new("spawn", libc::ESRCH))?,
        finished: false,
        exit: None,
        usage: ResourceUse::default(),
        stdin: child.stdin.take(),
        stdout: child.stdout.take(),
        stderr: child.stderr.take(),
    })
}

/// Effective user of this process (geteuid(2)). One system call.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes the kernel kill the calling process when the thread that started it ends. For helper
/// programs that were not started with [`spawn`].
///
/// # Errors
/// `ESRCH` if process `parent` is no longer the parent: the parent ended before this call.
pub fn die_with_parent(parent: u32) -> Result<(), OsError> {
    const OPERATION: &str = "prctl(PR_SET_PDEATHSIG)";
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    let parent = parent.ok_or(OsError::new(OPERATION, libc::ESRCH))?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(OsError::of(OPERATION))?;
    // If the parent died before the prctl call, no signal comes.
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(OsError::new(OPERATION, libc::ESRCH))
    }
}

impl Child {
    /// Number of the process and of its group.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// How the leader ended; `None` while it runs. Does not block.
    ///
    /// # Errors
    /// `ECHILD` if other code in this process waited for the leader.
    pub fn try_wait(&self) -> Result<Option<Exit>, OsError> {
        if self.finished {
            return Ok(self.exit);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(self.pid), options)
            .map_err(OsError::of("waitid"))?;
        Ok(status.and_then(|status| {
            let code = status.exit_status().map(Exit::Code);
            code.or_else(|| status.terminating_signal().map(Exit::Signal))
        }))
    }

    /// Sends SIGKILL to every process of the group. Returns before they are gone.
    ///
    /// # Errors
    /// `EPERM` if every process of the group has changed its user.
    pub fn kill_group(&self) -> Result<(), OsError> {
        self.signal_group(rustix::process::Signal::KILL)
    }

    /// Ends the group: sends SIGTERM, waits at most `grace_ns` for the leader, then sends SIGKILL.
    ///
    /// Returns when every process of the group is gone. The result is their CPU time together,
    /// including descendants that ended earlier. A later call returns the same at once.
    ///
    /// # Errors
    /// `EPERM` if every process of the group has changed its user.
    pub fn terminate(&mut self, grace_ns: u64) -> Result<ResourceUse, OsError> {
        let deadline_ns = monotonic_ns().saturating_add(grace_ns);
        self.signal_group(rustix::process::Signal::TERM)?;
        if !self.finished {
            self.wait_for_leader(deadline_ns)?;
        }
        self.finish()?;
        Ok(self.usage)
    }

    /// Blocks until the leader has ended, or until the deadline.
    fn wait_for_leader(&self, deadline_ns: u64) -> Result<(), OsError> {
        PidFd::open(self.pid())?.wait(Some(deadline_ns)).map(|_| ())
    }

    fn signal_group(&self, signal: rustix::process::Signal) -> Result<(), OsError> {
        if self.finished {
            return Ok(()); // the number may belong to another process by now
        }
        match rustix::process::kill_process_group(self.pid, signal) {
            // The leader is at least a zombie, unless other code waited for it.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(OsError::of("kill")(errno)),
        }
    }

    /// Kills the group and waits for all its processes: the leader, and those that became children
    /// of this process when their parent died. The kernel hands a process over before its parent
    /// can be reaped. So when no child of the group is left to wait for, no process of the group is
    /// left.
    fn finish(&mut self) -> Result<(), OsError> {
        if self.finished {
            return Ok(());
        }
        self.signal_group(rustix::process::Signal::KILL)?;
        loop {
            match wait_one(self.pid) {
                Ok((pid, exit, usage)) => {
                    if pid == self.pid {
                        self.exit = Some(exit);
                    }
                    self.usage.user_ns += usage.user_ns;
                    self.usage.system_ns += usage.system_ns;
                }
                Err(error) if error.raw_os_error() == libc::EINTR => {}
                Err(error) if error.raw_os_error() == libc::ECHILD => {
                    self.finished = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Drop cannot report an error. Call `terminate` to get it.
        let _ = self.finish();
    }
}

/// Waits for any child in `group` to end. Returns its number, how it ended, and the CPU time of it
/// and of the children that it had waited for (wait4(2)).
fn wait_one(group: Pid) -> Result<(Pid, Exit, ResourceUse), OsError> {
    let mut status = 0;
    // SAFETY: the struct has only integers, for which all zero is valid.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `status` and `usage` are valid for one write each.
    let pid = unsafe { libc::wait4(-group.as_raw_pid(), &raw mut status, 0, &raw mut usage) };
    let pid = Pid::from_raw(pid.max(0)).ok_or_else(|| OsError::last("wait4"))?;
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    let nanos = |time: libc::timeval| {
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1_000
    };
    let usage = ResourceUse { user_ns: nanos(usage.ru_utime), system_ns: nanos(usage.ru_stime) };
    Ok((pid, exit, usage))
}

/// A descriptor for the child, held under a number of this process until the child has it.
struct Inherited {
    held: OwnedFd,
    number: RawFd,
}

impl Inherited {
    /// Copies `fd` to `number`, or to the next free number above. So `number` is in use while the
    /// child starts: the standard library's own pipe to the child cannot get it and be overwritten
    /// there.
    fn hold(fd: BorrowedFd<'_>, number: RawFd) -> Result<Inherited, OsError> {
        const OPERATION: &str = "fcntl(F_DUPFD_CLOEXEC)";
        if number < 3 {
            return Err(OsError::new(OPERATION, libc::EINVAL)); // 0 to 2 are the standard streams
        }
        let held = rustix::io::fcntl_dupfd_cloexec(fd, number).map_err(OsError::of(OPERATION))?;
        Ok(Inherited { held, number })
    }

    /// The number here, and the number in the child.
    fn numbers(&self) -> (RawFd, RawFd) {
        (self.held.as_raw_fd(), self.number)
    }
}

/// Prepares the child before it executes the program. Async-signal-safe.
fn prepare_child(
    parent: Pid,
    cpus: &CpuSet,
    passed: Option<(RawFd, RawFd)>,
) -> Result<(), OsError> {
    die_with_parent(parent.as_raw_pid().unsigned_abs())?;
    // Affinity first, because this call fails for CPUs that do not exist.
    rustix::thread::sched_setaffinity(None, cpus).map_err(OsError::of("sched_setaffinity"))?;
    set_class(libc::SCHED_OTHER, 0)?;
    // Every process starts with 50 us. The caller may have set 1 ns.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(50_000))
        .map_err(OsError::of("prctl(PR_SET_TIMERSLACK)"))?;
    passed.map_or(Ok(()), |(held, number)| copy_to_number(held, number))
}

/// Copies descriptor `held` to `number`, so that it stays open in the program.
fn copy_to_number(held: RawFd, number: RawFd) -> Result<(), OsError> {
    if held == number {
        // SAFETY: the caller's OwnedFd keeps `held` open.
        let fd = unsafe { BorrowedFd::borrow_raw(held) };
        return rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())
            .map_err(OsError::of("fcntl(F_SETFD)"));
    }
    // SAFETY: the call takes only numbers. It closes the child's descriptor `number`, which the
    // child does not use before it executes the program.
    if unsafe { libc::dup2(held, number) } < 0 {
        return Err(OsError::last("dup2"));
    }
    Ok(())
}

fn stdio(stream: Stream) -> Stdio {
    match stream {
        Stream::Null => Stdio::null(),
        Stream::Pipe => Stdio::piped(),
        Stream::Inherit => Stdio::inherit(),
    }
}

/// A copy of the descriptor that [`spawn`] passed to this process as `number`. The original stays
/// open. Both are closed on exec.
///
/// # Errors
/// `EBADF` if no descriptor was passed under that number.
pub fn inherited_fd(number: RawFd) -> Result<OwnedFd, OsError> {
    const OPERATION: &str = "fcntl(F_DUPFD_CLOEXEC)";
    if number < 3 {
        return Err(OsError::new(OPERATION, libc::EBADF));
    }
    // SAFETY: the number is not -1. The call only copies the descriptor. If the number is not open,
    // the kernel returns an error. If it belongs to other code, the copy does not affect its owner.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    let fd = rustix::io::fcntl_dupfd_cloexec(passed, 3).map_err(OsError::of(OPERATION))?;
    rustix::io::fcntl_setfd(passed, rustix::io::FdFlags::CLOEXEC)
        .map_err(OsError::of("fcntl(F_SETFD)"))?;
    Ok(fd)
}
