//! Attacks on the time of the others by work beyond the reservation (docs/decisions/0016).

use std::path::Path;

use super::{Attack, Outside, attack, run, spin};

/// Far beyond the cost that [`run`] declares for a PDU, in ns.
const QUANTUM_NS: u64 = 500_000;

pub(crate) const ATTACKS: &[Attack] = &[
    attack("over budget", "PDUs take far longer than declared, and it asks after each", over),
    Attack {
        outside: Outside::StopAndContinue,
        ..attack("backlog", "stopped between jobs, continued 1 s later with all its jobs", over)
    },
];

fn over(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            spin(QUANTUM_NS);
        }
    });
}
