//! The thread that feeds a poller's page.
//!
//! Started by the poller where its loop does not hear the kernel itself. It sleeps in io_uring or
//! epoll, sets bits, and wakes the loop if that sleeps. It has the class and the CPUs of whoever
//! starts it.
//!
//! ```text
//!   poller                                  service
//!   states interest; ring: a byte  ------>  wait returns; harvest; the byte is read; apply
//!   doze, futex wait               <------  ring: asleep? futex wake; harvest, until it says nothing
//! ```
//!
//! The byte is read before interest is looked at, so what is stated after the look has a byte of its own.
//! Every harvest that says something is followed by a read: the kernel says once that a byte has come, and who
//! sleeps after that is not told again.

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

/// How long to leave the kernel alone after it refused to wait (`ENOMEM`).
const REFUSED_NS: u64 = 1_000_000;

/// See the module's head. Ends with the value.
#[derive(Debug)]
pub(super) struct Service {
    doorbell: UnixStream,
    doorbell_calls: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread, which makes what it hears the kernel by: io_uring serves one thread
    /// only. Two descriptors; allocates.
    ///
    /// # Errors
    /// What the kernel said (`EMFILE`, `EAGAIN`), to `source` too.
    pub(super) fn start(
        page: IoService<Memory>,
        source: impl FnOnce() -> Result<Source, OsError> + Send + 'static,
    ) -> Result<Self, OsError> {
        let os = |operation| {
            move |error: std::io::Error| OsError::new(operation, error.raw_os_error().unwrap_or(0))
        };
        let (doorbell, door) = UnixStream::pair().map_err(os("socketpair"))?;
        for end in [&doorbell, &door] {
            end.set_nonblocking(true).map_err(os("ioctl(FIONBIO)"))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (started, starts) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("upcall-io-events".to_owned())
            .spawn(move || match source() {
                Ok(source) => {
                    // Whoever starts it waits for this.
                    let _ = started.send(Ok(()));
                    serve(Feeder::new(page, source), door, &stopped);
                }
                Err(error) => drop(started.send(Err(error))),
            })
            .map_err(os("clone"))?;
        // It ends without a word only if it panics.
        starts.recv().unwrap_or(Err(OsError::new("clone", 0)))?;
        Ok(Service { doorbell, doorbell_calls: 0, stop, thread: Some(thread) })
    }

    /// Has the service look at what was stated. One system call.
    pub(super) fn ring(&mut self) {
        self.doorbell_calls += 1;
        // Full: then there are bytes to be read, and the thread will look.
        let _ = self.doorbell.write(&[0]);
    }

    pub(super) fn doorbell_calls(&self) -> u64 {
        self.doorbell_calls
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `serve`, though nothing but the flag is handed over.
        self.stop.store(true, Ordering::Release);
        self.ring();
        // A panic there was reported there.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(mut feeder: Feeder<Memory>, mut door: UnixStream, stopped: &AtomicBool) {
    feeder.watch_doorbell(door.as_raw_fd());
    let mut heard = false;
    // Acquire pairs with the Release in `drop`.
    while !stopped.load(Ordering::Acquire) {
        // Not if something was heard: what was told to the kernel since may be ready already.
        if !heard && feeder.wait(None).is_err() {
            clock::sleep_until_ns(clock::monotonic_ns() + REFUSED_NS);
        }
        heard = feeder.harvest();
        if heard {
            while door.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
            feeder.apply();
            if feeder.page().wake_word().notify() {
                futex::wake_shared(feeder.page().wake_word().word(), 1);
            }
        }
    }
}
