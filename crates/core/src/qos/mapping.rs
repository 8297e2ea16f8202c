//! QoS mapping: being written.
use super::StreamSpec;
use crate::activity::{ActivityParams, ParamError};
use crate::time::Span;
use core::fmt;

/// Delay of a bulk stream whose user names none.
pub const BULK_DELAY: Span = Span::from_millis(200);

/// What a stream needs of the endsystem, derived from what its user said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// `tau`: time between two PDUs at the specified rate.
    pub pdu_interval: Span,
    /// Period, deadline, batch, quantum and cost for the scheduler.
    pub params: ActivityParams,
    /// PDU buffers between arrival and the end of processing.
    pub buffers: u32,
    /// The same in bytes of payload.
    pub buffer_bytes: u64,
    /// Network bandwidth in bits of payload a second.
    pub bandwidth_bps: u64,
    /// The delay this mapping keeps, at most what the user asked for.
    pub delay_max: Span,
}

/// A specification that has no mapping: the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// A parameter came out of range.
    Params(ParamError),
}
impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Params(e) => e.fmt(f),
        }
    }
}
impl core::error::Error for MapError {}

/// Derives what the stream needs.
///
/// # Errors
/// See [`MapError`].
pub fn map(_spec: &StreamSpec, _switch_cost: Span) -> Result<Mapping, MapError> {
    unimplemented!()
}
