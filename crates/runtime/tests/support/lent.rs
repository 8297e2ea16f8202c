//! The memory of a flow whose program is another process, with both ends in this one.

use upcall_runtime::net::{FlowForm, FlowMemory, FlowOffer, FrameSize, LentMemory};

/// The owner's and the program's end of new memory.
pub fn lent(form: FlowForm) -> (LentMemory, FlowMemory) {
    let offer = FlowOffer::create(form, FrameSize::Half).unwrap();
    let fds = offer.fds().map(|fd| fd.try_clone_to_owned().unwrap());
    let memory = FlowMemory::take(fds, form, FrameSize::Half).unwrap();
    (offer.accept().unwrap(), memory)
}
