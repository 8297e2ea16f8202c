//! The programs of a server, their names, and the connections that they belong to.
//!
//! Data of the server's thread. The sibling `programs` handles the requests.

use std::collections::BTreeMap;

use upcall_core::admission::Share;
use upcall_core::time::{Instant, Span};
use upcall_shm::wire::ProgramStatus;
use upcall_sys::clock as sys_clock;

use crate::programs::{ProgramId, Programs};

/// The time between two looks for programs whose processes have all ended.
const LOOK_INTERVAL: Span = Span::from_millis(200);

/// The programs of a server, and to whom they belong.
pub(super) struct ServedPrograms {
    pub(super) programs: Programs,
    /// The users who may ask, beside root.
    users: Vec<u32>,
    pub(super) known: BTreeMap<ProgramId, Known>,
    /// The last look for programs without processes.
    pub(super) looked_at: Instant,
}

/// What the server knows of a program.
pub(super) struct Known {
    pub(super) name: String,
    /// The session of Start.
    pub(super) session: Option<u64>,
    /// 0: it has a weight.
    pub(super) share_ppm: u32,
}

impl ServedPrograms {
    pub(super) fn new(programs: Programs, users: Vec<u32>, now: Instant) -> Self {
        ServedPrograms { programs, users, known: BTreeMap::new(), looked_at: now }
    }

    /// Whether a user may ask for shares.
    pub(super) fn may_ask(&self, uid: u32) -> bool {
        uid == 0 || self.users.contains(&uid)
    }

    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// When to look again for programs without processes, and to go on with those that leave.
    pub(super) fn look_at(&self) -> Option<Instant> {
        let has_work = !self.known.is_empty() || self.programs.is_leaving();
        has_work.then(|| self.looked_at + LOOK_INTERVAL)
    }

    /// The status of all programs. Reads some files a program.
    pub(super) fn status(&self) -> Vec<ProgramStatus> {
        let at_ns = sys_clock::monotonic_ns();
        let all = self.programs.status().into_iter();
        let wire = |program: crate::programs::ProgramStatus| ProgramStatus {
            id: program.id,
            pid: program.pid,
            uid: program.user,
            cpu: program.cpu,
            share_ppm: program.share.map_or(0, Share::ppm),
            weight: program.weight.unwrap_or(0),
            used_ns: program.cpu_time.as_nanos(),
            processes: u32::try_from(program.processes).unwrap_or(u32::MAX),
            burst_ns: program.burst.as_nanos(),
            quantum_ns: program.quantum.as_nanos(),
            at_ns,
            name: self.known.get(&program.id).map(|known| known.name.clone()).unwrap_or_default(),
        };
        all.map(wire).collect()
    }
}
