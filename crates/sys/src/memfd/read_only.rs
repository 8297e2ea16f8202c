//! A mapping that cannot be written.

use super::error::MapError;
use super::pages::Pages;
use super::seals::{check_file, check_length};
use crate::OsError;
use core::sync::atomic::AtomicU64;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Pages that another process writes and this process only reads, until dropped.
#[derive(Debug)]
pub struct ReadOnlyMapping {
    pages: Pages,
    fd: OwnedFd,
}

impl ReadOnlyMapping {
    /// Maps the memory of `fd` for reading. Takes a descriptor from
    /// [`super::SharedMapping::read_only_fd`] or a writable one.
    ///
    /// # Errors
    /// As [`super::SharedMapping::from_fd`].
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<ReadOnlyMapping, MapError> {
        check_length(bytes)?;
        check_file(fd.as_fd(), bytes)?;
        let pages = Pages::map(fd.as_fd(), bytes, ProtFlags::READ)?;
        Ok(ReadOnlyMapping { pages, fd })
    }

    /// The descriptor, to pass on. Closed on exec.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Start of the memory, page aligned, valid while `self` lives.
    pub fn as_ptr(&self) -> *const AtomicU64 {
        self.pages.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// The memory as words, *for loads only*. Other processes may change them at any time, so copy
    /// a value once, then check it.
    ///
    /// A store, an exchange or any other change kills the process with SIGSEGV. Loads do not write:
    /// [`core::sync::atomic`], "Atomic accesses to read-only memory", guarantees it for `Relaxed`
    /// loads of 8 bytes on every 64-bit target of Linux. On x86-64 and aarch64 an `Acquire` load of
    /// 8 bytes is one load instruction too (`mov`, `ldar` or `ldapr`). On other targets, load
    /// `Relaxed` and put an `Acquire` fence after the load.
    pub fn words(&self) -> &[AtomicU64] {
        self.pages.words()
    }

    /// Keeps the pages in memory, as [`super::SharedMapping::lock`].
    ///
    /// # Errors
    /// As [`super::SharedMapping::lock`].
    pub fn lock(&self) -> Result<(), OsError> {
        self.pages.lock()
    }

    /// Excludes the pages from children, as [`super::SharedMapping::dont_fork`].
    ///
    /// # Errors
    /// As [`super::SharedMapping::dont_fork`].
    pub fn dont_fork(&self) -> Result<(), OsError> {
        self.pages.dont_fork()
    }
}

impl AsRef<[AtomicU64]> for ReadOnlyMapping {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}
