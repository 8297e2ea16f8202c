//! Opens a flow at the daemon, for programs without the rights for an interface of their own.
//!
//! The program opens it once and blocks meanwhile. All later calls are those of [`UdpFlow`], which
//! ask nobody. The daemon closes the flow when its connection ends: when the program drops the
//! flow, or dies at any instruction.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use upcall_core::time::Span;
use upcall_proto::quota::Quota;
use upcall_proto::transmit::Share;
use upcall_shm::frames::FrameSize;
use upcall_shm::wire::{
    FLOW_DESCRIPTORS, FlowQuota, FlowReply, FlowShare, OpenFlow, OpenedFlow, ToDaemon, ToDomain,
};

pub use upcall_shm::wire::FlowCause;

use super::apart::FlowMemory;
use super::flow::{FlowError, FlowForm, UdpFlow};
use super::owner::FlowTerms;
use crate::clock;
use crate::daemon_fault::DaemonFault;
use crate::status::{StatusError, ask_for_fds, connect};

/// How long the daemon, an ordinary thread, may take for an answer.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// A flow that a program wants of the daemon.
#[derive(Clone, Debug)]
pub struct FlowRequest {
    /// The name of the interface, one of `upcalld --interfaces`.
    pub interface: String,
    /// Where its datagrams go, and where those that it sends come from: an address of the
    /// interface, an unspecified one for all of them, or a group, which the flow is in from the
    /// start. Port 0: the daemon chooses a port. Below 1024 the program needs to be root's.
    pub local: SocketAddr,
    /// How many datagrams it receives, and how many may wait. `None`: all that fit its queue. Then
    /// a flood to its port takes time of all flows of the interface.
    pub receive: Option<Quota>,
    /// When it may send.
    pub send: Share,
    /// The slots of its queues.
    pub form: FlowForm,
}

impl FlowRequest {
    /// A flow that receives all that comes and fits its queue of 256 datagrams, and shares the link
    /// with the other flows by weight 1. With a [`FlowRequest::receive`] quota a flood to its port
    /// costs others nothing.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::net::{FlowRequest, Quota};
    /// use upcall::time::Span;
    ///
    /// let request = FlowRequest::new("eth1", "10.0.0.2:5004".parse()?);
    /// assert_eq!((request.form.receive_slots, request.form.transmit_slots), (256, 64));
    ///
    /// // 200 packets a second; a tenth more, two at once and those of 10 ms may come.
    /// let (period, together) = (Span::from_millis(5), Span::from_millis(10));
    /// let receive = Some(Quota::of_receiver(period, 100_000, 2, together));
    /// let limited = FlowRequest { receive, ..request };
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(interface: impl Into<String>, local: SocketAddr) -> FlowRequest {
        let FlowTerms { local, receive, send, form } = FlowTerms::new(local);
        FlowRequest { interface: interface.into(), local, receive, send, form }
    }
}

impl UdpFlow {
    /// Asks the daemon with the socket `daemon` for a flow. Blocks until the daemon answers, at
    /// most 10 s: about 0.1 s for the first flow of an interface, some milliseconds for another.
    /// Takes the memory of all frames at once. Allocates.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::net::{FlowRequest, UdpFlow};
    ///
    /// let request = FlowRequest::new("eth1", "10.0.0.2:5004".parse()?);
    /// let mut flow = UdpFlow::open(&upcall::system_daemon_socket(), &request)?;
    /// // In a handler, in each period:
    /// let mut payload = [0; 2048];
    /// while let Some((length, peer, arrival)) = flow.receive(&mut payload)? {
    ///     println!("{length} bytes from {peer} at {arrival:?}");
    /// }
    /// flow.flush();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`OpenFlowError`]. Then there is no flow.
    pub fn open(daemon: &Path, request: &FlowRequest) -> Result<UdpFlow, OpenFlowError> {
        let until = clock::now() + ANSWER_WITHIN;
        let connection = connect(daemon, until)?;
        let message = ToDaemon::OpenFlow(on_the_wire(request));
        let (reply, fds) = granted(ask_for_fds(&connection, &message, until)?)?;
        let (size, fds) = match (&reply, <[OwnedFd; FLOW_DESCRIPTORS]>::try_from(fds)) {
            (FlowReply::Offered { frame_bytes: 2048 }, Ok(fds)) => (FrameSize::Half, fds),
            (FlowReply::Offered { frame_bytes: 4096 }, Ok(fds)) => (FrameSize::Page, fds),
            _ => return Err(out_of_place(reply)),
        };
        let memory = FlowMemory::take(fds, request.form, size)?;
        let (reply, fds) = granted(ask_for_fds(&connection, &ToDaemon::TakeFlow, until)?)?;
        match (&reply, <[OwnedFd; 1]>::try_from(fds)) {
            (FlowReply::Opened(OpenedFlow { local, .. }), Ok([wake]))
                if is_asked(request, *local) =>
            {
                Ok(memory.attach(*local, wake.into())?.kept_by(connection))
            }
            _ => Err(out_of_place(reply)),
        }
    }
}

/// The reply, unless it is a refusal.
fn granted(
    (reply, fds): (ToDomain, Vec<OwnedFd>),
) -> Result<(FlowReply, Vec<OwnedFd>), OpenFlowError> {
    match reply {
        ToDomain::Flow(FlowReply::Refused { cause, reason }) => {
            Err(OpenFlowError::Refused { cause, reason })
        }
        ToDomain::Flow(reply) => Ok((reply, fds)),
        other => Err(StatusError::from(DaemonFault::out_of_place(other)).into()),
    }
}

fn out_of_place(reply: FlowReply) -> OpenFlowError {
    StatusError::from(DaemonFault::out_of_place(ToDomain::Flow(reply))).into()
}

fn on_the_wire(request: &FlowRequest) -> OpenFlow {
    let quota = |Quota { step_ns, interval_ns, depth, at_once }| FlowQuota {
        interval_ns,
        step_ns,
        depth,
        at_once,
    };
    OpenFlow {
        interface: request.interface.clone(),
        local: request.local,
        receive: request.receive.map(quota),
        send: match request.send {
            Share::Paced { interval } => FlowShare::Paced(interval.as_nanos()),
            Share::Weight(weight) => FlowShare::Weight(weight),
        },
        receive_slots: request.form.receive_slots,
        transmit_slots: request.form.transmit_slots,
    }
}

/// Whether a flow with the address `local` is as it was asked for.
fn is_asked(request: &FlowRequest, local: SocketAddr) -> bool {
    local.ip() == request.local.ip().to_canonical()
        && [0, local.port()].contains(&request.local.port())
}

/// Why a flow was not opened.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenFlowError {
    /// The daemon refused.
    Refused {
        /// The cause.
        cause: FlowCause,
        /// The cause, and what would help, in one line.
        reason: String,
    },
    /// The daemon did not answer as it must.
    Daemon(StatusError),
    /// The memory that it sent is not that of the flow, or cannot be mapped.
    Memory(FlowError),
}

impl fmt::Display for OpenFlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenFlowError::Refused { reason, .. } => f.write_str(reason),
            OpenFlowError::Daemon(error) => error.fmt(f),
            OpenFlowError::Memory(error) => write!(f, "the memory of the flow: {error}"),
        }
    }
}

upcall_core::debug_as_display!(OpenFlowError);

impl std::error::Error for OpenFlowError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenFlowError::Refused { .. } => None,
            OpenFlowError::Daemon(error) => Some(error),
            OpenFlowError::Memory(error) => Some(error),
        }
    }
}

impl From<StatusError> for OpenFlowError {
    fn from(error: StatusError) -> Self {
        OpenFlowError::Daemon(error)
    }
}

impl From<FlowError> for OpenFlowError {
    fn from(error: FlowError) -> Self {
        OpenFlowError::Memory(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_is_not_as_asked_is_refused() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let request = FlowRequest::new("eth1", address("10.0.0.2:0"));
        assert!(is_asked(&request, address("10.0.0.2:40000")));
        assert!(!is_asked(&request, address("10.0.0.3:40000")));
        let other_port = FlowRequest { local: address("10.0.0.2:5004"), ..request };
        assert!(!is_asked(&other_port, address("10.0.0.2:40000")));
        assert!(is_asked(&other_port, address("10.0.0.2:5004")));
    }
}
