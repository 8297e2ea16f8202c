//! What a service's handle and its threads share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use upcall_sys::readiness::Readiness;

use super::fast::Calls;
use super::peer::PeerId;
use super::raiser::{Behalf, Out};
use super::registration::Line;
use super::segment::Forms;

/// What the service's threads share.
pub(super) struct Hall {
    pub(super) forms: Forms,
    pub(super) line: Line,
    pub(super) outs: Mutex<Vec<(PeerId, Arc<Out>)>>,
    pub(super) calls: Arc<Calls>,
    pub(super) behalf: Option<Arc<Behalf>>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) clients_max: usize,
    /// It ends because it wants to.
    pub(super) ends: AtomicBool,
}
