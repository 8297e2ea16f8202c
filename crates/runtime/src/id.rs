//! The name of a handler or task.

/// Names a handler or task of one [`Runtime`](crate::Runtime): what
/// [`Runtime::handler`](crate::Runtime::handler) and the like return, and what the other calls
/// take. Never reused. With another runtime it names another handler, or the call panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerId(pub(crate) usize);
