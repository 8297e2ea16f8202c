//! The reaper frees the groups of users without domains. It wakes their KLS threads until they end,
//! and then drops the pages.
//!
//! The server uses the reaper and must not wait for a KLS thread. A KLS thread has a lower priority
//! than the domains of all users, so they decide how soon it ends. The reaper is one thread of
//! ordinary class.
//!
//! ```text
//!   in use -- (1) its last domain has gone --> draining -- (2) thread joined --> freed
//! ```
//!
//! 1. The group is no longer in the list of its CPU, and never gets the CPU again
//!    ([`crate::cpu::CpuState::close`]). If the user attaches again, the server makes another
//!    group.
//! 2. The last owner frees the group. That is this thread, or the watchdog or another KLS thread
//!    when it next refreshes its view of the CPU.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use upcall_sys::schedule;

use crate::group::DomainGroup;

#[cfg(test)]
mod tests;

/// How often the reaper wakes a KLS thread that should end. A domain that writes the wake word can
/// undo one wake-up, but not all.
const QUIT_INTERVAL: Duration = Duration::from_millis(1);

/// A group and its KLS thread.
pub(crate) type GroupWithThread = (Arc<DomainGroup>, JoinHandle<()>);

/// See the module's head. Dropping it blocks until all groups are drained.
#[derive(Debug)]
pub(crate) struct Reaper {
    /// `None`: no more groups will come.
    sender: Option<Sender<GroupWithThread>>,
    thread: Option<JoinHandle<()>>,
    draining: Vec<Weak<DomainGroup>>,
}

impl Reaper {
    /// Starts the reaper's thread.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (sender, incoming) = channel();
        let thread = std::thread::Builder::new()
            .name("upcall-reaper".into())
            .spawn(move || reap_all(&incoming))?;
        Ok(Reaper { sender: Some(sender), thread: Some(thread), draining: Vec::new() })
    }

    /// Takes over a group that [`crate::cpu::CpuState::close`] has closed. Does not block;
    /// allocates.
    pub(crate) fn reap(&mut self, (group, thread): GroupWithThread) {
        self.draining.retain(|group| group.strong_count() > 0);
        self.draining.push(Arc::downgrade(&group));
        // Sending cannot fail: the thread holds the receiver as long as this struct lives.
        let _ = self.sender.as_ref().map(|sender| sender.send((group, thread)));
    }

    /// How many closed groups of a user on a CPU are not freed yet. O(groups draining).
    pub(crate) fn unreaped_of(&self, cpu: u32, uid: u32) -> usize {
        let groups = self.draining.iter().filter_map(Weak::upgrade);
        groups.filter(|group| (group.cpu, group.uid) == (cpu, uid)).count()
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.sender = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs until the sender is dropped and all groups are drained.
fn reap_all(incoming: &Receiver<GroupWithThread>) {
    let mut draining: Vec<GroupWithThread> = Vec::new();
    let cpus = schedule::allowed_cpus().unwrap_or_default();
    while let Ok(first) = incoming.recv() {
        draining.push(first);
        while !draining.is_empty() {
            for (group, _) in &draining {
                group.quit();
                // Fails only if the thread has ended. A thread that has just started pins itself
                // later, and this is repeated.
                let _ = group.kls_thread().map(|thread| thread.pin(&cpus));
            }
            match incoming.recv_timeout(QUIT_INTERVAL) {
                Ok(next) => draining.push(next),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(QUIT_INTERVAL),
            }
            for (_, thread) in draining.extract_if(.., |(_, thread)| thread.is_finished()) {
                let _ = thread.join();
            }
        }
    }
}
