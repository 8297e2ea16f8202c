//! The thread of a service that takes registrations and calls, and notices that clients are gone.
//!
//! ```text
//!   connected --Register--> registered (1) --Bye--> ended
//!       |                        |
//!       +--Call--> replied       +--hung up, or an unexpected message--> died
//! ```
//!
//! 1. The registrar creates the channel's memory and hands it to the client. It hands this end of
//!    the channel to the dispatcher. The client has access to no other client's memory.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use upcall_sys::local::{Connection, Listener};
use upcall_sys::process::real_time_signals;
use upcall_sys::readiness::{Direction, Watch};

use super::errors::ServiceRefusal;
use super::event::Words;
use super::link::{Link, LinkState};
use super::lock::lock;
use super::message::{BYTES_MAX, ToClient, ToService};
use super::peer::{ExitState, Gone, PeerId};
use super::raiser::{Notification, RaisingEnd};
use super::segment::{ChannelMemory, Side};
use super::service_state::ServiceState;

/// The number of the listener's watch.
pub(super) const LISTENER: u64 = 0;
/// How many connections there may be beyond those of clients: for calls in progress.
const CALLERS_MAX: usize = 64;
/// How long the registrar waits before it tries again for a descriptor.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

/// A connection of a process that calls, or registers a client.
struct PendingConnection {
    number: u64,
    connection: Arc<Connection>,
    watch: Watch,
    /// The client, once it is registered.
    client: Option<(PeerId, Arc<ExitState>)>,
}

/// Serves until the service ends.
pub(super) fn run(service: &ServiceState, listener: &Listener, watch: Watch) {
    let mut connections: Vec<PendingConnection> = Vec::new();
    let mut next = LISTENER + 1;
    let mut ready = Vec::new();
    while service.readiness.wait(|number| ready.push(number)) {
        for number in ready.drain(..) {
            if number == LISTENER {
                accept_all(service, listener, &mut connections, &mut next);
                let _ = watch.arm();
            } else {
                handle_input(service, &mut connections, number);
            }
        }
    }
    // Relaxed: the flag is stored before `stop`, which ends the loop above.
    let says_bye = service.says_bye.load(Ordering::Relaxed);
    for connection in connections {
        if says_bye && connection.client.is_some() {
            let _ = connection.connection.send(ToClient::Bye.encode().bytes(), &[]);
        }
        disconnect(service, connection, Gone::Ended);
    }
}

/// Accepts all connections that wait. Closes those beyond the limit.
fn accept_all(
    service: &ServiceState,
    listener: &Listener,
    connections: &mut Vec<PendingConnection>,
    next: &mut u64,
) {
    loop {
        match listener.accept() {
            Ok(Some(connection)) if connections.len() < service.clients_max + CALLERS_MAX => {
                connections.extend(PendingConnection::new(service, connection, *next));
                *next += 1;
            }
            Ok(Some(_)) => {} // dropped, and so closed
            Ok(None) => break,
            Err(_) => {
                // The listener stays readable until there are descriptors again.
                std::thread::sleep(SHORT_OF_DESCRIPTORS);
                break;
            }
        }
    }
}

impl PendingConnection {
    fn new(service: &ServiceState, connection: Connection, number: u64) -> Option<Self> {
        let connection = Arc::new(connection);
        let fd = connection.as_fd();
        let watch = Watch::new(&service.readiness, fd, Direction::Readable, number).ok()?;
        Some(PendingConnection { number, connection, watch, client: None })
    }

    fn send(&self, message: &ToClient) -> bool {
        self.connection.send(message.encode().bytes(), &[]).is_ok()
    }
}

/// Replies to a message, or closes the connection.
fn handle_input(service: &ServiceState, connections: &mut Vec<PendingConnection>, number: u64) {
    let Some(at) = connections.iter().position(|known| known.number == number) else { return };
    let connection = &mut connections[at];
    let mut bytes = [0; BYTES_MAX];
    let message = match connection.connection.receive(&mut bytes) {
        Err(error) if error.is_would_block() => {
            let _ = connection.watch.arm();
            return;
        }
        received => received.ok().and_then(|received| ToService::decode(&bytes[..received.len])),
    };
    let stays = match message {
        Some(ToService::Register { signal, value }) if connection.client.is_none() => {
            register(service, connection, signal, value)
        }
        Some(ToService::Call(words)) => call(service, connection, &words),
        _ => false,
    };
    if !stays || connection.watch.arm().is_err() {
        let connection = connections.swap_remove(at);
        let ended = message == Some(ToService::Bye);
        disconnect(service, connection, if ended { Gone::Ended } else { Gone::Died });
    }
}

/// Runs the service's call and replies. Returns whether the connection stays.
fn call(service: &ServiceState, connection: &PendingConnection, words: &Words) -> bool {
    // If the handler panics, this caller's connection is closed. The next caller may call.
    let called = catch_unwind(AssertUnwindSafe(|| service.calls.call(words)));
    let reply = called.map(|reply| match reply {
        Some(words) => ToClient::Reply(words),
        None => ToClient::Refused(ServiceRefusal::NoCall),
    });
    reply.is_ok_and(|reply| connection.send(&reply))
}

/// Closes a connection, and reports that its client is gone. Hangs up first, because the dispatcher
/// holds the connection too.
fn disconnect(service: &ServiceState, connection: PendingConnection, gone: Gone) {
    connection.connection.hang_up();
    let Some((peer, exit)) = connection.client else { return };
    exit.set(gone);
    lock(&service.raising_ends).retain(|(of, _)| *of != peer);
    service.registration.check_peers();
}

/// Registers a client. Returns whether the connection stays.
fn register(
    service: &ServiceState,
    connection: &mut PendingConnection,
    signal: i32,
    value: i32,
) -> bool {
    let (memory, link) = match create_channel(service, connection, signal, value) {
        Ok(created) => created,
        Err(refusal) => return connection.send(&ToClient::Refused(refusal)),
    };
    let (peer, raising_end) = (link.peer, link.raising_end.clone());
    let exit = raising_end.exit.clone();
    if !service.registration.join(link) {
        return connection.send(&ToClient::Refused(ServiceRefusal::Full));
    }
    lock(&service.raising_ends).push((peer, raising_end));
    connection.client = Some((peer, exit));
    let registered = ToClient::Registered(service.forms).encode();
    connection.connection.send(registered.bytes(), &[memory.fd()]).is_ok()
}

/// Creates the channel of a client.
fn create_channel(
    service: &ServiceState,
    connection: &PendingConnection,
    signal: i32,
    value: i32,
) -> Result<(ChannelMemory, Link), ServiceRefusal> {
    let no_resources = |_| ServiceRefusal::Resources;
    let notification = match signal {
        0 => Notification::WakeWord,
        number if real_time_signals().contains(&number) => {
            // The signal goes to the process that connected. A client chooses for itself only.
            let process = connection.connection.peer_pidfd().map_err(no_resources)?;
            Notification::Signal { process, number, value }
        }
        _ => return Err(ServiceRefusal::Signal),
    };
    let credentials = connection.connection.peer_credentials().map_err(no_resources)?;
    let memory = ChannelMemory::create(service.forms).map_err(|_| ServiceRefusal::Resources)?;
    let layout = |_| ServiceRefusal::Resources;
    let peer = PeerId::next();
    let raising_end = Arc::new(RaisingEnd {
        peer,
        raiser: memory.raiser(Side::Client).map_err(layout)?.into(),
        wake_line: memory.wake_line(Side::Client).map_err(layout)?,
        notification,
        exit: Arc::default(),
        on_behalf: service.on_behalf.clone(),
        system_calls: AtomicU64::new(0),
        signal_owed: AtomicBool::new(false),
        own_dispatcher: Some(service.registration.notifier()),
    });
    let link = Link {
        peer,
        taker: memory.taker(Side::Service).map_err(layout)?,
        wake_line: memory.wake_line(Side::Service).map_err(layout)?,
        raising_end,
        is_local: credentials.pid == std::process::id(),
        connection: connection.connection.clone(),
        state: LinkState::default(),
    };
    Ok((memory, link))
}
