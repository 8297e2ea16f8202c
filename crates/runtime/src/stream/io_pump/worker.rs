//! The loop of the I/O pump's thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::task::Waker;

use upcall_shm::stream::{self as shm, End, WAITING};
use upcall_sys::OsError;
use upcall_sys::futex::WaitSet;

use super::carry::{Carry, Step};
use super::outcome::Carried;
use super::requests::{PumpRequests, Request};
use crate::io_events::Poller;
use crate::stream::memory::Memory;
use crate::stream::wait::is_waiting;

/// See the module's head.
pub(super) struct PumpLoop {
    requests: Arc<PumpRequests>,
    poller: Poller,
    /// Indexed by the key under which the poller watches the descriptor.
    carries: Vec<Option<ActiveCarry>>,
    wakers: Vec<(shm::Stream<Memory>, End, Waker)>,
}

/// A carry, and the channel that reports its end.
struct ActiveCarry {
    carry: Box<Carry>,
    ended: mpsc::Sender<Carried>,
    step: Step,
}

impl PumpLoop {
    pub(super) fn new(requests: Arc<PumpRequests>, poller: Poller) -> Self {
        PumpLoop { requests, poller, carries: Vec::new(), wakers: Vec::new() }
    }

    pub(super) fn run(mut self) {
        loop {
            // Reads the word first: a request that comes later changes it, and `sleep` then returns
            // at once. Acquire pairs with the Release in `PumpRequests::notify`.
            let seen = self.requests.word.load(Ordering::Acquire);
            self.poller.finish_wait();
            if self.take_requests() {
                return self.stop();
            }
            self.take_events();
            self.wakers.retain(|(stream, end, waker)| {
                let waits = is_waiting(stream, *end);
                if !waits {
                    waker.wake_by_ref();
                }
                waits
            });
            if !self.step_all() {
                self.sleep(seen);
            }
        }
    }

    /// Takes new requests. Returns whether the thread is to stop.
    fn take_requests(&mut self) -> bool {
        let (new, stop) = self.requests.take();
        for request in new {
            match request {
                // If two wakers wait for the same end, only the later one is woken.
                Request::Wake(stream, end, waker) => {
                    let same = |(known, of, _): &(shm::Stream<Memory>, End, Waker)| {
                        *of == end && std::ptr::eq(known.wait_word(*of), stream.wait_word(end))
                    };
                    self.wakers.retain(|known| !same(known));
                    self.wakers.push((stream, end, waker));
                }
                Request::Carry(carry, ended) => {
                    self.add(ActiveCarry { carry, ended, step: Step::Again });
                }
            }
        }
        stop
    }

    fn add(&mut self, mut active: ActiveCarry) {
        let free = self.carries.iter().position(Option::is_none);
        let key = free.unwrap_or_else(|| {
            self.carries.push(None);
            self.carries.len() - 1
        });
        let (fd, interest) = (active.carry.fd(), active.carry.interest());
        if self.poller.add(fd, key, interest).is_err() {
            // The descriptor's number is too large for the poller.
            active.step = active.carry.fail(OsError::new("watch", 24));
        }
        self.carries[key] = Some(active);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.poller.try_next() {
            if let Some(ActiveCarry { step, .. }) =
                self.carries.get_mut(event.key).and_then(Option::as_mut)
                && matches!(step, Step::Descriptor | Step::DescriptorOrEnd)
            {
                *step = Step::Again;
            }
        }
    }

    /// Lets each carry that is ready do a step. Returns `false` if no carry has more to do.
    fn step_all(&mut self) -> bool {
        let mut any = false;
        for place in &mut self.carries {
            let Some(ActiveCarry { carry, ended, step }) = place else { continue };
            if step.is_on_wait_word() && !carry.waits() {
                *step = Step::Again;
            }
            if let Step::Again = step {
                *step = carry.step();
                any |= matches!(step, Step::Again);
            }
            if let Step::Over(carried) = step {
                let _ = self.poller.delete(carry.fd());
                // The program may have dropped its `Wait`.
                let _ = ended.send(*carried);
                self.requests.release_stream();
                *place = None;
                any = true;
            }
        }
        any
    }

    /// Sleeps until there is something to do. One futex call.
    fn sleep(&mut self, seen: u32) {
        let mut set = WaitSet::new();
        set.add_private(&self.requests.word, seen);
        let Some((word, expected)) = self.poller.wake_word() else { return };
        set.add_shared(word, expected);
        for ActiveCarry { carry, step, .. } in self.carries.iter().flatten() {
            if step.is_on_wait_word() {
                set.add_shared(carry.wait_word(), WAITING);
            }
        }
        for (stream, end, _) in &self.wakers {
            set.add_shared(stream.wait_word(*end), WAITING);
        }
        // The loop checks everything again, whatever ends the wait.
        let _ = set.wait_until(None);
    }

    fn stop(self) {
        for ActiveCarry { mut carry, ended, .. } in self.carries.into_iter().flatten() {
            let _ = ended.send(carry.stop());
        }
        for (_, _, waker) in self.wakers {
            waker.wake();
        }
    }
}
