//! The memory of a poller's page.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_sys::memfd::SharedMapping;

/// The page's memory. The loop and the feeder share it.
#[derive(Clone, Debug)]
pub(super) struct Memory(pub(super) Arc<SharedMapping>);

impl AsRef<[AtomicU64]> for Memory {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.words()
    }
}
