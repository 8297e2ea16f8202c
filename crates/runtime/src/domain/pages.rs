//! The pages of a domain on a CPU. Plain data of [`super::virtual_processor`].

use std::sync::Arc;

use upcall_shm::kernel_area::Reader;
use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::{LentMask, Owner};
use upcall_sys::memfd::{ReadOnlyMapping, SharedMapping};

/// The pages of a domain on a CPU, as the daemon sent them.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) turn: Arc<TurnPage<SharedMapping>>,
    pub(crate) user: Owner<SharedMapping>,
    /// The generation of the domain.
    pub(crate) generation: u64,
    /// The masks of the own user area, for tasks.
    pub(crate) mask: Arc<LentMask<SharedMapping>>,
    pub(crate) kernel: Reader<ReadOnlyMapping>,
}
