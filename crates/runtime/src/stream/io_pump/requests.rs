//! Requests to the I/O pump's thread, and how that thread is notified of them.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::task::Waker;

use upcall_shm::stream as shm;
use upcall_shm::stream::End;
use upcall_sys::futex::{self, WaitSet};

use super::carry::Carry;
use super::outcome::{Carried, IoPumpError};
use crate::stream::memory::Memory;

/// How many streams the pump may wait for at a time. It sleeps on two more words: its own and the
/// poller's.
const STREAMS_MAX: usize = WaitSet::WORDS_MAX - 2;

/// What the pump's thread shares with the threads that make requests.
#[derive(Debug, Default)]
pub(in crate::stream) struct PumpRequests {
    /// A futex. Its value changes with each request.
    pub(super) word: AtomicU32,
    queue: Mutex<RequestQueue>,
}

#[derive(Debug, Default)]
struct RequestQueue {
    new: Vec<Request>,
    /// How many of the [`STREAMS_MAX`] streams are in use.
    streams: usize,
    stop: bool,
}

pub(super) enum Request {
    Carry(Box<Carry>, mpsc::Sender<Carried>),
    /// Asks the pump to wake the waker once this end of the stream no longer waits.
    Wake(shm::Stream<Memory>, End, Waker),
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Request::Carry(..) => "Carry",
            Request::Wake(..) => "Wake",
        })
    }
}

impl PumpRequests {
    pub(super) fn push(&self, request: Request) {
        self.queue().new.push(request);
        self.notify();
    }

    /// Asks the thread to stop.
    pub(super) fn stop(&self) {
        self.queue().stop = true;
        self.notify();
    }

    /// Takes all new requests. Also returns whether the thread is to stop.
    pub(super) fn take(&self) -> (Vec<Request>, bool) {
        let mut queue = self.queue();
        (std::mem::take(&mut queue.new), queue.stop)
    }

    /// Reserves one stream, until [`PumpRequests::release_stream`].
    pub(in crate::stream) fn reserve_stream(&self) -> Result<(), IoPumpError> {
        let mut queue = self.queue();
        if queue.streams == STREAMS_MAX {
            return Err(IoPumpError::Full { streams_max: STREAMS_MAX });
        }
        queue.streams += 1;
        Ok(())
    }

    pub(in crate::stream) fn release_stream(&self) {
        self.queue().streams -= 1;
    }

    /// Wakes `waker` once the other end has notified `end`. `end` must have begun to wait.
    pub(in crate::stream) fn wake_when_ready(
        &self,
        stream: shm::Stream<Memory>,
        end: End,
        waker: Waker,
    ) {
        self.push(Request::Wake(stream, end, waker));
    }

    fn notify(&self) {
        // Release pairs with the Acquire in `PumpLoop::run`. The queue has its own lock.
        self.word.fetch_add(1, Ordering::Release);
        futex::wake(&self.word, 1);
    }

    /// Ignores poison: the queue stays valid across panics.
    fn queue(&self) -> MutexGuard<'_, RequestQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
