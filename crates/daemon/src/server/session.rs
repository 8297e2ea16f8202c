//! Connections: who has connected, what came from there, and what is said to it.
//!
//! One end of every exchange; what a message means is looked up in [`super::requests`]. Part
//! of the server's thread: nothing here waits for a client.

use core::fmt;
use core::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use upcall_shm::DomainId;
use upcall_shm::wire::{MESSAGE_BYTES_MAX, ToDaemon, ToDomain};
use upcall_sys::OsError;
use upcall_sys::local::{Connection, Credentials, Received};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::PidFd;
use upcall_sys::readiness::{Direction, Watch};

use super::{Daemon, DaemonEvent, SESSIONS};
use crate::group::{DomainGroup, Member};
use crate::status::StatusReply;

/// A connection.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) credentials: Credentials,
    pub(super) process: PidFd,
    pub(super) connection_watch: Watch,
    pub(super) _process_watch: Watch,
    pub(super) domain: Option<Attached>,
    /// It asked how things stand.
    pub(super) status_reply: Option<StatusReply>,
}

/// A connection that is a domain.
pub(super) struct Attached {
    pub(super) number: DomainId,
    pub(super) generation: NonZeroU64,
    pub(super) virtual_processors: Vec<VirtualProcessor>,
}

/// A domain on a CPU.
pub(super) struct VirtualProcessor {
    pub(super) group: Arc<DomainGroup>,
    /// Its area, until its thread is there.
    pub(super) memory: Option<SharedMapping>,
    /// From its thread on.
    pub(super) member: Option<Arc<Member>>,
}

/// What ends a session, in a few words.
pub(super) struct SessionEnd(pub(super) String);

impl<E: fmt::Display> From<E> for SessionEnd {
    fn from(error: E) -> Self {
        SessionEnd(error.to_string())
    }
}

impl Session {
    /// Why it is over, where its connection closed or its process ended, and no
    /// [`ToDaemon::Detach`] came before.
    pub(super) fn closed(&self) -> SessionEnd {
        SessionEnd(match self.process.has_exited() {
            Ok(true) => "its process ended before it detached".to_owned(),
            // A process that is just dying closes its descriptors first.
            _ => "its connection closed before it detached".to_owned(),
        })
    }
}

impl Daemon {
    pub(super) fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(None) => return,
                Ok(Some(connection)) => {
                    let session = self.add_session(connection);
                    self.report_error(session);
                }
                Err(error) => {
                    self.events.push(DaemonEvent::Trouble(error.to_string()));
                    // Out of descriptors, as a rule: not at full speed.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    fn add_session(&mut self, connection: Connection) -> Result<(), OsError> {
        let number = self.sessions_ever;
        let watch = SESSIONS + 2 * number;
        let process = connection.peer_pidfd()?;
        let watched =
            |fd: BorrowedFd<'_>, watch| Watch::new(&self.readiness, fd, Direction::Readable, watch);
        let session = Session {
            credentials: connection.peer_credentials()?,
            connection_watch: watched(connection.as_fd(), watch)?,
            _process_watch: watched(process.as_fd(), watch + 1)?,
            process,
            connection,
            domain: None,
            status_reply: None,
        };
        self.sessions_ever += 1;
        self.sessions.insert(number, session);
        Ok(())
    }

    /// Takes all messages there are of a session.
    pub(super) fn receive_messages(&mut self, number: u64) -> Result<(), SessionEnd> {
        loop {
            if !self.send_status(number)? {
                return Ok(());
            }
            let Some(session) = self.sessions.get(&number) else { return Ok(()) };
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            match session.connection.receive(&mut buffer) {
                Ok(Received { len: 0, .. }) => return Err(session.closed()),
                Ok(Received { len, .. }) => {
                    let message = ToDaemon::decode(&buffer[..len])?;
                    self.handle_message(number, message)?;
                }
                Err(error) if error.is_would_block() => {
                    return Ok(session.connection_watch.arm()?);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn domain_of(&mut self, session: u64) -> Result<&mut Attached, SessionEnd> {
        let session = self.sessions.get_mut(&session).ok_or("it has gone")?;
        Ok(session.domain.as_mut().ok_or("it did not say hello")?)
    }

    pub(super) fn session_of(&self, generation: NonZeroU64) -> Option<u64> {
        let found = self.sessions.iter().find(|(_, session)| {
            session.domain.as_ref().is_some_and(|domain| domain.generation == generation)
        });
        found.map(|(number, _)| *number)
    }

    pub(super) fn send(
        &self,
        session: u64,
        message: &ToDomain,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), SessionEnd> {
        let Some(session) = self.sessions.get(&session) else { return Ok(()) };
        Ok(session.connection.send(&message.encode(), fds)?)
    }
}
