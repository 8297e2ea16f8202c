//! Names for the stores, loads and fences that hand data over. The loom tests weaken each in turn
//! and check that the protocol then breaks.

use crate::{Ordering, fence};

/// One side of a hand-over: a store, a load or a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Channel: the number of accepted events, stored and loaded. How far the taker has looked,
    /// stored and loaded.
    ChannelRaised,
    ChannelRaisedLoad,
    ChannelAdvance,
    ChannelTaken,
    /// Channel: the fence between an event and the raiser's look at the taker. The fence between
    /// the taker's empty look and its second look for events.
    ChannelNotifyFence,
    ChannelSettleFence,
    /// Channel: the raiser's mark of an entry, stored and loaded. The taker's mark, stored and
    /// loaded by a raiser that looks for a free entry.
    MarkRaised,
    MarkFound,
    MarkFree,
    MarkFreed,
    /// Channel: the fence between an entry whose mark must stay and the look whether the mark was
    /// taken. The fence between a taken mark and its entry.
    MarkFullFence,
    MarkTakenFence,
    /// Channel: around the content of a typed entry, as it is written and as it is read.
    StampOdd,
    StampEven,
    StampFirst,
    StampSecond,
    /// Inbox: an entry, written and found. An entry, given back and held again.
    InboxWritten,
    InboxFind,
    InboxGiveBack,
    InboxHold,
    /// Inbox: its mark, set and taken. The fence between the mark and the look whether the taker
    /// sleeps. The fence between `prepare_wait` and the look for marks.
    MarkSet,
    MarkTake,
    MarkFence,
    PrepareWaitFence,
    /// Turn page: the turn, passed and loaded.
    Pass,
    Holder,
    /// Turn page: a recheck request, stored and taken.
    RecheckRequest,
    RecheckTake,
    /// Turn page: the fence between a recheck request and the look at the holder. The fence between
    /// the daemon's look at the holder and its look for a request.
    RequestFence,
    IdleFence,
    /// I/O events: a leaf of bits, raised and taken.
    IoLeafRaise,
    IoLeafTake,
    /// Wake word: a notification, stored and acknowledged.
    WakeNotify,
    WakeAcknowledge,
    /// Load page: the start, stored and loaded. The state of the child, stored and loaded.
    LoadStartStore,
    LoadStartLoad,
    LoadStateStore,
    LoadStateLoad,
    /// User area: around what is published, and around what is read.
    SequenceOdd,
    SequenceEven,
    SequenceFirst,
    SequenceSecond,
    /// User and kernel area: the fence between unmasking and the look for a request. The fence
    /// between a request and the look at the mask.
    UnmaskFence,
    YieldFence,
    /// Kernel area: around a domain's line, as it is written and as it is read.
    GenerationNone,
    GenerationNew,
    GenerationFirst,
    GenerationSecond,
    /// Kernel area: a user interrupt, raised and loaded.
    InterruptRaise,
    InterruptLoad,
    /// Kernel area: a change of the table of domains, stored and loaded.
    EpochStore,
    EpochLoad,
    /// Stream: an index, stored and loaded.
    StreamIndexStore,
    StreamIndexLoad,
    /// Stream: the fence between an end's own index, or its end, and the look whether the peer
    /// waits. The fence between the start of a wait and the look at the peer's index.
    StreamPublishFence,
    StreamLeaveFence,
    StreamWaitFence,
    /// Stream: the wait word, stored and loaded. The end of a wait.
    StreamWaitStore,
    StreamWaitLoad,
    StreamWaitFinish,
    /// Stream: the state of the other end, loaded.
    StreamGoneLoad,
    /// Stream: the fence between a source's going to rest and its look at the level.
    StreamRestFence,
}

/// A fence, unless a test leaves it out.
#[inline]
pub(crate) fn barrier(edge: Edge, right: Ordering) {
    match ordering(edge, right) {
        Ordering::Relaxed => {}
        order => fence(order),
    }
}

/// The ordering of an edge: always the right one.
#[cfg(not(all(test, loom)))]
#[inline]
pub(crate) const fn ordering(_: Edge, right: Ordering) -> Ordering {
    right
}

#[cfg(all(test, loom))]
pub(crate) use weaken::{check, check_up_to, each_breaks, ordering};

#[cfg(all(test, loom))]
mod weaken {
    use super::{Edge, Ordering};
    use core::cell::Cell;
    use std::panic::catch_unwind;

    thread_local! {
        /// Which edge is weakened. A thread-local of the test's thread: loom runs all threads of a
        /// model on it.
        static WEAKENED: Cell<Option<Edge>> = const { Cell::new(None) };
    }

    /// The ordering of an edge: the right one, or a weaker one if a test says so.
    pub(crate) fn ordering(edge: Edge, right: Ordering) -> Ordering {
        match right {
            _ if WEAKENED.get() != Some(edge) => right,
            Ordering::SeqCst => Ordering::AcqRel,
            _ => Ordering::Relaxed,
        }
    }

    /// Runs `model` in every interleaving, with one edge weakened or none.
    pub(crate) fn check(weakened: Option<Edge>, model: fn()) {
        run(weakened, None, model);
    }

    /// Runs `model` in every interleaving with at most so many preemptions. For a model that would
    /// take minutes without this bound.
    pub(crate) fn check_up_to(preemptions: usize, model: fn()) {
        run(None, Some(preemptions), model);
    }

    fn run(weakened: Option<Edge>, preemptions: Option<usize>, model: fn()) {
        WEAKENED.set(weakened);
        let mut builder = loom::model::Builder::new();
        builder.max_branches = 100_000; // pages have many words
        builder.preemption_bound = preemptions;
        builder.check(model);
    }

    /// Checks that each of `edges`, weakened, breaks its model with the stated message.
    pub(crate) fn each_breaks(edges: &[(Edge, fn(), &str)]) {
        for &(edge, model, broken) in edges {
            let Err(found) = catch_unwind(|| check(Some(edge), model)) else {
                panic!("{edge:?} could be weaker: loom found nothing");
            };
            let text = found.downcast_ref::<String>().map(String::as_str);
            let text = text.or(found.downcast_ref::<&str>().copied()).unwrap_or("");
            assert!(text.contains(broken), "{edge:?}: {text}");
        }
    }
}
