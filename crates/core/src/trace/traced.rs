//! A scheduler that notes its crossings.

use super::crossing::{Crossing, Record, Sink};
use crate::policy::PolicyFactory;
use crate::scheduler::{Command, Input, InputError, Scheduler};
use crate::time::Instant;

/// A scheduler that notes its crossings, if it has a sink. It notes the calls that change the
/// scheduler. Calls that only read go to the scheduler directly ([`core::ops::Deref`]).
#[derive(Debug)]
pub struct Traced<S> {
    scheduler: Scheduler,
    sink: Option<S>,
    /// The `now` of the last call that had one.
    now: Instant,
}

impl<S: Sink> Traced<S> {
    /// Like [`Scheduler::new`]. Without a sink nothing is noted, at the cost of one branch a call.
    pub fn new(capacity: u32, discipline: &impl PolicyFactory) -> Self {
        Traced { scheduler: Scheduler::new(capacity, discipline), sink: None, now: Instant::ZERO }
    }

    /// Sends all further crossings to `sink`. A replay needs the crossings from the first call on.
    pub fn set_sink(&mut self, sink: S) {
        self.sink = Some(sink);
    }

    /// Calls [`Scheduler::handle`].
    ///
    /// # Errors
    /// See [`Scheduler::handle`].
    pub fn handle(&mut self, now: Instant, input: Input) -> Result<(), InputError> {
        self.now = now;
        let result = self.scheduler.handle(now, input);
        self.note(|| Crossing::Input { input, refused: result.is_err() });
        result
    }

    /// Calls [`Scheduler::poll_command`].
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.now = now;
        let command = self.scheduler.poll_command(now);
        self.note(|| Crossing::Command(command));
        command
    }

    /// Calls [`Scheduler::poll_notice`].
    pub fn poll_notice(&mut self) -> Option<Command> {
        let notice = self.scheduler.poll_notice();
        self.note(|| Crossing::Notice(notice));
        notice
    }

    /// The sink, so that the driver can empty it.
    pub fn sink_mut(&mut self) -> Option<&mut S> {
        self.sink.as_mut()
    }

    #[inline]
    fn note(&mut self, crossing: impl FnOnce() -> Crossing) {
        // A crossing is large, so it is made only if there is a sink.
        if let Some(sink) = &mut self.sink {
            sink.note(Record { now: self.now, crossing: crossing() });
        }
    }
}

impl<S> core::ops::Deref for Traced<S> {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}
