//! The thread of a member: how the daemon's threads read its state and change its class.
//!
//! The server opens it when the domain's thread is attached. The server, the group's
//! [`crate::kls`] thread and the [`crate::watchdog`] use it. Nothing here refers to the thread by
//! its number alone: another process may get the number after the thread has ended
//! ([`ThreadHandle`]).
//!
//! # How the class is taken back
//!
//! A thread that the daemon has raised is watched, or it is ordinary:
//!
//! - [`MemberThread::raise`] comes last when a thread is attached, and lowers the thread if it
//!   fails. The server holds the result in `RaisedMember`, whose drop lowers the thread.
//! - The KLS thread or the watchdog may raise a thread that the server has just lowered. So each
//!   looks afterwards whether the server did so, and lowers the thread again ([`MemberHandle`]).
//! - What the thread starts is ordinary (`SCHED_RESET_ON_FORK`). Without a right of its own, a
//!   thread cannot undo that property, and cannot take a higher priority. The daemon never undoes
//!   it either: what the thread starts at that moment could have the class.
//! - A thread may execute another program and lower its priority before. A thread that is not the
//!   first of its process gets the number of the first one by that. So the first thread is lowered
//!   too if it has a real-time class with that property, at any priority up to the daemon's. A
//!   class that the process has by a right of its own lacks the property, and stays.
//!
//! # Set-uid programs
//!
//! A process may execute a set-uid program after it connected. Such a program has rights of
//! another user, so it is no domain of the user that connected. The daemon checks the users of the
//! thread before and after each change that raises it, and the watchdog checks them from time to
//! time. Between two checks a set-uid program may have the class, with the watchdog's limits.
//! That is harmless: the class adds no right to its user's, and ends at the next check.
//!
//! The KLS thread and the watchdog have a handle each, because the second reader of one handle
//! would wait for the first.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use upcall_sys::OsError;
use upcall_sys::process::{LockWait, PidFd, ThreadHandle, ThreadState, UserIdFile, UserIds};
use upcall_sys::schedule::{self, Band, Class};

/// The watchdog reads the users of a thread at one of so many readings of its CPU time.
const USERS_EVERY: u32 = 64;

/// The process of a domain, for the threads of all its members.
#[derive(Debug)]
pub(crate) struct MemberProcess {
    pid: u32,
    /// The user that connected.
    uid: u32,
    handle: Arc<PidFd>,
    /// `None`: without the real-time class.
    band: Option<Band>,
    /// Whether the first thread of the process is a member's. Then that member's thread is watched
    /// and lowered for itself. Relaxed everywhere: the flag publishes no other data.
    first_is_member: AtomicBool,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct MemberThread {
    process: Arc<MemberProcess>,
    by_kls: ThreadHandle,
    by_watchdog: ThreadHandle,
    /// Read at the watchdog's priority only, so that readers wait for each other for a moment only.
    users: UserIdFile,
    cpu_time_readings: AtomicU32,
    has_ended: AtomicBool,
    /// Whether the server has been told that the thread has ended.
    is_reported: AtomicBool,
    /// Whether the server has taken the class back for good.
    is_released: AtomicBool,
}

/// Why a thread cannot be raised.
pub(crate) enum RaiseError {
    /// A system call failed.
    Os(OsError),
    /// The kernel refuses the priority.
    Priority { priority: u8, error: OsError },
    /// The thread has rights of another user than `expected`, who connected.
    OtherUser { found: UserIds, expected: u32 },
}

impl MemberProcess {
    /// Process `handle`, whose number is `pid`, of the user that connected.
    pub(crate) fn new((pid, uid): (u32, u32), handle: Arc<PidFd>, band: Option<Band>) -> Self {
        MemberProcess { pid, uid, handle, band, first_is_member: AtomicBool::new(false) }
    }

    /// Puts the first thread of the process into the ordinary class if it has a class that the
    /// daemon gave: see the module's head.
    ///
    /// The first thread keeps its number until the process has been waited for. What the head of
    /// [`ThreadHandle`]'s module says of changes holds here too.
    fn lower_first_thread(&self) {
        let Some(band) = self.band else { return };
        if self.first_is_member.load(Ordering::Relaxed) {
            return;
        }
        let Ok((class, is_reset)) = schedule::class_and_reset_of(self.pid) else { return };
        let (Class::Fifo { priority } | Class::RoundRobin { priority }) = class else { return };
        if is_reset && priority <= band.watchdog() && self.handle.has_exited() == Ok(false) {
            // Fails only if the thread has ended.
            let _ = schedule::set_ordinary_not_inherited_of(self.pid);
        }
    }
}

impl MemberThread {
    /// Opens thread `tid` of a process. `None` if the process has ended or has no such thread.
    ///
    /// # Errors
    /// There are no descriptors, or `/proc` hides the thread.
    pub(crate) fn open(process: Arc<MemberProcess>, tid: u32) -> Result<Option<Self>, OsError> {
        let pid = process.pid;
        let open = || {
            let (one, other) = (ThreadHandle::open(pid, tid)?, ThreadHandle::open(pid, tid)?);
            Ok((one, other, UserIdFile::open(pid, tid)?))
        };
        let (by_kls, by_watchdog, users) = match open() {
            Err(error) if OsError::is_not_found(&error) => return Ok(None),
            files => files?,
        };
        if process.handle.has_exited()? {
            // The number may have belonged to another process.
            return Ok(None);
        }
        if tid == pid {
            process.first_is_member.store(true, Ordering::Relaxed);
        }
        Ok(Some(MemberThread {
            process,
            by_kls,
            by_watchdog,
            users,
            cpu_time_readings: AtomicU32::new(0),
            has_ended: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
        }))
    }

    /// Its number, for people. Another thread may have it after the end of this one.
    pub(crate) fn tid(&self) -> u32 {
        self.by_watchdog.tid()
    }

    /// Whether it is the living thread `tid` of process `pid`. For the server.
    pub(crate) fn is_thread(&self, (pid, tid): (u32, u32)) -> bool {
        (self.process.pid, self.tid()) == (pid, tid) && !self.by_kls.has_ended()
    }

    /// For the group's KLS thread alone.
    pub(crate) fn by_kls(&self) -> MemberHandle<'_> {
        MemberHandle { thread: self, handle: &self.by_kls }
    }

    /// For the watchdog alone.
    pub(crate) fn by_watchdog(&self) -> MemberHandle<'_> {
        MemberHandle { thread: self, handle: &self.by_watchdog }
    }

    /// A new handle, for the server. `None` if the process has no such thread.
    pub(crate) fn by_server(&self) -> Option<ThreadHandle> {
        let handle = ThreadHandle::open(self.process.pid, self.tid()).ok()?;
        (self.process.handle.has_exited() == Ok(false)).then_some(handle)
    }

    /// Pins the thread to its CPU, and gives it the real-time class. Returns `false` if it has
    /// ended. Nothing of a lower priority than the watchdog's delays the calling thread meanwhile.
    /// Only the server's `RaisedMember` calls it.
    ///
    /// # Errors
    /// See [`RaiseError`]. The thread is lowered if it was raised.
    pub(crate) fn raise(&self, cpu: u32) -> Result<bool, RaiseError> {
        let handle = &self.by_kls;
        let Some(band) = self.process.band else {
            let is_running = self.is_running()?;
            if is_running {
                handle.pin(&[cpu])?;
            }
            return Ok(is_running);
        };
        schedule::at_priority(band.watchdog(), || {
            if !self.is_running()? {
                return Ok(false);
            }
            self.check_users()?;
            handle.pin(&[cpu])?;
            let priority = band.handlers();
            // What it starts is ordinary from now on, so nothing started meanwhile has the class.
            handle.set_ordinary()?;
            let raised = handle
                .set_fifo_not_inherited(priority)
                .map_err(|error| RaiseError::Priority { priority, error })
                .and_then(|()| self.check_users());
            if raised.is_err() || handle.has_ended() {
                // It may have executed another program since it was raised.
                self.lower(handle);
            }
            raised.map(|()| !handle.has_ended())
        })
        .or_else(|error| if handle.has_ended() { Ok(false) } else { Err(error) })
    }

    fn is_running(&self) -> Result<bool, OsError> {
        Ok(self.by_kls.state()? != ThreadState::Dead)
    }

    /// Checks that the thread has the rights of the user that connected, and no other's.
    fn check_users(&self) -> Result<(), RaiseError> {
        let (found, expected) = (self.users.read()?, self.process.uid);
        match found.are_all(expected) {
            true => Ok(()),
            false => Err(RaiseError::OtherUser { found, expected }),
        }
    }

    /// Takes the class back for good. Only the server's `RaisedMember` calls it.
    pub(crate) fn release(&self) {
        // SeqCst pairs with the load in `set_fifo_not_inherited`: either that load sees the store,
        // or the change of class before it is over before the thread is lowered here.
        self.is_released.store(true, Ordering::SeqCst);
        self.forget_first();
        let Some(band) = self.process.band else { return };
        // The KLS thread and the watchdog may wait for this use of the handle, for a moment: the
        // server has the watchdog's priority. The server needs no descriptor for it.
        schedule::at_priority(band.watchdog(), || self.lower(&self.by_kls));
    }

    /// Puts the thread into the ordinary class, and also the first thread of the process.
    fn lower(&self, handle: &ThreadHandle) {
        if self.process.band.is_some() {
            // Fails only if the thread has ended.
            let _ = handle.set_ordinary();
            self.process.lower_first_thread();
        }
    }

    fn forget_first(&self) {
        if self.tid() == self.process.pid {
            self.process.first_is_member.store(false, Ordering::Relaxed);
        }
    }

    /// Records that the thread has ended, or that its process has executed another program. Takes
    /// its class back, and from now on nothing raises it. For the watchdog.
    pub(crate) fn set_ended(&self) {
        self.forget_first();
        self.lower(&self.by_watchdog);
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
}

/// The thread of a member, for the KLS thread or for the watchdog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberHandle<'t> {
    thread: &'t MemberThread,
    handle: &'t ThreadHandle,
}

impl MemberHandle<'_> {
    /// As [`ThreadHandle::state`].
    pub(crate) fn state(self) -> Result<ThreadState, OsError> {
        self.handle.state()
    }

    /// As [`ThreadHandle::lock_wait`].
    pub(crate) fn lock_wait(self) -> LockWait {
        self.handle.lock_wait(self.thread.process.pid)
    }

    /// As [`ThreadHandle::cpu_time`]. A thread with the rights of another user counts as ended:
    /// its process has executed a set-uid program. Some calls take a system call more.
    pub(crate) fn cpu_time(self) -> Result<u64, OsError> {
        // Relaxed: a count.
        let readings = self.thread.cpu_time_readings.fetch_add(1, Ordering::Relaxed);
        if readings.is_multiple_of(USERS_EVERY) && self.has_other_user() {
            // ESRCH (errno(3)): there is no such thread.
            return Err(OsError::new("read(/proc/pid/task/tid/status)", 3));
        }
        self.handle.cpu_time()
    }

    /// As [`ThreadHandle::wait_time`].
    pub(crate) fn wait_time(self) -> Result<u64, OsError> {
        self.handle.wait_time()
    }

    /// As [`ThreadHandle::is_pinned_to`].
    pub(crate) fn is_pinned_to(self, cpu: u32) -> Result<bool, OsError> {
        self.handle.is_pinned_to(cpu)
    }

    /// As [`ThreadHandle::pin`]. A thread whose class the server has taken back counts as ended: it
    /// belongs to no domain.
    pub(crate) fn pin(self, cpu: u32) -> Result<(), OsError> {
        // SeqCst pairs with the store in `release`.
        if self.thread.is_released.load(Ordering::SeqCst) {
            return Err(OsError::new("sched_setaffinity", 3));
        }
        self.handle.pin(&[cpu])
    }

    /// As [`ThreadHandle::class`].
    pub(crate) fn class(self) -> Result<Class, OsError> {
        self.handle.class()
    }

    /// As [`ThreadHandle::set_ordinary`].
    pub(crate) fn set_ordinary(self) -> Result<(), OsError> {
        self.handle.set_ordinary()
    }

    /// As [`ThreadHandle::set_fifo_not_inherited`]. If the server has taken the class back, or if
    /// the thread has the rights of another user, the thread is ordinary afterwards.
    pub(crate) fn set_fifo_not_inherited(self, priority: u8) -> Result<(), OsError> {
        let raised = self.handle.set_fifo_not_inherited(priority);
        // SeqCst pairs with the store in `release`.
        if self.thread.is_released.load(Ordering::SeqCst) || self.has_other_user() {
            self.thread.lower(self.handle);
        }
        raised
    }

    fn has_other_user(self) -> bool {
        matches!(self.thread.check_users(), Err(RaiseError::OtherUser { .. }))
    }
}

impl From<OsError> for RaiseError {
    fn from(error: OsError) -> Self {
        RaiseError::Os(error)
    }
}

impl fmt::Display for RaiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RaiseError::Os(error) => error.fmt(f),
            RaiseError::Priority { priority, error } => {
                let why =
                    "its RLIMIT_RTPRIO is lower, or it has capabilities that the daemon lacks";
                write!(f, "its thread cannot have real-time priority {priority} ({why}): {error}")
            }
            RaiseError::OtherUser { found, expected } => write!(
                f,
                "its thread has other user ids: found {found}, expected {expected}, who connected"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
