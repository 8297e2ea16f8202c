//! Connections: accepts them, receives messages and sends messages.
//!
//! [`super::requests`] handles the content of a message. Part of the server's thread: nothing here
//! waits for a client. A client that sends nothing cannot keep descriptors from others:
//!
//! - A user has at most [`Config::connections_max`] connections.
//! - A connection without domain and program that sends nothing for [`Config::silent_max`] ends.
//! - If descriptors get short, the user with the most such connections gets no new one, and loses
//!   the oldest one if another user comes.
//! - Some descriptors stay free ([`Daemon::has_room`]), for the watchdog and the KLS threads.
//!
//! The queue of connections in the kernel is one for all users, and turns by user begin after it.
//! So the queue must not stay full: a connection that gets no session costs a few system calls.
//!
//! [`Config::connections_max`]: super::Config::connections_max
//! [`Config::silent_max`]: super::Config::silent_max

use core::num::NonZeroU64;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, ToDaemon, ToDomain};
use upcall_sys::local::{Connection, Credentials, ReceiveError};
use upcall_sys::process::PidFd;
use upcall_sys::readiness::{Direction, Watch};
use upcall_sys::{OsError, clock as sys_clock, descriptors};

use super::daemon::{Daemon, SESSIONS};
use super::event::{DaemonEvent, Trouble};
use super::session::{Attached, Session, SessionEnd};
use crate::clock;
use crate::registry::Owner;

/// Connections that are accepted before the next message is handled. Most get no session if so
/// many wait: a user has few.
const ACCEPTS_MAX: usize = 128;
/// How long the daemon accepts no connection after it found no descriptors.
const ACCEPT_PAUSE: Span = Span::from_millis(100);
/// Sessions for which descriptors are looked for at once.
const ROOM_STEP: u64 = 16;
/// Descriptors of a session: connection and process, a watch of each, and one for a slow inspector.
const SESSION_DESCRIPTORS: u64 = 5;
/// The most descriptors that stay free.
const RESERVE_MAX: u64 = 32;
/// The time between two reports that descriptors are short.
pub(super) const REPORT_INTERVAL: Span = Span::from_secs(10);

/// What a session does after its turn.
pub(super) enum After {
    /// It may have more messages.
    More,
    /// It waits, and its watch is armed.
    Waits,
}

impl Daemon {
    /// Accepts some connections.
    pub(super) fn accept(&mut self) -> Result<(), OsError> {
        // How many sessions find descriptors for sure.
        let mut room = if self.has_room(SESSION_DESCRIPTORS * ROOM_STEP) { ROOM_STEP } else { 0 };
        for _ in 0..ACCEPTS_MAX {
            if room == 0 && !self.has_room(SESSION_DESCRIPTORS) && self.most_silent().is_none() {
                // Only domains are connected, and no descriptor is left.
                self.accept_from = Some(clock::now() + ACCEPT_PAUSE);
                self.report_few_descriptors();
                return Ok(());
            }
            let Some(connection) = self.listener.accept().inspect_err(|_| {
                self.accept_from = Some(clock::now() + ACCEPT_PAUSE);
            })?
            else {
                self.are_plain = self.refuses_descriptors;
                break;
            };
            let added = self.take_in(connection, &mut room);
            self.report_error(added);
        }
        self.listener_watch.arm()
    }

    /// Makes a session of a connection, unless its user has too many.
    fn take_in(&mut self, connection: Connection, room: &mut u64) -> Result<(), OsError> {
        if *room == 0 && !self.has_room(SESSION_DESCRIPTORS) {
            let uid = connection.peer_credentials()?.uid;
            let has_most = self.most_silent().is_some_and(|(most, ..)| most == uid);
            if has_most || !self.make_room(SESSION_DESCRIPTORS, None) {
                self.report_few_descriptors();
                self.close_unserved(uid, connection);
                return Ok(());
            }
        }
        let before = self.sessions.len();
        let added = self.add_session(connection);
        *room = room.saturating_sub((self.sessions.len() - before) as u64);
        added
    }

    /// Closes a connection that had no session.
    fn close_unserved(&mut self, uid: u32, connection: Connection) {
        match self.are_plain {
            // What the client has sent is lost, and closes nothing.
            true => drop(connection),
            false => self.closer.close(uid, connection),
        }
    }

    /// Accepts again after a pause.
    pub(super) fn resume_accepting(&mut self, now: Instant) {
        if self.accept_from.is_some_and(|from| from <= now) {
            self.accept_from = None;
            let armed = self.listener_watch.arm();
            self.report_error(armed);
        }
    }

    pub(super) fn add_session(&mut self, connection: Connection) -> Result<(), OsError> {
        let credentials = connection.peer_credentials()?;
        let connections_max = self.config.connections_max;
        if self.connections_of(credentials.uid) >= connections_max {
            match self.refuse_connection(&credentials, &connection, connections_max) {
                // The client reads the reason: it finds no reset connection.
                true => self.closer.close(credentials.uid, connection),
                false => self.close_unserved(credentials.uid, connection),
            }
            return Ok(());
        }
        // A failure is ignored: before Linux 6.16 `receive_plain` finds descriptors.
        let _ = connection.refuse_descriptors();
        let number = self.sessions_ever;
        let (process, [connection_watch, process_watch]) = match self.watch(&connection, number) {
            Ok(watched) => watched,
            Err(error) => {
                self.closer.close(credentials.uid, connection);
                return Err(error);
            }
        };
        let session = Session {
            credentials,
            connection_watch,
            _process_watch: process_watch,
            process: Arc::new(process),
            connection,
            domain: None,
            program: None,
            has_packet_quotas: false,
            offered_flow: None,
            has_flow: false,
            status_reply: None,
            heard_at: clock::now(),
            has_exited: false,
        };
        self.sessions_ever += 1;
        self.sessions.insert(number, session);
        Ok(())
    }

    /// The process at the other end of a connection, and the watches of both.
    fn watch(&self, connection: &Connection, number: u64) -> Result<(PidFd, [Watch; 2]), OsError> {
        let process = connection.peer_pidfd()?;
        let watched =
            |fd: BorrowedFd<'_>, watch| Watch::new(&self.readiness, fd, Direction::Readable, watch);
        let watch = SESSIONS + 2 * number;
        let watches = [watched(connection.as_fd(), watch)?, watched(process.as_fd(), watch + 1)?];
        Ok((process, watches))
    }

    fn connections_of(&self, uid: u32) -> usize {
        let of_user = self.sessions.values().filter(|session| session.credentials.uid == uid);
        of_user.count() + self.closer.left_of(uid)
    }

    /// Returns whether the client was told: those beyond the refusals that are reported are not.
    fn refuse_connection(
        &mut self,
        client: &Credentials,
        connection: &Connection,
        max: usize,
    ) -> bool {
        let uid = client.uid;
        let reason = format!("user {uid} has the maximum number of connections, {max}");
        let message = ToDomain::Rejected { reason: reason.clone() };
        let is_told = self.report_refusal_of(Owner { uid, pid: client.pid }, reason);
        is_told && connection.send(&message.encode(), &[]).is_ok()
    }

    /// Whether `needed` descriptors can be opened and some stay free. Two or three system calls.
    fn has_room(&self, needed: u64) -> bool {
        let reserve = RESERVE_MAX.min(self.descriptors_max / 4);
        // Without `/proc` the limit of connections remains.
        let open = descriptors::open_count().unwrap_or_default();
        open.saturating_add(needed).saturating_add(reserve) <= self.descriptors_max
    }

    /// Ends silent connections until `needed` descriptors can be opened: each time the oldest one
    /// of the user with the most. `keep` stays. Returns `false` if there are too few.
    pub(super) fn make_room(&mut self, needed: u64, keep: Option<u64>) -> bool {
        while !self.has_room(needed) {
            let Some((_, _, oldest)) = self.most_silent_but(keep) else { return false };
            self.report_few_descriptors();
            self.end(oldest, "the daemon has few descriptors left");
        }
        true
    }

    fn most_silent(&self) -> Option<(u32, usize, u64)> {
        self.most_silent_but(None)
    }

    /// The user with the most silent connections apart from `keep`, their count, and the oldest of
    /// them.
    fn most_silent_but(&self, keep: Option<u64>) -> Option<(u32, usize, u64)> {
        let silent = self
            .sessions
            .iter()
            .filter(|(number, session)| !session.keeps_a_place() && keep != Some(**number));
        let mut of_users: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
        for (&number, session) in silent {
            of_users.entry(session.credentials.uid).or_insert((0, number)).0 += 1;
        }
        let all = of_users.into_iter().map(|(uid, (count, oldest))| (uid, count, oldest));
        all.max_by_key(|(_, count, _)| *count)
    }

    fn report_few_descriptors(&mut self) {
        let now = clock::now();
        if self.few_descriptors_at.is_none_or(|at| now.since(at) >= REPORT_INTERVAL) {
            self.few_descriptors_at = Some(now);
            let descriptors_max = self.descriptors_max;
            self.events.push(DaemonEvent::Trouble(Trouble::FewDescriptors { descriptors_max }));
        }
    }

    /// Ends the connections without domain and program that have sent nothing for too long.
    pub(super) fn end_silent(&mut self, now: Instant) {
        if self.looked_at.is_some_and(|at| now.since(at) < self.config.silent_max / 10) {
            return;
        }
        self.looked_at = Some(now);
        let is_silent = |session: &Session| {
            !session.keeps_a_place() && now.since(session.heard_at) >= self.config.silent_max
        };
        let silent = self.sessions.iter().filter(|(_, session)| is_silent(session));
        let numbers: Vec<u64> = silent.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.end(number, "it sent nothing for too long"));
        self.refusals.retain(|_, (since, _)| now.since(*since) < REPORT_INTERVAL);
        let sessions = &self.sessions;
        let is_gone = |uid| sessions.values().all(|session| session.credentials.uid != uid);
        self.turns.forget(is_gone);
    }

    /// When the server must look again, although no descriptor is ready.
    pub(super) fn look_again_at(&self, now: Instant) -> Option<Instant> {
        if !self.turns.is_empty() {
            return Some(now);
        }
        let silent = self.sessions.values().any(|session| !session.keeps_a_place());
        let look = silent.then(|| now + self.config.silent_max / 10);
        look.into_iter().chain(self.accept_from).chain(self.programs.look_at()).min()
    }

    /// Marks a session as ready: its connection or its process is.
    pub(super) fn note_ready(&mut self, number: u64, is_process: bool) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.has_exited |= is_process;
            self.turns.push(session.credentials.uid, number);
        }
    }

    /// Handles one message of the session whose turn it is, and charges its user.
    pub(super) fn serve_next(&mut self) {
        let Some((uid, number)) = self.turns.next() else { return };
        let before_ns = sys_clock::thread_cpu_ns();
        match self.take_message(number) {
            Ok(After::More) if self.sessions.contains_key(&number) => self.turns.push(uid, number),
            Ok(_) => {}
            Err(SessionEnd(reason)) => self.end(number, &reason),
        }
        let used_ns = sys_clock::thread_cpu_ns().saturating_sub(before_ns);
        self.turns.charge(uid, Span::from_nanos(used_ns));
    }

    /// Receives and handles one message, or sends one domain's part of a status.
    fn take_message(&mut self, number: u64) -> Result<After, SessionEnd> {
        if let Some(after) = self.send_status(number)? {
            return Ok(after);
        }
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(After::Waits) };
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        match session.connection.receive_plain(&mut buffer) {
            Ok(0) => Err(session.closed()),
            Ok(len) => {
                session.heard_at = clock::now();
                let message = ToDaemon::decode(&buffer[..len])?;
                self.handle_message(number, message)?;
                Ok(After::More)
            }
            Err(ReceiveError::Os(error)) if error.is_would_block() => {
                // Reads the messages of an ended process, too: the last one may be that it
                // detaches.
                if session.has_exited {
                    return Err(session.closed());
                }
                session.connection_watch.arm()?;
                Ok(After::Waits)
            }
            Err(error) => Err(error.into()),
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
