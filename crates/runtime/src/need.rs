//! What a handler needs: the QoS of a stream, or the parameters themselves.

use std::fmt;
use std::sync::Arc;

use upcall_core::activity::{ActivityParams, ParamError, Terms};
use upcall_core::admission::Refusal;
use upcall_core::qos::{self, MapError, StreamSpec};
use upcall_core::time::Span;
use upcall_sys::OsError;

use crate::domain::error::AttachError;
use crate::id::HandlerId;
use crate::stream::StreamOpenError;
use crate::thread_error::ThreadError;

/// What a handler needs: [`ActivityParams`], or these and the [`Terms`] that the policy uses, or
/// the QoS of a stream, in its user's terms ([`qos::map`] maps it). Each of them becomes a need by
/// itself where one is asked for. A PDU cost of zero means "measure it": the handler then runs on
/// trial before admission, and consumes the PDUs that it processes.
///
/// A need may ask for the CPU of another handler: see [`Need::same_cpu_as`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    demand: Demand,
    same_cpu_as: Option<HandlerId>,
}

/// The time that a handler needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Stream(StreamSpec),
    Activity(ActivityParams, Terms),
}

impl From<StreamSpec> for Need {
    fn from(spec: StreamSpec) -> Self {
        Need { demand: Demand::Stream(spec), same_cpu_as: None }
    }
}

impl From<ActivityParams> for Need {
    fn from(params: ActivityParams) -> Self {
        (params, Terms::default()).into()
    }
}

impl From<(ActivityParams, Terms)> for Need {
    fn from((params, terms): (ActivityParams, Terms)) -> Self {
        Need { demand: Demand::Activity(params, terms), same_cpu_as: None }
    }
}

impl Need {
    /// Asks for the CPU of `other`, a handler or task of the same runtime. Admission then tries
    /// that CPU only, and refuses the new handler if it does not fit there.
    ///
    /// Handlers of one CPU run in one thread, and give way only at boundaries. So they may share
    /// data without locks, in atomics. Without this call each handler goes to the first CPU that
    /// has room. The first of several is placed like that, too; no CPU is tried for all of them
    /// together. In the modes `Threads` and `Fifo` each handler has a thread, and the kernel
    /// preempts it anywhere.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use upcall::activity::ActivityParams;
    /// use upcall::time::Span;
    /// use upcall::{Config, Need, Runtime};
    ///
    /// let mut upcall = Runtime::start(Config::default())?;
    /// let params = ActivityParams::new(Span::from_millis(5), Span::from_micros(50));
    /// let packets = Arc::new(AtomicU64::new(0));
    /// let counted = packets.clone();
    /// let audio = upcall.handler("audio", params, move |batch| {
    ///     while batch.proceed() {
    ///         counted.store(counted.load(Relaxed) + 1, Relaxed); // no other handler comes between
    ///     }
    /// })?;
    /// let need = Need::from(params).same_cpu_as(audio);
    /// let video = upcall.handler("video", need, move |batch| {
    ///     while batch.proceed() {
    ///         packets.store(packets.load(Relaxed) + 1, Relaxed);
    ///     }
    /// })?;
    /// let cpu = |id| upcall.place(id).map(|(cpu, _)| cpu);
    /// assert_eq!(cpu(audio), cpu(video));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn same_cpu_as(mut self, other: HandlerId) -> Self {
        self.same_cpu_as = Some(other);
        self
    }

    /// The handler whose CPU was asked for.
    pub(crate) fn on_cpu_of(&self) -> Option<HandlerId> {
        self.same_cpu_as
    }

    pub(crate) fn pdu_cost(&self) -> Span {
        match &self.demand {
            Demand::Stream(spec) => spec.pdu_cost,
            Demand::Activity(params, _) => params.pdu_cost,
        }
    }

    pub(crate) fn with_cost(mut self, cost: Span) -> Self {
        match &mut self.demand {
            Demand::Stream(spec) => spec.pdu_cost = cost,
            Demand::Activity(params, _) => params.pdu_cost = cost,
        }
        self
    }

    pub(crate) fn terms(&self) -> Terms {
        match &self.demand {
            Demand::Stream(spec) => Terms { backlog: spec.class.backlog(), ..Terms::default() },
            Demand::Activity(_, terms) => *terms,
        }
    }

    pub(crate) fn params(&self, switch_cost: Span) -> Result<ActivityParams, CreateError> {
        match &self.demand {
            Demand::Stream(spec) => {
                Ok(qos::map(spec, switch_cost).map_err(CreateError::Mapping)?.params)
            }
            Demand::Activity(params, _) => params.validated().map_err(CreateError::Params),
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
    /// The handler whose CPU was asked for ([`Need::same_cpu_as`]) is closed, or has no CPU because
    /// it runs in virtual time.
    NoSuchHandler,
    /// No cost was declared, and the trial found no PDU to measure.
    NothingToMeasure,
    /// A CPU holds as many activities as it can.
    TooMany {
        /// The limit.
        activities_max: u32,
    },
    /// Tasks say when their next message is due. RMDP and RM do not use that.
    NotForTasks {
        /// The policy of the runtime.
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
            CreateError::NoSuchHandler => f.write_str(
                "the handler whose CPU was asked for is closed, or runs in virtual time and has \
                 no CPU",
            ),
            CreateError::NothingToMeasure => f.write_str(
                "no cost was declared, and the handler found nothing to process in its trial; \
                 declare the CPU time of a PDU",
            ),
            CreateError::TooMany { activities_max } => {
                write!(f, "each CPU holds {activities_max} activities already, expected fewer")
            }
            CreateError::NotForTasks { policy } => {
                write!(
                    f,
                    "tasks need the policy `dws`, `ps` or `dwcs`, the runtime was started with \
                     `{policy}`"
                )
            }
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
