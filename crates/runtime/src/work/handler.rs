//! A handler as the runtime keeps it, and how it is called.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::batch::{Batch, Use};
use crate::clock;

/// The code of a user's handler. It is called once a period, and again in the same period if it had
/// to yield.
pub(crate) type Handler = Box<dyn FnMut(&mut Batch<'_>) + Send>;

/// Calls the handler. Returns what it used, and whether it panicked.
pub(crate) fn upcall(handler: &mut Handler, mut batch: Batch<'_>) -> (Use, bool) {
    // A panic is a fault of the handler and ends only the handler. The closure borrows nothing of
    // the runtime but the batch, whose counts stay valid.
    let called = catch_unwind(AssertUnwindSafe(|| handler(&mut batch)));
    (batch.close(clock::now()), called.is_err())
}
