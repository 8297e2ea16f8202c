//! The size of the daemon after thousands of domains that were killed.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::child::start;
use crate::daemon::Server;
use crate::outcome::{Size, judge_growth};

/// How long the process of a domain may take to start and attach.
const LIMIT: Duration = Duration::from_secs(10);

/// Attaches one domain with a thread and a reservation, and kills it. Returns whether the daemon
/// attached it.
pub(crate) fn attach_once(socket: &Path) -> bool {
    let process = start(&format!("attach|{}", socket.display()));
    process.line(Instant::now() + LIMIT).as_deref() == Some("attached")
}

/// As [`attach_once`], within a second. The daemon closes the connections of a killed attacker
/// after its end. Until then they count for the user.
pub(crate) fn attach_soon(socket: &Path) -> bool {
    let again = |_| {
        std::thread::sleep(Duration::from_millis(100));
        attach_once(socket)
    };
    attach_once(socket) || (0..10).any(again)
}

/// Attaches domains, gives each a thread and a reservation, and kills them. Returns a sentence.
///
/// # Errors
/// The daemon grew, or did not attach and detach each of them.
pub(crate) fn attach_and_kill(server: &mut Server, rounds: usize) -> Result<String, String> {
    let socket = server.socket.clone();
    // The first rounds allocate everything that the daemon allocates only once.
    if !(0..rounds / 10).all(|_| attach_once(&socket)) {
        return Err("the daemon attached no domain in the first rounds".to_owned());
    }
    std::thread::sleep(Duration::from_millis(200));
    server.take_events();
    let before = size_of_process(server.pid());
    let mut detached = 0;
    for round in 0..rounds {
        if !attach_once(&socket) {
            return Err(format!("the daemon attached no domain in round {round}"));
        }
        detached += server.take_events().detached;
    }
    std::thread::sleep(Duration::from_millis(200));
    detached += server.take_events().detached;
    judge_growth(rounds, detached, before, size_of_process(server.pid()))
}

fn size_of_process(pid: u32) -> Size {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    Size { resident_kib: pages * 4, descriptors, mappings: maps.lines().count() }
}
