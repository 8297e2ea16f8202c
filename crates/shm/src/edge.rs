//! Names for the stores, loads and fences that hand data over. The loom tests weaken each in turn
//! and check that the protocol then breaks.

use crate::{Ordering, fence};

/// One side of a hand-over: a store, a load or a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Channel: the number of accepted events, as stored and as loaded. The number up to which the
    /// taker has looked, as stored and as loaded.
    ChannelRaised,
    ChannelRaisedLoad,
    ChannelAdvance,
    ChannelTaken,
    /// Channel: the raiser's fence between an event and its check whether to notify. The taker's
    /// fence between a look that found no event and its second look.
    ChannelNotifyFence,
    ChannelSettleFence,
    /// Channel: the raiser's mark of an entry, stored and loaded. The taker's mark, stored and
    /// loaded by a raiser that looks for a free entry.
    MarkRaised,
    MarkFound,
    MarkFree,
    MarkFreed,
    /// Channel: the raiser's fence between an entry with a full mark and its check whether the mark
    /// was taken. The taker's fence between taking a mark and reading the entry.
    MarkFullFence,
    MarkTakenFence,
    /// Channel: the stamp around the content of a typed entry, as the raiser writes it and as the
    /// taker reads it.
    StampOdd,
    StampEven,
    StampFirst,
    StampSecond,
    /// Inbox: an entry as it is written and found, and as it is given back and held again.
    InboxWritten,
    InboxFind,
    InboxGiveBack,
    InboxHold,
    /// Inbox: the mark of an inbox, as it is set and taken. The poster's fence between the mark and
    /// its check whether the taker sleeps. The taker's fence between `prepare_wait` and its look
    /// for marks.
    MarkSet,
    MarkTake,
    MarkFence,
    PrepareWaitFence,
    /// Turn page: the turn, as passed and as loaded.
    Pass,
    Holder,
    /// Turn page: the flag `need_resched`, as stored and as taken.
    NeedReschedSet,
    NeedReschedTake,
    /// Turn page: the fence between setting `need_resched` and the look at the holder. The fence
    /// between the daemon's look at the holder and its look for a request.
    RequestFence,
    IdleFence,
    /// I/O events: a leaf of bits, as raised and as taken.
    IoLeafRaise,
    IoLeafTake,
    /// Wake word: a notification, as stored and as acknowledged.
    WakeNotify,
    WakeAcknowledge,
    /// Load page: the time of the start and the state of the child, as stored and as loaded.
    LoadStartStore,
    LoadStartLoad,
    LoadStateStore,
    LoadStateLoad,
    /// User area: the sequence number around a publication, and around a read.
    SequenceOdd,
    SequenceEven,
    SequenceFirst,
    SequenceSecond,
    /// User and kernel area: the fence between unmasking and the look for a request. The fence
    /// between a request and the look at the mask.
    UnmaskFence,
    YieldFence,
    /// Kernel area: the generation around a domain's line, as the daemon writes it and as a domain
    /// reads it.
    GenerationNone,
    GenerationNew,
    GenerationFirst,
    GenerationSecond,
    /// Kernel area: a user interrupt, as raised and as loaded.
    InterruptRaise,
    InterruptLoad,
    /// Kernel area: a change of the table of domains, as stored and as loaded.
    EpochStore,
    EpochLoad,
    /// Stream: an index, as stored and as loaded.
    StreamIndexStore,
    StreamIndexLoad,
    /// Stream: the fences of an end that stores its index or leaves, before it checks whether the
    /// peer waits. The fence of an end that begins to wait, before it loads the peer's index.
    StreamPublishFence,
    StreamLeaveFence,
    StreamWaitFence,
    /// Stream: the wait word, as stored and as loaded. The exchange that ends a wait.
    StreamWaitStore,
    StreamWaitLoad,
    StreamWaitFinish,
    /// Stream: the state of the other end, loaded.
    StreamGoneLoad,
    /// Stream: the fence of a source that goes to rest, before it looks at the level.
    StreamRestFence,
    /// Frame queue: an index, as stored and as loaded.
    FrameIndexStore,
    FrameIndexLoad,
    /// Frame queue: the writer's fence between an index and its look at what is wanted. The fence
    /// of a reader that arms, before it looks at the index.
    FrameNotifyFence,
    FrameArmFence,
    /// AF_XDP ring: an index, as stored and as loaded.
    XdpIndexStore,
    XdpIndexLoad,
}

/// A fence with the ordering `right`. A loom test can weaken it or leave it out.
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
        /// The weakened edge. A thread-local suffices, because loom runs all threads of a model on
        /// the thread of the test.
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

    /// Runs `model` in every interleaving with at most `preemptions` preemptions. For a model that
    /// would take minutes without this bound.
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

    /// Checks for each of `edges` that its model panics with the stated message if the edge is
    /// weaker.
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
