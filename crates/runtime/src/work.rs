//! What an executor upcalls: handlers with their batch, and tasks.
//!
//! These modules use the preemption point ([`crate::preemption`]) and nothing of the executor that
//! calls them. The third kind of work, the handler of a stream, lives in [`crate::stream`].

pub(crate) mod batch;
pub(crate) mod handler;
pub(crate) mod mask;
pub(crate) mod task;
