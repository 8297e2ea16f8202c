//! The messages between the controllers of an executor and the executor.
//!
//! A controller pushes a [`Control`] into a ring and notifies the executor. The executor pushes
//! finished jobs, closed activities and trace records into rings of its own, and the controller
//! takes them out when it polls. No ring is shared by two threads of one side.

use std::sync::Arc;

use rtrb::{Consumer, Producer};
use upcall_core::activity::{ActivityId, ActivityParams, Claim, Terms};
use upcall_core::admission::Share;
use upcall_core::scheduler::Counters;
use upcall_core::time::Instant;
use upcall_core::trace::Record;
use upcall_shm::inbox::Taker;

use crate::channel::EventDispatcher;
use crate::mailbox::{ACTIVITIES_MAX, Job, Shared};
use crate::preemption::interrupts::InterruptHandler;
use crate::stream::StreamWork;
use crate::work::handler::Handler;
use crate::work::task::TaskWork;

/// Finished jobs that may wait for the collector. Further jobs are missing in the per-job data,
/// where they are counted as lost. The counters include them.
const JOBS_MAX: usize = 16 * 1024;
/// Controllers block while the ring of controls is full.
const CONTROLS_MAX: usize = 512;

/// What an activity does when it is upcalled.
pub(crate) enum Work {
    Handler(Handler),
    Stream(Box<StreamWork>),
    Task(TaskWork),
}

/// What a controller asks of an executor.
pub(crate) enum Control {
    Create {
        id: ActivityId,
        params: ActivityParams,
        terms: Terms,
        work: Work,
        /// Its place among the activities of all domains, if there are other domains.
        order: Option<u32>,
        /// `None`: the activity takes no events.
        inbox: Option<Taker>,
    },
    Run {
        id: ActivityId,
        at: Instant,
    },
    Suspend {
        id: ActivityId,
    },
    Reweigh {
        id: ActivityId,
        claim: Claim,
    },
    EventServer {
        share: Option<Share>,
    },
    Close {
        id: ActivityId,
    },
    /// Sent at most once.
    OnInterrupt {
        handler: InterruptHandler,
    },
    InterruptAt {
        at: Instant,
    },
    /// Lends the dispatcher of event channels to the controller, which gives it back.
    LendDispatcher,
    TakeDispatcher {
        dispatcher: Box<EventDispatcher>,
    },
    Quit,
}

/// An activity that was closed. The controller drops its handler, so that the executor frees no
/// memory.
pub(crate) struct Retired {
    pub(crate) id: ActivityId,
    /// Only to be dropped.
    pub(crate) _work: Option<Work>,
    /// Only to be dropped.
    pub(crate) _inbox: Option<Taker>,
    pub(crate) end: End,
}

/// The last data of an activity.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) counters: Option<Counters>,
    /// The message of its handler's panic.
    pub(crate) panic: Option<String>,
}

/// The controller's end.
pub(crate) struct Link {
    pub(crate) controls: Producer<Control>,
    pub(crate) jobs: Consumer<Job>,
    pub(crate) retired: Consumer<Retired>,
    /// `Some` if the executor is traced.
    pub(crate) records: Option<Consumer<Record>>,
    pub(crate) dispatchers: Consumer<Box<EventDispatcher>>,
    pub(crate) shared: Arc<Shared>,
}

/// The executor's end.
pub(super) struct Rings {
    pub(super) controls: Consumer<Control>,
    pub(super) jobs: Producer<Job>,
    pub(super) retired: Producer<Retired>,
    pub(super) dispatchers: Producer<Box<EventDispatcher>>,
}

/// Creates both ends. Allocates all memory they need.
pub(super) fn link(shared: Arc<Shared>, records: Option<Consumer<Record>>) -> (Rings, Link) {
    let (controls_in, controls) = rtrb::RingBuffer::new(CONTROLS_MAX);
    let (jobs, jobs_out) = rtrb::RingBuffer::new(JOBS_MAX);
    let (retired, retired_out) = rtrb::RingBuffer::new(ACTIVITIES_MAX as usize);
    let (dispatchers, dispatchers_out) = rtrb::RingBuffer::new(1);
    let link = Link {
        controls: controls_in,
        jobs: jobs_out,
        retired: retired_out,
        records,
        dispatchers: dispatchers_out,
        shared,
    };
    (Rings { controls, jobs, retired, dispatchers }, link)
}
