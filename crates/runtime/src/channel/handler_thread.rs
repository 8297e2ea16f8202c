//! A dispatcher with a thread of its own. Its handlers may block. The paper calls it the *kernel
//! handler thread*.

use std::sync::Arc;
use std::thread::JoinHandle;

use upcall_sys::futex::WaitSet;

use super::dispatcher::{DispatchPoint, EventDispatcher, NewRegistrant};
use super::errors::ChannelOpenError;
use crate::clock;
use crate::notify::Notifier;

/// Starts the thread that serves `registrant` alone, until the registrant leaves. The thread has
/// the caller's scheduling class, usually the ordinary one. Allocates.
pub(super) fn start(
    notifier: &Arc<Notifier>,
    registrant: NewRegistrant,
) -> Result<JoinHandle<()>, ChannelOpenError> {
    let mut dispatcher = EventDispatcher::new();
    dispatcher.admit(registrant)?;
    let notifier = notifier.clone();
    let named = std::thread::Builder::new().name("upcall-events".to_owned());
    let thread = named.spawn(move || serve(&mut dispatcher, &notifier));
    thread.map_err(ChannelOpenError::Thread)
}

fn serve(dispatcher: &mut EventDispatcher, notifier: &Notifier) {
    loop {
        if notifier.acknowledge() {
            dispatcher.take_requests();
            // The registrant has left, so no thread notifies this one any more.
            if dispatcher.is_empty() {
                return;
            }
        }
        let now = clock::now();
        dispatcher.serve(now, DispatchPoint::Scheduling);
        if !dispatcher.is_due(now) {
            let mut set = WaitSet::new();
            if dispatcher.prepare_wait(&mut set) {
                notifier.sleep_among(&mut set, dispatcher.next_deadline());
            }
            dispatcher.cancel_wait();
        }
    }
}
