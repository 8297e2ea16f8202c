//! The one runtime a process has behind the C calls, and its descriptors.
//!
//! `calls` uses it, from any thread except that of a handler. One lock guards all of it. No
//! thread holds the lock while it sleeps in `rts_sleep`. The thread `upcall-collect` collects
//! the records of finished jobs, because C programs have no call for that.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use upcall::activity::{ActivityParams, Terms};
use upcall::time::Span;
use upcall::{HandlerId, Need, Runtime, clock};

use crate::abi::{DESCRIPTORS_MAX, HandlerFn, Offence, Statistics};
use crate::error::{Failed, Failure, answer};
use crate::setup::Wish;
use crate::signals::Blocked;
use crate::upcall_page::{Callee, Page, in_handler};

/// How often records are collected, and how often sleepers check for changes without a
/// notification.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time that handlers with an abort phase have when the program exits.
const AT_EXIT_WITHIN: Duration = Duration::from_millis(500);

type Guard = MutexGuard<'static, Option<Library>>;

static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);
/// Number of the process that used the library first; 0: none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// How many times the library was set up in this process.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

struct Library {
    runtime: Runtime,
    /// Open handlers, by descriptor.
    open: Vec<Option<Open>>,
    /// Number of this set-up. A later set-up has another number.
    generation: u64,
    collector: Collector,
    /// Offences that the program has not taken yet.
    offences: VecDeque<upcall::Offence>,
}

/// An open descriptor.
struct Open {
    id: HandlerId,
    page: Arc<Page>,
}

struct Collector {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The checked arguments of `rts_create`.
pub(crate) struct Wanted {
    pub(crate) name: Option<String>,
    pub(crate) params: ActivityParams,
    pub(crate) terms: Terms,
    /// Descriptor of the handler whose CPU is asked for.
    pub(crate) same_cpu_as: Option<c_int>,
    pub(crate) handler: HandlerFn,
    pub(crate) pcb: *mut c_void,
    pub(crate) abort_phase: bool,
}

impl Library {
    fn start(wish: Wish) -> Result<Self, Failure> {
        register_at_exit();
        let blocked = Blocked::new();
        let runtime = Runtime::start(wish.config()?)?;
        // Relaxed: the number only has to be unique.
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let collector = Collector::start()?;
        drop(blocked);
        let offences = VecDeque::new();
        Ok(Library { runtime, open: Vec::new(), generation, collector, offences })
    }

    fn open(&self, descriptor: c_int) -> Result<&Open, Failure> {
        usize::try_from(descriptor)
            .ok()
            .and_then(|at| self.open.get(at)?.as_ref())
            .ok_or_else(|| not_open(descriptor))
    }
}

impl Collector {
    fn start() -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("upcall-collect".to_owned())
            .spawn(move || collect(&stopped))
            .map_err(|error| Failure::new(Failed::NoThread, error.to_string()))?;
        Ok(Collector { stop, thread })
    }

    fn end(self) {
        // Relaxed: the flag publishes no other memory, and joining synchronises.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

fn collect(stop: &AtomicBool) {
    // Relaxed: see `Collector::end`.
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(LOOK_EVERY);
        match LIBRARY.try_lock() {
            Ok(mut guard) => {
                if let Some(library) = guard.as_mut() {
                    library.runtime.poll(|_, _| {});
                }
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => return,
        }
    }
}

fn not_open(descriptor: c_int) -> Failure {
    Failure::new(Failed::Descriptor, format!("{descriptor} is no open descriptor"))
}

/// Checks that this thread and process may wait for the lock.
fn check_caller() -> Result<(), Failure> {
    if in_handler() {
        return Err(Failure::plain(Failed::InHandler));
    }
    let here = std::process::id();
    // Relaxed: a process sees its own stores, and a forked child sees those of its parent.
    // The owner is set before the lock is first taken. So a child never waits for a lock that
    // a thread of its parent held.
    match OWNER.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
        Err(owner) if owner != here => Err(Failure::plain(Failed::Forked)),
        _ => Ok(()),
    }
}

fn lock() -> Result<Guard, Failure> {
    check_caller()?;
    LIBRARY.lock().map_err(|_| Failure::plain(Failed::Broken))
}

/// Calls `show` with the library. Sets the library up with defaults if it is not set up yet.
fn with_started<T>(show: impl FnOnce(&mut Library) -> Result<T, Failure>) -> Result<T, Failure> {
    let mut guard = lock()?;
    let library = match guard.take() {
        Some(library) => library,
        None => Library::start(Wish::default())?,
    };
    show(guard.insert(library))
}

/// Calls `show` with the library and the handler of `descriptor`.
fn with_open<T>(
    descriptor: c_int,
    show: impl FnOnce(&mut Library, HandlerId) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut guard = lock()?;
    let library = guard.as_mut().ok_or_else(|| not_open(descriptor))?;
    let id = library.open(descriptor)?.id;
    show(library, id)
}

/// `rts_init`.
pub(crate) fn init(wish: Wish) -> Result<(), Failure> {
    let mut guard = lock()?;
    if guard.is_some() {
        return Err(Failure::plain(Failed::Started));
    }
    *guard = Some(Library::start(wish)?);
    Ok(())
}

/// `rts_exit`. Blocks up to half a second.
pub(crate) fn exit() -> Result<(), Failure> {
    check_caller()?;
    end(LIBRARY.lock().unwrap_or_else(PoisonError::into_inner), None)
}

/// `rts_abort`. Blocks for `within` and half a second at most.
pub(crate) fn abort(within: Span) -> Result<(), Failure> {
    check_caller()?;
    end(LIBRARY.lock().unwrap_or_else(PoisonError::into_inner), Some(within))
}

/// Ends the library behind the lock. `abort_within` is the length of the abort phase; `None`:
/// there is none.
fn end(mut guard: Guard, abort_within: Option<Span>) -> Result<(), Failure> {
    LIBRARY.clear_poison();
    let Some(Library { runtime, collector, .. }) = guard.take() else { return Ok(()) };
    // Under the lock, so that the next set-up finds the CPUs free.
    let report = match abort_within {
        Some(within) => runtime.abort(Some(clock::after(within)), |_, _| {}),
        None => runtime.stop(|_, _| {}),
    };
    drop(guard);
    collector.end();
    let found = match (report.stuck.as_slice(), report.unfinished.as_slice()) {
        ([], []) => return Ok(()),
        ([], unfinished) => {
            format!("`{}` did not finish its abort phase in time", unfinished.join("`, `"))
        }
        (stuck, _) => {
            format!("the handler that runs on CPU {stuck:?} did not return in half a second")
        }
    };
    Err(Failure::new(Failed::Stuck, found))
}

/// Ends the handlers when the process exits, after the abort phase of those that have one.
/// exit(3) calls it, in the thread that called exit. It does nothing in a handler or in a
/// forked child.
extern "C" fn at_exit() {
    answer(|| {
        check_caller()?;
        let give_up = clock::now() + Span::from(AT_EXIT_WITHIN);
        loop {
            match LIBRARY.try_lock() {
                Ok(guard) => return end(guard, Some(AT_EXIT_WITHIN.into())).map(|()| 0),
                // A call panicked under the lock. The state of the library is unknown.
                Err(TryLockError::Poisoned(_)) => return Ok(0),
                // Another thread holds the lock. So does this thread if a signal handler
                // called exit.
                Err(TryLockError::WouldBlock) if clock::now() >= give_up => return Ok(0),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
}

/// Registers [`at_exit`], once per process.
fn register_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `at_exit` takes no arguments and does not unwind (`answer`). If the library
        // is unloaded, `at_exit` is called first. Handlers that do not return in time then
        // lose their code, as with any dlclose(3).
        // atexit fails only if memory runs out. Then the handlers end with the process.
        let _ = unsafe { libc::atexit(at_exit) };
    });
}

/// The notice at `index`, as text.
pub(crate) fn notice(index: u32) -> Result<Option<String>, Failure> {
    with_started(|library| {
        Ok(library.runtime.notices().get(index as usize).map(ToString::to_string))
    })
}

/// The oldest offence that was not taken yet.
pub(crate) fn next_offence() -> Result<Option<Offence>, Failure> {
    with_started(|library| {
        let Library { runtime, offences, .. } = library;
        if offences.is_empty() {
            offences.extend(runtime.offences());
        }
        Ok(offences.pop_front().map(|offence| Offence {
            size: 0,
            cpu: offence.cpu,
            measure: offence.measure as u32,
            reserved: 0,
            held_ns: offence.held.as_nanos(),
        }))
    })
}

/// `rts_create`. Returns the descriptor, and the page, which lives until the descriptor is
/// closed.
///
/// # Safety
/// As for [`Callee::new`]: the handler may be called with the pcb until it is closed.
pub(crate) unsafe fn create(wanted: Wanted) -> Result<(c_int, Arc<Page>), Failure> {
    with_started(|library| {
        let place = library.open.iter().position(Option::is_none).unwrap_or(library.open.len());
        let descriptor = c_int::try_from(place).ok().filter(|_| place < DESCRIPTORS_MAX);
        let full = || Failure::new(Failed::Full, format!("{DESCRIPTORS_MAX} handlers are open"));
        let descriptor = descriptor.ok_or_else(full)?;
        let name = wanted.name.unwrap_or_else(|| format!("rts{descriptor}"));
        let mut need = Need::from((wanted.params, wanted.terms));
        if let Some(other) = wanted.same_cpu_as {
            need = need.same_cpu_as(library.open(other)?.id);
        }
        let page = Arc::new(Page::new());
        // SAFETY: the caller promises it, and the runtime calls a handler from one thread at
        // a time.
        let mut callee = unsafe { Callee::new(wanted.handler, wanted.pcb, page.clone()) };
        let upcall = move |batch: &mut upcall::Batch<'_>| callee.upcall(batch);
        let id = library.runtime.handler(&name, need, upcall)?;
        if wanted.abort_phase {
            library.runtime.give_abort_phase(id);
        }
        page.forget();
        page.name(descriptor);
        let open = Some(Open { id, page: page.clone() });
        match library.open.get_mut(place) {
            Some(free) => *free = open,
            None => library.open.push(open),
        }
        Ok((descriptor, page))
    })
}

/// `rts_run`.
pub(crate) fn run(descriptor: c_int) -> Result<(), Failure> {
    with_open(descriptor, |library, id| Ok(library.runtime.run(id)?))
}

/// `rts_cpu`.
pub(crate) fn cpu(descriptor: c_int) -> Result<c_int, Failure> {
    with_open(descriptor, |library, id| {
        let place = library.runtime.place(id).and_then(|(cpu, _)| c_int::try_from(cpu).ok());
        place.ok_or_else(|| not_open(descriptor))
    })
}

/// `rts_suspend`.
pub(crate) fn suspend(descriptor: c_int) -> Result<(), Failure> {
    with_open(descriptor, |library, id| {
        library.runtime.suspend(id);
        Ok(())
    })
}

/// `rts_close`. Blocks until the handler has returned, up to half a second.
pub(crate) fn close(descriptor: c_int) -> Result<(), Failure> {
    with_open(descriptor, |library, id| {
        if library.runtime.close(id).is_none() {
            let found = format!("handler {descriptor} did not return in half a second");
            return Err(Failure::new(Failed::Stuck, found));
        }
        let place = usize::try_from(descriptor).ok();
        if let Some(open) = place.and_then(|place| library.open.get_mut(place)) {
            *open = None;
        }
        Ok(())
    })
}

/// `rts_sleep`. Returns the descriptors of `waited` that are not active, or an empty list if
/// `timeout` passed.
pub(crate) fn sleep(waited: &[c_int], timeout: Option<Span>) -> Result<Vec<c_int>, Failure> {
    check_caller()?;
    let deadline = timeout.map(clock::after);
    let Some(&first) = waited.first() else { return Ok(Vec::new()) };
    // Descriptors are reused, ids are not.
    let (ids, endings, generation) = with_open(first, |library, _| {
        let ids: Result<Vec<HandlerId>, Failure> =
            waited.iter().map(|&descriptor| Ok(library.open(descriptor)?.id)).collect();
        Ok((ids?, library.runtime.endings(), library.generation))
    })?;
    loop {
        let seen = endings.count();
        let inactive: Vec<c_int> = {
            let guard = lock()?;
            // After the library ended, no handler is active.
            let same = guard.as_ref().filter(|library| library.generation == generation);
            let is_active = |id| same.is_some_and(|library| library.runtime.is_active(id));
            let both = waited.iter().zip(&ids);
            both.filter(|&(_, &id)| !is_active(id)).map(|(&descriptor, _)| descriptor).collect()
        };
        let now = clock::now();
        if !inactive.is_empty() || deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(inactive);
        }
        let look_at = now + Span::from(LOOK_EVERY);
        endings.wait_past(seen, Some(deadline.map_or(look_at, |deadline| deadline.min(look_at))));
    }
}

/// `rts_statistics`.
pub(crate) fn statistics(descriptor: c_int) -> Result<Statistics, Failure> {
    with_open(descriptor, |library, id| {
        // Read before the records are collected: a handler seen inactive has sent all of its
        // records.
        let active = library.runtime.is_active(id);
        library.runtime.poll(|_, _| {});
        let page = library.open(descriptor)?.page.clone();
        let of_jobs = library.runtime.statistics(id).ok_or_else(|| not_open(descriptor))?;
        // Relaxed: statistics, see `Page`.
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let ns = |percent| of_jobs.response.percentile(percent).as_nanos();
        Ok(Statistics {
            size: 0,
            active: u32::from(active),
            upcalls: count(&page.upcalls),
            pdus: count(&page.pdus),
            jobs: of_jobs.jobs,
            misses: of_jobs.misses,
            quantum_overruns: of_jobs.quantum_overruns,
            count_errors: count(&page.count_errors),
            response_ns_p50: ns(50.0),
            response_ns_p99: ns(99.0),
            response_ns_max: of_jobs.response.max().as_nanos(),
            wakeup_ns_max: of_jobs.wakeup.max().as_nanos(),
            cost_ns_mean: of_jobs.cost.mean().map_or(0, Span::as_nanos),
            slack_ns_min: of_jobs.slack_ns_min.unwrap_or(i64::MAX),
            skipped: of_jobs.skipped,
        })
    })
}
