//! A mapping that this process reads and writes.

use super::error::MapError;
use super::pages::Pages;
use super::seals::{SEALS_FUTURE_WRITE, SEALS_NEEDED, check_file, check_length, memfd, seals};
use crate::OsError;
use core::sync::atomic::AtomicU64;
use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Pages shared with other processes, readable and writable, until dropped.
#[derive(Debug)]
pub struct SharedMapping {
    pub(super) pages: Pages,
    pub(super) fd: OwnedFd,
}

impl SharedMapping {
    /// New zeroed memory of `bytes`, a multiple of 8. The first 8 KiB are faulted in. The rest
    /// takes memory when it is first touched. `name` appears in `/proc/<pid>/maps` and need not be
    /// unique. Every holder of the descriptor may write, and no later call can change that.
    ///
    /// # Errors
    /// [`MapError::Length`], or the kernel's error (`ENOMEM`, `EMFILE`).
    pub fn create(name: &str, bytes: usize) -> Result<SharedMapping, MapError> {
        SharedMapping::create_sealed(name, bytes, SEALS_NEEDED | SealFlags::SEAL)
    }

    /// As [`SharedMapping::create`], for memory on which [`SharedMapping::seal_future_writes`] will
    /// be called.
    ///
    /// # Errors
    /// As [`SharedMapping::create`].
    pub fn create_to_seal(name: &str, bytes: usize) -> Result<SharedMapping, MapError> {
        SharedMapping::create_sealed(name, bytes, SEALS_NEEDED)
    }

    fn create_sealed(name: &str, bytes: usize, seals: SealFlags) -> Result<Self, MapError> {
        check_length(bytes)?;
        let fd = memfd(name).map_err(OsError::of("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(OsError::of("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(OsError::of("fcntl(F_ADD_SEALS)"))?;
        SharedMapping::map(fd, bytes)
    }

    /// Maps the memory of `fd`, which another process created.
    ///
    /// # Errors
    /// [`MapError::Unsealed`] or [`MapError::Size`] unless `fd` is a memfd sealed against shrinking
    /// and growing, exactly `bytes` long. `EACCES` if `fd` is read-only. `EPERM` if the file is
    /// sealed against writers.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<SharedMapping, MapError> {
        check_length(bytes)?;
        check_file(fd.as_fd(), bytes)?;
        SharedMapping::map(fd, bytes)
    }

    /// The descriptor, to pass to another process, which may then write. Closed on exec unless
    /// [`crate::process::SpawnOptions::inherit`] passes it on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Another descriptor of the same memory, for reading. It cannot map a page writable, make one
    /// writable, or add a seal. Closed on exec.
    ///
    /// Its holder could still open the file again for writing (see the module). So call
    /// [`SharedMapping::seal_future_writes`] before you pass it on. Opens `/proc/self/fd/N`.
    /// Allocates.
    ///
    /// # Errors
    /// `ENOENT` where `/proc` is not mounted, `EMFILE`.
    pub fn read_only_fd(&self) -> Result<OwnedFd, OsError> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(OsError::of("open(/proc/self/fd)"))
    }

    /// From now on no process gets new write access to the memory: not by mmap(2), mprotect(2) or
    /// write(2), with any descriptor. Existing mappings, including this one, stay as they are.
    /// `F_SEAL_FUTURE_WRITE`, Linux 5.1. Further calls have no effect.
    ///
    /// # Errors
    /// `EPERM` if the memory comes from [`SharedMapping::create`], or if another holder of the
    /// descriptor has forbidden further seals. Do not rely on such memory. `EINVAL` before Linux
    /// 5.1.
    pub fn seal_future_writes(&self) -> Result<(), OsError> {
        match rustix::fs::fcntl_add_seals(&self.fd, SEALS_FUTURE_WRITE) {
            Ok(()) => Ok(()),
            Err(Errno::PERM) if seals(self.fd())?.contains(SEALS_FUTURE_WRITE) => Ok(()),
            Err(errno) => Err(OsError::of("fcntl(F_SEAL_FUTURE_WRITE)")(errno)),
        }
    }

    /// Keeps the pages in memory until they are unmapped (mlock2(2)). Pages that are faulted in
    /// stay from now on. Each other page stays from its first use.
    ///
    /// # Errors
    /// `EPERM` or `ENOMEM` if `RLIMIT_MEMLOCK` is 0 or too small, without `CAP_IPC_LOCK`. The
    /// mapping stays usable, but an access may be slow.
    pub fn lock(&self) -> Result<(), OsError> {
        self.pages.lock()
    }

    /// Excludes the pages from children that fork(2) makes from now on (`MADV_DONTFORK`,
    /// madvise(2)). A child that touches them gets SIGSEGV.
    ///
    /// The code that calls fork, which is unsafe, must make sure that the child neither uses nor
    /// drops this value. The child may have other memory at that address. Children that go on to
    /// exec do neither.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn dont_fork(&self) -> Result<(), OsError> {
        self.pages.dont_fork()
    }

    /// Makes all pages that no process has made yet, and faults all of them in. Their memory is
    /// charged to this process. O(pages).
    ///
    /// # Errors
    /// `ENOMEM`. `EINVAL` before Linux 5.14.
    pub fn populate(&self) -> Result<(), OsError> {
        self.pages.populate()
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

    /// The memory as words. Other processes may change them at any time, so copy a value once, then
    /// check it.
    pub fn words(&self) -> &[AtomicU64] {
        self.pages.words()
    }

    /// Maps `fd`, which the caller has checked to be at least `bytes` long for ever.
    fn map(fd: OwnedFd, bytes: usize) -> Result<SharedMapping, MapError> {
        let pages = Pages::map(fd.as_fd(), bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(SharedMapping { pages, fd })
    }
}

impl AsRef<[AtomicU64]> for SharedMapping {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}
