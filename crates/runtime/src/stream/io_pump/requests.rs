//! What is asked of the I/O pump's thread, and how that thread is woken.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::task::Waker;

use upcall_shm::stream as shm;
use upcall_shm::stream::End;
use upcall_sys::futex::{self, WaitSet};

use super::carry::Carry;
use super::outcome::{Carried, IoPumpError};
use crate::stream::memory::Memory;

/// Streams that may be waited for at a time: two words are its own.
const BELLS_MAX: usize = WaitSet::WORDS_MAX - 2;

/// How it is told.
#[derive(Debug, Default)]
pub(in crate::stream) struct Desk {
    /// Changes with each order.
    pub(super) word: AtomicU32,
    pub(super) orders: Mutex<Orders>,
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) new: Vec<Order>,
    /// Streams that are in use, of those that may be.
    bells: usize,
    pub(super) stop: bool,
}

pub(super) enum Order {
    Carry(Box<Carry>, mpsc::Sender<Carried>),
    /// Wakes once the bell is no longer waited on.
    Tell(shm::Stream<Memory>, End, Waker),
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Carry(..) => "Carry",
            Order::Tell(..) => "Tell",
        })
    }
}

impl Desk {
    pub(super) fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).new.push(order);
        self.ring();
    }

    pub(super) fn ring(&self) {
        // Release pairs with the Acquire in `Round::run`; the orders have their lock.
        self.word.fetch_add(1, Ordering::Release);
        futex::wake(&self.word, 1);
    }

    /// One stream more, until [`Desk::give_bell_back`].
    pub(in crate::stream) fn take_bell(&self) -> Result<(), IoPumpError> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.bells == BELLS_MAX {
            return Err(IoPumpError::Full { streams_max: BELLS_MAX });
        }
        orders.bells += 1;
        Ok(())
    }

    pub(in crate::stream) fn give_bell_back(&self) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).bells -= 1;
    }

    /// Wakes `waker` once the bell of `end` is rung. For who has begun to wait.
    pub(in crate::stream) fn tell(&self, stream: shm::Stream<Memory>, end: End, waker: Waker) {
        self.order(Order::Tell(stream, end, waker));
    }
}
