//! The state that a service's handle shares with its registrar thread.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use upcall_sys::readiness::Readiness;

use super::fast::Calls;
use super::peer::PeerId;
use super::raiser::{OnBehalf, RaisingEnd};
use super::registration::Registration;
use super::segment::Forms;

/// See the module's head.
pub(super) struct ServiceState {
    pub(super) forms: Forms,
    pub(super) registration: Registration,
    pub(super) raising_ends: Mutex<Vec<(PeerId, Arc<RaisingEnd>)>>,
    pub(super) calls: Arc<Calls>,
    pub(super) on_behalf: Option<Arc<OnBehalf>>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) clients_max: usize,
    /// Whether the service ends in order. The registrar then sends `Bye` to the clients.
    pub(super) says_bye: AtomicBool,
}
