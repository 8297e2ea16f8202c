//! Tasks: lightweight processes as Rust futures (split-level-1991 §3.1).
//!
//! [`Runtime::task`](crate::Runtime::task) creates a task. The executor of one CPU polls it, inside
//! an upcall, when the policy ranks it first. A task handles one message after the other, and
//! itself says when the next one is due. Between two messages it holds no resource of the executor.
//! The code of a task uses a [`Task`], and the executor uses the module `work`. Both share the
//! [`TaskCell`].
//!
//! ```text
//!            (1) created         (2) run                (3) chosen
//!   [none] ------------> Still ---------> Set ----------------------> Running
//!                          ^               ^                          |  ^  |
//!             (8) suspend, |               | (4) time_advance         |  |  | (5) checkpoint:
//!             from any     |               +--------------------------+  |  |  outranked
//!                          |                                          |  |  v
//!                          |             Waiting <--------------------+  Ready
//!                          |                | (7) woken   (6) timed_sleep,  (3)
//!                          |                v             io_wait, or other
//!                          |               Set             (9) end, panic --> Ended
//! ```
//!
//! 1. The task is admitted. It is not polled before `run`.
//! 2. The task's first message logically arrives at the moment of `run`, plus the offset.
//! 3. `Set`: the core knows the next message. The task is `Ready` when that message arrives, or is
//!    near enough to work ahead. The task with the best rank is polled. Wake-ups in `Set`, `Ready`
//!    or `Running` change nothing: the next poll sees their cause.
//! 4. The message is done, and the next one's logical arrival is known. If nothing outranks the
//!    task, it is polled again at once: a return, a decision, a call.
//! 5. At a quantum boundary other work outranks the task. The task goes on with the same message
//!    later. If no other work outranks it, the checkpoint is a decrement or a clock read.
//! 6. The message is done, and the next is not known. It comes at the end of the sleep, or with a
//!    wake-up. A wait for something outside this crate (a channel, a lock, a timer of another
//!    library) leads to the same state.
//! 7. Any thread wakes the task, through a bit and the notifier. The new message logically arrives
//!    now, or at the time that `io_wait_at` named. It replaces the end of a sleep.
//! 8. The message is dropped. A `run` makes the task `Set` again, and polls the future anew.
//! 9. The future is not polled again. The thread that closes the task drops it.
//!
//! The declared rate holds for real-time tasks. If the critical time of a message is less than a
//! period after that of the last one, the message counts as arriving a period after it. Before that
//! time it is handled only as work ahead. So `Terms::workahead_max` = 0 allows at most one message
//! a period. Every wait ends a message and so uses up the one of the period: `io_wait`, but also a
//! wait for a lock. Interactive and background tasks (DWS) and tasks without a share of their own
//! (PS) have no such limit. Under DWCS all tasks have it. There a message that was not handled in
//! its period has a job in the next one.
//!
//! The abort phase ([`Runtime::give_abort_phase`](crate::Runtime::give_abort_phase)) begins when
//! the process ends in an orderly way. A task with the phase is woken with [`Task::aborting`] true,
//! whatever it waits for. Then it is polled as before until it ends or the bound has passed. All
//! other tasks are suspended, and dropped.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use upcall_core::time::Instant;
use upcall_sys::OsError;
use upcall_sys::readiness::{Direction, Watch, is_ready};

pub(crate) use cell::{Address, TaskCell};
pub(crate) use work::{NextMessage, TaskWork};

mod cell;
#[cfg(test)]
mod tests;
mod work;

/// What the code of a task is given: the calls by which a task waits, and by which it lets more
/// urgent work go first.
///
/// A task is an `async` function that the scheduler polls by deadline, or under PS by share. Create
/// one with [`Runtime::task`](crate::Runtime::task), under the policy
/// [`DWS`](crate::discipline::DWS), [`PS`](crate::discipline::PS) or
/// [`DWCS`](crate::discipline::DWCS). It handles one *message* after the other. Each of the waits
/// below ends a message, and says when the next is due:
///
/// | wait | the next message comes |
/// |---|---|
/// | [`time_advance`](Task::time_advance) | now; its time is the one given, so it may be worked ahead |
/// | [`timed_sleep`](Task::timed_sleep) | at the time given, never before |
/// | [`io_wait`](Task::io_wait) | when a descriptor is ready |
/// | another future's | when that future wakes the task |
///
/// Between two messages a real-time task waits at least for the declared period, unless
/// [`Terms::workahead_max`](crate::activity::Terms::workahead_max) lets it work ahead (DWS). Under
/// PS the tasks with a share of their own are real-time, under DWCS all tasks. A task must not
/// block its thread: use non-blocking descriptors and futures.
///
/// Await its futures in this task only: in another task they do not complete, or complete at the
/// wrong time. They allocate nothing, and each may be dropped unfinished.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// use upcall::{Task, time::Span, clock};
/// # fn process_one_message() {}
/// # async fn stream(task: Task) {
/// let mut critical = clock::now();
/// loop {
///     process_one_message();
///     critical += Span::from_millis(20);
///     task.time_advance(critical).await;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Task {
    cell: Arc<TaskCell>,
}

impl Task {
    pub(crate) fn new(cell: Arc<TaskCell>) -> Self {
        Task { cell }
    }

    /// Ends the present message. The next one is there already, and logically arrives at
    /// `critical`. The task goes on when that message ranks first. If nothing outranks it, that is
    /// at once and without a system call. It may be before `critical` as far as
    /// `Terms::workahead_max` allows.
    pub fn time_advance(&self, critical: Instant) -> TimeAdvance<'_> {
        TimeAdvance { cell: &self.cell, critical, begun: false }
    }

    /// Ends the present message; the next one logically arrives at `until`. The task never goes on
    /// before that.
    pub fn timed_sleep(&self, until: Instant) -> TimedSleep<'_> {
        TimedSleep { cell: &self.cell, until, wait: None }
    }

    /// Ends the present message. The next one comes when `fd` is readable, has reached its
    /// end, or has failed. That message logically arrives when the runtime finds `fd` ready, and
    /// its deadline is the task's delay bound after that.
    ///
    /// One system call if `fd` is ready at once, six otherwise. Another thread waits for `fd`; the
    /// task's thread runs other work meanwhile. Allocates nothing.
    ///
    /// # Errors
    /// `ECANCELED` if the abort phase cuts the wait short, see [`Task::aborting`]; `ENXIO`
    /// outside a runtime; `EMFILE`, `ENOSPC` and `ENOMEM` from the kernel.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// # use std::io::{Read, Write};
    /// # use std::os::unix::net::UnixStream;
    /// use upcall::Task;
    /// async fn echo(task: Task, mut peer: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut bytes = [0; 1024];
    ///     loop {
    ///         task.io_wait(&peer).await?;
    ///         match peer.read(&mut bytes)? {
    ///             0 => return Ok(()),
    ///             // The socket's buffer takes so few: it does not block the thread.
    ///             len => peer.write_all(&bytes[..len])?,
    ///         }
    ///     }
    /// }
    /// ```
    pub fn io_wait<'a>(&'a self, fd: &'a impl AsFd) -> IoWait<'a> {
        self.wait_for(fd.as_fd(), Direction::Readable, None)
    }

    /// As [`Task::io_wait`], until `fd` is writable.
    ///
    /// # Errors
    /// As [`Task::io_wait`].
    pub fn io_wait_writable<'a>(&'a self, fd: &'a impl AsFd) -> IoWait<'a> {
        self.wait_for(fd.as_fd(), Direction::Writable, None)
    }

    /// As [`Task::io_wait`], for a message whose critical time the task knows beforehand, such as
    /// that of a frame in a recording. The message logically arrives at `critical`, not when `fd`
    /// is ready. `critical` may be in the past or in the future. The deadline is the delay bound
    /// after `critical`, so a message that comes later than that counts as missed.
    ///
    /// # Errors
    /// As [`Task::io_wait`].
    pub fn io_wait_at<'a>(&'a self, fd: &'a impl AsFd, critical: Instant) -> IoWait<'a> {
        self.wait_for(fd.as_fd(), Direction::Readable, Some(critical))
    }

    /// A point where the task may be preempted; pass it once for each PDU. Within a quantum it is a
    /// decrement. At the end of a quantum it reads one flag and the clock (in the vDSO). Only past
    /// the next release it asks the scheduler, O(log n). The task yields only if other work
    /// outranks it.
    pub fn checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint { cell: &self.cell, asked: false }
    }

    /// Until the guard is dropped, [`Task::checkpoint`] does not yield. More urgent work comes at
    /// the first checkpoint after the mask. Guards may be nested.
    ///
    /// A masked stretch is one quantum, and one quantum overrun if it takes longer than declared.
    /// The other waits end a message and let other work run even under the mask. Peer domains see
    /// the mask, as that of [`Batch::mask_preemption`](crate::Batch::mask_preemption): a store
    /// more, and a fence at the end.
    pub fn mask_preemption(&self) -> PreemptionMask<'_> {
        self.cell.mask(true);
        PreemptionMask { cell: &self.cell }
    }

    /// Whether the process is ending and the task should end too (rtu-1996 §7.3). Always `false`
    /// for a task without an abort phase
    /// ([`Runtime::give_abort_phase`](crate::Runtime::give_abort_phase)). Once true it stays so. A
    /// load.
    ///
    /// The beginning of the phase cuts short the wait that the task is in. `time_advance` and
    /// `timed_sleep` return before their time. `io_wait` returns `ECANCELED` unless its descriptor
    /// is ready. Waits that begin in the phase are not cut short.
    pub fn aborting(&self) -> bool {
        self.cell.is_aborting()
    }

    /// Completes when [`Task::aborting`] becomes true. Race it with a future from outside this
    /// crate, such as a channel. Awaited alone it ends the message.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// # use std::future::{Future, poll_fn};
    /// # use std::pin::pin;
    /// # use std::task::Poll;
    /// use upcall::Task;
    /// # async fn next_order() -> u32 { 0 }
    /// # fn say_goodbye() {}
    /// # async fn serve(task: Task) {
    /// let mut end = pin!(task.aborted());
    /// let mut order = pin!(next_order());
    /// // The `select!` of a library does the same.
    /// let order = poll_fn(|context| match end.as_mut().poll(context) {
    ///     Poll::Ready(()) => Poll::Ready(None),
    ///     Poll::Pending => order.as_mut().poll(context).map(Some),
    /// });
    /// if order.await.is_none() {
    ///     say_goodbye();
    /// }
    /// # }
    /// ```
    pub async fn aborted(&self) {
        // The phase begins with a wake-up, so no waker is kept.
        let is_there = |_: &mut Context<'_>| match self.aborting() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        std::future::poll_fn(is_there).await;
    }

    /// How many jobs were dropped between the message before and the present one, because they
    /// waited too long ([`Backlog`](crate::activity::Backlog)). 0 in a trial run and in virtual
    /// time. Every poll of a message returns the same number. The call costs one memory read.
    ///
    /// A task that reads a socket or samples should discard the data of that many periods.
    /// Otherwise data that waited stays late for ever. The scheduler has moved the present message
    /// to a later period already. A task that keeps a time of its own must move it by as much:
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Task, time::Span, clock};
    /// # fn process_one_message() {}
    /// # async fn stream(task: Task) {
    /// let period = Span::from_millis(20);
    /// let mut next = clock::now();
    /// loop {
    ///     next += period.saturating_mul(task.jobs_skipped());
    ///     process_one_message();
    ///     next += period;
    ///     task.timed_sleep(next).await;
    /// }
    /// # }
    /// ```
    pub fn jobs_skipped(&self) -> u64 {
        self.cell.jobs_skipped()
    }

    /// When the task was polled last. Does not read the clock.
    pub fn now(&self) -> Instant {
        self.cell.polled_at()
    }

    fn wait_for<'a>(
        &'a self,
        fd: BorrowedFd<'a>,
        direction: Direction,
        critical: Option<Instant>,
    ) -> IoWait<'a> {
        IoWait { cell: &self.cell, fd, direction, critical, state: IoState::New, wait: None }
    }
}

/// Masks preemption until it is dropped. From [`Task::mask_preemption`].
#[derive(Debug)]
#[must_use = "preemption is masked only as long as this lives"]
pub struct PreemptionMask<'a> {
    cell: &'a TaskCell,
}

impl Drop for PreemptionMask<'_> {
    fn drop(&mut self) {
        self.cell.mask(false);
    }
}

/// The future of [`Task::time_advance`]. Only for that task.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct TimeAdvance<'a> {
    cell: &'a TaskCell,
    critical: Instant,
    begun: bool,
}

impl Future for TimeAdvance<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.begun {
            return Poll::Ready(());
        }
        self.begun = true;
        self.cell.request_advance(self.critical);
        Poll::Pending
    }
}

/// The future of [`Task::timed_sleep`]. Only for that task.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct TimedSleep<'a> {
    cell: &'a TaskCell,
    until: Instant,
    /// Set by the first poll.
    wait: Option<Wait>,
}

/// A wait that has begun.
#[derive(Clone, Copy, Debug)]
struct Wait {
    in_abort_phase: bool,
}

impl Wait {
    fn begin(cell: &TaskCell) -> Self {
        Wait { in_abort_phase: cell.is_aborting() }
    }

    /// Whether the abort phase has begun since.
    fn is_cut_short(self, cell: &TaskCell) -> bool {
        !self.in_abort_phase && cell.is_aborting()
    }
}

impl Future for TimedSleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        // Waits once even if the time is over already: the message before ends here.
        if let Some(wait) = self.wait
            && (self.cell.polled_at() >= self.until || wait.is_cut_short(self.cell))
        {
            return Poll::Ready(());
        }
        let cell = self.cell;
        self.wait.get_or_insert_with(|| Wait::begin(cell));
        self.cell.request_sleep(self.until);
        Poll::Pending
    }
}

/// The future of [`Task::io_wait`] and its relatives. Only for that task.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct IoWait<'a> {
    cell: &'a TaskCell,
    fd: BorrowedFd<'a>,
    direction: Direction,
    /// `None`: the message arrives when the descriptor is found ready.
    critical: Option<Instant>,
    state: IoState,
    /// Set by the first poll.
    wait: Option<Wait>,
}

#[derive(Debug)]
enum IoState {
    New,
    /// The descriptor was ready at once: the message only takes its place in the order.
    Advanced,
    Watched(Watch),
}

impl IoWait<'_> {
    fn step(&mut self) -> Result<Poll<()>, OsError> {
        let cell = self.cell;
        let wait = *self.wait.get_or_insert_with(|| Wait::begin(cell));
        match &self.state {
            IoState::Advanced => return Ok(Poll::Ready(())),
            IoState::Watched(watch) if watch.is_ready()? => return Ok(Poll::Ready(())),
            IoState::Watched(_) if wait.is_cut_short(cell) => return Err(CUT_SHORT),
            // The poll had another cause, or another reader was faster.
            IoState::Watched(watch) => watch.arm()?,
            IoState::New if is_ready(self.fd, self.direction)? => {
                self.state = IoState::Advanced;
                self.cell.request_advance(self.critical.unwrap_or_else(|| cell.now()));
                return Ok(Poll::Pending);
            }
            IoState::New => {
                let (readiness, number) = self.cell.watcher().ok_or(NO_RUNTIME)?;
                self.state =
                    IoState::Watched(Watch::new(readiness, self.fd, self.direction, number)?);
            }
        }
        // If the task named no critical time, it is the moment of the wake-up.
        if let Some(critical) = self.critical {
            cell.request_io(critical);
        }
        Ok(Poll::Pending)
    }
}

/// The error of a wait that the abort phase cuts short: `ECANCELED`.
const CUT_SHORT: OsError = OsError::new("io_wait at the end of the process", 125);
/// The error outside a runtime, where no thread watches descriptors: `ENXIO`.
const NO_RUNTIME: OsError = OsError::new("io_wait outside a runtime", 6);

impl Future for IoWait<'_> {
    type Output = Result<(), OsError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.step() {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// The future of [`Task::checkpoint`]. Only for that task.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct Checkpoint<'a> {
    cell: &'a TaskCell,
    asked: bool,
}

impl Future for Checkpoint<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.asked || self.cell.may_go_on() {
            return Poll::Ready(());
        }
        self.asked = true;
        self.cell.request_checkpoint();
        Poll::Pending
    }
}
