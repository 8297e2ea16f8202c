//! The executive's side of a handler that reads a stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use upcall_core::scheduler::Outcome;
use upcall_shm::stream as shm;

use super::{Inlet, Memory, OpenError};
use crate::batch::{Batch, Use};
use crate::clock;

/// A user's code: called when the level is reached, or the stream has ended.
type StreamHandler = Box<dyn FnMut(&mut Inlet, &mut Batch<'_>) + Send>;

/// A stream's handler, and its end of the stream.
pub(crate) struct StreamWork {
    inlet: Inlet,
    handler: StreamHandler,
    /// `B_wakeup`.
    level: u64,
    has_ended: bool,
}

impl StreamWork {
    /// Allocates.
    pub(crate) fn new(
        inlet: Inlet,
        level: u64,
        handler: impl FnMut(&mut Inlet, &mut Batch<'_>) + Send + 'static,
    ) -> Self {
        StreamWork { inlet, handler: Box::new(handler), level, has_ended: false }
    }

    /// What the executive looks at.
    pub(crate) fn watched(&self) -> Result<shm::Stream<Memory>, OpenError> {
        Ok(self.inlet.stream().attach()?)
    }

    /// Whether the handler found the end of the stream, or panicked: it is not called again.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// `MMS_read` up to its `IO_wait`: releases what was read; whether the level is still to
    /// be waited for.
    pub(crate) fn waits(&mut self) -> bool {
        self.inlet.watch(self.level)
    }

    /// Calls the handler; what it used, and whether it panicked. Once it has found the end of the
    /// stream, it is finished.
    pub(crate) fn upcall(&mut self, mut batch: Batch<'_>) -> (Use, bool) {
        // What was committed before the bell was rung is seen.
        self.inlet.rouse();
        let (handler, inlet) = (&mut self.handler, &mut self.inlet);
        // As for other handlers; the inlet's indexes stay valid.
        let called = catch_unwind(AssertUnwindSafe(|| handler(inlet, &mut batch)));
        let mut used = batch.close(clock::now());
        self.inlet.release();
        if called.is_err() {
            self.inlet.fail();
        }
        if called.is_err() || (self.inlet.closed().is_some() && used.outcome == Outcome::Done) {
            self.has_ended = true;
            used.outcome = Outcome::Finished;
        }
        (used, called.is_err())
    }
}
