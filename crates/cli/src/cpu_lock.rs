//! A lock for each CPU on which a process of this user schedules real-time work.
//!
//! A daemon and a run without a daemon each keep an account of the CPUs that they use. Two accounts
//! of one CPU would promise its time twice. So each locks a file for the CPU, and the second is
//! refused. A soft run promises nothing, but its work would delay that of another account, so it
//! takes the lock too. The kernel frees the lock when its process ends, however it ends.
//!
//! The files are in the folder of the user's daemon socket, which no other user may write to. So no
//! other user can take the lock. It follows that the locks of two users do not exclude each other:
//! for several users there is `upcalld --access everyone`.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The locks of some CPUs. Dropping them frees the CPUs.
#[derive(Debug)]
pub struct CpuLocks {
    _files: Vec<File>,
}

/// Why a CPU cannot be locked.
#[derive(Debug)]
pub enum CpuLockError {
    /// Another process schedules real-time work on this CPU.
    Held {
        /// The CPU.
        cpu: u32,
        /// That process: its number and command; empty if it has not written them yet.
        holder: String,
    },
    /// The folder for the files cannot be trusted or made.
    Folder(upcall::FolderError),
    /// A file cannot be opened or locked.
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

impl fmt::Display for CpuLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuLockError::Held { cpu, holder } => {
                let holder = if holder.is_empty() { "another process" } else { holder };
                write!(f, "CPU {cpu} is taken by {holder}")
            }
            CpuLockError::Folder(error) => error.fmt(f),
            CpuLockError::File { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CpuLockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CpuLockError::Held { .. } => None,
            CpuLockError::Folder(error) => Some(error),
            CpuLockError::File { error, .. } => Some(error),
        }
    }
}

impl CpuLockError {
    /// What the user of a spec can do, if a process holds the CPU.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            CpuLockError::Held { holder, .. } if holder.ends_with("(upcalld)") => {
                Some("name other `cpus`, or end that daemon")
            }
            CpuLockError::Held { .. } => Some(
                "wait for its end, name other `cpus`, or start `upcalld` first and run both \
                 under it",
            ),
            CpuLockError::Folder(_) | CpuLockError::File { .. } => None,
        }
    }
}

impl CpuLocks {
    /// Locks all of `cpus` or none, as `command`. Does not wait.
    ///
    /// # Errors
    /// A process holds one of the CPUs, or its file cannot be used.
    pub fn take(cpus: &[u32], command: &str) -> Result<Self, CpuLockError> {
        let folder = upcall::private_folder().map_err(CpuLockError::Folder)?;
        let files = cpus.iter().map(|&cpu| lock(&folder, cpu, command));
        Ok(CpuLocks { _files: files.collect::<Result<_, _>>()? })
    }
}

fn lock(folder: &Path, cpu: u32, command: &str) -> Result<File, CpuLockError> {
    let path = folder.join(format!("upcall-cpu{cpu}.lock"));
    let failed = |error| CpuLockError::File { path: path.clone(), error };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).map_err(failed)?;
            write!(file, "process {} ({command})", std::process::id()).map_err(failed)?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The text is a help for people; the lock itself does not depend on it.
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut holder));
            Err(CpuLockError::Held { cpu, holder })
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cpu_is_locked_once_until_its_lock_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let lock = |cpu| super::lock(folder.path(), cpu, "upcall run a.toml");
        let first = lock(3).unwrap();
        let _other = lock(4).unwrap();
        let refused = lock(3).unwrap_err().to_string();
        let holder = format!("process {} (upcall run a.toml)", std::process::id());
        assert_eq!(refused, format!("CPU 3 is taken by {holder}"));
        drop(first);
        drop(lock(3).unwrap());
    }
}
