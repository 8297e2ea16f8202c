//! The size of the daemon after thousands of domains that were killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use crate::child::start;
use crate::daemon::Server;

/// Attaches one domain with a thread and a reservation, and kills it. Returns whether the daemon
/// attached it.
pub(crate) fn attach_once(socket: &Path) -> bool {
    let mut child = start(&format!("attach|{}", socket.display()));
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("the pipe exists");
    let _ = BufReader::new(output).read_line(&mut line);
    let _ = child.kill();
    let _ = child.wait();
    line == "attached\n"
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
/// # Panics
/// If the daemon attaches no domain any more.
pub(crate) fn attach_and_kill(server: &Server, rounds: usize) -> String {
    let round = || assert!(attach_once(&server.socket), "the daemon still attaches domains");
    // The first rounds allocate everything that the daemon allocates only once.
    (0..rounds / 10).for_each(|_| round());
    std::thread::sleep(Duration::from_millis(200));
    server.take_events();
    let before = size_of_process(server.pid());
    let mut detached = 0;
    for _ in 0..rounds {
        round();
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
