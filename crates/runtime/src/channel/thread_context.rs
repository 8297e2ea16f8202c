//! Where the code that raises or calls runs: in which handler of which desk, and whether in a scheduling
//! thread.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::executor::Shared;

/// Whose handler runs in this thread, and the handlers that led to what it handles: a bit for each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    /// 0: none.
    pub(super) desk: u16,
    pub(super) led_by: u64,
}

thread_local! {
    static ORIGIN: Cell<Origin> = const { Cell::new(Origin { desk: 0, led_by: 0 }) };
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
    /// Of a scheduling thread.
    static EXECUTOR: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

pub(super) fn origin() -> Origin {
    ORIGIN.get()
}

pub(super) fn set_origin(origin: Origin) {
    ORIGIN.set(origin);
}

/// Runs a user's code for a desk; whether it panicked.
pub(super) fn in_handler(code: impl FnOnce()) -> bool {
    IN_HANDLER.set(true);
    // A panic is the handler's fault and ends only its party: the desk is whole between two calls.
    let called = catch_unwind(AssertUnwindSafe(code));
    IN_HANDLER.set(false);
    ORIGIN.set(Origin::default());
    called.is_err()
}

/// Says that this thread is an executor.
pub(crate) fn set_executor(shared: &Arc<Shared>) {
    EXECUTOR.set(Some(shared.clone()));
}

/// Whether this thread may not wait.
#[inline]
pub(super) fn is_executor() -> bool {
    EXECUTOR.with_borrow(Option::is_some)
}

/// Whether it may wait for a desk: it is not in a handler of one.
pub(super) fn may_wait() -> bool {
    !is_executor() && !IN_HANDLER.get()
}

/// Has whoever schedules this thread decide anew: the executor at the next boundary, or the kernel now.
pub(super) fn invoke_scheduler() {
    let is_executor = EXECUTOR
        .with_borrow(|shared| shared.as_ref().inspect(|shared| shared.doorbell.ring()).is_some());
    if !is_executor {
        std::thread::yield_now();
    }
}
