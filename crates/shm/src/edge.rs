//! The stores, loads and fences that hand something over, by name, so that the
//! loom tests can weaken each in turn and see the protocol break.

use crate::{Ordering, fence};

/// One side of what hands something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Channel: events accepted, and found to be; how far the taker looked, and
    /// found by the raiser.
    ChannelRaised,
    ChannelRaisedLoad,
    ChannelAdvance,
    ChannelTaken,
    /// Channel: between an event and the look at the taker; between having
    /// found nothing and the look for events.
    ChannelTellFence,
    ChannelSettleFence,
    /// Channel: the marks of an entry, raised and found; the taker's, stored and found to
    /// be free.
    MarkRaised,
    MarkFound,
    MarkFree,
    MarkFreed,
    /// Channel: between an entry and the look whether its mark was taken, if it has to stay;
    /// between the mark that was taken and its entry.
    MarkFullFence,
    MarkTakenFence,
    /// Channel: around what a typed entry holds, as it is written and read.
    StampOdd,
    StampEven,
    StampFirst,
    StampSecond,
    /// Inbox: an entry, written and found; given back and held again.
    InboxWritten,
    InboxFind,
    InboxGiveBack,
    InboxHold,
    /// Inbox: its mark, set and taken; between the mark and the look whether the taker
    /// sleeps; between `prepare_wait` and the look for marks.
    MarkSet,
    MarkTake,
    MarkFence,
    PrepareWaitFence,
    /// Turn page: the turn, given and found.
    Pass,
    Holder,
    /// Turn page: the wish for a new look, stated and taken.
    RecheckRequest,
    RecheckTake,
    /// Turn page: between the wish and the look at the holder; between finding
    /// oneself holder and the look for wishes.
    RequestFence,
    IdleFence,
    /// I/O events: a leaf of bits, raised and taken.
    IoLeafRaise,
    IoLeafTake,
    /// Wake word: a notification, stored and acknowledged.
    WakeNotify,
    WakeAcknowledge,
    /// User area: around what is published, and around what is read.
    SequenceOdd,
    SequenceEven,
    SequenceFirst,
    SequenceSecond,
    /// User and kernel area: between unmasking and the look for a request;
    /// between the request and the look at the mask.
    UnmaskFence,
    YieldFence,
    /// Kernel area: around a domain's line that is made, and that is read.
    GenerationNone,
    GenerationNew,
    GenerationFirst,
    GenerationSecond,
    /// Kernel area: a user interrupt, raised and found.
    InterruptRaise,
    InterruptLoad,
    /// Kernel area: the table changed, told and found.
    EpochStore,
    EpochLoad,
    /// Stream: an index, stored and found.
    StreamIndexStore,
    StreamIndexLoad,
    /// Stream: between what an end did and its look whether the other waits; between
    /// the wish to wait and the look at what the other did.
    StreamPublishFence,
    StreamLeaveFence,
    StreamWaitFence,
    /// Stream: what is waited for, said and found; the end of the wait.
    StreamWaitStore,
    StreamWaitLoad,
    StreamWaitFinish,
    /// Stream: that an end is gone, found.
    StreamGoneLoad,
    /// Stream: between a source's going to rest and its look at the level.
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

/// The ordering of an edge: the one that is right.
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
        /// Which ordering is weaker than right. Of the test's own thread: loom
        /// runs the threads of a model on it.
        static WEAKENED: Cell<Option<Edge>> = const { Cell::new(None) };
    }

    /// The ordering of an edge: the right one, or the next weaker that differs
    /// in kind if a test says so.
    pub(crate) fn ordering(edge: Edge, right: Ordering) -> Ordering {
        match right {
            _ if WEAKENED.get() != Some(edge) => right,
            Ordering::SeqCst => Ordering::AcqRel,
            _ => Ordering::Relaxed,
        }
    }

    /// Runs `model` with one ordering weakened, or none, in every way there is.
    pub(crate) fn check(weakened: Option<Edge>, model: fn()) {
        run(weakened, None, model);
    }

    /// Runs `model` in every way in which a thread is preempted, all in all, at
    /// most so many times: for one that would take minutes.
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

    /// That each of `edges`, weakened, breaks its model in the way stated.
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
