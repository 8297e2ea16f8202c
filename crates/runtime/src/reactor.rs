//! The thread that waits for the descriptors of tasks, and wakes them, and for those
//! that are to interrupt.
//!
//! Started by the runtime with the first of either. It does nothing but set a bit and
//! ring a bell, and so stands above the handlers, as an interrupt would.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use upcall_core::activity::ActivityId;
use upcall_sys::readiness::Readiness;

use crate::mailbox::Shared;
use upcall_shm::kernel_area::Interrupt;

/// In place of a task's number: not a task, but the executor itself.
const INTERRUPT: u32 = u32::MAX;

/// See the module's head. Ends with the value.
pub(crate) struct Reactor {
    readiness: Arc<Readiness>,
    /// The executors whose tasks are woken, by number. Locked by controllers and
    /// the thread, never by an executor.
    wards: Arc<Mutex<Vec<Arc<Shared>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reactor {
    /// Starts the thread, in the real-time class at `priority` if there is one. Allocates.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn start(priority: Option<u8>) -> Result<Self, String> {
        let readiness = Arc::new(Readiness::new().map_err(|error| error.to_string())?);
        let wards = Arc::new(Mutex::new(Vec::<Arc<Shared>>::new()));
        let (watched, woken) = (readiness.clone(), wards.clone());
        let thread = std::thread::Builder::new()
            .name("upcall-io".to_owned())
            .spawn(move || {
                // Without the right it is an ordinary thread; the executors' notice says it.
                if let Some(priority) = priority {
                    let _ = upcall_sys::schedule::set_fifo(priority);
                }
                while watched.wait(|number| wake(&woken, number)) {}
            })
            .map_err(|error| error.to_string())?;
        Ok(Reactor { readiness, wards, thread: Some(thread) })
    }

    /// Who watches for an executor, and the number by which it is interrupted.
    pub(crate) fn interrupter(&self, shared: &Arc<Shared>) -> (Arc<Readiness>, u64) {
        self.watcher(shared, ActivityId(INTERRUPT))
    }

    /// Who watches for a task, and the number by which it will be woken.
    pub(crate) fn watcher(&self, shared: &Arc<Shared>, id: ActivityId) -> (Arc<Readiness>, u64) {
        let mut wards = self.wards.lock().unwrap_or_else(PoisonError::into_inner);
        let known = wards.iter().position(|ward| Arc::ptr_eq(ward, shared));
        let ward = known.unwrap_or_else(|| {
            wards.push(shared.clone());
            wards.len() - 1
        });
        (self.readiness.clone(), (ward as u64) << 32 | u64::from(id.0))
    }
}

fn wake(wards: &Mutex<Vec<Arc<Shared>>>, number: u64) {
    let wards = wards.lock().unwrap_or_else(PoisonError::into_inner);
    let ward = usize::try_from(number >> 32).ok().and_then(|ward| wards.get(ward));
    if let (Some(shared), Ok(id)) = (ward, u32::try_from(number & u64::from(u32::MAX))) {
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
            // It does not panic, and ends at once.
            let _ = thread.join();
        }
    }
}
