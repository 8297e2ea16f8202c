//! What a handler needs: the QoS of a stream, or the parameters themselves.

use std::fmt;
use std::sync::Arc;

use upcall_core::activity::{ActivityParams, ParamError, Terms};
use upcall_core::admission::Refusal;
use upcall_core::qos::{self, MapError, StreamSpec};
use upcall_core::time::Span;
use upcall_sys::OsError;

use crate::domain::error::AttachError;
use crate::stream::StreamOpenError;
use crate::thread_error::ThreadError;

/// What a handler needs. A PDU cost of zero means "measure it": the handler then runs on trial
/// before admission, and consumes the PDUs that it processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// The QoS of a stream, in its user's terms; [`qos::map`] maps it.
    Stream(StreamSpec),
    /// The parameters themselves, and the terms that the policy uses.
    Activity(ActivityParams, Terms),
}

impl From<StreamSpec> for Need {
    fn from(spec: StreamSpec) -> Self {
        Need::Stream(spec)
    }
}

impl From<ActivityParams> for Need {
    fn from(params: ActivityParams) -> Self {
        Need::Activity(params, Terms::default())
    }
}

impl From<(ActivityParams, Terms)> for Need {
    fn from((params, terms): (ActivityParams, Terms)) -> Self {
        Need::Activity(params, terms)
    }
}

impl Need {
    pub(crate) fn pdu_cost(&self) -> Span {
        match self {
            Need::Stream(spec) => spec.pdu_cost,
            Need::Activity(params, _) => params.pdu_cost,
        }
    }

    pub(crate) fn with_cost(mut self, cost: Span) -> Self {
        match &mut self {
            Need::Stream(spec) => spec.pdu_cost = cost,
            Need::Activity(params, _) => params.pdu_cost = cost,
        }
        self
    }

    pub(crate) fn terms(&self) -> Terms {
        match self {
            Need::Stream(spec) => Terms { backlog: spec.class.backlog(), ..Terms::default() },
            Need::Activity(_, terms) => *terms,
        }
    }

    pub(crate) fn params(&self, switch_cost: Span) -> Result<ActivityParams, CreateError> {
        match self {
            Need::Stream(spec) => {
                Ok(qos::map(spec, switch_cost).map_err(CreateError::Mapping)?.params)
            }
            Need::Activity(params, _) => params.validated().map_err(CreateError::Params),
        }
    }
}

/// Why a handler was not created. Nothing was reserved.
#[derive(Clone)]
#[non_exhaustive]
pub enum CreateError {
    /// The stream's specification has no mapping.
    Mapping(MapError),
    /// The parameters are out of range.
    Params(ParamError),
    /// Admission refuses, and says why and what would fit.
    Refused(Box<Refusal>),
    /// Another handler has the name.
    NameTaken(String),
    /// No cost was declared, and the trial found no PDU to measure.
    NothingToMeasure,
    /// A CPU holds as many activities as it can.
    TooMany {
        /// The limit.
        activities_max: u32,
    },
    /// Tasks say when their next message is due. Only DWS uses that.
    NotForTasks {
        /// The policy of the runtime.
        policy: &'static str,
    },
    /// The state of a stream says when the next message is due. PS and DWCS do not use that.
    NotForStreams {
        /// The policy that was chosen.
        policy: &'static str,
    },
    /// The handlers on a CPU have as many streams as an executor can watch.
    TooManyStreams {
        /// The limit.
        streams_max: u32,
    },
    /// The kernel does not let a thread sleep on several words (`futex_waitv(2)`).
    NoStreams(OsError),
    /// The stream's memory was damaged.
    Stream(Arc<StreamOpenError>),
    /// A thread of the runtime did not start.
    Thread(ThreadError),
    /// The daemon's admission refused.
    RefusedByDaemon {
        /// The reason, in a line.
        reason: String,
        /// One change that would fit; empty if there is none.
        hint: String,
    },
    /// The daemon did not answer as it should.
    Daemon(Arc<AttachError>),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Mapping(error) => error.fmt(f),
            CreateError::Params(error) => error.fmt(f),
            CreateError::Refused(refusal) => refusal.fmt(f),
            CreateError::NameTaken(name) => write!(f, "a handler named `{name}` exists already"),
            CreateError::NothingToMeasure => f.write_str(
                "no cost was declared, and the handler found nothing to process in its trial; \
                 declare the CPU time of a PDU",
            ),
            CreateError::TooMany { activities_max } => {
                write!(f, "each CPU holds {activities_max} activities already, expected fewer")
            }
            CreateError::NotForTasks { policy } => {
                write!(f, "tasks need the policy `dws`, the runtime was started with `{policy}`")
            }
            CreateError::NotForStreams { policy } => write!(
                f,
                "handlers of streams need the policy `dws`, `rmdp` or `rm`, the runtime was \
                 started with `{policy}`"
            ),
            CreateError::TooManyStreams { streams_max } => {
                write!(f, "a CPU has handlers for at most {streams_max} streams")
            }
            CreateError::NoStreams(error) => {
                write!(f, "handlers of streams need Linux 5.16: {error}")
            }
            CreateError::Stream(error) => error.fmt(f),
            CreateError::Thread(error) => write!(f, "a scheduling thread did not start: {error}"),
            CreateError::RefusedByDaemon { reason, hint } if hint.is_empty() => f.write_str(reason),
            CreateError::RefusedByDaemon { reason, hint } => write!(f, "{reason}; {hint}"),
            CreateError::Daemon(error) => error.fmt(f),
        }
    }
}

/// Two errors are equal if they are of one kind and have the same text. Some contain errors of the
/// system, which cannot be compared.
impl PartialEq for CreateError {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && self.to_string() == other.to_string()
    }
}

upcall_core::debug_as_display!(CreateError);

impl std::error::Error for CreateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CreateError::Mapping(error) => Some(error),
            CreateError::Params(error) => Some(error),
            CreateError::Refused(refusal) => Some(refusal.as_ref()),
            CreateError::NoStreams(error) => Some(error),
            CreateError::Stream(error) => Some(error.as_ref()),
            CreateError::Thread(error) => Some(error),
            CreateError::Daemon(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}
