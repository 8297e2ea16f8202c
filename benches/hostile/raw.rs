//! A domain without the runtime. It can write anything into its pages.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use upcall_shm::DomainId;
use upcall_shm::turn_page::{PAGE_BYTES, TurnPage};
use upcall_shm::user_area::{AREA_BYTES, Owner, Rank};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, ToDaemon, ToDomain};
use upcall_sys::local::{Connection, Received};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::readiness::{self, Direction};
use upcall_sys::{clock, process, schedule};

/// Period of its reservation. It is shorter than those of all victims.
const PERIOD_NS: u64 = 5_000_000;

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
    /// Attaches, and makes the calling thread its virtual processor.
    pub fn attach(socket: &Path, name: &str) -> Raw {
        let connection = Connection::connect(socket).expect("the daemon listens");
        let hello = ToDaemon::Hello { name: name.into(), policy: "rmdp".into() };
        connection.send(&hello.encode(), &[]).expect("the domain is connected");
        let (welcome, _) = next(&connection);
        let ToDomain::Welcome { domain, generation, .. } = welcome else {
            panic!("expected a welcome, found {welcome:?}")
        };
        let (virtual_processor, received) = next(&connection);
        let ToDomain::VirtualProcessor { cpu } = virtual_processor else {
            panic!("expected a virtual processor, found {virtual_processor:?}")
        };
        let bytes = [PAGE_BYTES, AREA_BYTES];
        let map = |at: usize| {
            let fd = received.fds[at].as_fd().try_clone_to_owned().expect("descriptors are left");
            SharedMapping::from_fd(fd, bytes[at]).expect("the descriptor is a page")
        };
        let me = DomainId::new(domain).expect("the daemon assigns a valid number");
        let mut raw = Raw {
            me,
            rank: Rank::new(PERIOD_NS, 0),
            turn: TurnPage::attach(map(0)).expect("a turn page"),
            pages: [map(0), map(1)],
            owner: Owner::create(map(1), me, generation).expect("a blank area"),
            connection,
        };
        schedule::pin_thread(&[cpu]).expect("its own CPU");
        raw.send(&ToDaemon::Thread { cpu, tid: process::thread_id() });
        raw.rank.order = raw.create();
        raw
    }

    /// Makes a small reservation, as ordinary domains do.
    fn create(&self) -> u32 {
        let need = Need {
            period_ns: PERIOD_NS,
            deadline_ns: PERIOD_NS,
            batch: 1,
            quantum: 1,
            pdu_cost_ns: 100_000,
            ..Need::default()
        };
        let name = "attack".to_owned();
        self.send(&ToDaemon::Create { request: 1, unscreened: false, need, name });
        loop {
            match next(&self.connection).0 {
                ToDomain::Granted { order, .. } => return order,
                ToDomain::Refused { reason, .. } => panic!("{reason}"),
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

/// The next message of the daemon.
///
/// # Panics
/// If none comes in 5 s.
pub(crate) fn next(connection: &Connection) -> (ToDomain, Received) {
    let until = clock::monotonic_ns() + 5_000_000_000;
    let ready = readiness::wait_until(connection.as_fd(), Direction::Readable, Some(until));
    assert!(ready.is_ok_and(|ready| ready), "the daemon sends nothing");
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let received = connection.receive(&mut buffer).expect("a message is there");
    let message =
        ToDomain::decode(&buffer[..received.len]).expect("the daemon sends a valid message");
    (message, received)
}
