//! The thread of a service that takes registrations and calls, and learns that clients are gone.
//!
//! ```text
//!   connected --Register--> registered (1) --Bye--> ended
//!       |                        |
//!       +--Call--> answered      +--hung up, or nonsense--> died
//! ```
//!
//! 1. Its memory is made and handed over, its end brought to the desk. It can touch no other client's.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use upcall_sys::local::{Connection, Listener};
use upcall_sys::process::real_time_signals;
use upcall_sys::readiness::{Direction, Watch};

use super::errors::ServiceRefusal;
use super::link::{Link, Place};
use super::lock::lock;
use super::message::{BYTES_MAX, ToClient, ToService};
use super::peer::{Fate, Gone, PeerId};
use super::raiser::{Out, Tell};
use super::segment::{Pair, Side};
use super::service_state::Hall;

/// The number of the listener's watch.
pub(super) const LISTENER: u64 = 0;
/// Connections beside those of clients: calls under way.
const CALLERS_MAX: usize = 64;
/// How long it waits for descriptors to be closed.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

struct Guest {
    number: u64,
    connection: Arc<Connection>,
    watch: Watch,
    /// Once it is registered.
    client: Option<(PeerId, Arc<Fate>)>,
}

/// Serves until it is stopped.
pub(super) fn run(hall: &Hall, listener: &Listener, listens: Watch) {
    let mut guests: Vec<Guest> = Vec::new();
    let mut next = LISTENER + 1;
    let mut ready = Vec::new();
    while hall.readiness.wait(|number| ready.push(number)) {
        for number in ready.drain(..) {
            if number != LISTENER {
                hear(hall, &mut guests, number);
                continue;
            }
            loop {
                match listener.accept() {
                    Ok(Some(connection)) if guests.len() < hall.clients_max + CALLERS_MAX => {
                        guests.extend(Guest::new(hall, connection, next));
                        next += 1;
                    }
                    Ok(Some(_)) => {} // hung up on
                    Ok(None) => break,
                    Err(_) => {
                        // It stays readable until there are descriptors again.
                        std::thread::sleep(SHORT_OF_DESCRIPTORS);
                        break;
                    }
                }
            }
            let _ = listens.arm();
        }
    }
    // Relaxed: stored before the stop.
    let bye = hall.ends.load(Ordering::Relaxed);
    for guest in guests {
        if bye && guest.client.is_some() {
            let _ = guest.connection.send(ToClient::Bye.encode().bytes(), &[]);
        }
        part(hall, guest, Gone::Ended);
    }
}

impl Guest {
    fn new(hall: &Hall, connection: Connection, number: u64) -> Option<Self> {
        let connection = Arc::new(connection);
        let fd = connection.as_fd();
        let watch = Watch::new(&hall.readiness, fd, Direction::Readable, number).ok()?;
        Some(Guest { number, connection, watch, client: None })
    }
}

/// Answers what a guest says, or lets it go.
fn hear(hall: &Hall, guests: &mut Vec<Guest>, number: u64) {
    let Some(at) = guests.iter().position(|guest| guest.number == number) else { return };
    let guest = &mut guests[at];
    let mut bytes = [0; BYTES_MAX];
    let said = match guest.connection.receive(&mut bytes) {
        Err(error) if error.is_would_block() => {
            let _ = guest.watch.arm();
            return;
        }
        received => received.ok().and_then(|received| ToService::decode(&bytes[..received.len])),
    };
    let goes_on = match said {
        Some(ToService::Register { signal, value }) if guest.client.is_none() => {
            register(hall, guest, signal, value)
        }
        Some(ToService::Call(words)) => {
            // A panic is the handler's fault: the caller is hung up on, and the next one may call.
            let called = catch_unwind(AssertUnwindSafe(|| hall.calls.call(&words)));
            let answer = called.map(|answer| match answer {
                Some(words) => ToClient::Answer(words),
                None => ToClient::Refused(ServiceRefusal::NoCall),
            });
            answer.is_ok_and(|it| guest.connection.send(it.encode().bytes(), &[]).is_ok())
        }
        _ => false,
    };
    if !goes_on || guest.watch.arm().is_err() {
        let guest = guests.swap_remove(at);
        part(hall, guest, if said == Some(ToService::Bye) { Gone::Ended } else { Gone::Died });
    }
}

/// Lets a guest go, and says of a client that it is gone. Its desk has the connection, too.
fn part(hall: &Hall, guest: Guest, gone: Gone) {
    guest.connection.hang_up();
    let Some((peer, fate)) = guest.client else { return };
    fate.set(gone);
    lock(&hall.outs).retain(|(of, _)| *of != peer);
    hall.line.look();
}

fn register(hall: &Hall, guest: &mut Guest, signal: i32, value: i32) -> bool {
    let (pair, link) = match enter(hall, guest, signal, value) {
        Ok(made) => made,
        Err(refusal) => {
            let refused = ToClient::Refused(refusal).encode();
            return guest.connection.send(refused.bytes(), &[]).is_ok();
        }
    };
    let (peer, out) = (link.peer, link.out.clone());
    let fate = out.fate.clone();
    if !hall.line.join(link) {
        let refused = ToClient::Refused(ServiceRefusal::Full).encode();
        return guest.connection.send(refused.bytes(), &[]).is_ok();
    }
    lock(&hall.outs).push((peer, out));
    guest.client = Some((peer, fate));
    let registered = ToClient::Registered(hall.forms).encode();
    guest.connection.send(registered.bytes(), &[pair.fd()]).is_ok()
}

/// Makes the channel of a client.
fn enter(
    hall: &Hall,
    guest: &Guest,
    signal: i32,
    value: i32,
) -> Result<(Pair, Link), ServiceRefusal> {
    let out_of = |_| ServiceRefusal::Resources;
    let tell = match signal {
        0 => Tell::Bell,
        number if real_time_signals().contains(&number) => {
            // Of the process that connected, and of no other: the client says for itself.
            let process = guest.connection.peer_pidfd().map_err(out_of)?;
            Tell::Signal { process, number, value }
        }
        _ => return Err(ServiceRefusal::Signal),
    };
    let local = guest.connection.peer_credentials().map_err(out_of)?.pid == std::process::id();
    let pair = Pair::create(hall.forms).map_err(|_| ServiceRefusal::Resources)?;
    let layout = |_| ServiceRefusal::Resources;
    let peer = PeerId::next();
    let out = Arc::new(Out {
        peer,
        raises: pair.raises(Side::Client).map_err(layout)?.into(),
        bell: pair.bell(Side::Client).map_err(layout)?,
        tell,
        fate: Arc::default(),
        behalf: hall.behalf.clone(),
        system_calls: AtomicU64::new(0),
        owed: AtomicBool::new(false),
        caller: Some(hall.line.caller()),
    });
    let link = Link {
        peer,
        takes: pair.takes(Side::Service).map_err(layout)?,
        bell: pair.bell(Side::Service).map_err(layout)?,
        out,
        is_local: local,
        connection: guest.connection.clone(),
        at: Place::default(),
    };
    Ok((pair, link))
}
