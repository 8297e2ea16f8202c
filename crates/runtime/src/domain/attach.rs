//! How a process attaches to a daemon: it says hello, and maps the pages that the daemon sends.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use upcall_core::time::Span;
use upcall_shm::kernel_area::Reader;
use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::{LentMask, Owner};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, ToDaemon, ToDomain};
use upcall_shm::{DomainId, kernel_area, turn_page, user_area};
use upcall_sys::local::{Connection, ReceiveError, Received};
use upcall_sys::memfd::{ReadOnlyMapping, SharedMapping};
use upcall_sys::readiness::{self, Direction};

use super::control::VirtualProcessorControl;
use super::error::AttachError;
use super::pages::Pages;
use super::virtual_processor::VirtualProcessor;
use crate::clock;
use crate::daemon_fault::DaemonFault;
use crate::mailbox::ACTIVITIES_MAX;
use crate::rights::Notice;

/// How long the daemon may take for a reply. It replies in an ordinary thread.
pub(super) const ANSWER_WITHIN: Span = Span::from_secs(10);
/// The user area has a slot for each activity that an executor may have.
const _: () = assert!(user_area::AREA_SLOTS == ACTIVITIES_MAX as usize);

/// What a daemon gives to a domain that it attaches.
pub(super) struct Connected {
    pub(super) connection: Connection,
    /// With their CPUs.
    pub(super) virtual_processors: Vec<(u32, VirtualProcessor, VirtualProcessorControl)>,
    pub(super) orphaned: Arc<AtomicBool>,
    /// The right that the daemon cannot grant.
    pub(super) missing: Option<Notice>,
    pub(super) switch_cost: Span,
}

/// What the daemon's welcome says.
struct Welcome {
    me: DomainId,
    generation: u64,
    virtual_processors: u32,
    real_time: bool,
    switch_cost: Span,
    defer_preemption: Span,
}

/// What the domain and the daemon must agree on.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    /// [`Discipline::agreed`](upcall_core::discipline::Discipline::agreed).
    pub(super) policy: String,
    /// PS: the longest service at a time.
    pub(super) time_quantum: Option<Span>,
    /// PS: the groups that the domain defines.
    pub(super) groups: Vec<ToDaemon>,
}

/// Connects, says hello and defines the groups. Blocks until the daemon has answered.
pub(super) fn connect(path: &Path, name: &str, agreed: &Agreed) -> Result<Connected, AttachError> {
    let until = clock::now() + ANSWER_WITHIN;
    let connection = Connection::connect_until(path, until.as_nanos())
        .map_err(|error| AttachError::Connect { path: path.to_owned(), error })?;
    let (name, policy) = (name.to_owned(), agreed.policy.clone());
    let sent = connection.send(&ToDaemon::Hello { name, policy }.encode(), &[]);
    let answer = next_message(&connection);
    if answer.is_err() {
        // A daemon that refuses the connection may have answered and closed it before.
        sent?;
    }
    let welcome = welcome(answer?.0)?;
    let orphaned = Arc::new(AtomicBool::new(false));
    let mut virtual_processors = Vec::new();
    for _ in 0..welcome.virtual_processors {
        let (message, received) = next_message(&connection)?;
        let ToDomain::VirtualProcessor { cpu } = message else {
            return Err(DaemonFault::out_of_place(message).into());
        };
        let pages = pages(received, welcome.me, welcome.generation)?;
        let (virtual_processor, control) = VirtualProcessorControl::pair(
            pages,
            welcome.me,
            welcome.real_time,
            welcome.defer_preemption,
            orphaned.clone(),
            (agreed.time_quantum, agreed.groups.len()),
        );
        virtual_processors.push((cpu, virtual_processor, control));
    }
    for group in &agreed.groups {
        connection.send(&group.encode(), &[])?;
    }
    let missing =
        (!welcome.real_time).then(|| Notice::NoRealTimeDaemon { program: program_of(&connection) });
    let switch_cost = welcome.switch_cost;
    Ok(Connected { connection, virtual_processors, orphaned, missing, switch_cost })
}

fn welcome(message: ToDomain) -> Result<Welcome, AttachError> {
    match message {
        ToDomain::Welcome {
            domain,
            generation,
            virtual_processors,
            real_time,
            switch_cost_ns,
            defer_preemption_ns,
        } => Ok(Welcome {
            me: DomainId::new(domain)
                .filter(|&me| me != DomainId::DAEMON)
                .ok_or(DaemonFault::DomainNumber(domain))?,
            generation,
            virtual_processors,
            real_time,
            switch_cost: Span::from_nanos(switch_cost_ns),
            defer_preemption: Span::from_nanos(defer_preemption_ns),
        }),
        ToDomain::Rejected { reason } => Err(AttachError::Rejected(reason)),
        other => Err(DaemonFault::out_of_place(other).into()),
    }
}

/// The file that the daemon runs. `None` if the kernel does not tell this user, or if systemd
/// listens in the daemon's place, as it does for a socket unit.
fn program_of(connection: &Connection) -> Option<PathBuf> {
    let pid = connection.peer_credentials().ok()?.pid;
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let is_systemd = file.file_name().is_some_and(|name| name == "systemd");
    (!is_systemd).then_some(file)
}

/// Maps the three pages of a virtual processor: the turn page, this domain's user area, and the
/// kernel area. The kernel area is read-only.
fn pages(received: Received, me: DomainId, generation: u64) -> Result<Pages, AttachError> {
    let mut fds = received.fds.into_iter();
    let (Some(turn), Some(user), Some(kernel)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(DaemonFault::PagesMissing.into());
    };
    let turn = SharedMapping::from_fd(turn, turn_page::PAGE_BYTES)?;
    let again = user.try_clone().map_err(AttachError::Descriptor)?;
    let user = SharedMapping::from_fd(user, user_area::AREA_BYTES)?;
    let lent = SharedMapping::from_fd(again, user_area::AREA_BYTES)?;
    let kernel = ReadOnlyMapping::from_fd(kernel, kernel_area::AREA_BYTES)?;
    // Pages that cannot be locked may be paged out: a notice of the runtime says so.
    let _ = (turn.lock(), user.lock(), lent.lock(), kernel.lock());
    turn.dont_fork()?;
    user.dont_fork()?;
    lent.dont_fork()?;
    kernel.dont_fork()?;
    let user = Owner::create(user, me, generation)?;
    Ok(Pages {
        turn: Arc::new(TurnPage::attach(turn)?),
        mask: Arc::new(LentMask::attach(lent)?),
        user,
        generation,
        kernel: Reader::attach(kernel)?,
    })
}

/// The next message. Blocks until it has come, at most [`ANSWER_WITHIN`].
pub(super) fn next_message(connection: &Connection) -> Result<(ToDomain, Received), AttachError> {
    let until = clock::now() + ANSWER_WITHIN;
    loop {
        let fd = connection.as_fd();
        if !readiness::wait_until(fd, Direction::Readable, Some(until.as_nanos()))? {
            return Err(AttachError::Silent);
        }
        if let Some(message) = receive(connection)? {
            return Ok(message);
        }
    }
}

/// A message, if one is there.
pub(super) fn receive(
    connection: &Connection,
) -> Result<Option<(ToDomain, Received)>, AttachError> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    match connection.receive(&mut buffer) {
        Ok(Received { len: 0, .. }) => Err(AttachError::Closed),
        Ok(received) => Ok(Some((ToDomain::decode(&buffer[..received.len])?, received))),
        Err(error) if error.is_would_block() => Ok(None),
        Err(ReceiveError::Os(error)) => Err(error.into()),
        Err(error) => Err(AttachError::Receive(error)),
    }
}
