//! The thread that feeds a poller's page.
//!
//! The poller starts this thread if its loop does not read from the kernel itself. The thread
//! sleeps in io_uring or epoll, sets bits in the page, and wakes the loop if the loop sleeps. It
//! has the class and the CPUs of the thread that starts it.
//!
//! ```text
//!   poller                                    feeder thread
//!   states interest; wakes it: a byte ----->  wait returns; harvest; the byte is read; apply
//!   prepare_wait, futex wait          <-----  notify: asleep? futex wake; harvest, until empty
//! ```
//!
//! The thread reads the byte before it looks at the stated interest. So interest that is stated
//! after the look has a byte of its own. A read follows every harvest that found something: the
//! kernel reports a byte once only, and would not report it again to a thread that sleeps
//! afterwards.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use upcall_shm::io_events::IoService;
use upcall_sys::{OsError, clock, futex};

use super::feeder::{Feeder, Source};
use super::memory::Memory;

/// How long the thread sleeps after the kernel has refused to wait (`ENOMEM`).
const REFUSED_NS: u64 = 1_000_000;

/// See the module's head. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct FeederThread {
    wake_socket: UnixStream,
    wake_calls: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FeederThread {
    /// Starts the thread. The thread itself calls `source`, because an io_uring serves one thread
    /// only. Two descriptors; allocates.
    ///
    /// # Errors
    /// The error of the kernel (`EMFILE`, `EAGAIN`), or the error that `source` returns.
    pub(super) fn start(
        page: IoService<Memory>,
        source: impl FnOnce() -> Result<Source, OsError> + Send + 'static,
    ) -> Result<Self, OsError> {
        let os = |operation| {
            move |error: std::io::Error| OsError::new(operation, error.raw_os_error().unwrap_or(0))
        };
        let (wake_socket, near) = UnixStream::pair().map_err(os("socketpair"))?;
        for end in [&wake_socket, &near] {
            end.set_nonblocking(true).map_err(os("ioctl(FIONBIO)"))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (started, starts) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("upcall-io-events".to_owned())
            .spawn(move || match source() {
                Ok(source) => {
                    // The starting thread waits for this message.
                    let _ = started.send(Ok(()));
                    serve(Feeder::new(page, source), near, &stopped);
                }
                Err(error) => drop(started.send(Err(error))),
            })
            .map_err(os("clone"))?;
        // The thread sends no message only if it panics.
        starts.recv().unwrap_or(Err(OsError::new("clone", 0)))?;
        Ok(FeederThread { wake_socket, wake_calls: 0, stop, thread: Some(thread) })
    }

    /// Asks the thread to look at the stated interest. One system call.
    pub(super) fn wake(&mut self) {
        self.wake_calls += 1;
        // If the socket is full, the thread has bytes to read, and will look.
        let _ = self.wake_socket.write(&[0]);
    }

    pub(super) fn wake_calls(&self) -> u64 {
        self.wake_calls
    }
}

impl Drop for FeederThread {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `serve`, though only the flag is handed over.
        self.stop.store(true, Ordering::Release);
        self.wake();
        // If the thread panicked, it has reported that itself.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(mut feeder: Feeder<Memory>, mut near: UnixStream, stopped: &AtomicBool) {
    feeder.watch_wake_socket(near.as_raw_fd());
    let mut found = false;
    // Acquire pairs with the Release in `drop`.
    while !stopped.load(Ordering::Acquire) {
        // Does not wait after a harvest that found something: a new watch may be ready already.
        if !found && feeder.wait(None).is_err() {
            clock::sleep_until_ns(clock::monotonic_ns() + REFUSED_NS);
        }
        found = feeder.harvest();
        if found {
            while near.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
            feeder.apply();
            if feeder.page().wake_word().notify() {
                futex::wake_shared(feeder.page().wake_word().word(), 1);
            }
        }
    }
}
