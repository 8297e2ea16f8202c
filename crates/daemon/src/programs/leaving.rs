//! Groups whose program has ended, or has another group, until their processes have left.
//!
//! A group can be removed only without processes, and these may start others meanwhile, faster than
//! they are moved. The server's thread does not wait for that: a turn moves a bounded number of
//! processes in a bounded time, and the next look goes on. Until then the group keeps its weight,
//! and the weight counts as that of a program without a promise. With less of the CPU the group
//! could stop the machine: the kernel moves no process while another one forks, and a fork that is
//! preempted waits for its CPU.

use std::time::{Duration, Instant};

use upcall_sys::cgroup::{Cgroup, CgroupError};

use super::bound::{MOVES_MAX, TURN, move_between};
use super::former_cpus::FormerCpus;
use super::groups::Groups;

const RETRY_AFTER: Duration = Duration::from_millis(1);

/// See the module's head.
#[derive(Debug)]
pub(super) struct Leaving {
    group: Cgroup,
    /// Where its processes go; `others` stands for `movable`, too. If that takes them no more, they
    /// go to `others`.
    to: Cgroup,
    /// `None`: they keep their CPUs.
    former_cpus: Option<FormerCpus>,
}

impl Leaving {
    pub(super) fn new(group: Cgroup, to: Cgroup, former_cpus: Option<FormerCpus>) -> Self {
        Leaving { group, to, former_cpus }
    }

    /// Moves up to [`MOVES_MAX`] processes out, each with the CPUs that it had, and removes the
    /// group. Returns whether it is gone. Blocks for [`TURN`] at most.
    pub(super) fn empty(&self, groups: &Groups) -> bool {
        let begun = Instant::now();
        let mut moves_left = MOVES_MAX;
        loop {
            for pid in self.group.processes().unwrap_or_default() {
                if moves_left == 0 || begun.elapsed() >= TURN {
                    return false;
                }
                moves_left -= 1;
                self.let_go(pid, groups);
            }
            match self.group.remove() {
                Ok(()) => return true,
                // A process that has just ended may be in it for a moment.
                Err(CgroupError::Busy { .. }) if begun.elapsed() < TURN => {
                    std::thread::sleep(RETRY_AFTER);
                }
                Err(CgroupError::Busy { .. }) => return false,
                Err(error) => {
                    let event = "group not removed";
                    tracing::warn!(event, %error, "a control group of a program stays");
                    return true;
                }
            }
        }
    }

    /// Moves a process out, if it is still there.
    fn let_go(&self, pid: u32, groups: &Groups) {
        let hierarchy = &groups.hierarchy;
        if let Some(former_cpus) = &self.former_cpus {
            former_cpus.restore(pid, &self.group, hierarchy);
        }
        // With the CPUs that it has now.
        let to = if self.to == groups.others { groups.place_of(pid) } else { &self.to };
        if move_between((&self.group, to), pid, hierarchy).is_err() {
            // If it fails, too, the next turn finds the process again.
            let _ = move_between((&self.group, &groups.others), pid, hierarchy);
        }
    }
}
