//! The open descriptors of this process, and their limit.
//!
//! The daemon calls this, and benches and tests that need thousands of descriptors. See
//! getrlimit(2), `RLIMIT_NOFILE`.

use crate::OsError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit and returns it (`u64::MAX`: no limit). Two system calls.
/// Programs that use the C library's select(2) must not call it: their sets end at 1024.
///
/// # Errors
/// The kernel's error. Stock Linux is not known to return one.
pub fn raise_limit() -> Result<u64, OsError> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(OsError::of("setrlimit(RLIMIT_NOFILE)"))?;
    Ok(maximum.unwrap_or(u64::MAX))
}

/// The number of descriptors that this process has open. One system call from Linux 6.2 on, where
/// the size of the folder in `/proc` is that number (proc_pid_fd(5)). Before, O(descriptors), and
/// the call needs a free descriptor. Allocates.
///
/// # Errors
/// The kernel's error: `/proc` is not mounted, or `EMFILE` before Linux 6.2.
pub fn open_count() -> Result<u64, OsError> {
    const FOLDER: &str = "/proc/self/fd";
    let failed = OsError::of_io("open(/proc/self/fd)");
    match std::fs::metadata(FOLDER).map_err(&failed)?.len() {
        // The reading itself uses one of them.
        0 => Ok((std::fs::read_dir(FOLDER).map_err(failed)?.count() as u64).saturating_sub(1)),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_descriptor_is_counted() {
        // Other tests of this process open and close some meanwhile.
        let pipes: Vec<_> = (0..200).map(|_| std::io::pipe().unwrap()).collect();
        let with = open_count().unwrap();
        drop(pipes);
        let without = open_count().unwrap();
        assert!(with > 400 && without + 200 < with, "{with} {without}");
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let most = raise_limit().unwrap();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((now.current, now.maximum.unwrap_or(u64::MAX)), (now.maximum, most));
    }
}
