//! The I/O event service: the readiness of descriptors reaches the scheduler (ecalls-2001 §3.2 and
//! §3.3, decision 0021).

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use upcall_core::time::Instant;
use upcall_sys::OsError;
use upcall_sys::readiness::{Direction, Readiness, Watch};

use super::event::Interest;
use super::io_watch::IoWatch;
use super::ready_table::{Changes, Entry, ReadyTable, lock};
use super::target::{IoTarget, Sent};
use super::urgency::{self, Urgency};
use crate::clock;
use crate::thread_error::ThreadError;

/// Watches descriptors, and sends an event when one of them is ready: to an admitted handler, which
/// the scheduler then prefers, or on a channel, with each way of notification ([`IoTarget`]). One
/// thread, `upcall-ready`, serves all descriptors. Dropping the service ends it.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// use std::io::Read;
/// use std::sync::{Arc, OnceLock};
/// use upcall::activity::{ActivityParams, Terms};
/// use upcall::io_events::{Interest, IoTarget, IoWatch, Urgency};
/// use upcall::time::Span;
/// use upcall::{Config, Runtime};
///
/// let mut runtime = Runtime::start(Config::default())?;
/// let service = runtime.io_event_service()?;
/// let (mut packets, _sender) = std::os::unix::net::UnixStream::pair()?;
/// packets.set_nonblocking(true)?;
/// let descriptor = packets.try_clone()?;
/// let watch: Arc<OnceLock<IoWatch>> = Arc::default();
///
/// // Of handlers with the same rank, the one with the most urgent event goes first.
/// let terms = Terms { wins_ties: true, ..Terms::default() };
/// let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(200)).batch(8);
/// let (mut bytes, armed) = ([0; 1500], watch.clone());
/// let id = runtime.handler("packets", (need, terms), move |batch| {
///     if batch.take_event().is_some() {
///         while batch.proceed() && packets.read(&mut bytes).is_ok_and(|read| read > 0) {
///             // process the packet
///         }
///         if let Some(watch) = armed.get() {
///             let _ = watch.arm(); // the next event comes at once if packets are left
///         }
///     }
/// })?;
/// let target = IoTarget::Post(runtime.poster(id).ok_or("closed")?);
/// let _ = watch.set(service.watch(&descriptor, Interest::Readable, 0, Urgency::Rank(1), target)?);
/// runtime.run(id)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IoEventService {
    readiness: Arc<Readiness>,
    changes: Arc<Mutex<Changes>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for IoEventService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoEventService").finish_non_exhaustive()
    }
}

impl IoEventService {
    /// Starts the service. Its thread has the class and the CPUs of the thread that starts it. For
    /// events that must come while handlers use the whole CPU there is
    /// [`Runtime::io_event_service`](crate::Runtime::io_event_service). Two descriptors; allocates.
    ///
    /// # Errors
    /// The thread did not start, or there are no descriptors.
    pub fn start() -> Result<Self, ThreadError> {
        IoEventService::start_at(None)
    }

    /// As [`IoEventService::start`], at this priority of `SCHED_FIFO` if it is granted.
    pub(crate) fn start_at(priority: Option<u8>) -> Result<Self, ThreadError> {
        let readiness = Arc::new(Readiness::new()?);
        let changes = Arc::<Mutex<Changes>>::default();
        let (watched, shared) = (readiness.clone(), changes.clone());
        let named = std::thread::Builder::new().name("upcall-ready".to_owned());
        let thread = named.spawn(move || {
            // Without the right it stays an ordinary thread, as the thread `upcall-io` does.
            if let Some(priority) = priority {
                let _ = upcall_sys::schedule::set_fifo(priority);
            }
            serve(&watched, &shared);
        })?;
        Ok(IoEventService { readiness, changes, thread: Some(thread) })
    }

    /// Watches `fd`. When it is ready, `target` gets one event, which carries `key` and the rank of
    /// `urgency`; the watch is armed from the beginning. Three system calls. Allocates.
    ///
    /// # Errors
    /// The kernel's error: `EMFILE`, or `EPERM` for a file that is always ready.
    pub fn watch(
        &self,
        fd: impl AsFd,
        interest: Interest,
        key: u64,
        urgency: Urgency,
        target: IoTarget,
    ) -> Result<IoWatch, OsError> {
        let direction = match interest {
            Interest::Readable => Direction::Readable,
            Interest::Writable => Direction::Writable,
            Interest::Both => Direction::Either,
        };
        let (raiser, stated) = urgency::hand_over();
        let sent = Arc::<AtomicU64>::default();
        let target = Arc::new(target);
        let entry = Entry::new(&target, key, urgency, stated, sent.clone());
        // The entry is there before the watch begins: the descriptor may be ready already.
        let number = lock(&self.changes).add(entry);
        match Watch::new(&self.readiness, fd.as_fd(), direction, number) {
            Ok(watch) => {
                let changes = self.changes.clone();
                Ok(IoWatch { watch, number, changes, urgency: raiser, sent, _target: target })
            }
            Err(error) => {
                let entry = lock(&self.changes).remove(number);
                drop(entry); // without the lock
                Err(error)
            }
        }
    }
}

impl Drop for IoEventService {
    fn drop(&mut self) {
        self.readiness.stop();
        // A target that runs in the thread may drop the service. The thread then ends alone.
        let other = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(other) {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

/// Serves until the service ends.
fn serve(readiness: &Readiness, changes: &Mutex<Changes>) {
    crate::channel::set_waits_for_none();
    let (mut table, mut ready) = (ReadyTable::default(), Vec::new());
    loop {
        let due_ns = table.next_due().map(Instant::as_nanos);
        if !readiness.wait_until(due_ns, |number| ready.push(number)) {
            return;
        }
        let now = clock::now();
        table.take_over(changes, now);
        ready.drain(..).for_each(|number| table.report(number, now));
        let mut full = false;
        for event in table.take_due(now) {
            let sent = event.send();
            full |= sent == Sent::Full;
            table.conclude(&event, sent);
        }
        if full {
            let end = clock::now();
            table.retry(end, end.since(now));
        }
    }
}
