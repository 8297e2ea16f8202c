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
    pages: Pages,
    fd: OwnedFd,
}

impl SharedMapping {
    /// New zeroed memory of `bytes`, a multiple of 8: the first 8 KiB are faulted in, what
    /// is beyond takes memory when it is touched first. `name` is
    /// for `/proc/<pid>/maps` and need not be unique. Whoever gets the descriptor
    /// may write; that cannot be changed later.
    ///
    /// # Errors
    /// [`MapError::Length`], or what the kernel said (`ENOMEM`, `EMFILE`).
    pub fn create(name: &str, bytes: usize) -> Result<SharedMapping, MapError> {
        SharedMapping::create_sealed(name, bytes, SEALS_NEEDED | SealFlags::SEAL)
    }

    /// As [`SharedMapping::create`], for memory that is to have
    /// [`SharedMapping::seal_future_writes`] called on it.
    ///
    /// # Errors
    /// As there.
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

    /// Maps the memory behind `fd`, which another process created.
    ///
    /// # Errors
    /// Refused unless it is a memfd sealed against shrinking and growing, and
    /// exactly `bytes` long. `EACCES` if `fd` is for reading only, `EPERM` if the
    /// file is sealed against writers.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<SharedMapping, MapError> {
        check_length(bytes)?;
        check_file(fd.as_fd(), bytes)?;
        SharedMapping::map(fd, bytes)
    }

    /// The descriptor, to hand to another process, which may write. Closed on exec
    /// unless passed on explicitly ([`crate::process::SpawnOptions::inherit`]).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Another descriptor of the same memory, for reading: with it no page can be
    /// mapped or made writable and no seal added. Closed on exec.
    ///
    /// It does not keep its holder from opening the file again (see the module):
    /// call [`SharedMapping::seal_future_writes`] before it is handed over. Opens
    /// `/proc/self/fd/N`; allocates.
    ///
    /// # Errors
    /// `ENOENT` where `/proc` is not mounted, `EMFILE`.
    pub fn read_only_fd(&self) -> Result<OwnedFd, OsError> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(OsError::of("open(/proc/self/fd)"))
    }

    /// From here on nobody gets write access to the memory who does not have it
    /// mapped already: neither by mmap(2) and mprotect(2) nor by write(2), with
    /// whichever descriptor. Mappings that exist, this one among them, stay as
    /// they are. `F_SEAL_FUTURE_WRITE`, Linux 5.1. Done once or often, it is the same.
    ///
    /// # Errors
    /// `EPERM` if the memory comes from [`SharedMapping::create`], or if someone who
    /// was handed its descriptor has forbidden further seals: then it is not to be
    /// relied on. `EINVAL` before Linux 5.1.
    pub fn seal_future_writes(&self) -> Result<(), OsError> {
        match rustix::fs::fcntl_add_seals(&self.fd, SEALS_FUTURE_WRITE) {
            Ok(()) => Ok(()),
            Err(Errno::PERM) if seals(self.fd())?.contains(SEALS_FUTURE_WRITE) => Ok(()),
            Err(errno) => Err(OsError::of("fcntl(F_SEAL_FUTURE_WRITE)")(errno)),
        }
    }

    /// Keeps the pages in memory until they are unmapped (mlock2(2)): those that were
    /// faulted in when mapped from now on, each other from when it is touched.
    ///
    /// # Errors
    /// `EPERM` or `ENOMEM` if `RLIMIT_MEMLOCK` is 0 or too little, without
    /// `CAP_IPC_LOCK`. The mapping is as good as before: it may be slow.
    pub fn lock(&self) -> Result<(), OsError> {
        self.pages.lock()
    }

    /// Leaves the pages out of children that fork(2) makes from now on: they can
    /// neither read nor write them (`MADV_DONTFORK`, madvise(2)); a touch is SIGSEGV.
    ///
    /// Whoever calls fork, which is unsafe, must see to it that the child neither
    /// uses nor drops this value: something else may lie there by then. Children
    /// that go on to exec do neither.
    ///
    /// # Errors
    /// None that stock Linux is known to return.
    pub fn dont_fork(&self) -> Result<(), OsError> {
        self.pages.dont_fork()
    }

    /// Start of the memory, page aligned, valid as long as `self`.
    pub fn as_ptr(&self) -> *const AtomicU64 {
        self.pages.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// The memory as words. Other processes may change them at any time: copy
    /// a value once, then check it.
    pub fn words(&self) -> &[AtomicU64] {
        self.pages.words()
    }

    /// Maps `fd`, known to be at least `bytes` long for ever.
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
