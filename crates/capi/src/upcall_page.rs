//! The way from a [`Batch`] to a C handler and back.
//!
//! Called by the executor, through the closure that `rts_create` makes; and by the
//! handler it calls, through `rts_boundary`. On the hot path: it allocates nothing,
//! takes no lock and makes no system call of its own.
//!
//! Batch and `struct rts_shared` are kept in step by whole quanta. The batch gives one
//! at a time; `pdu_granted` is the sum of what it gave; the handler counts up to it
//! without a call. What is not used up when it returns is put back. The sum is kept
//! here as well, so a `pdu_count` that cannot be is seen, put right and counted.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use upcall::Batch;

use crate::abi::{Funargs, HandlerFn, Shared};

/// Of a handler that has no descriptor yet.
pub(crate) const NO_DESCRIPTOR: c_int = -1;

/// What a C handler shares with its scheduler, and what we count beside.
///
/// All accesses are relaxed: the counts are statistics, and what the handler acts
/// on is written by its own thread.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Page {
    pub(crate) shared: Shared,
    pub(crate) upcalls: AtomicU64,
    /// PDUs of the upcalls that returned, and of the present one up to its last boundary.
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

    /// Forgets what was counted in a trial.
    pub(crate) fn forget(&self) {
        for count in [&self.upcalls, &self.pdus, &self.count_errors] {
            count.store(0, Relaxed);
        }
    }

    /// Sets the page up for an upcall with `batch`.
    fn open(&self, batch: &Batch<'_>) {
        let shared = &self.shared;
        shared.pdu_count.store(0, Relaxed);
        shared.pdu_granted.store(0, Relaxed);
        shared.pdu_max.store(batch.remaining(), Relaxed);
        shared.yield_request.store(0, Relaxed);
        shared.resumed.store(u32::from(batch.resumed()), Relaxed);
        shared.check_at_ns.store(batch.check_at().as_nanos(), Relaxed);
        shared.abort.store(u32::from(batch.aborting()), Relaxed);
        shared.finish.store(0, Relaxed);
        add(&self.upcalls, 1);
    }
}

/// Adds to a count that only the handler's thread writes.
fn add(count: &AtomicU64, more: u32) {
    count.store(count.load(Relaxed) + u64::from(more), Relaxed);
}

/// A C handler, with what it is called with.
pub(crate) struct Callee {
    handler: HandlerFn,
    pcb: *mut c_void,
    page: Arc<Page>,
}

// SAFETY: a `Callee` is only moved to the thread that calls the handler. That the
// handler and its pcb may be used there is what the header asks of the program
// ("in a scheduling thread of the library's").
unsafe impl Send for Callee {}

impl Callee {
    /// # Safety
    /// `handler` may be called with a `Funargs` that holds `pcb`, from any one thread
    /// at a time, until the callee is dropped.
    pub(crate) unsafe fn new(handler: HandlerFn, pcb: *mut c_void, page: Arc<Page>) -> Self {
        Callee { handler, pcb, page }
    }

    /// One upcall.
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
            // SAFETY: `Callee::new`'s caller promised it; the executor calls a
            // handler from its own thread only, and never while it runs.
            unsafe { (self.handler)(&raw mut args) };
        }
        present.settle(batch);
        if self.page.shared.finish.load(Relaxed) != 0 {
            batch.finish();
        }
    }
}

/// The upcall that a thread is in.
struct Present<'a> {
    /// The executor's batch, good as long as the handler runs; its lifetime is
    /// cut off here.
    batch: NonNull<Batch<'static>>,
    page: &'a Page,
    /// PDUs the batch gave in this upcall ...
    granted: Cell<u32>,
    /// ... and how many of them last.
    last: Cell<u32>,
    /// The handler suspended itself.
    withdrawn: Cell<bool>,
}

thread_local! {
    static PRESENT: Cell<*const Present<'static>> = const { Cell::new(null()) };
}

/// Makes an upcall the thread's present one as long as this lives, also if the
/// handler unwinds.
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

/// Shows the upcall that this thread is in, if it is in one.
fn with_present<T>(show: impl FnOnce(&Present<'_>) -> T) -> Option<T> {
    let present = PRESENT.try_with(Cell::get).ok()?;
    // SAFETY: null, or set by `Entered::new` from a reference that outlives the
    // `Entered`, which sets it back to null. It is the thread's own, and `Present`
    // is only ever borrowed shared.
    unsafe { present.as_ref() }.map(show)
}

/// Whether this thread is inside a handler.
pub(crate) fn in_handler() -> bool {
    with_present(|_| ()).is_some()
}

/// `rts_boundary`: whether the handler that calls may begin one more PDU. `false`
/// if `shared` is not that of the upcall this thread is in.
pub(crate) fn boundary(shared: *const Shared) -> bool {
    with_present(|present| {
        core::ptr::eq(shared, &raw const present.page.shared) && present.boundary()
    })
    .unwrap_or(false)
}

/// Suspends the handler that this thread is in, if its descriptor is this: no
/// further PDU, and no further upcall.
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
        // All that was given is begun, or we would not be asked.
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

    /// Asks the batch.
    fn next_quantum(&self) -> u32 {
        // SAFETY: `batch` is the executor's, which waits in `Callee::upcall` and
        // does not use it before the handler returned; this thread is the only one
        // that finds it, by `PRESENT`; and `proceed_quantum` calls no handler, so
        // there is one such borrow at a time.
        let batch = unsafe { &mut *self.batch.as_ptr() };
        let quantum = batch.proceed_quantum();
        let shared = &self.page.shared;
        shared.yield_request.store(u32::from(quantum == 0 && batch.remaining() > 0), Relaxed);
        shared.check_at_ns.store(batch.check_at().as_nanos(), Relaxed);
        quantum
    }

    /// Takes back what was given and not begun, and gives no more.
    fn withdraw(&self) {
        let shared = &self.page.shared;
        shared.finish.store(1, Relaxed);
        shared.pdu_granted.store(shared.pdu_count.load(Relaxed), Relaxed);
        self.withdrawn.set(true);
    }

    /// Gives the batch back what the handler did not begin of its last quantum.
    fn settle(&self, batch: &mut Batch<'_>) {
        let (granted, last) = (self.granted.get(), self.last.get());
        let count = self.page.shared.pdu_count.load(Relaxed);
        let used = count.clamp(granted - last, granted);
        self.correct(used);
        batch.put_back(granted - used);
        add(&self.page.pdus, last - (granted - used));
    }

    /// Sets the handler's count to what it must be, and notes if it was not.
    fn correct(&self, count: u32) {
        let shared = &self.page.shared;
        if shared.pdu_count.load(Relaxed) != count {
            add(&self.page.count_errors, 1);
            shared.pdu_count.store(count, Relaxed);
        }
    }
}
