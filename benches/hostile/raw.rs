//! A domain without the runtime. It can write anything into its pages.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use upcall_shm::DomainId;
use upcall_shm::turn_page::{PAGE_BYTES, TurnPage};
use upcall_shm::user_area::{AREA_BYTES, Owner, Rank};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, ToDaemon, ToDomain};
use upcall_sys::local::{Connection, Received};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::readiness::{self, Direction};
use upcall_sys::{clock, process, schedule};

/// A reservation of one PDU of this cost in each period. Its deadline is its period.
pub fn need(period_ns: u64, pdu_cost_ns: u64) -> Need {
    Need { period_ns, deadline_ns: period_ns, batch: 1, quantum: 1, pdu_cost_ns, ..Need::default() }
}

/// The reservation of most attackers. The period is shorter than those of the usual victims.
fn usual_need() -> Need {
    need(5_000_000, 100_000)
}

/// A domain that follows the protocol only as far as an attack wants.
pub struct Raw {
    pub connection: Connection,
    pub me: DomainId,
    pub turn: TurnPage<SharedMapping>,
    /// The turn page and the user area as plain memory, for random writes.
    pub pages: [SharedMapping; 2],
    pub owner: Owner<SharedMapping>,
    /// The rank with which it was admitted.
    pub rank: Rank,
}

impl Raw {
    /// Attaches with a small reservation, as ordinary domains do. The calling thread becomes its
    /// virtual processor.
    ///
    /// # Panics
    /// If the daemon refuses.
    pub fn attach(socket: &Path, name: &str) -> Raw {
        Raw::attach_with(socket, name, usual_need())
    }

    /// The same with this reservation.
    pub fn attach_with(socket: &Path, name: &str, need: Need) -> Raw {
        Raw::join(socket, name).unwrap_or_else(|why| panic!("{why}")).with(need)
    }

    /// As [`Raw::attach`], once the daemon was killed: tries again for 5 s until the next one
    /// answers. The kernel accepts connections for a process that is ending, and resets them.
    pub fn attach_to_next(socket: &Path, name: &str) -> Raw {
        let until_ns = clock::monotonic_ns() + 5_000_000_000;
        loop {
            match Raw::join(socket, name) {
                Ok(raw) => return raw.with(usual_need()),
                Err(why) => assert!(clock::monotonic_ns() < until_ns, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reserves this.
    fn with(self, need: Need) -> Raw {
        let order = self.create(1, false, need).flatten().unwrap_or_else(|why| panic!("{why}"));
        Raw { rank: Rank::new(need.period_ns, order), ..self }
    }

    /// Attaches without a reservation. The error is a sentence.
    pub fn join(socket: &Path, name: &str) -> Result<Raw, String> {
        // As the library does: too many others may wait to be accepted.
        let until_ns = clock::monotonic_ns() + 5_000_000_000;
        let connection =
            Connection::connect_until(socket, until_ns).map_err(|error| error.to_string())?;
        let hello = ToDaemon::Hello { name: name.into(), policy: "rmdp".into() };
        connection.send(&hello.encode(), &[]).map_err(|error| error.to_string())?;
        let (welcome, _) = next(&connection)?;
        let ToDomain::Welcome { domain, generation, virtual_processors, .. } = welcome else {
            return Err(format!("expected a welcome, found {welcome:?}"));
        };
        // The last one: the victims fit onto the CPU of the first one.
        for _ in 1..virtual_processors {
            next(&connection)?;
        }
        let (virtual_processor, received) = next(&connection)?;
        let ToDomain::VirtualProcessor { cpu } = virtual_processor else {
            return Err(format!("expected a virtual processor, found {virtual_processor:?}"));
        };
        let bytes = [PAGE_BYTES, AREA_BYTES];
        let map = |at: usize| {
            let fd = received.fds[at].as_fd().try_clone_to_owned().expect("descriptors are left");
            SharedMapping::from_fd(fd, bytes[at]).expect("the descriptor is a page")
        };
        let me = DomainId::new(domain).expect("the daemon assigns a valid number");
        let raw = Raw {
            me,
            rank: Rank::new(u64::MAX, u32::MAX),
            turn: TurnPage::attach(map(0)).expect("a turn page"),
            pages: [map(0), map(1)],
            owner: Owner::create(map(1), me, generation).expect("a blank area"),
            connection,
        };
        schedule::pin_thread(&[cpu]).map_err(|error| error.to_string())?;
        raw.send(&ToDaemon::Thread { cpu, tid: process::thread_id() });
        Ok(raw)
    }

    /// Asks for a reservation. Returns its place in the order of admission, or why the daemon
    /// refuses it. The outer error is a daemon that does not answer.
    pub fn create(
        &self,
        request: u64,
        unscreened: bool,
        need: Need,
    ) -> Result<Result<u32, String>, String> {
        let name = "attack".to_owned();
        self.send(&ToDaemon::Create { request, unscreened, need, name });
        self.answer()
    }

    /// Claims a place on a CPU as if a former daemon had granted it. Returns as
    /// [`create`](Self::create).
    pub fn claim(&self, cpu: u32, order: u32, need: Need) -> Result<Result<u32, String>, String> {
        let name = "attack".to_owned();
        self.send(&ToDaemon::Claim { request: 1, unscreened: false, cpu, order, need, name });
        self.answer()
    }

    /// The daemon's answer to the only request that is open.
    fn answer(&self) -> Result<Result<u32, String>, String> {
        loop {
            match next(&self.connection)?.0 {
                ToDomain::Granted { order, .. } => return Ok(Ok(order)),
                ToDomain::Refused { reason, .. } => return Ok(Err(reason)),
                _ => {}
            }
        }
    }

    pub fn send(&self, message: &ToDaemon) {
        self.connection.send(&message.encode(), &[]).expect("the domain is connected");
    }

    /// All words that the domain may write.
    pub fn words(&self) -> Vec<&AtomicU64> {
        self.pages.iter().flat_map(|page| page.words()).collect()
    }
}

/// The next message. Waits for 5 s at most.
pub(crate) fn next(connection: &Connection) -> Result<(ToDomain, Received), String> {
    let until = clock::monotonic_ns() + 5_000_000_000;
    let ready = readiness::wait_until(connection.as_fd(), Direction::Readable, Some(until));
    if !ready.is_ok_and(|ready| ready) {
        return Err("the daemon sends nothing for 5 s".to_owned());
    }
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let received = connection.receive(&mut buffer).map_err(|error| error.to_string())?;
    let message = ToDomain::decode(&buffer[..received.len]).map_err(|error| error.to_string())?;
    Ok((message, received))
}
