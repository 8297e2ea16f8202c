//! The users of a thread of any process.
//!
//! The daemon reads them before and after it changes the class of a thread: a set-uid program has
//! other users than the process that executed it.

use crate::OsError;
use crate::process::thread::first_line;
use core::fmt;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;

const OPERATION: &str = "read(/proc/pid/task/tid/status)";

/// The user ids of a thread (credentials(7)), as the reading process sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserIds {
    /// The user that started the program.
    pub real: u32,
    /// The user whose rights the thread has.
    pub effective: u32,
    /// The user whose rights the thread may take again.
    pub saved: u32,
}

impl UserIds {
    /// Whether all are `uid`.
    pub fn are_all(self, uid: u32) -> bool {
        [self.real, self.effective, self.saved] == [uid; 3]
    }
}

impl fmt::Display for UserIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UserIds { real, effective, saved } = self;
        write!(f, "real {real}, effective {effective}, saved {saved}")
    }
}

/// The open file of `/proc` that holds the user ids of a thread. It belongs to the thread itself,
/// as the files of [`super::ThreadHandle`]. One descriptor.
///
/// The kernel locks the file during a read, some microseconds: a second reader waits for the first.
#[derive(Debug)]
pub struct UserIdFile {
    status: OwnedFd,
}

impl UserIdFile {
    /// Opens the file of thread `tid` of process `pid`, as [`super::ThreadHandle::open`]. One
    /// system call.
    ///
    /// # Errors
    /// As [`super::ThreadHandle::open`].
    pub fn open(pid: u32, tid: u32) -> Result<UserIdFile, OsError> {
        let path = format!("/proc/{pid}/task/{tid}/status");
        let status = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let status = status.map_err(OsError::of("open(/proc/pid/task/tid/status)"))?;
        Ok(UserIdFile { status })
    }

    /// The present user ids. One system call, which takes some microseconds. Does not allocate.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended. `ENOMEM`. `EINVAL` if the file has no user ids.
    pub fn read(&self) -> Result<UserIds, OsError> {
        // A name has at most 64 bytes here, and the lines before the user ids some 200.
        let mut text = [0; 1024];
        let length = first_line(&self.status, &mut text).map_err(OsError::of(OPERATION))?;
        parse(&text[..length]).ok_or(OsError::new(OPERATION, libc::EINVAL))
    }
}

/// Finds the line `Uid:` with real, effective, saved and file-system user. No other line begins so:
/// the kernel escapes line ends in the name.
fn parse(status: &[u8]) -> Option<UserIds> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let ids = lines.find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut ids = core::str::from_utf8(ids).ok()?.split_ascii_whitespace();
    let mut next = || ids.next()?.parse().ok();
    Some(UserIds { real: next()?, effective: next()?, saved: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{effective_user, thread_id};

    #[test]
    fn the_users_of_a_thread_are_read_until_it_has_ended() {
        let pid = std::process::id();
        let opened = std::thread::spawn(move || {
            let file = UserIdFile::open(pid, thread_id()).unwrap();
            (file.read().unwrap(), file)
        });
        let (ids, file) = opened.join().unwrap();
        assert!(ids.are_all(effective_user()) && !ids.are_all(effective_user() + 1), "{ids}");
        while file.read().is_ok() {
            std::thread::yield_now(); // the thread is joined a moment before it is gone
        }
        assert_eq!(file.read().unwrap_err().raw_os_error(), libc::ESRCH);
        assert!(UserIdFile::open(pid, 5_000_000).unwrap_err().is_not_found());
    }

    #[test]
    fn each_user_id_is_distinguished() {
        let status = b"Name:\tx\\nUid:\t9 9 9 9\nPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n";
        let ids = parse(status).unwrap();
        assert_eq!(ids, UserIds { real: 1, effective: 2, saved: 3 });
        assert_eq!(ids.to_string(), "real 1, effective 2, saved 3");
        for wrong in [[1, 2, 2], [2, 1, 2], [2, 2, 1]] {
            let [real, effective, saved] = wrong;
            assert!(!UserIds { real, effective, saved }.are_all(2), "{wrong:?}");
        }
        assert_eq!(parse(b"Name:\tx\nUid:\t1\t2\n"), None);
        assert_eq!(parse(b"Name:\tx\n"), None);
    }
}
