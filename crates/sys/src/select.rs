//! Watches descriptors with select(2), whatever the size of their numbers.
//!
//! The benches compare other mechanisms with it. The kernel takes sets of any length. Only the C
//! library's `fd_set` ends at 1023.

use crate::OsError;
use rustix::event::{FdSetElement, FdSetIter, fd_set_insert, fd_set_num_elements, select};
use rustix::io::Errno;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Descriptors that are watched for input.
#[expect(missing_debug_implementations, reason = "two sets of bits that have none")]
pub struct SelectSet<'fd> {
    /// The descriptors stay open while the set exists.
    fds: PhantomData<&'fd [OwnedFd]>,
    end: RawFd,
    asked: Vec<FdSetElement>,
    found: Vec<FdSetElement>,
}

impl<'fd> SelectSet<'fd> {
    /// A set of these descriptors. Allocates.
    pub fn new(fds: &'fd [OwnedFd]) -> Self {
        let end = fds.iter().map(|fd| fd.as_raw_fd() + 1).max().unwrap_or(0);
        let elements = fd_set_num_elements(fds.len(), end);
        let mut asked = vec![FdSetElement::default(); elements];
        fds.iter().for_each(|fd| fd_set_insert(&mut asked, fd.as_raw_fd()));
        let found = asked.clone();
        SelectSet { fds: PhantomData, end, asked, found }
    }

    /// Blocks until some are readable, and passes each to `ready`. One system call; O(largest
    /// number).
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`).
    pub fn wait(&mut self, ready: impl FnMut(RawFd)) -> Result<(), OsError> {
        loop {
            self.found.copy_from_slice(&self.asked);
            // SAFETY: the sets contain only numbers of `fds`, which are borrowed and thus open.
            // `new` made them long enough for `end`.
            match unsafe { select(self.end, Some(&mut self.found), None, None, None) } {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("select")(errno)),
            }
        }
        FdSetIter::new(&self.found).for_each(ready);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn readable_descriptors_are_found() {
        let fds: Vec<_> = (0..3).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        let mut set = SelectSet::new(&fds);
        rustix::io::write(&fds[1], &1u64.to_ne_bytes()).unwrap();
        let mut found = Vec::new();
        set.wait(|fd| found.push(fd)).unwrap();
        assert_eq!(found, [fds[1].as_raw_fd()]);
    }
}
