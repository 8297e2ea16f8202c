//! Why a flow was not bound.

use std::fmt;

use upcall_proto::flow::BindError;

use crate::net::flow::FlowError;

/// Why a flow was not bound.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerError {
    /// The address is taken, or there are as many flows as there may be.
    Bind(BindError),
    /// The area has too few free frames for the flow to send.
    Frames {
        /// Those that it needs.
        needed: u32,
    },
    /// There is no memory for its queues, or a number of slots is no power of two.
    Flow(FlowError),
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnerError::Bind(error) => error.fmt(f),
            OwnerError::Frames { needed } => {
                write!(
                    f,
                    "the area has fewer than {needed} free frames for the flow to send, beside those to receive into"
                )
            }
            OwnerError::Flow(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for OwnerError {
    /// As `Display`: `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for OwnerError {}

impl From<BindError> for OwnerError {
    fn from(error: BindError) -> Self {
        OwnerError::Bind(error)
    }
}

impl From<FlowError> for OwnerError {
    fn from(error: FlowError) -> Self {
        OwnerError::Flow(error)
    }
}
