//! The loop of the I/O pump's thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::task::Waker;

use upcall_shm::stream::{self as shm, End, WAITING};
use upcall_sys::OsError;
use upcall_sys::futex::WaitSet;

use super::carry::{Carry, Step};
use super::outcome::Carried;
use super::requests::{Desk, Order};
use crate::io_events::Poller;
use crate::stream::memory::Memory;
use crate::stream::wait::is_waiting;

/// What the thread is at.
pub(super) struct Round {
    desk: Arc<Desk>,
    poller: Poller,
    /// By the key of their descriptors.
    wards: Vec<Option<Ward>>,
    tells: Vec<(shm::Stream<Memory>, End, Waker)>,
}

/// A carry, and who waits for its end.
struct Ward {
    carry: Box<Carry>,
    ended: mpsc::Sender<Carried>,
    step: Step,
}

impl Round {
    pub(super) fn new(desk: Arc<Desk>, poller: Poller) -> Self {
        Round { desk, poller, wards: Vec::new(), tells: Vec::new() }
    }

    pub(super) fn run(mut self) {
        loop {
            // Before all that is looked at. Acquire pairs with the Release in `Desk::ring`.
            let seen = self.desk.word.load(Ordering::Acquire);
            self.poller.finish_wait();
            if self.obey() {
                return self.stop();
            }
            self.take_events();
            self.tells.retain(|(stream, end, waker)| {
                let waits = is_waiting(stream, *end);
                if !waits {
                    waker.wake_by_ref();
                }
                waits
            });
            if !self.go_on() {
                self.sleep(seen);
            }
        }
    }

    /// Takes new orders; `true`: to stop.
    fn obey(&mut self) -> bool {
        let (new, stop) = {
            let mut orders = self.desk.orders.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut orders.new), orders.stop)
        };
        for order in new {
            match order {
                // Of two that wait for the same end the later one is told.
                Order::Tell(stream, end, waker) => {
                    let same = |(known, of, _): &(shm::Stream<Memory>, End, Waker)| {
                        *of == end && std::ptr::eq(known.wait_word(*of), stream.wait_word(end))
                    };
                    self.tells.retain(|tell| !same(tell));
                    self.tells.push((stream, end, waker));
                }
                Order::Carry(carry, ended) => self.enter(Ward { carry, ended, step: Step::Again }),
            }
        }
        stop
    }

    fn enter(&mut self, mut ward: Ward) {
        let free = self.wards.iter().position(Option::is_none);
        let key = free.unwrap_or_else(|| {
            self.wards.push(None);
            self.wards.len() - 1
        });
        let (fd, interest) = (ward.carry.fd(), ward.carry.interest());
        if self.poller.add(fd, key, interest).is_err() {
            // Its number is beyond what can be watched.
            ward.step = ward.carry.fail(OsError::new("watch", 24));
        }
        self.wards[key] = Some(ward);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.poller.try_next() {
            if let Some(Ward { step, .. }) = self.wards.get_mut(event.key).and_then(Option::as_mut)
                && matches!(step, Step::Descriptor | Step::DescriptorOrEnd)
            {
                *step = Step::Again;
            }
        }
    }

    /// A step of each that can; `false`: there is nothing more to do.
    fn go_on(&mut self) -> bool {
        let mut any = false;
        for place in &mut self.wards {
            let Some(Ward { carry, ended, step }) = place else { continue };
            if step.is_on_bell() && !carry.waits() {
                *step = Step::Again;
            }
            if let Step::Again = step {
                *step = carry.step();
                any |= matches!(step, Step::Again);
            }
            if let Step::Over(carried) = step {
                let _ = self.poller.delete(carry.fd());
                // Nobody need wait for it.
                let _ = ended.send(*carried);
                self.desk.give_bell_back();
                *place = None;
                any = true;
            }
        }
        any
    }

    /// Until something is to be done: a futex call.
    fn sleep(&mut self, seen: u32) {
        let mut set = WaitSet::new();
        set.add_private(&self.desk.word, seen);
        let Some((word, expected)) = self.poller.wake_word() else { return };
        set.add_shared(word, expected);
        for Ward { carry, step, .. } in self.wards.iter().flatten() {
            if step.is_on_bell() {
                set.add_shared(carry.wait_word(), WAITING);
            }
        }
        for (stream, end, _) in &self.tells {
            set.add_shared(stream.wait_word(*end), WAITING);
        }
        // Whatever ends the wait, all is looked at again.
        let _ = set.wait_until(None);
    }

    fn stop(self) {
        for Ward { mut carry, ended, .. } in self.wards.into_iter().flatten() {
            let _ = ended.send(carry.stop());
        }
        for (_, _, waker) in self.tells {
            waker.wake();
        }
    }
}
