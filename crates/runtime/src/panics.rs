//! Panics of handlers: the scheduling thread notes them, another thread writes them.
//!
//! The standard hook resolves the names of a backtrace in the thread that panics. That takes 156 to
//! 300 ms for this crate's tests, which is too long for a scheduling thread: its other handlers
//! wait meanwhile. Noting a panic takes 33 to 54 us with the frames, 4 to 9 us without (debug and
//! release builds, `tests/panics.rs`, a busy machine). So [`crate::Runtime::start`] sets a hook in
//! front of the previous one, once for each process.
//!
//! ```text
//!   scheduling thread                               upcall-panics (ordinary thread)
//!   hook: text, location, frames --16 places-----> resolves names, writes to standard error
//!   |     (full: counted) (1)
//!   +-> the executor ends the handler              Runtime::stop waits for it, a while (2)
//!
//!   any other thread: the previous hook (3)
//! ```
//!
//! 1. Frames are addresses. std has one lock for taking and for resolving them. A scheduling thread
//!    never waits for that lock. So the hook takes no frames while another thread resolves some,
//!    and the message says so.
//! 2. Without this wait, a program that ends right after the panic would lose the message.
//! 3. The previous hook cannot run for a scheduling thread later: its argument lives only in the
//!    thread that panics. A hook that the program sets later replaces this one in all threads.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use upcall_sys::futex;

#[cfg(test)]
mod tests;

/// How many panics may wait to be written.
const WAITING_MAX: usize = 16;

/// How long the end of a runtime waits for messages that are not written yet.
const FLUSH: Duration = Duration::from_secs(2);

/// Messages of panics that end the process as soon as the hook returns. They must be written at
/// once.
const ENDS_PROCESS: [&str; 2] =
    ["panic in a function that cannot unwind", "panic in a destructor during cleanup"];

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Held while a backtrace is taken or its names are resolved.
static FRAMES: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    /// The last panic of this thread, until it is taken.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What `RUST_BACKTRACE` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Off,
    Short,
    Full,
}

impl Style {
    /// Reads the variable as std does.
    fn of(value: Option<&str>) -> Self {
        match value {
            None | Some("0") => Style::Off,
            Some("full") => Style::Full,
            Some(_) => Style::Short,
        }
    }
}

/// A panic, as the thread that panicked noted it.
struct Panic {
    thread: String,
    tid: u32,
    location: String,
    text: String,
    /// `None`: not asked for, or another thread took or resolved frames.
    frames: Option<Backtrace>,
}

/// The panics that scheduling threads hand to the writer. Handing over waits neither for a lock nor
/// for room.
#[derive(Default)]
struct Queue {
    /// Each place is empty or holds a panic to be written. A thread holds the lock to put or take a
    /// panic, never while it writes one.
    places: [Mutex<Option<Panic>>; WAITING_MAX],
    /// Changes with each panic; a futex for the writer.
    word: AtomicU32,
    handed: AtomicU64,
    /// Panics that found no place.
    lost: AtomicU64,
    written: Mutex<u64>,
    changed: Condvar,
}

/// Starts the writer and sets the hook, once for each process. Does nothing if panics abort the
/// process. Does nothing in a thread that is panicking, because such a thread may not set hooks: a
/// later runtime sets it.
///
/// # Errors
/// The thread did not start.
pub(crate) fn install() -> std::io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if cfg!(panic = "abort") || std::thread::panicking() || *installed {
        return Ok(());
    }
    let style = Style::of(std::env::var("RUST_BACKTRACE").ok().as_deref());
    let queue = QUEUE.get_or_init(Queue::default);
    std::thread::Builder::new()
        .name("upcall-panics".to_owned())
        .spawn(move || write_all(queue, style))?;
    *installed = true;
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if IS_WATCHED.get() && note(queue, info, style) {
            return;
        }
        // While the other hook resolves names, scheduling threads take no frames. `try_lock` is
        // used so that two threads can run the other hook at once.
        let _resolves = FRAMES.try_lock();
        before(info);
    }));
    Ok(())
}

/// Marks this thread as a scheduling thread.
pub(crate) fn watch_this_thread() {
    IS_WATCHED.set(true);
}

/// The message and location of the last panic of this scheduling thread; `None` if it was not
/// noted.
pub(crate) fn take_last() -> Option<String> {
    LAST.take()
}

/// Waits until all panics that were handed over are written, at most for two seconds.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.wait(FLUSH);
    }
}

/// Hands a panic over. Returns `false` if the caller must write it at once. Allocates; a system
/// call wakes the writer.
fn note(queue: &Queue, info: &PanicHookInfo<'_>, style: Style) -> bool {
    let text = text_of(info);
    if ENDS_PROCESS.contains(&&*text) {
        queue.wait(FLUSH);
        return false;
    }
    let location = info.location().map_or_else(String::new, ToString::to_string);
    LAST.set(Some(format!("{text} ({location})")));
    let frames = match (style, FRAMES.try_lock()) {
        (Style::Short | Style::Full, Ok(_takes)) => Some(Backtrace::force_capture()),
        _ => None,
    };
    let thread = std::thread::current().name().unwrap_or("<unnamed>").to_owned();
    let tid = upcall_sys::process::thread_id();
    queue.hand(Panic { thread, tid, location, text, frames });
    true
}

impl Queue {
    fn hand(&self, panic: Panic) {
        let free = self.places.iter().find_map(|place| {
            // A locked place is being filled or emptied: try the next one.
            place.try_lock().ok().filter(|place| place.is_none())
        });
        let Some(mut place) = free else {
            // Relaxed: a statistic.
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // Counts the panic before it can be written. Relaxed: a thread that calls `wait` for this
        // panic has seen the end of the panicking handler.
        self.handed.fetch_add(1, Ordering::Relaxed);
        *place = Some(panic);
        drop(place);
        // Release pairs with the Acquire in `write_all`; the lock of the place orders its content.
        self.word.fetch_add(1, Ordering::Release);
        futex::wake(&self.word, 1);
    }

    /// Takes the panics that wait, in no order.
    fn take(&self) -> impl Iterator<Item = Panic> {
        let lock = |place: &Mutex<Option<Panic>>| {
            place.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        self.places.iter().filter_map(lock)
    }

    fn wrote_one(&self) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until all panics that were handed over are written, at most for `within`.
    fn wait(&self, within: Duration) {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let is_behind = |written: &mut u64| *written < self.handed.load(Ordering::Relaxed);
        let _ = self.changed.wait_timeout_while(written, within, is_behind);
    }
}

fn text_of(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("Box<dyn Any>").to_owned()
}

/// The writer's loop. It runs until the process ends.
fn write_all(queue: &Queue, style: Style) {
    let mut hint = match style {
        Style::Off => {
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n"
        }
        Style::Short | Style::Full => "",
    };
    let mut lost_before = 0;
    loop {
        // Reads the word before the places. Acquire pairs with the Release in `hand`.
        let seen = queue.word.load(Ordering::Acquire);
        let mut any = false;
        for panic in queue.take() {
            any = true;
            let lost = queue.lost.load(Ordering::Relaxed);
            let mut text = panic.text(style) + std::mem::take(&mut hint);
            if lost > lost_before {
                text += &format!("note: {} more panics were not written\n", lost - lost_before);
                lost_before = lost;
            }
            // A failure cannot be reported anywhere.
            let _ = std::io::stderr().write_all(text.as_bytes());
            queue.wrote_one();
        }
        if !any {
            // Whatever ends the wait, the loop checks all places again.
            let _ = futex::wait_until(&queue.word, seen, None);
        }
    }
}

impl Panic {
    /// The text that the standard hook writes. Resolves the names of the backtrace.
    fn text(&self, style: Style) -> String {
        let Panic { thread, tid, location, text, frames } = self;
        let message = format!("\nthread '{thread}' ({tid}) panicked at {location}:\n{text}\n");
        let _resolves = FRAMES.lock().unwrap_or_else(PoisonError::into_inner);
        match (style, frames) {
            (Style::Off, _) => message,
            (_, None) => message + "note: no backtrace, because another one was in work\n",
            (Style::Short, Some(frames)) => format!("{message}stack backtrace:\n{frames}"),
            (Style::Full, Some(frames)) => format!("{message}stack backtrace:\n{frames:#}"),
        }
    }
}
