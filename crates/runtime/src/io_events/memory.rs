//! The memory of a poller's page.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_sys::memfd::SharedMapping;

/// The page's memory, of the loop and of the thread that feeds it.
#[derive(Clone, Debug)]
pub(super) struct Memory(pub(super) Arc<SharedMapping>);

impl AsRef<[AtomicU64]> for Memory {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.words()
    }
}
