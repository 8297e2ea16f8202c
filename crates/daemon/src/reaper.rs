//! Sees groups out whose user has no domain any more: tells their KLS threads to end until
//! they have, and frees the pages.
//!
//! Used by the server, which must not wait for it: a KLS thread lies beneath the domains of
//! all users, so how soon it ends is up to them. One thread of ordinary class.
//!
//! ```text
//!   in use -- (1) its last domain has gone --> draining -- (2) thread joined --> freed
//! ```
//!
//! 1. It is no group of its site any more, and is never held or given the CPU again
//!    ([`crate::cpu::CpuState::close`]). Should its user come back, that is another group.
//! 2. By whoever forgets it last: this thread, or the watchdog at its next look.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::group::DomainGroup;

#[cfg(test)]
mod tests;

/// How often a KLS thread is told to end. A domain that scribbles can undo one waking, not
/// each of them.
const QUIT_INTERVAL: Duration = Duration::from_millis(1);

/// A group, and its KLS thread.
pub(crate) type GroupWithThread = (Arc<DomainGroup>, JoinHandle<()>);

/// See the module's head. Dropped, it blocks until all have left.
#[derive(Debug)]
pub(crate) struct Reaper {
    /// `None`: nobody is to come any more.
    sender: Option<Sender<GroupWithThread>>,
    thread: Option<JoinHandle<()>>,
    draining: Vec<Weak<DomainGroup>>,
}

impl Reaper {
    /// Starts the thread.
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

    /// Takes over a group that its site has closed. Does not block; allocates.
    pub(crate) fn reap(&mut self, (group, thread): GroupWithThread) {
        self.draining.retain(|group| group.strong_count() > 0);
        self.draining.push(Arc::downgrade(&group));
        // The other end lives as long as this one.
        let _ = self.sender.as_ref().map(|sender| sender.send((group, thread)));
    }

    /// How many groups of a user on a CPU are not freed yet. O(groups draining).
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

/// Until nobody is to come any more, and all have left.
fn reap_all(incoming: &Receiver<GroupWithThread>) {
    let mut draining: Vec<GroupWithThread> = Vec::new();
    while let Ok(first) = incoming.recv() {
        draining.push(first);
        while !draining.is_empty() {
            draining.iter().for_each(|(group, _)| group.quit());
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
