//! Tasks: lightweight processes as Rust futures (split-level-1991 §3.1).
//!
//! Created by [`Runtime::task`](crate::Runtime::task), polled by the executor of
//! one CPU, inside an upcall, when the DWS policy puts them before all else. A
//! task handles one message after the other, and says itself when the next is due;
//! between two messages it holds nothing of the executor. [`Task`] is what its
//! code is given; [`TaskCell`] is what both sides see; `work` is the executor's side.
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
//! 1. Admitted; nothing is polled before `run`.
//! 2. Its first message logically arrives at the moment of `run`, plus the offset.
//! 3. `Set` is a message that was said to the core: it is `Ready` when that has come,
//!    or is near enough to work ahead. The best rank is polled. Wake-ups that come
//!    in `Set`, `Ready` or `Running` change nothing: the poll will see what they were for.
//! 4. The message is done, the next one's logical arrival is known. If nobody
//!    outranks the task it is polled again at once: a return, a decision, a call.
//! 5. At a quantum boundary somebody outranks it: its message is not done, and is
//!    gone on with later. Otherwise the checkpoint is a decrement or a clock read.
//! 6. The message is done, the next is not known: it comes at the end of the sleep,
//!    or with a wake-up. `Waiting` for something that is none of ours (a channel,
//!    a lock, a timer of another library) is the same.
//! 7. By any thread, through a bit and the notifier; the new message logically
//!    arrives now, or when `io_wait_at` said. It takes the place of the end of a sleep.
//! 8. The message is dropped. A `run` makes it `Set` again, and polls the future anew.
//! 9. The future is not touched again but to be dropped, by who closes the task.
//!
//! The declared rate holds for real-time tasks: a message whose critical time is
//! less than a period after the last one's is taken as arriving a period after it,
//! and handled before only as work ahead. `Terms::workahead_max` = 0 therefore
//! means: at most one message a period, and whatever ends a message, a wait for a
//! lock as well as `io_wait`, uses one up. Interactive and background tasks have no
//! such limit.
//!
//! When the process ends in an orderly way, a task that was given an abort phase
//! ([`Runtime::give_abort_phase`](crate::Runtime::give_abort_phase)) is woken with
//! [`Task::aborting`] true, out of whatever it waits for, and then polled as before
//! until it ends or the bound has passed. All others are suspended, and dropped.

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

/// What the code of a task is given: the calls by which a task waits, and by which it lets others
/// go first.
///
/// A task is an `async` function that the scheduler polls by deadline. Create one with
/// [`Runtime::task`](crate::Runtime::task), under the policy [`DWS`](crate::policy::dws::DWS). It
/// handles one *message* after the other. Each of the waits below ends a message, and says when the
/// next is due:
///
/// | wait | the next message is there |
/// |---|---|
/// | [`time_advance`](Task::time_advance) | now; its time is the one given, so it may be worked ahead |
/// | [`timed_sleep`](Task::timed_sleep) | at the time given, never before |
/// | [`io_wait`](Task::io_wait) | when a descriptor is ready |
/// | another future's | when that future wakes the task |
///
/// Between two messages a real-time task waits for the declared period at least, unless
/// [`Terms::workahead_max`](crate::activity::Terms::workahead_max) lets it work ahead. A task must
/// not block its thread: use non-blocking descriptors and futures.
///
/// Its futures are to be awaited by that task; awaited by another they do not
/// complete, or complete at the wrong time. They allocate nothing, and each may
/// be dropped unfinished.
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

    /// Ends the present message; the next one is there, and its logical arrival is
    /// `critical`. Goes on when that message is the best of all: at once if nobody
    /// outranks it, without a system call, and before `critical` as far as
    /// `Terms::workahead_max` allows.
    pub fn time_advance(&self, critical: Instant) -> TimeAdvance<'_> {
        TimeAdvance { cell: &self.cell, critical, said: false }
    }

    /// Ends the present message; the next one logically arrives at `until`. Never
    /// goes on before that.
    pub fn timed_sleep(&self, until: Instant) -> TimedSleep<'_> {
        TimedSleep { cell: &self.cell, until, wait: None }
    }

    /// Ends the present message. The next one comes when `fd` is readable, has reached its
    /// end, or has failed. That message logically arrives when the runtime finds `fd` ready, and
    /// its deadline is the task's delay bound after that.
    ///
    /// One system call if `fd` is ready at once, six otherwise. Another thread does the waiting;
    /// the task's thread serves others meanwhile. Allocates nothing.
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
    /// that of a frame in a recording: it logically arrives at `critical`, not when `fd` is ready.
    /// `critical` may have passed or be still to come. The deadline is the delay bound after
    /// `critical`, so a message that comes later than that counts as missed.
    ///
    /// # Errors
    /// As [`Task::io_wait`].
    pub fn io_wait_at<'a>(&'a self, fd: &'a impl AsFd, critical: Instant) -> IoWait<'a> {
        self.wait_for(fd.as_fd(), Direction::Readable, Some(critical))
    }

    /// A point where the task may be preempted: to be passed once a PDU. Within a
    /// quantum it is a decrement; at a quantum's end it reads one flag and the
    /// clock (in the vDSO); only past the next release is the scheduler asked,
    /// O(log n), and only if somebody outranks the task does it yield.
    pub fn checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint { cell: &self.cell, asked: false }
    }

    /// Until the guard is dropped, [`Task::checkpoint`] does not yield. What was to
    /// come first meanwhile comes at the first checkpoint after. May be nested.
    ///
    /// A masked stretch is one quantum, and if it takes longer than declared, one
    /// quantum overrun. The other waits end a message and let others run even so.
    /// Among domains the mask is seen by the others, as that of
    /// [`Batch::mask_preemption`](crate::Batch::mask_preemption) is: a store more, and a
    /// fence at the end.
    pub fn mask_preemption(&self) -> PreemptionMask<'_> {
        self.cell.mask(true);
        PreemptionMask { cell: &self.cell }
    }

    /// Whether the process ends, and the task should come to its end too (rtu-1996 §7.3):
    /// only if it was given an abort phase
    /// ([`Runtime::give_abort_phase`](crate::Runtime::give_abort_phase)). Once true it
    /// stays so. A load.
    ///
    /// What the task awaits when the phase begins is cut short, so that it can look:
    /// `time_advance` and `timed_sleep` return before their time, and `io_wait` with
    /// `ECANCELED` unless its descriptor is ready. Waits that begin in the phase are
    /// whole ones.
    pub fn aborting(&self) -> bool {
        self.cell.is_aborting()
    }

    /// Completes when [`Task::aborting`] becomes true: to be raced with what is none of
    /// ours, such as a channel. Awaited alone it ends the message.
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
    /// // `select!` of a library does the same.
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
        // The phase begins with a wake-up, so no waker need be kept.
        let is_there = |_: &mut Context<'_>| match self.aborting() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        std::future::poll_fn(is_there).await;
    }

    /// When it was polled, without a look at the clock.
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

/// The future of [`Task::time_advance`]. For that task alone.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct TimeAdvance<'a> {
    cell: &'a TaskCell,
    critical: Instant,
    said: bool,
}

impl Future for TimeAdvance<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.said {
            return Poll::Ready(());
        }
        self.said = true;
        self.cell.say_advance(self.critical);
        Poll::Pending
    }
}

/// The future of [`Task::timed_sleep`]. For that task alone.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct TimedSleep<'a> {
    cell: &'a TaskCell,
    until: Instant,
    /// Once it was polled.
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
        // Also if it is over already: the message before ends here.
        if let Some(wait) = self.wait
            && (self.cell.polled_at() >= self.until || wait.is_cut_short(self.cell))
        {
            return Poll::Ready(());
        }
        let cell = self.cell;
        self.wait.get_or_insert_with(|| Wait::begin(cell));
        self.cell.say_sleep(self.until);
        Poll::Pending
    }
}

/// The future of [`Task::io_wait`] and its relatives. For that task alone.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct IoWait<'a> {
    cell: &'a TaskCell,
    fd: BorrowedFd<'a>,
    direction: Direction,
    /// `None`: when the descriptor is found ready.
    critical: Option<Instant>,
    state: IoState,
    /// Once it was polled.
    wait: Option<Wait>,
}

#[derive(Debug)]
enum IoState {
    New,
    /// It was ready at once: it only takes its place in the order.
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
            // Polled for another reason, or another was faster.
            IoState::Watched(watch) => watch.arm()?,
            IoState::New if is_ready(self.fd, self.direction)? => {
                self.state = IoState::Advanced;
                self.cell.say_advance(self.critical.unwrap_or_else(|| cell.now()));
                return Ok(Poll::Pending);
            }
            IoState::New => {
                let (readiness, number) = self.cell.watcher().ok_or(NOBODY)?;
                self.state =
                    IoState::Watched(Watch::new(readiness, self.fd, self.direction, number)?);
            }
        }
        // Said by nobody, it is the moment of the wake-up.
        if let Some(critical) = self.critical {
            cell.say_io(critical);
        }
        Ok(Poll::Pending)
    }
}

/// What is said of a wait that the abort phase ends: `ECANCELED`.
const CUT_SHORT: OsError = OsError::new("io_wait at the end of the process", 125);
/// What is said where nobody watches descriptors, outside a runtime: `ENXIO`.
const NOBODY: OsError = OsError::new("io_wait outside a runtime", 6);

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

/// The future of [`Task::checkpoint`]. For that task alone.
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
        self.cell.say_checkpoint();
        Poll::Pending
    }
}
