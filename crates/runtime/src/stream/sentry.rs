//! Hears that processes at the other ends are gone, and says so to the streams.
//!
//! One ordinary thread a process, `upcall-sentry`, for all its streams, from the first descriptor that it
//! is to watch ([`Stream::guard`]) to the end of the process. It sleeps in epoll. With or
//! without a daemon: who has a stream with another process has something of that process which hangs up.
//!
//! ```text
//!   Stream::guard:  memory of the stream --has--> Guard: watch of the descriptor, number
//!                   posts: number ---------------> the memory (weakly), the end that it tells of
//!   hangs up:       number --> post --> mark_dead, and the other end is woken
//!   last copy of the stream gone:  the guard with its descriptor, and its post
//! ```

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use upcall_sys::OsError;
use upcall_sys::readiness::{Direction, Readiness, Watch};

use super::{End, Mapped, Memory, Stream};

static SENTRY: OnceLock<Sentry> = OnceLock::new();

struct Sentry {
    readiness: Arc<Readiness>,
    posts: Mutex<Posts>,
}

#[derive(Default)]
struct Posts {
    /// Of the next one. Numbers are not used again.
    number: u64,
    all: HashMap<u64, (Weak<Mapped>, End)>,
}

/// What one stream has of a process: watched until dropped.
#[derive(Debug)]
pub(super) struct Guard {
    number: u64,
    /// Has a descriptor of its own for the open file.
    _watch: Watch,
}

impl Guard {
    /// `end` of the stream with this memory is gone once `fd` is readable or hangs up. Starts the
    /// thread, if it is the first.
    pub(super) fn new(fd: BorrowedFd<'_>, memory: &Arc<Mapped>, end: End) -> Result<Self, OsError> {
        let sentry = Sentry::of_this_process()?;
        let number = {
            let mut posts = sentry.posts();
            posts.number += 1;
            let number = posts.number;
            // Before it is watched: it may be gone already.
            posts.all.insert(number, (Arc::downgrade(memory), end));
            number
        };
        match Watch::new(&sentry.readiness, fd, Direction::Readable, number) {
            Ok(watch) => Ok(Guard { number, _watch: watch }),
            Err(error) => {
                sentry.posts().all.remove(&number);
                Err(error)
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(sentry) = SENTRY.get() {
            sentry.posts().all.remove(&self.number);
        }
    }
}

impl Sentry {
    fn of_this_process() -> Result<&'static Sentry, OsError> {
        /// Of two first ones at a time one starts it.
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sentry) = SENTRY.get() {
            return Ok(sentry);
        }
        let readiness = Arc::new(Readiness::new()?);
        let heard = readiness.clone();
        std::thread::Builder::new()
            .name("upcall-sentry".to_owned())
            .spawn(move || while heard.wait(Sentry::tell) {})
            .map_err(|error| OsError::new("clone", error.raw_os_error().unwrap_or(0)))?;
        Ok(SENTRY.get_or_init(|| Sentry { readiness, posts: Mutex::default() }))
    }

    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was watched under `number` is gone.
    fn tell(number: u64) {
        let Some(sentry) = SENTRY.get() else { return };
        let post = sentry.posts().all.remove(&number);
        // Behind the lock: the last copy of a stream may go here, and its guards with it.
        let memory = post.and_then(|(memory, end)| Some((memory.upgrade()?, end)));
        if let Some((memory, end)) = memory {
            // A spoilt stream has nobody who could be told.
            let _ = Stream { memory: Memory(memory) }.mark_dead(end);
        }
    }
}
