//! A channel's other end: its number, and whether it is still there.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use upcall_shm::PeerFault;

use super::lock::lock;

/// Names a peer: of a service its client, of a client its service. Never used again in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub(super) u64);

impl PeerId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: a number for itself.
        PeerId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How the other end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// Because it wanted to.
    Ended,
    /// Its process died, its handler panicked, or it said what none of this version does.
    Died,
    /// It wrote what cannot be, and was detached.
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

/// What has become of the other end. Of this process, and so no peer's.
#[derive(Debug, Default)]
pub(super) struct Fate {
    word: AtomicU32,
    fault: Mutex<Option<PeerFault>>,
}

impl Fate {
    /// A load, while it is there.
    #[inline]
    pub(super) fn gone(&self) -> Option<Gone> {
        // Acquire pairs with the Release in `set`: the fault is there.
        match self.word.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Gone::Ended),
            2 => Some(Gone::Died),
            _ => (*lock(&self.fault)).map(Gone::Fault).or(Some(Gone::Died)),
        }
    }

    /// Says so; the first to say so says how.
    pub(super) fn set(&self, gone: Gone) {
        let word = match gone {
            Gone::Ended => 1,
            Gone::Died => 2,
            Gone::Fault(fault) => {
                lock(&self.fault).get_or_insert(fault);
                3
            }
        };
        // Release pairs with the Acquire in `gone`; a failure says nothing.
        let _ = self.word.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_say_what_has_become_of_a_peer_says_how() {
        let fate = Fate::default();
        assert_eq!(fate.gone(), None);
        let fault = PeerFault::Torn { page: "channel" };
        fate.set(Gone::Fault(fault));
        fate.set(Gone::Died);
        assert_eq!(fate.gone(), Some(Gone::Fault(fault)));
        let fate = Fate::default();
        fate.set(Gone::Ended);
        fate.set(Gone::Fault(fault));
        assert_eq!(fate.gone(), Some(Gone::Ended));
    }
}
