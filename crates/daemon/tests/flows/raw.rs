//! A flow of a program that follows the protocol by hand.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use upcall_runtime::net::{FlowForm, FlowMemory, FrameSize};
use upcall_shm::wire::{FlowReply, FlowShare, MESSAGE_BYTES_MAX, OpenFlow, ToDaemon, ToDomain};
use upcall_sys::local::{Connection, Received};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::readiness::{Direction, wait_until};

use super::OURS;

/// The memory of a flow in the hands of a program that does not use the library for its flow: the
/// area and the four queues, and the socket of wake-ups. The flow ends with the connection.
pub struct Raw {
    pub connection: Connection,
    pub memory: Vec<SharedMapping>,
    _wake: OwnedFd,
}

pub const RAW_FORM: FlowForm = FlowForm { receive_slots: 64, transmit_slots: 64 };

impl Raw {
    pub fn open(socket: &Path, port: u16) -> Raw {
        Raw::with_form(socket, port, RAW_FORM)
    }

    pub fn with_form(socket: &Path, port: u16, form: FlowForm) -> Raw {
        let (connection, fds) = Raw::offered(socket, port, form);
        let memory = fds.each_ref().map(Raw::map);
        drop(FlowMemory::take(fds, form, FrameSize::Half).unwrap());
        let (reply, mut fds) = Raw::ask(&connection, &ToDaemon::TakeFlow);
        assert!(matches!(reply, Some(FlowReply::Opened(_))), "{reply:?}");
        Raw { connection, memory: memory.into(), _wake: fds.pop().unwrap() }
    }

    /// Asks for a flow, and does not take its memory.
    pub fn offered(socket: &Path, port: u16, form: FlowForm) -> (Connection, [OwnedFd; 5]) {
        let connection = Connection::connect(socket).unwrap();
        let request = OpenFlow {
            interface: "ours".to_owned(),
            local: SocketAddr::new(OURS.parse().unwrap(), port),
            receive: None,
            send: FlowShare::Weight(1),
            receive_slots: form.receive_slots,
            transmit_slots: form.transmit_slots,
        };
        let (reply, fds) = Raw::ask(&connection, &ToDaemon::OpenFlow(request));
        assert_eq!(reply, Some(FlowReply::Offered { frame_bytes: 2048 }));
        (connection, fds.try_into().unwrap())
    }

    /// The reply to a message. `None`: the daemon has closed the connection.
    pub fn ask(connection: &Connection, message: &ToDaemon) -> (Option<FlowReply>, Vec<OwnedFd>) {
        connection.send(&message.encode(), &[]).unwrap();
        assert!(wait_until(connection.as_fd(), Direction::Readable, None).unwrap());
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let Ok(Received { len: len @ 1.., fds }) = connection.receive(&mut buffer) else {
            return (None, Vec::new());
        };
        match ToDomain::decode(&buffer[..len]) {
            Ok(ToDomain::Flow(reply)) => (Some(reply), fds),
            other => panic!("{other:?}"),
        }
    }

    pub fn map(fd: &OwnedFd) -> SharedMapping {
        let bytes = rustix::fs::fstat(fd).unwrap().st_size;
        SharedMapping::from_fd(fd.try_clone().unwrap(), usize::try_from(bytes).unwrap()).unwrap()
    }

    /// Whether the daemon has closed the flow.
    pub fn is_closed(&self) -> bool {
        let peeked = self.connection.peek(&mut [0]);
        !matches!(peeked, Err(error) if error.is_would_block())
    }
}
