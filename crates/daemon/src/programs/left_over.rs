//! Groups of daemons that were killed: finds and removes them.
//!
//! The name of a daemon's groups has the number and the start of the daemon's process. So a group
//! of a daemon that lives is never touched, and several may clean up at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use upcall_sys::cgroup::{Cgroup, CgroupError, Hierarchy};
use upcall_sys::process::{ThreadState, process_facts, thread_state};
use upcall_sys::schedule::allowed_cpus;

use super::bound::{self, move_between, threads_in};

/// The name of a program's group begins so, and its number follows.
pub(super) const PROGRAM: char = 'p';

/// The name of a daemon's group of movable processes is that of its other group with this end.
const MOVABLE: &str = "-movable";

/// How long a group is tried to be emptied: its processes may fork meanwhile.
const EMPTY_WITHIN: Duration = Duration::from_secs(3);
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The name of the group of the calling process.
pub(super) fn name_of_this_daemon() -> String {
    name_of(this_daemon())
}

/// The name of the group of movable processes beside the group `name` of a daemon.
pub(super) fn movable_name(name: &str) -> String {
    format!("{name}{MOVABLE}")
}

/// The calling process and its start.
fn this_daemon() -> (u32, u64) {
    let pid = std::process::id();
    (pid, process_facts(pid).map_or(0, |facts| facts.started))
}

fn name_of((pid, started): (u32, u64)) -> String {
    format!("upcall-{pid}-{started}")
}

/// The daemons that have groups among these, each one once.
fn daemons_in(names: &[String]) -> BTreeSet<(u32, u64)> {
    names.iter().filter_map(|name| daemon_in(name)).collect()
}

/// The process of a daemon, and its start, by the name of one of its groups.
fn daemon_in(name: &str) -> Option<(u32, u64)> {
    let name = name.strip_suffix(MOVABLE).unwrap_or(name);
    let (pid, started) = name.strip_prefix("upcall-")?.split_once('-')?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

/// Whether the process lives. One that has ended may still wait for its parent.
fn is_alive((pid, started): (u32, u64)) -> bool {
    process_facts(pid).is_some_and(|facts| facts.started == started)
        && thread_state(pid, pid) != Ok(ThreadState::Dead)
}

/// Removes the groups of dead daemons below `parent`. Returns the process of another daemon that
/// lives and has groups there.
pub(super) fn remove_dead(parent: &Cgroup) -> Result<Option<u32>, CgroupError> {
    let mut other = None;
    for daemon in daemons_in(&parent.children()?) {
        // Some of its own are left from earlier programs: then their processes forked on.
        if !is_alive(daemon) || daemon == this_daemon() {
            remove_tree(parent, &name_of(daemon))?;
        } else {
            other = Some(daemon.0);
        }
    }
    Ok(other)
}

/// How many dead daemons have groups below `parent`.
pub(super) fn count_dead(parent: &Cgroup) -> usize {
    let names = parent.children().unwrap_or_default();
    daemons_in(&names).into_iter().filter(|daemon| !is_alive(*daemon)).count()
}

/// Removes the group `name` of a dead daemon with all groups inside it, and that of its movable
/// processes. All processes go to `parent`. Programs get the kernel's own slice and all CPUs:
/// nobody knows which ones they had.
pub(super) fn remove_tree(parent: &Cgroup, name: &str) -> Result<(), CgroupError> {
    let mut groups = vec![parent.child(name), parent.child(&movable_name(name))];
    let mut at = 0;
    while let Some(group) = groups.get(at).cloned() {
        match group.children() {
            Ok(names) => groups.extend(names.iter().map(|name| group.child(name))),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
        at += 1;
    }
    // Those inside come after those around them.
    groups.iter().rev().for_each(Cgroup::unite);
    if !parent.is_root() {
        // No effect while another daemon divides there.
        parent.unite();
    }
    let cpus = allowed_cpus().unwrap_or_default();
    let hierarchy = Hierarchy::find()?;
    // A group whose processes fork on does not keep the others.
    let mut result = Ok(());
    for group in groups.iter().rev() {
        if is_program(group) {
            for thread in threads_in(group, &hierarchy) {
                let _ = bound::pin(&thread, &cpus, None);
            }
        }
        result = result.and(remove_with_processes(group, parent));
    }
    result
}

/// Whether it is the group of a program, by its name.
fn is_program(group: &Cgroup) -> bool {
    let name = group.folder().file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(PROGRAM).is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Moves the processes of a group to another one and removes it. Blocks for [`EMPTY_WITHIN`] at
/// most.
pub(super) fn remove_with_processes(group: &Cgroup, to: &Cgroup) -> Result<(), CgroupError> {
    let (begun, hierarchy) = (Instant::now(), Hierarchy::find()?);
    loop {
        for pid in group.processes().unwrap_or_default() {
            // Fails if the process has ended; else the next round finds it again.
            let _ = move_between((group, to), pid, &hierarchy);
        }
        match group.remove() {
            Err(CgroupError::Busy { .. }) if begun.elapsed() < EMPTY_WITHIN => {
                std::thread::sleep(RETRY_AFTER);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_daemon_names_its_process() {
        let name = name_of_this_daemon();
        let (pid, started) = daemon_in(&name).unwrap();
        assert_eq!(pid, std::process::id());
        assert!(is_alive((pid, started)) && !is_alive((pid, started + 1)));
        assert!(!is_alive((5_000_000, 0)));
        for other in ["upcall", "upcall-", "upcall-1", "upcall-x-1", "upcalled-1-1", "rest"] {
            assert_eq!(daemon_in(other), None, "{other}");
        }
        let all = [&name, "upcall-7-8-movable", &format!("{name}-movable"), "upcall-7-9", "x"];
        let daemons = daemons_in(&all.map(str::to_owned));
        assert_eq!(daemons, BTreeSet::from([(7, 8), (7, 9), (pid, started)]));
    }
}
