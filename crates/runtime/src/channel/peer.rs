//! A channel's other end: its number, and whether it is still there.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use upcall_shm::PeerFault;

use super::lock::lock;

/// Names a peer: a client of a service, or the service of a client. A process never uses a number
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub(super) u64);

impl PeerId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the counter orders nothing else.
        PeerId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How the other end of a channel went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// The other end ended in order.
    Ended,
    /// The process of the other end died, its handler panicked, or it sent a message that this
    /// version does not know.
    Died,
    /// The other end wrote an invalid value, and was detached.
    Fault(PeerFault),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gone::Ended => f.write_str("the other end has left"),
            Gone::Died => f.write_str("the other end died"),
            Gone::Fault(fault) => write!(f, "the other end is at fault: {fault}"),
        }
    }
}

/// Whether the other end is gone, and how. Only this process writes it, not the peer.
#[derive(Debug, Default)]
pub(super) struct ExitState {
    word: AtomicU32,
    fault: Mutex<Option<PeerFault>>,
}

impl ExitState {
    /// How the other end went. One load while the other end is there.
    #[inline]
    pub(super) fn gone(&self) -> Option<Gone> {
        // Acquire pairs with the Release in `set`: the fault is stored by then.
        match self.word.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Gone::Ended),
            2 => Some(Gone::Died),
            _ => (*lock(&self.fault)).map(Gone::Fault).or(Some(Gone::Died)),
        }
    }

    /// Stores how the other end went. Only the first call counts.
    pub(super) fn set(&self, gone: Gone) {
        let word = match gone {
            Gone::Ended => 1,
            Gone::Died => 2,
            Gone::Fault(fault) => {
                lock(&self.fault).get_or_insert(fault);
                3
            }
        };
        // Release pairs with the Acquire in `gone`. A failed exchange synchronises nothing.
        let _ = self.word.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_of_an_exit_counts() {
        let exit = ExitState::default();
        assert_eq!(exit.gone(), None);
        let fault = PeerFault::Torn { page: "channel" };
        exit.set(Gone::Fault(fault));
        exit.set(Gone::Died);
        assert_eq!(exit.gone(), Some(Gone::Fault(fault)));
        let exit = ExitState::default();
        exit.set(Gone::Ended);
        exit.set(Gone::Fault(fault));
        assert_eq!(exit.gone(), Some(Gone::Ended));
    }
}
