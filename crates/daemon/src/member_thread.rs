//! The thread of a member: how the daemon's threads read its state and change its class.
//!
//! The server opens it when the domain's thread is attached. The server, the group's
//! [`crate::kls`] thread and the [`crate::watchdog`] use it. Nothing here refers to the thread by
//! its number alone: another process may get the number after the thread has ended
//! ([`ThreadHandle`]). A process that executes another program loses its threads. Its first thread
//! then continues as the former thread of the domain, with its class.
//!
//! The KLS thread and the watchdog have a handle each, because the second reader of one handle
//! would wait for the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use upcall_sys::OsError;
use upcall_sys::process::{PidFd, ThreadHandle};
use upcall_sys::schedule::{self, Band};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct MemberThread {
    pid: u32,
    process: Arc<PidFd>,
    by_kls: ThreadHandle,
    by_watchdog: ThreadHandle,
    has_ended: AtomicBool,
    /// Whether the server has been told that the thread has ended.
    is_reported: AtomicBool,
}

impl MemberThread {
    /// Opens thread `tid` of `process`, whose number is `pid`. `None` if the process has ended or
    /// has no such thread.
    ///
    /// # Errors
    /// There are no descriptors, or `/proc` hides the thread.
    pub(crate) fn open(
        process: Arc<PidFd>,
        (pid, tid): (u32, u32),
    ) -> Result<Option<Self>, OsError> {
        let open = || {
            ThreadHandle::open(pid, tid).and_then(|one| Ok((one, ThreadHandle::open(pid, tid)?)))
        };
        let (by_kls, by_watchdog) = match open() {
            Err(error) if error.is_not_found() => return Ok(None),
            handles => handles?,
        };
        if process.has_exited()? {
            // The number may have belonged to another process.
            return Ok(None);
        }
        let (has_ended, is_reported) = Default::default();
        Ok(Some(MemberThread { pid, process, by_kls, by_watchdog, has_ended, is_reported }))
    }

    /// Its number, for people. Another thread may have it after the end of this one.
    pub(crate) fn tid(&self) -> u32 {
        self.by_watchdog.tid()
    }

    /// For the group's KLS thread alone, and before that thread knows the member for the server.
    pub(crate) fn by_kls(&self) -> &ThreadHandle {
        &self.by_kls
    }

    /// For the watchdog alone.
    pub(crate) fn by_watchdog(&self) -> &ThreadHandle {
        &self.by_watchdog
    }

    /// A new handle, for the server. `None` if the process has no such thread.
    pub(crate) fn by_server(&self) -> Option<ThreadHandle> {
        let handle = ThreadHandle::open(self.pid, self.tid()).ok()?;
        (self.process.has_exited() == Ok(false)).then_some(handle)
    }

    /// Records that the thread has ended, or that its process has executed another program. From
    /// now on nothing changes its class.
    pub(crate) fn set_ended(&self, band: Option<Band>) {
        self.lower_leader(band);
        // Relaxed: the flag publishes no other data.
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Whether the thread has ended and the server does not know it yet. Returns `true` once.
    pub(crate) fn is_news(&self) -> bool {
        self.has_ended() && !self.is_reported.swap(true, Ordering::Relaxed)
    }

    /// Whether the thread is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Puts the first thread of the process into the ordinary class if it has a class that the
    /// daemon gives. It has after the process executed another program.
    ///
    /// The first thread keeps its number until the process has been waited for. What the head of
    /// [`ThreadHandle`]'s module says of changes holds here too.
    pub(crate) fn lower_leader(&self, band: Option<Band>) {
        let Some(band) = band else { return };
        let ours = [band.handlers(), band.returner(), band.offender()];
        let Ok(schedule::Class::Fifo { priority }) = schedule::class_of(self.pid) else { return };
        if ours.contains(&priority) && self.process.has_exited() == Ok(false) {
            // Fails only if the thread has ended.
            let _ = schedule::set_ordinary_of(self.pid);
        }
    }
}
