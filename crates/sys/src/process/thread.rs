//! The present state of a thread of any process, its CPU time and its context switches.
//!
//! The daemon reads this before it concludes that a thread is blocked, and for its statistics. The
//! source is `/proc`: see proc_pid_stat(5), proc_pid_status(5).

use crate::OsError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::io::Write;
use std::os::fd::AsFd;

/// The state of a thread (`include/linux/sched.h` and the letter of proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// R: on a CPU, or ready and waiting for one.
    Running,
    /// S: waits, and a signal would wake it. Includes idle and parked threads of the kernel (I, P).
    Sleeping,
    /// D: waits for a device or a page, and no signal wakes it.
    DiskSleep,
    /// T: stopped by a signal.
    Stopped,
    /// t: stopped by a debugger.
    Traced,
    /// Z, X: ended. Also a thread that does not exist.
    Dead,
}

/// Whether a thread waits for a lock with priority inheritance (futex(2)): the owner of that lock
/// has the thread's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// It does not: it runs, or sleeps elsewhere.
    No,
    /// It does.
    Yes,
    /// It waits for a futex, and is the first thread of its process. To ask whether that is a lock
    /// could block: the process may be executing another program.
    Futex,
    /// The kernel does not say, or does not say it to this process.
    Unknown,
}

/// How often the kernel has switched away from a thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSwitches {
    /// The thread waited for something.
    pub voluntary: u64,
    /// The kernel preempted the thread.
    pub involuntary: u64,
}

impl ThreadSwitches {
    /// The sum of both.
    pub const fn total(&self) -> u64 {
        self.voluntary + self.involuntary
    }
}

/// The present state of thread `tid` of process `pid`. It may be out of date at once.
///
/// Three system calls, some microseconds. Does not block or allocate. A thread that does not exist
/// is [`ThreadState::Dead`]. If `/proc` is mounted with `hidepid=2`, so is every thread of another
/// user.
///
/// # Errors
/// `EACCES` where `/proc` hides the thread (`hidepid=1`). `EMFILE`. `EINVAL` for an unknown state
/// letter.
pub fn thread_state(pid: u32, tid: u32) -> Result<ThreadState, OsError> {
    const OPERATION: &str = "read(/proc/pid/task/tid/stat)";
    // A name has at most 64 bytes and a number 20, so the letter is within this buffer.
    let mut text = [0u8; 512];
    match read_of_task(pid, tid, "stat", &mut text) {
        Ok(length) => {
            state_of(&text[..length]).ok_or_else(|| OsError::new(OPERATION, libc::EINVAL))
        }
        Err(Errno::NOENT | Errno::SRCH) => Ok(ThreadState::Dead),
        Err(errno) => Err(OsError::of(OPERATION)(errno)),
    }
}

/// CPU time that thread `tid` of process `pid` has used so far, in ns. For a running thread it is
/// the value of the kernel's last tick. Three system calls. Does not block or allocate.
///
/// # Errors
/// `ENOENT` or `ESRCH` if there is no such thread (or `/proc` hides it). `EMFILE`. `EINVAL` if the
/// kernel does not count it (without `CONFIG_SCHED_INFO`).
pub fn cpu_time_of(pid: u32, tid: u32) -> Result<u64, OsError> {
    schedstat_of(pid, tid, 0)
}

/// How long thread `tid` of process `pid` was ready so far while other threads had the CPUs, in ns
/// (Documentation/scheduler/sched-stats.rst: time spent waiting on a runqueue). Three system calls.
/// Does not block or allocate.
///
/// # Errors
/// As [`cpu_time_of`].
pub fn wait_time_of(pid: u32, tid: u32) -> Result<u64, OsError> {
    schedstat_of(pid, tid, 1)
}

/// What the kernel's scheduler counts of a thread (Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// CPU time, in ns. Of a running thread: up to the last tick or preemption.
    pub run_ns: u64,
    /// How long it was ready while other threads had the CPUs, in ns. A wait in progress does not
    /// count yet.
    pub wait_ns: u64,
    /// How often it got a CPU.
    pub slices: u64,
}

/// The times of thread `tid` of process `pid`, also of a zombie. Three system calls. Does not block
/// or allocate.
///
/// # Errors
/// As [`cpu_time_of`].
pub fn times_of(pid: u32, tid: u32) -> Result<ThreadTimes, OsError> {
    const OPERATION: &str = "read(/proc/pid/task/tid/schedstat)";
    let mut text = [0u8; 128];
    let length = read_of_task(pid, tid, "schedstat", &mut text).map_err(OsError::of(OPERATION))?;
    times_in(&text[..length]).ok_or_else(|| OsError::new(OPERATION, libc::EINVAL))
}

fn times_in(text: &[u8]) -> Option<ThreadTimes> {
    let mut numbers = core::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let mut next = || numbers.next()?.parse().ok();
    Some(ThreadTimes { run_ns: next()?, wait_ns: next()?, slices: next()? })
}

/// Number `place` of a thread's `schedstat` file.
fn schedstat_of(pid: u32, tid: u32, place: usize) -> Result<u64, OsError> {
    const OPERATION: &str = "read(/proc/pid/task/tid/schedstat)";
    let mut text = [0u8; 128];
    let length = read_of_task(pid, tid, "schedstat", &mut text).map_err(OsError::of(OPERATION))?;
    schedstat_in(&text[..length], place).ok_or_else(|| OsError::new(OPERATION, libc::EINVAL))
}

/// Number `place` in the text of a `schedstat` file.
pub(super) fn schedstat_in(text: &[u8], place: usize) -> Option<u64> {
    core::str::from_utf8(text).ok()?.split(' ').nth(place)?.parse().ok()
}

/// Reads the beginning of a file in a thread's directory. Returns the length read.
fn read_of_task(pid: u32, tid: u32, file: &str, text: &mut [u8]) -> Result<usize, Errno> {
    let mut path = [0u8; 64];
    // The path fits: 11 + 10 + 6 + 10 + 11 bytes and a zero.
    write!(&mut path[..], "/proc/{pid}/task/{tid}/{file}\0").map_err(|_| Errno::NAMETOOLONG)?;
    let path = core::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::NAMETOOLONG)?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::read(&file, text)
}

/// Reads an open file of `/proc` from its beginning, as it is now. Returns the length read.
pub(super) fn first_line(file: impl AsFd, text: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::pread(file, text, 0)
}

/// Whether the line of a file `syscall` (proc_pid_syscall(5)) is a wait for a lock with priority
/// inheritance: the number of the call, and its arguments, of which the second is the operation.
pub(super) fn waits_for_lock(call: &[u8]) -> bool {
    /// `futex` and `futex_time64` of a 32-bit process (asm/unistd_32.h), on x86 and on Arm, and
    /// `futex` of an x32 process (x32(7)).
    const OTHERS: [i64; 3] = [240, 422, 0x4000_0000 + 202];
    /// The kernel uses the lower half of the argument, without the flags.
    const COMMAND: u64 = 0xffff_ffff & !(128 | 256);
    const LOCK_PI: u64 = 6;
    const WAIT_REQUEUE_PI: u64 = 11;
    const LOCK_PI2: u64 = 13;
    let Ok(text) = core::str::from_utf8(call) else { return false };
    let mut words = text.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse::<i64>().ok());
    if !number.is_some_and(|number| number == libc::SYS_futex || OTHERS.contains(&number)) {
        return false;
    }
    let operation = words.nth(1).and_then(|word| word.strip_prefix("0x"));
    let operation = operation.and_then(|word| u64::from_str_radix(word, 16).ok());
    operation.is_some_and(|operation| {
        [LOCK_PI, WAIT_REQUEUE_PI, LOCK_PI2].contains(&(operation & COMMAND))
    })
}

/// The state in the first part of a `stat` line, `pid (name) S ppid ...`. A name may contain spaces
/// and parentheses; the rest of the line contains none.
pub(super) fn state_of(stat: &[u8]) -> Option<ThreadState> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let [b' ', letter, b' ', ..] = stat[after_name..] else { return None };
    match letter {
        b'R' => Some(ThreadState::Running),
        b'S' | b'I' | b'P' => Some(ThreadState::Sleeping),
        b'D' => Some(ThreadState::DiskSleep),
        b'T' => Some(ThreadState::Stopped),
        b't' => Some(ThreadState::Traced),
        b'Z' | b'X' | b'x' => Some(ThreadState::Dead),
        _ => None,
    }
}

/// How often the kernel has switched away from thread `tid` of process `pid`.
/// [`crate::schedule::thread_switches`] counts the same for the calling thread. Reads a file of a
/// kilobyte or more. Allocates.
///
/// # Errors
/// `ENOENT` or `ESRCH` if there is no such thread (or `/proc` hides it). `EMFILE`. `EINVAL` if the
/// kernel does not count switches.
pub fn switches_of(pid: u32, tid: u32) -> Result<ThreadSwitches, OsError> {
    const OPERATION: &str = "read(/proc/pid/task/tid/status)";
    let status = std::fs::read(format!("/proc/{pid}/task/{tid}/status"))
        .map_err(OsError::of_io(OPERATION))?;
    parse_switches(&status).ok_or(OsError::new(OPERATION, libc::EINVAL))
}

/// The two counters of a `status` file. The kernel escapes line feeds in a name, so no line of the
/// name can look like a counter.
fn parse_switches(status: &[u8]) -> Option<ThreadSwitches> {
    let counter = |key: &[u8]| {
        let value = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
        core::str::from_utf8(value).ok()?.trim().parse().ok()
    };
    Some(ThreadSwitches {
        voluntary: counter(b"voluntary_ctxt_switches:")?,
        involuntary: counter(b"nonvoluntary_ctxt_switches:")?,
    })
}

/// Number of the calling thread, by which other threads refer to it (gettid(2)). One system call.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// Names the calling thread, for `ps` and debuggers. The kernel keeps the first 15 bytes
/// (PR_SET_NAME(2const)). Allocates.
///
/// # Errors
/// `EINVAL` if the name contains a zero byte.
pub fn set_thread_name(name: &str) -> Result<(), OsError> {
    const OPERATION: &str = "prctl(PR_SET_NAME)";
    let name = CString::new(name).map_err(|_| OsError::new(OPERATION, libc::EINVAL))?;
    rustix::thread::set_name(&name).map_err(OsError::of(OPERATION))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::thread_switches;
    use std::io::Read;
    use std::sync::mpsc::channel;

    #[test]
    fn cpu_time_is_counted_and_grows() {
        let me = (std::process::id(), thread_id());
        let before = cpu_time_of(me.0, me.1).unwrap();
        while cpu_time_of(me.0, me.1).unwrap() == before {
            core::hint::spin_loop();
        }
        let gone = std::thread::spawn(thread_id).join().unwrap();
        while let Ok(ThreadState::Running | ThreadState::Sleeping) = thread_state(me.0, gone) {
            std::thread::yield_now();
        }
        assert!(cpu_time_of(me.0, gone).is_err());
        assert!(wait_time_of(me.0, gone).is_err());
    }

    #[test]
    fn the_times_of_a_thread_are_its_three_counts() {
        let expected = ThreadTimes { run_ns: 12, wait_ns: 3, slices: 4 };
        assert_eq!(times_in(b"12 3 4\n"), Some(expected));
        assert_eq!(times_in(b"12 3\n"), None);
        let me = (std::process::id(), thread_id());
        let before = times_of(me.0, me.1).unwrap();
        while times_of(me.0, me.1).unwrap().run_ns == before.run_ns {
            core::hint::spin_loop();
        }
        assert!(before.slices > 0);
        assert!(times_of(me.0, 5_000_000).unwrap_err().is_not_found());
    }

    #[test]
    fn a_thread_that_shares_a_cpu_has_wait_time() {
        let cpu = crate::schedule::allowed_cpus().unwrap()[0];
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::schedule::pin_thread(&[cpu]).unwrap();
                // Relaxed: the flag guards no other data.
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    core::hint::spin_loop();
                }
            });
            scope.spawn(|| {
                crate::schedule::pin_thread(&[cpu]).unwrap();
                let me = (std::process::id(), thread_id());
                let before = wait_time_of(me.0, me.1).unwrap();
                while wait_time_of(me.0, me.1).unwrap() < before + 1_000_000 {}
                over.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        });
    }

    #[test]
    fn the_state_is_found_for_any_thread_name() {
        for (stat, expected) in [
            (&b"12 (sh) R 1 2"[..], Some(ThreadState::Running)),
            (b"12 (a b) S 1 2", Some(ThreadState::Sleeping)),
            (b"12 (x) R () D 1 2", Some(ThreadState::DiskSleep)),
            (b"12 () Z 1 2 (\xff) T 1 2", Some(ThreadState::Stopped)),
            (b"12 (()) t 1 2", Some(ThreadState::Traced)),
            (b"12 (kworker/u4:1-ev) I 2 0", Some(ThreadState::Sleeping)),
            (b"12 (cpuhp/0) P 2 0", Some(ThreadState::Sleeping)),
            (b"12 (sh) Z 1 2", Some(ThreadState::Dead)),
            (b"12 (sh) X 1 2", Some(ThreadState::Dead)),
            (b"12 (sh) ? 1 2", None),
            (b"12 (sh) RR 1 2", None),
            (b"12 (sh)", None),
            (b"12 (sh) R", None),
            (b"12 sh R 1", None),
            (b"", None),
        ] {
            assert_eq!(state_of(stat), expected, "{}", stat.escape_ascii());
        }
    }

    #[test]
    fn only_waits_for_locks_with_priority_inheritance_are_found() {
        let futex = libc::SYS_futex;
        let line = |number: i64, operation: u64| {
            waits_for_lock(
                format!("{number} 0x7f0 {operation:#x} 0x0 0x0 0x0 0x0 0x1 0x2\n").as_bytes(),
            )
        };
        for operation in [6, 6 | 128, 11 | 128 | 256, 13, 1 << 32 | 6] {
            assert!(line(futex, operation) && line(240, operation) && line(422, operation));
            assert!(!line(0, operation) && !line(-1, operation));
        }
        for operation in [0, 128, 1, 7, 8, 9 | 128 | 256, 12] {
            assert!(!line(futex, operation), "{operation}");
        }
        for other in ["", "running\n", "-1 0x7f0 0x0\n", &format!("{futex} 0x7f0"), "\u{fffd}"] {
            assert!(!waits_for_lock(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_misleading_name_does_not_change_the_reported_state() {
        let (mut gate, opener) = std::io::pipe().unwrap();
        let (tell, tid) = channel();
        let pid = std::process::id();
        let thread = std::thread::spawn(move || {
            set_thread_name("x) R (y) Z ").unwrap();
            let own = thread_id();
            tell.send((own, thread_state(pid, own))).unwrap();
            gate.read_to_end(&mut Vec::new()).unwrap();
        });
        let (tid, own) = tid.recv().unwrap();
        assert_eq!(own, Ok(ThreadState::Running));
        let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap();
        assert_eq!(name, "x) R (y) Z \n");
        while thread_state(pid, tid).unwrap() != ThreadState::Sleeping {
            std::thread::yield_now();
        }
        drop(opener);
        thread.join().unwrap();
        while thread_state(pid, tid).unwrap() != ThreadState::Dead {
            std::thread::yield_now(); // the thread is joined a moment before it is gone
        }
    }

    #[test]
    fn a_missing_thread_is_dead_and_has_no_switches() {
        // Beyond pid_max (4194304 on 64 bits), so it cannot exist.
        assert_eq!(thread_state(u32::MAX, u32::MAX), Ok(ThreadState::Dead));
        let error = switches_of(5_000_000, 5_000_000).unwrap_err();
        assert_eq!(error.raw_os_error(), libc::ENOENT);
        // Thread 1 belongs to another process.
        assert_eq!(thread_state(std::process::id(), 1), Ok(ThreadState::Dead));
    }

    #[test]
    fn a_long_name_is_truncated_and_a_zero_byte_refused() {
        std::thread::spawn(|| {
            set_thread_name("0123456789abcdefgh").unwrap();
            let path = format!("/proc/self/task/{}/comm", thread_id());
            assert_eq!(std::fs::read_to_string(path).unwrap(), "0123456789abcde\n");
            assert_eq!(set_thread_name("a\0b").unwrap_err().raw_os_error(), libc::EINVAL);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn switches_match_the_count_of_the_thread_itself() {
        let (pid, tid) = (std::process::id(), thread_id());
        // If a sleep is over before the thread has left the CPU, there is no switch.
        let enough = thread_switches() + 20;
        while thread_switches() < enough {
            std::thread::sleep(core::time::Duration::from_micros(100));
        }
        let before = thread_switches();
        let found = switches_of(pid, tid).unwrap();
        assert!((before..=thread_switches()).contains(&found.total()));
        assert!(found.voluntary > 0);
    }

    #[test]
    fn the_two_switch_counters_are_distinguished() {
        let status = b"Name:\tx\\nvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t3\n\
                       nonvoluntary_ctxt_switches:\t4\n";
        let expected = ThreadSwitches { voluntary: 3, involuntary: 4 };
        assert_eq!(parse_switches(status), Some(expected));
        assert_eq!(parse_switches(b"Name:\tx\n"), None);
        assert_eq!(parse_switches(b"voluntary_ctxt_switches:\t\n"), None);
    }
}
