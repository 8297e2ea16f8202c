//! The size of the daemon after thousands of domains that were killed.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::child::start;
use crate::daemon::Server;

/// How long the process of a domain may take to start and attach.
const LIMIT: Duration = Duration::from_secs(10);

/// Attaches one domain with a thread and a reservation, and kills it. Returns whether the daemon
/// attached it.
pub(crate) fn attach_once(socket: &Path) -> bool {
    let process = start(&format!("attach|{}", socket.display()));
    process.line(Instant::now() + LIMIT).as_deref() == Some("attached")
}

/// Attaches domains, gives each a thread and a reservation, and kills them. Returns a sentence.
pub(crate) fn attach_and_kill(server: &mut Server, rounds: usize) -> String {
    let socket = server.socket.clone();
    // The first rounds allocate everything that the daemon allocates only once.
    if !(0..rounds / 10).all(|_| attach_once(&socket)) {
        return "DOES NOT HOLD: the daemon attached no domain in the first rounds".to_owned();
    }
    std::thread::sleep(Duration::from_millis(200));
    server.take_events();
    let before = size_of_process(server.pid());
    let mut detached = 0;
    for round in 0..rounds {
        if !attach_once(&socket) {
            return format!("DOES NOT HOLD: the daemon attached no domain in round {round}");
        }
        detached += server.take_events().detached;
    }
    std::thread::sleep(Duration::from_millis(200));
    detached += server.take_events().detached;
    let after = size_of_process(server.pid());
    format!(
        "{rounds} domains attached, placed on a CPU, reserving, and killed: {detached} detached; the daemon's resident \
         memory {} -> {} KiB, descriptors {} -> {}, mappings {} -> {}",
        before.0, after.0, before.1, after.1, before.2, after.2
    )
}

/// Resident KiB, descriptors and mappings of a process.
fn size_of_process(pid: u32) -> (u64, usize, usize) {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    (pages * 4, descriptors, maps.lines().count())
}
