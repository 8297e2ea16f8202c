//! Why a control group cannot be used.

use crate::OsError;
use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a control group cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CgroupError {
    /// No control groups with the controller `cpu` are mounted, or the kernel has none.
    NoController,
    /// This process may not write the file or folder.
    NoRight {
        /// The file or folder.
        file: PathBuf,
    },
    /// The group has processes or groups that stand in the way.
    Busy {
        /// The file or folder.
        file: PathBuf,
    },
    /// Any other error of the kernel.
    Os {
        /// The file or folder.
        file: PathBuf,
        /// The error.
        error: OsError,
    },
}

impl CgroupError {
    pub(super) fn of(file: &Path, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        let file = file.to_owned();
        match errno {
            libc::EACCES | libc::EPERM | libc::EROFS => CgroupError::NoRight { file },
            libc::EBUSY | libc::ENOTEMPTY => CgroupError::Busy { file },
            _ => CgroupError::Os { file, error: OsError::new("cgroup", errno) },
        }
    }

    /// Whether the kernel takes no such value, or no such process there (`EINVAL`).
    pub fn is_invalid(&self) -> bool {
        matches!(self, CgroupError::Os { error, .. } if error.raw_os_error() == libc::EINVAL)
    }

    /// Whether the group or the process does not exist, or no longer.
    pub fn is_gone(&self) -> bool {
        match self {
            CgroupError::Os { error, .. } => {
                error.is_not_found() || error.raw_os_error() == libc::ENODEV
            }
            _ => false,
        }
    }
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CgroupError::NoController => f.write_str(
                "no control groups with the controller `cpu`: neither version 2 nor version 1 has \
                 it mounted here",
            ),
            CgroupError::NoRight { file } => write!(
                f,
                "no right to write {}: needs root, or a control group that is delegated to this \
                 user with the controller `cpu` (systemd: Delegate=cpu in the unit, or `systemd-run \
                 --user --scope -p Delegate=cpu COMMAND`)",
                file.display()
            ),
            CgroupError::Busy { file } => {
                write!(f, "{}: processes or groups are in it", file.display())
            }
            CgroupError::Os { file, error } => write!(f, "{}: {error}", file.display()),
        }
    }
}

impl std::error::Error for CgroupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CgroupError::Os { error, .. } => Some(error),
            _ => None,
        }
    }
}
