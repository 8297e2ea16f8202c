//! The context of the current thread: whether it is an executor or may wait, and the dispatcher
//! whose handler it runs.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::mailbox::Shared;

/// The dispatcher whose handler runs in this thread, and the handlers that led to the event it
/// handles, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    /// The dispatcher's number. 0 for none.
    pub(super) dispatcher: u16,
    pub(super) led_by: u64,
}

thread_local! {
    static ORIGIN: Cell<Origin> = const { Cell::new(Origin { dispatcher: 0, led_by: 0 }) };
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
    static WAITS_FOR_NONE: Cell<bool> = const { Cell::new(false) };
    /// Set in scheduling threads only.
    static EXECUTOR: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

pub(super) fn origin() -> Origin {
    ORIGIN.get()
}

pub(super) fn set_origin(origin: Origin) {
    ORIGIN.set(origin);
}

/// Runs a user's code for a dispatcher. Returns whether the code panicked.
pub(super) fn in_handler(code: impl FnOnce()) -> bool {
    IN_HANDLER.set(true);
    // A panic ends only the registrant: the dispatcher's state is valid between two calls.
    let called = catch_unwind(AssertUnwindSafe(code));
    IN_HANDLER.set(false);
    ORIGIN.set(Origin::default());
    called.is_err()
}

/// Marks this thread as an executor.
pub(crate) fn set_executor(shared: &Arc<Shared>) {
    EXECUTOR.set(Some(shared.clone()));
}

/// Whether this thread is an executor, which must not wait.
#[inline]
pub(super) fn is_executor() -> bool {
    EXECUTOR.with_borrow(Option::is_some)
}

/// Marks this thread as one that goes before handlers and serves many targets. So it waits for no
/// ordinary thread, which a handler may have preempted.
pub(crate) fn set_waits_for_none() {
    WAITS_FOR_NONE.set(true);
}

/// Whether this thread must not wait until another one has raised.
pub(super) fn waits_for_none() -> bool {
    is_executor() || WAITS_FOR_NONE.get()
}

/// Whether this thread may wait for a dispatcher. An executor must not, nor the thread of an I/O
/// event service, and no thread may inside a handler.
pub(super) fn may_wait() -> bool {
    !waits_for_none() && !IN_HANDLER.get()
}

/// Asks for a new scheduling decision. An executor makes it at its next boundary. In another thread
/// the kernel makes it at once.
pub(super) fn invoke_scheduler() {
    let is_executor = EXECUTOR
        .with_borrow(|shared| shared.as_ref().inspect(|shared| shared.notifier.notify()).is_some());
    if !is_executor {
        std::thread::yield_now();
    }
}
