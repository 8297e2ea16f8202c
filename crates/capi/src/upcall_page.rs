//! Calls a C handler with the PDUs of a [`Batch`].
//!
//! The executor calls it through the closure that `rts_create` makes, and the running handler
//! through `rts_boundary`. It is on the hot path: it allocates nothing, takes no lock and makes
//! no system call of its own.
//!
//! Batch and `struct rts_shared` are kept in step by whole quanta. The batch grants one quantum
//! at a time. `pdu_granted` is the sum of all granted quanta, and the handler counts up to it
//! without a call. PDUs that are unused when the handler returns are put back. This module
//! keeps the sum in private memory too. So it notices, corrects and counts an impossible
//! `pdu_count`.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use upcall::Batch;
use upcall::time::Instant;

use crate::abi::{Funargs, HandlerFn, Shared};

/// The descriptor of a handler that has none yet.
pub(crate) const NO_DESCRIPTOR: c_int = -1;

/// The memory that a C handler and its scheduler share, and private counts.
///
/// All accesses are relaxed: the counts are statistics, and the handler's own thread writes
/// the words on which the handler acts.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Page {
    pub(crate) shared: Shared,
    pub(crate) upcalls: AtomicU64,
    /// PDUs of the upcalls that returned, and of the running one up to its last boundary.
    pub(crate) pdus: AtomicU64,
    pub(crate) count_errors: AtomicU64,
}

impl Page {
    pub(crate) fn new() -> Self {
        let page = Page::default();
        let size = u32::try_from(size_of::<Shared>()).unwrap_or(0);
        page.shared.size.store(size, Relaxed);
        page.name(NO_DESCRIPTOR);
        page
    }

    /// Sets the descriptor.
    pub(crate) fn name(&self, descriptor: c_int) {
        self.shared.descriptor.store(descriptor.cast_unsigned(), Relaxed);
    }

    fn descriptor(&self) -> c_int {
        self.shared.descriptor.load(Relaxed).cast_signed()
    }

    /// Clears the counts of a trial.
    pub(crate) fn forget(&self) {
        for count in [&self.upcalls, &self.pdus, &self.count_errors] {
            count.store(0, Relaxed);
        }
    }

    /// Prepares the page for an upcall with `batch`.
    fn open(&self, batch: &Batch<'_>) {
        let shared = &self.shared;
        shared.pdu_count.store(0, Relaxed);
        shared.pdu_granted.store(0, Relaxed);
        shared.pdu_max.store(batch.remaining(), Relaxed);
        shared.yield_request.store(0, Relaxed);
        shared.resumed.store(u32::from(batch.resumed()), Relaxed);
        shared.check_at_ns.store(batch.check_at().as_nanos(), Relaxed);
        shared.abort.store(u32::from(batch.aborting()), Relaxed);
        let skipped = u32::try_from(batch.jobs_skipped()).unwrap_or(u32::MAX);
        shared.jobs_skipped.store(skipped, Relaxed);
        shared.finish.store(0, Relaxed);
        shared.next_arrival_ns.store(0, Relaxed);
        shared.messages_waiting.store(0, Relaxed);
        add(&self.upcalls, 1);
    }

    /// Passes on what the handler said in this upcall.
    fn close(&self, batch: &mut Batch<'_>) {
        let shared = &self.shared;
        if shared.finish.load(Relaxed) != 0 {
            batch.finish();
        }
        batch.messages_waiting(shared.messages_waiting.load(Relaxed));
        match shared.next_arrival_ns.load(Relaxed) {
            0 => {}
            at_ns => batch.next_logical_arrival(Instant::from_nanos(at_ns)),
        }
    }
}

/// Adds to a count that only the handler's thread writes.
fn add(count: &AtomicU64, more: u32) {
    count.store(count.load(Relaxed) + u64::from(more), Relaxed);
}

/// A C handler and its arguments.
pub(crate) struct Callee {
    handler: HandlerFn,
    pcb: *mut c_void,
    page: Arc<Page>,
}

// SAFETY: a `Callee` only moves to the thread that calls the handler. The header requires that
// the handler and its pcb may be used there ("in a scheduling thread of the library's").
unsafe impl Send for Callee {}

impl Callee {
    /// # Safety
    /// `handler` may be called with a `Funargs` that holds `pcb`, from one thread at a time,
    /// until the callee is dropped.
    pub(crate) unsafe fn new(handler: HandlerFn, pcb: *mut c_void, page: Arc<Page>) -> Self {
        Callee { handler, pcb, page }
    }

    /// Makes one upcall.
    pub(crate) fn upcall(&mut self, batch: &mut Batch<'_>) {
        self.page.open(batch);
        let present = Present {
            batch: NonNull::from(&mut *batch).cast(),
            page: &self.page,
            granted: Cell::new(0),
            last: Cell::new(0),
            withdrawn: Cell::new(false),
        };
        let mut args = Funargs {
            size: u32::try_from(size_of::<Funargs>()).unwrap_or(0),
            descriptor: self.page.descriptor(),
            pcb: self.pcb,
            smstr: &raw const self.page.shared,
        };
        {
            let _entered = Entered::new(&present);
            // SAFETY: the caller of `Callee::new` promises it. The executor calls a handler only
            // from its own thread, and never while the handler runs.
            unsafe { (self.handler)(&raw mut args) };
        }
        present.settle(batch);
        self.page.close(batch);
    }
}

/// The running upcall of a thread.
struct Present<'a> {
    /// The executor's batch. It is valid while the handler runs. The lifetime is erased.
    batch: NonNull<Batch<'static>>,
    page: &'a Page,
    /// PDUs that the batch granted in this upcall.
    granted: Cell<u32>,
    /// PDUs of the last granted quantum.
    last: Cell<u32>,
    /// The handler suspended itself.
    withdrawn: Cell<bool>,
}

thread_local! {
    static PRESENT: Cell<*const Present<'static>> = const { Cell::new(null()) };
}

/// Makes an upcall the running one of this thread while the value lives. The drop also runs if
/// the handler unwinds.
struct Entered;

impl Entered {
    fn new(present: &Present<'_>) -> Self {
        PRESENT.set(core::ptr::from_ref(present).cast());
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        PRESENT.set(null());
    }
}

/// Calls `show` with the running upcall of this thread, if there is one.
fn with_present<T>(show: impl FnOnce(&Present<'_>) -> T) -> Option<T> {
    let present = PRESENT.try_with(Cell::get).ok()?;
    // SAFETY: the pointer is null, or `Entered::new` set it from a reference that outlives the
    // `Entered`, whose drop sets it to null again. Only this thread uses the pointer, and
    // `Present` is only ever borrowed shared.
    unsafe { present.as_ref() }.map(show)
}

/// Whether this thread is inside a handler.
pub(crate) fn in_handler() -> bool {
    with_present(|_| ()).is_some()
}

/// `rts_boundary`. Returns whether the calling handler may begin one more PDU. Returns `false`
/// if `shared` does not belong to the running upcall of this thread.
pub(crate) fn boundary(shared: *const Shared) -> bool {
    with_present(|present| {
        core::ptr::eq(shared, &raw const present.page.shared) && present.boundary()
    })
    .unwrap_or(false)
}

/// Suspends the running handler of this thread, if it has this descriptor: it gets no further
/// PDU and no further upcall. Returns whether it has.
pub(crate) fn suspend_self(descriptor: c_int) -> bool {
    with_present(|present| {
        let itself = descriptor >= 0 && present.page.descriptor() == descriptor;
        if itself {
            present.withdraw();
        }
        itself
    })
    .unwrap_or(false)
}

impl Present<'_> {
    fn boundary(&self) -> bool {
        if self.withdrawn.get() {
            return false;
        }
        let shared = &self.page.shared;
        // The handler began all granted PDUs, because otherwise it would not ask.
        self.correct(self.granted.get());
        let quantum = self.next_quantum();
        if quantum == 0 {
            return false;
        }
        add(&self.page.pdus, self.last.get());
        let before = self.granted.get();
        self.granted.set(before + quantum);
        self.last.set(quantum);
        shared.pdu_granted.store(before + quantum, Relaxed);
        shared.pdu_count.store(before + 1, Relaxed);
        true
    }

    /// Takes the next quantum from the batch; 0 if there is none now.
    fn next_quantum(&self) -> u32 {
        // SAFETY: `batch` belongs to the executor, which waits in `Callee::upcall` and does not
        // use it before the handler returns. Only this thread finds it, through `PRESENT`.
        // `proceed_quantum` calls no handler, so there is one such borrow at a time.
        let batch = unsafe { &mut *self.batch.as_ptr() };
        let quantum = batch.proceed_quantum();
        let shared = &self.page.shared;
        shared.yield_request.store(u32::from(quantum == 0 && batch.remaining() > 0), Relaxed);
        shared.check_at_ns.store(batch.check_at().as_nanos(), Relaxed);
        quantum
    }

    /// Takes back the granted PDUs that were not begun, and grants no more.
    fn withdraw(&self) {
        let shared = &self.page.shared;
        shared.finish.store(1, Relaxed);
        shared.pdu_granted.store(shared.pdu_count.load(Relaxed), Relaxed);
        self.withdrawn.set(true);
    }

    /// Puts back the PDUs of the last quantum that the handler did not begin.
    fn settle(&self, batch: &mut Batch<'_>) {
        let (granted, last) = (self.granted.get(), self.last.get());
        let count = self.page.shared.pdu_count.load(Relaxed);
        let used = count.clamp(granted - last, granted);
        self.correct(used);
        batch.put_back(granted - used);
        add(&self.page.pdus, last - (granted - used));
    }

    /// Corrects the handler's count to `count`, and counts the correction.
    fn correct(&self, count: u32) {
        let shared = &self.page.shared;
        if shared.pdu_count.load(Relaxed) != count {
            add(&self.page.count_errors, 1);
            shared.pdu_count.store(count, Relaxed);
        }
    }
}
