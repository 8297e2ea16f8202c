//! The controller end of a virtual processor.
//!
//! The listener ([`super::listener`]) holds it, in a thread of ordinary class. The executor holds
//! the other end, the [`VirtualProcessor`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rtrb::{Consumer, Producer, PushError};
use upcall_core::time::Span;
use upcall_shm::DomainId;

use super::pages::Pages;
use super::peers::PeerDomain;
use super::virtual_processor::{Mail, VirtualProcessor};
use crate::notify::{SharedNotifier, WakeHandle};

/// How many domains may arrive before the executor takes them in.
const ARRIVALS_MAX: usize = 2 * upcall_shm::DOMAINS_MAX as usize;

/// See the module's head.
pub(crate) struct VirtualProcessorControl {
    handle: WakeHandle,
    notifier: SharedNotifier,
    arrivals: Producer<PeerDomain>,
    successors: Producer<Box<VirtualProcessor>>,
    pub(super) predecessors: Consumer<Box<VirtualProcessor>>,
}

impl VirtualProcessorControl {
    /// The virtual processor of domain `me`, and its controller end. Allocates.
    pub(crate) fn pair(
        pages: Pages,
        me: DomainId,
        real_time: bool,
        defer_preemption: Span,
        orphaned: Arc<AtomicBool>,
        accounts: (Option<Span>, usize),
    ) -> (VirtualProcessor, Self) {
        let (arrivals_in, arrivals) = rtrb::RingBuffer::new(ARRIVALS_MAX);
        let (successors_in, successors) = rtrb::RingBuffer::new(1);
        let (predecessors, predecessors_out) = rtrb::RingBuffer::new(1);
        let mail = Mail { arrivals, successors, predecessors };
        let defer = defer_preemption;
        let virtual_processor =
            VirtualProcessor::new(pages, me, real_time, defer, orphaned, mail, accounts);
        let control = VirtualProcessorControl {
            handle: virtual_processor.wake_handle(),
            notifier: virtual_processor.notifier().clone(),
            arrivals: arrivals_in,
            successors: successors_in,
            predecessors: predecessors_out,
        };
        (virtual_processor, control)
    }

    /// Makes the executor take in its messages.
    pub(crate) fn notify(&self) {
        self.handle.mark_message();
        self.notifier.notify();
    }

    /// Hands the executor a peer domain that was attached. Blocks while too many arrivals wait for
    /// the executor.
    pub(crate) fn introduce(&mut self, mut peer: PeerDomain) {
        while let Err(PushError::Full(back)) = self.arrivals.push(peer) {
            peer = back;
            self.notify();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.notify();
    }

    /// Makes the executor go over to `virtual_processor`, whose controller end is `next`. After
    /// that, this controller end is not used any more.
    pub(crate) fn replace(
        &mut self,
        mut virtual_processor: Box<VirtualProcessor>,
        next: &mut VirtualProcessorControl,
    ) {
        next.handle.clone_from(&self.handle);
        virtual_processor.set_wake_handle(&self.handle);
        self.handle.move_to(next.notifier.clone());
        // There is room: a virtual processor has one successor.
        let pushed = self.successors.push(virtual_processor);
        debug_assert!(pushed.is_ok());
        self.notify();
    }

    /// Unmaps the previous virtual processor, if the executor has left it.
    pub(crate) fn clear(&mut self) {
        drop(self.predecessors.pop());
    }
}
