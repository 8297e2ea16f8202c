//! Memory that another process makes, and that this process uses once that one has sealed it.

use super::error::MapError;
use super::pages::Pages;
use super::seals::{SEALS_FUTURE_WRITE, SEALS_NEEDED, check_length, memfd, seals};
use super::shared::SharedMapping;
use crate::OsError;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file without pages, mapped without access. See the module's head.
#[derive(Debug)]
pub struct OfferedMapping {
    pages: Pages,
    fd: OwnedFd,
}

impl OfferedMapping {
    /// A new file of `bytes`, a multiple of 8. Takes no memory for pages. `name` as in
    /// [`SharedMapping::create`].
    ///
    /// # Errors
    /// As [`SharedMapping::create`].
    pub fn create(name: &str, bytes: usize) -> Result<OfferedMapping, MapError> {
        check_length(bytes)?;
        let fd = memfd(name).map_err(OsError::of("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(OsError::of("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS_NEEDED)
            .map_err(OsError::of("fcntl(F_ADD_SEALS)"))?;
        let pages = Pages::map_closed(fd.as_fd(), bytes)?;
        Ok(OfferedMapping { pages, fd })
    }

    /// The descriptor, to pass to the process that takes the memory. Closed on exec.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The memory, once the other process has taken it: mapped, faulted in, and kept in memory if
    /// the limits allow it. Waits for no other process. O(pages). Allocates.
    ///
    /// # Errors
    /// [`MapError::Untaken`] unless the other process has called
    /// [`SharedMapping::seal_future_writes`], and [`MapError::PagesMissing`] unless it made all
    /// pages before ([`SharedMapping::populate`]). Pages that were swapped out count as missing.
    /// Else the kernel's error (`ENOMEM`; `EINVAL` before Linux 5.14).
    pub fn accept(self) -> Result<SharedMapping, MapError> {
        // Seals first: afterwards no page goes away by a hole.
        if !seals(self.fd())?.contains(SEALS_FUTURE_WRITE) {
            return Err(MapError::Untaken);
        }
        if !self.pages.are_all_made()? {
            return Err(MapError::PagesMissing);
        }
        // Locked first, so that a page that was faulted in stays. A refused lock is ignored: the
        // other process may then get its pages swapped out.
        let _ = self.pages.lock();
        self.pages.allow_all(ProtFlags::READ | ProtFlags::WRITE)?;
        self.pages.populate()?;
        let OfferedMapping { pages, fd } = self;
        Ok(SharedMapping { pages, fd })
    }
}
