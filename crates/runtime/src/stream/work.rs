//! The executor's side of a handler that has an end of a stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use upcall_core::scheduler::Outcome;
use upcall_shm::stream as shm;

use super::{End, Inlet, Memory, Outlet, StreamOpenError};
use crate::batch::{Batch, Use};
use crate::clock;

/// A handler, and its end of a stream: called when the level is reached, or the stream is closed.
pub(crate) struct StreamWork {
    tie: Tie,
    /// `B_wakeup`: so much to be read, or so much room.
    level: u64,
    has_ended: bool,
}

enum Tie {
    Reads(Inlet, Handler<Inlet>),
    Writes(Outlet, Handler<Outlet>),
}

/// A user's code.
type Handler<E> = Box<dyn FnMut(&mut E, &mut Batch<'_>) + Send>;

impl StreamWork {
    /// A handler that reads. Allocates.
    pub(crate) fn reads(
        inlet: Inlet,
        level: u64,
        handler: impl FnMut(&mut Inlet, &mut Batch<'_>) + Send + 'static,
    ) -> Self {
        StreamWork { tie: Tie::Reads(inlet, Box::new(handler)), level, has_ended: false }
    }

    /// A handler that writes. Allocates.
    pub(crate) fn writes(
        outlet: Outlet,
        level: u64,
        handler: impl FnMut(&mut Outlet, &mut Batch<'_>) + Send + 'static,
    ) -> Self {
        StreamWork { tie: Tie::Writes(outlet, Box::new(handler)), level, has_ended: false }
    }

    /// What the executor looks at: the bell of this end.
    pub(crate) fn watched(&self) -> Result<(shm::Stream<Memory>, End), StreamOpenError> {
        Ok(match &self.tie {
            Tie::Reads(inlet, _) => (inlet.stream().attach()?, End::Reader),
            Tie::Writes(outlet, _) => (outlet.stream().attach()?, End::Writer),
        })
    }

    /// Whether the handler found the end of the stream, or panicked: it is not called again.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// `MMS_read` or `MMS_write` up to its `IO_wait`: releases what was read, or commits what was
    /// written; whether the level is still to be waited for.
    pub(crate) fn waits(&mut self) -> bool {
        match &mut self.tie {
            Tie::Reads(inlet, _) => inlet.watch(self.level),
            Tie::Writes(outlet, _) => outlet.watch(self.level),
        }
    }

    /// Calls the handler; what it used, and whether it panicked. Once it has found the end of the
    /// stream, it is finished.
    pub(crate) fn upcall(&mut self, mut batch: Batch<'_>) -> (Use, bool) {
        // What was published before the bell was rung is seen. Of what follows the indexes stay valid
        // if the handler panics.
        let called = match &mut self.tie {
            Tie::Reads(inlet, handler) => {
                inlet.rouse();
                catch_unwind(AssertUnwindSafe(|| handler(inlet, &mut batch)))
            }
            Tie::Writes(outlet, handler) => {
                outlet.rouse();
                outlet.look();
                catch_unwind(AssertUnwindSafe(|| handler(outlet, &mut batch)))
            }
        };
        let mut used = batch.close(clock::now());
        let panicked = called.is_err();
        let is_closed = match &mut self.tie {
            Tie::Reads(inlet, _) => {
                inlet.release();
                if panicked {
                    inlet.fail();
                }
                inlet.closed().is_some()
            }
            Tie::Writes(outlet, _) => {
                if panicked {
                    outlet.fail();
                } else {
                    // That nobody reads it is kept for the next line.
                    let _ = outlet.commit();
                }
                outlet.closed().is_some()
            }
        };
        if panicked || (is_closed && used.outcome == Outcome::Done) {
            self.has_ended = true;
            used.outcome = Outcome::Finished;
        }
        (used, panicked)
    }
}
