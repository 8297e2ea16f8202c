//! A desk with a thread of its own, whose handlers may block: the paper's *kernel handler thread*.

use std::sync::Arc;
use std::thread::JoinHandle;

use upcall_sys::futex::WaitSet;

use super::dispatcher::{Desk, Moment, Newcomer};
use super::errors::ChannelOpenError;
use super::notifier::Caller;
use crate::clock;
use crate::doorbell::Doorbell;

/// Who calls it, before there is one.
pub(super) fn caller() -> Caller {
    Caller::Thread(Arc::default())
}

/// Starts the thread that serves `newcomer` and nobody else, until it leaves. It is of the ordinary class, or
/// the caller's. Allocates.
pub(super) fn start(
    caller: &Caller,
    newcomer: Newcomer,
) -> Result<JoinHandle<()>, ChannelOpenError> {
    let Caller::Thread(doorbell) = caller else {
        return Err(ChannelOpenError::Thread(String::new()));
    };
    let mut desk = Desk::new();
    desk.admit(newcomer)?;
    let doorbell = doorbell.clone();
    let named = std::thread::Builder::new().name("upcall-events".to_owned());
    let thread = named.spawn(move || serve(&mut desk, &doorbell));
    thread.map_err(|error| ChannelOpenError::Thread(error.to_string()))
}

fn serve(desk: &mut Desk, doorbell: &Doorbell) {
    loop {
        if doorbell.answer() {
            desk.called();
            // Nobody rings for one that has left.
            if desk.is_empty() {
                return;
            }
        }
        let now = clock::now();
        desk.serve(now, Moment::Scheduling);
        if !desk.is_due(now) {
            let mut set = WaitSet::new();
            if desk.doze(&mut set) {
                doorbell.sleep_among(&mut set, desk.next_deadline());
            }
            desk.stir();
        }
    }
}
