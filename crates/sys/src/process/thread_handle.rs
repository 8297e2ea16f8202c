//! A thread of any process, held by open files instead of its number.
//!
//! The daemon holds the threads of its domains this way: it reads their states and their CPU time,
//! and changes their class and their CPUs. The kernel gives the number of a thread away again
//! after the thread has ended, even while its process lives. An open file in `/proc` belongs to
//! the thread itself: after the end of the thread every read fails with `ESRCH`, whatever has its
//! number now. So reads are exact. A file that is open also needs no free descriptor later.
//!
//! # Changes of class and CPUs
//!
//! The kernel takes only a number for these (sched_setattr(2), sched_setaffinity(2)), and nothing
//! reserves the number of a thread. So [`ThreadHandle`] makes three steps:
//!
//! 1. It checks that the thread exists. If not, it changes nothing.
//! 2. It makes the change. The kernel looks the number up at the beginning of the call.
//! 3. It checks again. If the thread still exists, the number was its own in step 2.
//!
//! Another thread can be changed only if three things happen between the end of step 1 and the
//! beginning of step 2: the thread ends, the kernel's count of numbers arrives at this number, and
//! a clone(2) that starts after the end completes. On a CPU that runs nothing else meanwhile, that
//! time is a return from one system call and the entry into the next, some 100 ns. A clone takes
//! longer from its number to the moment at which others find the thread. So the caller must not be
//! preempted: it makes changes at the highest priority that it has ([`at_priority`]). What remains
//! is an interrupt or a host that holds the caller up at that very place. Step 3 finds this. If
//! the new owner of the number is in the real-time class at the priority just set, it is put into
//! the ordinary class at once. Its former CPUs, or a class that a change to the ordinary class
//! took from it, are unknown and stay lost.
//!
//! [`at_priority`]: crate::schedule::at_priority

use super::family::facts_in;
use super::thread::{LockWait, ThreadState, first_line, schedstat_in, state_of, waits_for_lock};
use crate::OsError;
use crate::schedule::{
    Class, allowed_cpus_of, class_of, is_pinned_to, pin_thread_of, set_fifo_not_inherited_of,
    set_ordinary_not_inherited_of, set_ordinary_of, set_slice_of,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// A handle of a thread. Closed when dropped; the thread itself is unaffected.
///
/// One thread uses a handle: the kernel locks an open file of `/proc` during a read, so a second
/// reader would wait for the first. Needs two descriptors.
#[derive(Debug)]
pub struct ThreadHandle {
    tid: u32,
    stat: OwnedFd,
    /// `None` if the kernel does not count CPU time (without `CONFIG_SCHED_INFO`).
    schedstat: Option<OwnedFd>,
}

impl ThreadHandle {
    /// Opens thread `tid` of process `pid`. The kernel looks the numbers up now. If the process is
    /// still the intended one afterwards, the thread belongs to it. Four system calls.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` if the process has no such thread (or `/proc` hides it). `EACCES` where
    /// `/proc` hides the thread (`hidepid=1`). `EMFILE`.
    pub fn open(pid: u32, tid: u32) -> Result<ThreadHandle, OsError> {
        let error = OsError::of("open(/proc/pid/task/tid)");
        let path = format!("/proc/{pid}/task/{tid}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags | OFlags::DIRECTORY, Mode::empty());
        let directory = directory.map_err(error)?;
        let open = |name| rustix::fs::openat(&directory, name, flags, Mode::empty());
        let stat = open("stat").map_err(OsError::of("open(/proc/pid/task/tid/stat)"))?;
        Ok(ThreadHandle { tid, stat, schedstat: open("schedstat").ok() })
    }

    /// The number of the thread. After the end of the thread it may belong to another one.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Whether the thread exists no longer. The first thread of a process exists until the process
    /// has been waited for. One system call. Does not block or allocate.
    pub fn has_ended(&self) -> bool {
        let file = self.schedstat.as_ref().unwrap_or(&self.stat);
        first_line(file, &mut [0; 1]) == Err(Errno::SRCH)
    }

    /// When the thread started, in ticks of the clock since the machine started. With the number it
    /// tells the thread from later ones. One system call. Does not block or allocate.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub fn started(&self) -> Result<u64, OsError> {
        const OPERATION: &str = "read(/proc/pid/task/tid/stat)";
        let mut text = [0; 1024];
        let length = first_line(&self.stat, &mut text).map_err(OsError::of(OPERATION))?;
        let facts = facts_in(self.tid, &text[..length]);
        Ok(facts.ok_or_else(|| OsError::new(OPERATION, libc::EINVAL))?.started)
    }

    /// The present state of the thread, as [`super::thread_state`]. One system call. Does not
    /// block or allocate.
    ///
    /// # Errors
    /// `EINVAL` for an unknown state letter.
    pub fn state(&self) -> Result<ThreadState, OsError> {
        let mut text = [0; 512];
        match first_line(&self.stat, &mut text) {
            Ok(length) => state_of(&text[..length])
                .ok_or_else(|| OsError::new("read(/proc/pid/task/tid/stat)", libc::EINVAL)),
            Err(Errno::SRCH) => Ok(ThreadState::Dead),
            Err(errno) => Err(OsError::of("read(/proc/pid/task/tid/stat)")(errno)),
        }
    }

    /// Whether the thread, which sleeps and belongs to process `pid`, waits for a lock with
    /// priority inheritance. The kernel says in which function and which system call it sleeps
    /// (proc_pid_wchan(5), proc_pid_syscall(5)). That of a thread of another user is shown only
    /// with `CAP_SYS_PTRACE`. Up to seven system calls, and a descriptor meanwhile. Does not block;
    /// allocates the paths.
    pub fn lock_wait(&self, pid: u32) -> LockWait {
        let mut buffers = ([0; 64], [0; 256]);
        // The second file would make the caller wait for a thread that is about to sleep, and one
        // that has such a function sleeps already. It would also make the caller wait while the
        // process executes another program. Then the process has no other thread than the first.
        let Some(function) = self.read(pid, "wchan", &mut buffers.0) else {
            return LockWait::Unknown;
        };
        let contains = |word: &[u8]| function.windows(word.len()).any(|part| part == word);
        let found = match function {
            b"" | b"0" => LockWait::Unknown,
            _ if !contains(b"futex") && !contains(b"rt_mutex") => LockWait::No,
            _ if self.tid == pid && contains(b"futex") && !contains(b"lock_pi") => LockWait::Futex,
            _ if self.tid == pid => LockWait::Yes,
            _ => match self.read(pid, "syscall", &mut buffers.1) {
                Some(call) if waits_for_lock(call) => LockWait::Yes,
                Some(_) => LockWait::No,
                None if contains(b"lock_pi") || contains(b"rt_mutex") => LockWait::Yes,
                None => LockWait::Unknown,
            },
        };
        // The number may belong to another thread by now.
        if self.has_ended() { LockWait::Unknown } else { found }
    }

    /// Reads the beginning of a file of the thread. `None`: not allowed, or there is none.
    fn read<'t>(&self, pid: u32, name: &str, text: &'t mut [u8]) -> Option<&'t [u8]> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("/proc/{pid}/task/{}/{name}", self.tid);
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let length = first_line(&file, text).ok()?;
        Some(&text[..length])
    }

    /// CPU time that the thread has used so far, in ns, as [`super::cpu_time_of`]. One system call.
    /// Does not block or allocate.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended. `ENOSYS` if the kernel does not count CPU time.
    pub fn cpu_time(&self) -> Result<u64, OsError> {
        self.schedstat_number(0)
    }

    /// How long the thread was ready so far while others had its CPU, in ns, as
    /// [`super::wait_time_of`]. The kernel adds a wait when the wait ends. One system call. Does
    /// not block or allocate.
    ///
    /// # Errors
    /// As [`ThreadHandle::cpu_time`].
    pub fn wait_time(&self) -> Result<u64, OsError> {
        self.schedstat_number(1)
    }

    fn schedstat_number(&self, place: usize) -> Result<u64, OsError> {
        const OPERATION: &str = "read(/proc/pid/task/tid/schedstat)";
        let file = self.schedstat.as_ref().ok_or(OsError::new(OPERATION, libc::ENOSYS))?;
        let mut text = [0; 128];
        let length = first_line(file, &mut text).map_err(OsError::of(OPERATION))?;
        schedstat_in(&text[..length], place).ok_or_else(|| OsError::new(OPERATION, libc::EINVAL))
    }

    /// The present class of the thread. Two system calls.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub fn class(&self) -> Result<Class, OsError> {
        let class = class_of(self.tid)?;
        // The number was its own if it exists now.
        if self.has_ended() { Err(ended("sched_getattr")) } else { Ok(class) }
    }

    /// Puts the thread into `SCHED_FIFO` at `priority` (1 lowest to 99). Threads and processes that
    /// it starts from now on are ordinary (`SCHED_RESET_ON_FORK`). Three system calls; the head of
    /// the module says what the caller must see to. Call [`ThreadHandle::set_ordinary`] before the
    /// first time: then nothing that the thread starts meanwhile has the class.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended; no other thread is changed. `EPERM` without the right (see
    /// [`crate::schedule`]). `EINVAL` for a priority outside the range.
    pub fn set_fifo_not_inherited(&self, priority: u8) -> Result<(), OsError> {
        self.change(|tid| set_fifo_not_inherited_of(tid, priority))?;
        if !self.has_ended() {
            return Ok(());
        }
        undo_fifo(self.tid, priority);
        Err(ended("sched_setscheduler"))
    }

    /// Puts the thread into the ordinary class, `SCHED_OTHER`. What it starts is ordinary as
    /// before, also at the moment of the change: `SCHED_RESET_ON_FORK` stays. Two system calls.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended; no other thread is changed. `EPERM` if the thread belongs
    /// to another user, without `CAP_SYS_NICE`.
    pub fn set_ordinary(&self) -> Result<(), OsError> {
        self.change(set_ordinary_not_inherited_of)
    }

    /// Whether the thread may run on `cpu` alone. Two system calls. Does not block or allocate.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended. As [`crate::schedule::allowed_cpus`].
    pub fn is_pinned_to(&self, cpu: u32) -> Result<bool, OsError> {
        let is_pinned = is_pinned_to(self.tid, cpu)?;
        // The number was its own if it exists now.
        if self.has_ended() { Err(ended("sched_getaffinity")) } else { Ok(is_pinned) }
    }

    /// The CPUs that the thread may run on, ascending. Two system calls. Allocates.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended. As [`crate::schedule::allowed_cpus`].
    pub fn allowed_cpus(&self) -> Result<Vec<u32>, OsError> {
        let cpus = allowed_cpus_of(self.tid)?;
        // The number was its own if it exists now.
        if self.has_ended() { Err(ended("sched_getaffinity")) } else { Ok(cpus) }
    }

    /// Asks for the slice of the thread, as [`crate::schedule::set_slice_of`]. Four system calls.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended; no other thread is changed. As
    /// [`crate::schedule::set_slice_of`].
    pub fn set_slice(&self, slice_ns: Option<u64>) -> Result<bool, OsError> {
        self.change(|tid| set_slice_of(tid, slice_ns))
    }

    /// Lets the thread run on these CPUs only. Two system calls.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended; no other thread is changed. As
    /// [`crate::schedule::pin_thread`]. `EPERM` if the thread belongs to another user, without
    /// `CAP_SYS_NICE`. `EBUSY` if it is in `SCHED_DEADLINE`.
    pub fn pin(&self, cpus: &[u32]) -> Result<(), OsError> {
        self.change(|tid| pin_thread_of(tid, cpus))
    }

    /// Steps 1 and 2 of the module's head.
    fn change<T>(&self, change: impl FnOnce(u32) -> Result<T, OsError>) -> Result<T, OsError> {
        if self.has_ended() { Err(ended("sched_setscheduler")) } else { change(self.tid) }
    }
}

/// Takes the real-time class from a thread that has got it instead of a thread that had ended.
fn undo_fifo(tid: u32, priority: u8) {
    if class_of(tid) == Ok(Class::Fifo { priority }) {
        // Fails only if this thread has ended, too.
        let _ = set_ordinary_of(tid);
    }
}

fn ended(operation: &'static str) -> OsError {
    OsError::new(operation, libc::ESRCH)
}

#[cfg(test)]
mod tests;
