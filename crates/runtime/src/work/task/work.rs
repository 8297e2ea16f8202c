//! The executor's side of a task: polls it, and says what is to happen next.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use upcall_core::scheduler::Outcome;
use upcall_core::time::Instant;

use super::cell::TaskCell;
use crate::preemption::PreemptionPoint;
use crate::work::batch::{Grant, Use};

/// A task's future, and where it stands.
pub(crate) struct TaskWork {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    cell: Arc<TaskCell>,
    waker: Waker,
    state: State,
    /// Whether it was polled, or is about to be, with the news that the process ends.
    knows_of_abort: bool,
}

/// As drawn in the head of [`super`], as far as the core does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Still, set, ready or running.
    Set,
    /// The next message comes with a wake-up, and this is its critical time if
    /// `io_wait_at` said one.
    Waiting {
        critical: Option<Instant>,
    },
    Ended,
}

/// The next message, for [`Input::Message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextMessage {
    pub(crate) critical: Instant,
    pub(crate) from: Instant,
}

/// What came of an upcall.
pub(crate) struct Polled {
    pub(crate) used: Use,
    pub(crate) panicked: bool,
    /// What is known of the next message.
    pub(crate) next: Option<NextMessage>,
}

impl TaskWork {
    /// Allocates, and takes the future's memory; nothing later does.
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

    /// It is run, and was not active: wake-ups do not come before its release.
    pub(crate) fn set(&mut self) {
        self.state = State::Set;
    }

    /// Its number will be another's.
    pub(crate) fn close(&self) {
        self.cell.close();
    }

    /// What a wake-up brings it. The first one in the abort phase brings the news of that,
    /// and does not wait for a message that is to come.
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

    /// Polls until the message is done or somebody outranks it.
    pub(crate) fn upcall(&mut self, point: &mut PreemptionPoint<'_>, grant: &Grant) -> Polled {
        self.cell.grant(grant);
        self.state = State::Set;
        self.knows_of_abort |= grant.aborting;
        let mut now = grant.start;
        loop {
            self.cell.listen(now);
            let mut context = Context::from_waker(&self.waker);
            // The future is not polled again after a panic: nobody sees what it broke.
            let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(&mut context)));
            now = self.cell.now();
            match polled {
                Ok(Poll::Pending) if self.cell.said_advance().is_some() => {
                    let critical = self.cell.said_advance().unwrap_or(now);
                    let next = NextMessage { critical, from: now };
                    return self.turn(grant, now, Outcome::Done, Some(next));
                }
                Ok(Poll::Pending) if self.cell.said_checkpoint() => {
                    match point.go_on(now, self.cell.check_at()) {
                        Some(check_at) => self.cell.go_on(check_at),
                        None => return self.turn(grant, now, Outcome::Yielded, None),
                    }
                }
                Ok(Poll::Pending) => {
                    self.state = State::Waiting { critical: self.cell.said_io() };
                    let sleep = self.cell.said_sleep();
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
        // A message is done when its task says so, not when it has passed so many
        // checkpoints: the last PDU is kept for the end.
        let pdus = match outcome {
            Outcome::Yielded => checkpoints.min(grant.pdus_max - 1),
            _ => checkpoints.saturating_add(1).min(grant.pdus_max),
        };
        Polled { used: Use { pdus, quantum_overruns, outcome, end }, panicked: false, next }
    }
}
