//! One executor for each CPU, and the messages by which it is controlled.

mod control;
mod credit;
pub(crate) mod executor;
pub(crate) mod link;
mod sources;
mod surplus;
