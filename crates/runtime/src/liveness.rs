//! Watches descriptors that hang up when another process ends, and runs a callback for each.
//!
//! Streams and the clients of channels use it. They hold a descriptor, such as a socket, that hangs
//! up when the peer's process ends. One ordinary thread of the process, `upcall-liveness`, serves
//! them all. The first call of [`watch`] starts the thread, which lives as long as the process. It
//! sleeps in epoll.
//!
//! ```text
//!   watch:       descriptor --> epoll, under a number     callback --> table, under that number
//!   hangs up:    number --> callback taken out of the table (1) --> it runs, without the lock (2)
//!   entry drops: the descriptor leaves epoll, the callback leaves the table
//! ```
//!
//! 1. A callback leaves the table before it runs, so it runs at most once.
//! 2. The lock is free, because a callback may drop the last reference to a stream, and with it
//!    other watch entries.
//!
//! One thread serves all peers, so a callback may not let one peer delay the others. It does not
//! block, closes no descriptor that a peer sent, and runs no destructor of a user's handler. A
//! callback that panics ends itself alone.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use upcall_sys::OsError;
use upcall_sys::readiness::{Direction, Readiness, Watch};

static MONITOR: OnceLock<LivenessMonitor> = OnceLock::new();

type Callback = Box<dyn FnOnce() + Send>;

/// See the module's head. One per process.
struct LivenessMonitor {
    readiness: Arc<Readiness>,
    callbacks: Mutex<Callbacks>,
}

#[derive(Default)]
struct Callbacks {
    /// The number of the newest entry. Numbers are not used again.
    last: u64,
    by_number: HashMap<u64, Callback>,
}

/// One watched descriptor. The watch ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct WatchEntry {
    number: u64,
    /// Holds a descriptor of its own for the open file.
    _watch: Watch,
}

/// Calls `on_hang_up` once `fd` is readable or hangs up. The callback runs in the monitor's thread.
/// Starts that thread if this is the first call. Allocates.
///
/// # Errors
/// `EMFILE`, `EAGAIN` (the thread did not start), `EPERM` (a file that is always readable).
pub(crate) fn watch(
    fd: BorrowedFd<'_>,
    on_hang_up: impl FnOnce() + Send + 'static,
) -> Result<WatchEntry, OsError> {
    let monitor = LivenessMonitor::of_this_process()?;
    // The callback is stored before the watch begins: the descriptor may have hung up already.
    let number = monitor.callbacks().insert(Box::new(on_hang_up));
    match Watch::new(&monitor.readiness, fd, Direction::Readable, number) {
        Ok(watch) => Ok(WatchEntry { number, _watch: watch }),
        Err(error) => {
            monitor.take(number);
            Err(error)
        }
    }
}

impl Drop for WatchEntry {
    fn drop(&mut self) {
        if let Some(monitor) = MONITOR.get() {
            monitor.take(self.number);
        }
    }
}

impl Callbacks {
    fn insert(&mut self, callback: Callback) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, callback);
        self.last
    }
}

impl LivenessMonitor {
    fn of_this_process() -> Result<&'static LivenessMonitor, OsError> {
        /// If two threads need the monitor at once, one of them starts it.
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(monitor) = MONITOR.get() {
            return Ok(monitor);
        }
        let readiness = Arc::new(Readiness::new()?);
        let watched = readiness.clone();
        std::thread::Builder::new()
            .name("upcall-liveness".to_owned())
            .spawn(move || while watched.wait(LivenessMonitor::report) {})
            .map_err(|error| OsError::new("clone", error.raw_os_error().unwrap_or(0)))?;
        Ok(MONITOR.get_or_init(|| LivenessMonitor { readiness, callbacks: Mutex::default() }))
    }

    fn callbacks(&self) -> MutexGuard<'_, Callbacks> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a callback out of the table. The caller runs or drops it after the lock is released.
    fn take(&self, number: u64) -> Option<Callback> {
        self.callbacks().by_number.remove(&number)
    }

    /// The descriptor that is watched under `number` has hung up.
    fn report(number: u64) {
        let callback = MONITOR.get().and_then(|monitor| monitor.take(number));
        if let Some(callback) = callback {
            // A panic has printed its message. The thread goes on for the other entries: each
            // callback owns what it uses.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(callback));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_hang_up_runs_its_callback_and_no_other() {
        let (sender, receiver) = mpsc::channel();
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        let entries = [0, 1, 2].map(|number| {
            let sender = sender.clone();
            watch(pairs[number].0.as_fd(), move || sender.send(number).unwrap()).unwrap()
        });
        let [first, (_, second_far), (_, third_far)] = pairs;
        let [_first, second, _third] = entries;
        // A watch that has ended runs no callback.
        drop(second);
        drop(second_far);
        drop(third_far);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(2));
        drop(first.1);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(0));
    }

    #[test]
    fn a_callback_that_panics_ends_itself_alone() {
        let [(first_near, first_far), (second_near, second_far)] =
            [(); 2].map(|()| UnixStream::pair().unwrap());
        let (sender, receiver) = mpsc::channel();
        let began = sender.clone();
        let _first = watch(first_near.as_fd(), move || {
            began.send(1).unwrap();
            panic!("on purpose");
        })
        .unwrap();
        drop(first_far);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(1));
        let _second = watch(second_near.as_fd(), move || sender.send(2).unwrap()).unwrap();
        drop(second_far);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(2));
    }

    #[test]
    fn a_descriptor_that_has_hung_up_before_the_watch_is_reported() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let (sender, receiver) = mpsc::channel();
        let _entry = watch(near.as_fd(), move || sender.send(()).unwrap()).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(()));
    }
}
