//! The thread that waits for the descriptors of tasks and of user interrupts.
//!
//! The runtime starts it with the first of either. The thread only sets a bit and notifies an
//! executor, so it has a higher priority than the handlers, as an interrupt would.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use upcall_core::activity::ActivityId;
use upcall_shm::kernel_area::Interrupt;
use upcall_sys::readiness::Readiness;

use crate::mailbox::Shared;
use crate::thread_error::ThreadError;

/// Stands in place of a task's number for an interrupt of the executor itself.
const INTERRUPT: u32 = u32::MAX;

/// See the module's head. The thread ends when the value is dropped.
pub(crate) struct Reactor {
    readiness: Arc<Readiness>,
    /// The executors to notify, by number. Controllers and the thread lock the list, executors
    /// never do.
    executors: Arc<Mutex<Vec<Arc<Shared>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reactor {
    /// Starts the thread, in the real-time class at `priority` if there is one. Allocates.
    ///
    /// # Errors
    /// The thread did not start.
    pub(crate) fn start(priority: Option<u8>) -> Result<Self, ThreadError> {
        let readiness = Arc::new(Readiness::new()?);
        let executors = Arc::new(Mutex::new(Vec::<Arc<Shared>>::new()));
        let (watched, woken) = (readiness.clone(), executors.clone());
        let thread = std::thread::Builder::new().name("upcall-io".to_owned()).spawn(move || {
            // Without the right it stays an ordinary thread. The notice of the executors already
            // says that the right is missing.
            if let Some(priority) = priority {
                let _ = upcall_sys::schedule::set_fifo(priority);
            }
            while watched.wait(|number| wake(&woken, number)) {}
        })?;
        Ok(Reactor { readiness, executors, thread: Some(thread) })
    }

    /// The set that watches descriptors, and the number that interrupts an executor.
    pub(crate) fn interrupter(&self, shared: &Arc<Shared>) -> (Arc<Readiness>, u64) {
        self.watcher(shared, ActivityId(INTERRUPT))
    }

    /// The set that watches descriptors, and the number that wakes a task.
    pub(crate) fn watcher(&self, shared: &Arc<Shared>, id: ActivityId) -> (Arc<Readiness>, u64) {
        let mut executors = self.executors.lock().unwrap_or_else(PoisonError::into_inner);
        let known = executors.iter().position(|executor| Arc::ptr_eq(executor, shared));
        let executor = known.unwrap_or_else(|| {
            executors.push(shared.clone());
            executors.len() - 1
        });
        (self.readiness.clone(), (executor as u64) << 32 | u64::from(id.0))
    }
}

fn wake(executors: &Mutex<Vec<Arc<Shared>>>, number: u64) {
    let executors = executors.lock().unwrap_or_else(PoisonError::into_inner);
    let executor = usize::try_from(number >> 32).ok().and_then(|executor| executors.get(executor));
    if let (Some(shared), Ok(id)) = (executor, u32::try_from(number & u64::from(u32::MAX))) {
        match id {
            INTERRUPT => shared.interrupt(Interrupt::IoReady),
            id => shared.wake(ActivityId(id)),
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.readiness.stop();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and ends at once.
            let _ = thread.join();
        }
    }
}
