//! What the server and a network thread exchange: commands, replies and counts.
//!
//! The server takes the lock and may wait for it. The network thread has a higher priority than the
//! server, so it only tries: if the server has the lock, it looks again at its next period. A
//! channel of the standard library would not do, because its receiver waits for a sender that was
//! preempted in the middle.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use upcall_core::time::Span;
use upcall_runtime::net::{FlowTerms, InterfaceError, LentMemory};
use upcall_shm::wire::{FlowCounts, InterfaceDrops, OwnedInterfaceStatus};
use upcall_sys::wake_socket::WakeReceiver;

use super::bounds::FLOWS_MAX;
use super::refusal::FlowRefusal;
use crate::clock;

/// How long the server waits for a reply. A network thread that gets no CPU for so long is no use.
const REPLY_WITHIN: Span = Span::from_secs(1);
/// The server's time between two looks for a reply.
const LOOK: Duration = Duration::from_micros(200);

/// What the server wants.
#[derive(Debug)]
pub(super) enum Command {
    Bind { session: u64, terms: FlowTerms, memory: Box<LentMemory> },
    Unbind { session: u64 },
}

/// The number of a flow, its address with its port, and the end of its wake-ups.
pub(crate) type BoundFlow = (u32, SocketAddr, WakeReceiver);

/// The reply to a bind.
pub(super) type Bound = Result<BoundFlow, InterfaceError>;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Exchange(Mutex<Content>);

/// Behind the lock.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) commands: VecDeque<Command>,
    pub(super) replies: Vec<(u64, Bound)>,
    /// The counts of each session's flow. Places for all, so that the thread does not allocate.
    pub(super) counts: Vec<(u64, FlowCounts)>,
    /// Without the texts.
    pub(super) interface: OwnedInterfaceStatus,
    /// The interface is down or gone.
    pub(super) has_failed: bool,
    /// The thread is to end.
    pub(super) quit: bool,
}

impl Default for Content {
    fn default() -> Self {
        Content {
            commands: VecDeque::new(),
            replies: Vec::with_capacity(FLOWS_MAX as usize),
            counts: Vec::with_capacity(FLOWS_MAX as usize),
            interface: OwnedInterfaceStatus {
                frames: 0,
                free: 0,
                receiving: 0,
                sending: 0,
                waiting: 0,
                faults: 0,
                drops: InterfaceDrops::default(),
                at_ns: 0,
                interface: String::new(),
                path: String::new(),
            },
            has_failed: false,
            quit: false,
        }
    }
}

impl Exchange {
    /// For the server.
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the network thread. `None`: the server has it. Never waits.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Content>> {
        match self.0.try_lock() {
            Ok(content) => Some(content),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Gives a command, without waiting for its effect.
    pub(super) fn order(&self, command: Command) {
        self.lock().commands.push_back(command);
    }

    /// Gives a command to bind, and waits for the reply: about two periods.
    pub(super) fn ask(&self, command: Command, session: u64) -> Result<BoundFlow, FlowRefusal> {
        self.order(command);
        let until = clock::now() + REPLY_WITHIN;
        loop {
            std::thread::sleep(LOOK);
            let mut content = self.lock();
            let found = content.replies.iter().position(|(of, _)| *of == session);
            if let Some(at) = found {
                return content.replies.swap_remove(at).1.map_err(FlowRefusal::Interface);
            }
            if content.has_failed || clock::now() >= until {
                // Should it be bound later.
                content.commands.push_back(Command::Unbind { session });
                return Err(FlowRefusal::Silent);
            }
        }
    }

    pub(super) fn counts(&self, session: u64) -> FlowCounts {
        let content = self.lock();
        let found = content.counts.iter().find(|(of, _)| *of == session);
        found.map(|(_, counts)| *counts).unwrap_or_default()
    }

    pub(super) fn interface(&self) -> OwnedInterfaceStatus {
        self.lock().interface.clone()
    }

    pub(super) fn quit(&self) {
        self.lock().quit = true;
    }
}
