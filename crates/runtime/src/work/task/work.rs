//! The executor's side of a task: polls it, and returns its next message.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use upcall_core::scheduler::Outcome;
use upcall_core::time::Instant;

use super::cell::TaskCell;
use crate::preemption::PreemptionPoint;
use crate::work::batch::{Early, Grant, Use};

/// A task's future and state.
pub(crate) struct TaskWork {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    cell: Arc<TaskCell>,
    waker: Waker,
    state: State,
    /// Whether the task was polled, or is about to be, after the abort phase began.
    knows_of_abort: bool,
}

/// The states in the diagram of [`super`] that the core does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Still, set, ready or running.
    Set,
    /// The next message comes with a wake-up. `critical` is its critical time if `io_wait_at` named
    /// one.
    Waiting {
        critical: Option<Instant>,
    },
    Ended,
}

/// The next message, for [`Input::Message`](upcall_core::scheduler::Input::Message).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextMessage {
    pub(crate) critical: Instant,
    pub(crate) from: Instant,
}

/// The result of an upcall.
pub(crate) struct Polled {
    pub(crate) used: Use,
    pub(crate) panicked: bool,
    /// The next message, if it is known.
    pub(crate) next: Option<NextMessage>,
}

impl TaskWork {
    /// Allocates the future's memory; no later call allocates.
    pub(crate) fn new(
        cell: Arc<TaskCell>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let waker = Waker::from(cell.clone());
        TaskWork { future: Box::pin(future), cell, waker, state: State::Set, knows_of_abort: false }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// An inactive task is run. Until its release, wake-ups bring no message.
    pub(crate) fn set(&mut self) {
        self.state = State::Set;
    }

    /// The task is closed, and another activity will get its number.
    pub(crate) fn close(&self) {
        self.cell.close();
    }

    /// The message that a wake-up brings. The first wake-up in the abort phase brings one at once,
    /// even if another message is still to come.
    pub(crate) fn woken(&mut self, now: Instant, aborting: bool) -> Option<NextMessage> {
        let is_news = aborting && !std::mem::replace(&mut self.knows_of_abort, aborting);
        match self.state {
            State::Set if is_news => Some(NextMessage { critical: now, from: now }),
            State::Waiting { critical } => {
                Some(NextMessage { critical: critical.unwrap_or(now), from: now })
            }
            State::Set | State::Ended => None,
        }
    }

    /// Polls until the message is done or other work outranks the task.
    pub(crate) fn upcall(&mut self, point: &mut PreemptionPoint<'_>, grant: &Grant) -> Polled {
        self.cell.grant(grant);
        self.state = State::Set;
        self.knows_of_abort |= grant.aborting;
        let mut now = grant.start;
        loop {
            self.cell.listen(now);
            let mut context = Context::from_waker(&self.waker);
            // The future is not polled again after a panic, so no code sees its broken state.
            let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(&mut context)));
            now = self.cell.now();
            match polled {
                Ok(Poll::Pending) if self.cell.requested_advance().is_some() => {
                    let critical = self.cell.requested_advance().unwrap_or(now);
                    let next = NextMessage { critical, from: now };
                    return self.turn(grant, now, Outcome::Done, Some(next));
                }
                Ok(Poll::Pending) if self.cell.requested_checkpoint() => {
                    match point.go_on(now, self.cell.check_at()) {
                        Some(check_at) => self.cell.go_on(check_at),
                        None => return self.turn(grant, now, Outcome::Yielded, None),
                    }
                }
                Ok(Poll::Pending) => {
                    self.state = State::Waiting { critical: self.cell.requested_io() };
                    let sleep = self.cell.requested_sleep();
                    let next = sleep.map(|until| NextMessage { critical: until, from: until });
                    return self.turn(grant, now, Outcome::Done, next);
                }
                Ok(Poll::Ready(())) | Err(_) => {
                    self.state = State::Ended;
                    let turn = self.turn(grant, now, Outcome::Finished, None);
                    return Polled { panicked: polled.is_err(), ..turn };
                }
            }
        }
    }

    fn turn(
        &self,
        grant: &Grant,
        end: Instant,
        outcome: Outcome,
        next: Option<NextMessage>,
    ) -> Polled {
        self.cell.release();
        if outcome != Outcome::Yielded {
            self.cell.meter(end);
        }
        let (checkpoints, quantum_overruns) = self.cell.used();
        // Only the task ends a message, not the number of checkpoints it passed. So the last PDU is
        // kept for the end.
        let pdus = match outcome {
            Outcome::Yielded => checkpoints.min(grant.pdus_max - 1),
            _ => checkpoints.saturating_add(1).min(grant.pdus_max),
        };
        Polled {
            used: Use { pdus, quantum_overruns, outcome, end, early: Early::default() },
            panicked: false,
            next,
        }
    }
}
