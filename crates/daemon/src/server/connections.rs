//! Connections: accepts them, receives messages and sends messages.
//!
//! [`super::requests`] handles the content of a message. Part of the server's thread: nothing here
//! waits for a client.

use core::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use upcall_shm::wire::{MESSAGE_BYTES_MAX, ToDaemon, ToDomain};
use upcall_sys::OsError;
use upcall_sys::local::{Connection, Received};
use upcall_sys::readiness::{Direction, Watch};

use super::daemon::{Daemon, SESSIONS};
use super::event::{DaemonEvent, Trouble};
use super::session::{Attached, Session, SessionEnd};

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
                    self.events.push(DaemonEvent::Trouble(Trouble::Os(error)));
                    // Usually there are no descriptors left. The pause keeps the loop from
                    // spinning.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    fn add_session(&mut self, connection: Connection) -> Result<(), OsError> {
        let number = self.sessions_ever;
        let watch = SESSIONS + 2 * number;
        let process = Arc::new(connection.peer_pidfd()?);
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

    /// Receives and handles all messages that a session has sent.
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
        let session = self.sessions.get_mut(&session).ok_or("its session has ended")?;
        Ok(session.domain.as_mut().ok_or("it has not sent Hello")?)
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
