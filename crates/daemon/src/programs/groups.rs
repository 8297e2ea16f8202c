//! The control groups of a daemon's programs, from the first program to the last.
//!
//! ```text
//! parent                          the root, or a group delegated to the daemon's user
//!   upcall-PID-START              the daemon's process and its start; the greatest weight
//!     p1, p2 ..                   a program with a share: weight f
//!     rest                        weight 1 - U - U_t - sum f
//!       others                    weight 1: all other processes of the parent
//!       uUSER ..                  a user: the greatest weight of its programs in it
//!         p3, p4 ..               a program with a weight
//!   upcall-PID-START-movable      the kernel's own weight; on kernels with a fault ([`Movable`])
//! ```
//!
//! Joins and leaves of programs with shares change the weight of `rest` and no other. These stay in
//! the parent: threads of the kernel, the first process of the machine, the daemon, and processes
//! with real-time threads. Processes in other groups, such as the slices of systemd, are not
//! touched.
//!
//! Version 1 forbids the real-time class in new groups. `others` gets the parent's permission, so a
//! process there can still become real-time. With `movable` each one gets half of it: the kernel
//! gives groups beside each other no more than the group around them has. In version 2 a group that
//! divides has no processes unless it is the root: then all processes of the parent go to `others`
//! or `movable`.

use std::collections::BTreeMap;

use upcall_sys::cgroup::{Cgroup, CgroupError, Hierarchy, Version, WEIGHT_MAX_PPM};
use upcall_sys::process::{process_facts, threads_of};
use upcall_sys::schedule::{Class, class_of};

use super::bound::{BoundProcess, move_between};
use super::left_over::{
    movable_name, name_of_this_daemon, remove_dead, remove_tree, remove_with_processes,
};
use super::movable::{Movable, kernel_has_fault};
use super::shares::{ONE_PPM, Weight};

/// The name of a user's group begins so, and its number follows.
const USER: char = 'u';

/// Looks for processes of the parent that are to be moved: forks go on meanwhile.
const SWEEPS_MAX: usize = 8;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) hierarchy: Hierarchy,
    pub(super) parent: Cgroup,
    pub(super) top: Cgroup,
    pub(super) rest: Cgroup,
    pub(super) others: Cgroup,
    /// `None`: the kernel has no fault, and all are in `others`.
    movable: Option<Movable>,
    /// Whether the parent divided before.
    was_divided: bool,
    /// Whether no process may stay in the parent.
    empties_parent: bool,
    rest_ppm: u32,
    /// The weights that were set for users.
    users_ppm: BTreeMap<u32, u32>,
}

impl Groups {
    /// Makes the groups, without programs, and moves the processes of the parent to `others` or
    /// `movable`. Removes what killed daemons left. `shared` are the CPUs that have programs with
    /// shares.
    ///
    /// # Errors
    /// The process of a daemon that lives, if it has groups here; see [`CgroupError`]. Then nothing
    /// is left.
    pub(super) fn begin(
        hierarchy: Hierarchy,
        parent: &Cgroup,
        shared: Vec<u32>,
    ) -> Result<Self, BeginError> {
        remove_dead(parent)?.map_or(Ok(()), |pid| Err(BeginError::OtherDaemon(pid)))?;
        let name = name_of_this_daemon();
        let top = parent.create(&name)?;
        let (rest, others) = (top.child("rest"), top.child("rest").child("others"));
        let movable =
            kernel_has_fault().then(|| Movable::new(parent.child(&movable_name(&name)), shared));
        let was_divided = parent.is_divided();
        let empties_parent = parent.version() == Version::V2 && !parent.is_root();
        let (parent, rest_ppm) = (parent.clone(), WEIGHT_MAX_PPM);
        let groups = Groups {
            users_ppm: BTreeMap::new(),
            hierarchy,
            parent,
            top,
            rest,
            others,
            movable,
            was_divided,
            empties_parent,
            rest_ppm,
        };
        match groups.fill() {
            Ok(()) => Ok(groups),
            Err(error) => {
                groups.end();
                Err(error.into())
            }
        }
    }

    fn fill(&self) -> Result<(), CgroupError> {
        let Groups { parent, top, rest, .. } = self;
        top.create("rest")?;
        rest.create("others")?;
        // All these fail if other groups have the permission. Then there is none in `others`.
        let _ = match &self.movable {
            None => top.permit_real_time_as(parent),
            Some(Movable { group, .. }) => {
                parent.create(&movable_name(&name_of_this_daemon()))?;
                permit_both(parent, [group, top])
            }
        };
        for group in [rest, &self.others] {
            let _ = group.permit_real_time_as(top);
        }
        self.sweep();
        for group in [parent, top, rest] {
            group.divide()?;
        }
        top.set_weight(WEIGHT_MAX_PPM)?;
        rest.set_weight(WEIGHT_MAX_PPM)?;
        self.others.set_weight(ONE_PPM)
    }

    /// Moves the processes of the parent to `others` or `movable`. Blocks for some milliseconds a
    /// process at most.
    pub(super) fn sweep(&self) {
        for _ in 0..SWEEPS_MAX {
            let in_parent = self.parent.processes().unwrap_or_default();
            let to_move = in_parent.into_iter().filter(|&pid| is_moved(pid, self.empties_parent));
            let move_one = |&pid: &u32| {
                let between = (&self.parent, self.place_of(pid));
                move_between(between, pid, &self.hierarchy) == Ok(true)
            };
            if to_move.filter(move_one).count() == 0 {
                return;
            }
        }
    }

    /// Where an ordinary process belongs now. Some system calls a thread.
    pub(super) fn place_of(&self, pid: u32) -> &Cgroup {
        // The daemon answers also while all CPUs are busy.
        let is_own = pid == std::process::id();
        let movable = self.movable.as_ref().filter(|movable| !is_own && movable.takes(pid));
        movable.map_or(&self.others, |movable| &movable.group)
    }

    /// Tells which CPUs have programs with shares now. [`Groups::sort`] follows.
    pub(super) fn set_shared(&mut self, shared: Vec<u32>) {
        if let Some(movable) = &mut self.movable {
            movable.shared = shared;
        }
    }

    /// Moves processes that belong elsewhere now between `others` and `movable`. Each call goes on
    /// where the last one ended. Bounded and blocks as [`Movable::sort`].
    pub(super) fn sort(&mut self) {
        let Groups { empties_parent, movable, others, hierarchy, .. } = self;
        if let Some(movable) = movable {
            let own = std::process::id();
            let may_move = |pid| pid != own && is_moved(pid, *empties_parent);
            movable.sort(others, hierarchy, may_move);
        }
    }

    /// Makes the group of a program of a user: with a share, or with a weight inside `rest`.
    pub(super) fn add(&self, name: &str, weight: Weight, user: u32) -> Result<Cgroup, CgroupError> {
        let parent = match weight {
            Weight::Share(_) => self.top.clone(),
            Weight::OfRest(_) => self.of_user(user, weight.ppm())?,
        };
        let group = parent.create(name)?;
        if let Err(error) = group.set_weight(weight.ppm()) {
            let _ = group.remove();
            return Err(error);
        }
        Ok(group)
    }

    /// The group of a user's programs with weights. Makes it if there is none, with this weight.
    fn of_user(&self, user: u32, ppm: u32) -> Result<Cgroup, CgroupError> {
        let name = format!("{USER}{user}");
        let group = self.rest.child(&name);
        if group.exists() {
            return Ok(group);
        }
        let group = self.rest.create(&name)?;
        match group.divide().and_then(|()| group.set_weight(ppm)) {
            Ok(()) => Ok(group),
            Err(error) => {
                let _ = group.remove();
                Err(error)
            }
        }
    }

    /// Sets the weights of users, and removes the groups of others. Writes only what is new.
    pub(super) fn set_users(
        &mut self,
        weights_ppm: &BTreeMap<u32, u32>,
    ) -> Result<(), CgroupError> {
        for (user, group) in self.users() {
            if !weights_ppm.contains_key(&user) {
                // Else the next call does it.
                let _ = group.remove();
            }
        }
        for (&user, &ppm) in weights_ppm {
            if self.users_ppm.get(&user) != Some(&ppm) {
                self.rest.child(&format!("{USER}{user}")).set_weight(ppm)?;
            }
        }
        self.users_ppm.clone_from(weights_ppm);
        Ok(())
    }

    /// The groups of users with programs in `rest`.
    fn users(&self) -> Vec<(u32, Cgroup)> {
        let names = self.rest.children().unwrap_or_default().into_iter();
        let users = names.filter_map(|name| {
            let user = name.strip_prefix(USER)?.parse().ok()?;
            Some((user, self.rest.child(&name)))
        });
        users.collect()
    }

    /// Where the processes of a program go that came from `origin`: there, or to `others` if that
    /// is the parent. [`Groups::place_of`] says which of them go to `movable` instead.
    pub(super) fn way_out(&self, origin: Cgroup) -> Cgroup {
        match origin == self.parent || self.has(&origin) {
            true => self.others.clone(),
            false => origin,
        }
    }

    /// Sets the weight of `rest`. No system call if it has it.
    pub(super) fn set_rest(&mut self, ppm: u32) -> Result<(), CgroupError> {
        if self.rest_ppm != ppm {
            self.rest.set_weight(ppm)?;
            self.rest_ppm = ppm;
        }
        Ok(())
    }

    /// The part of a CPU that other groups beside the daemon's may take, `movable` too, in
    /// millionths.
    pub(super) fn outside_ppm(&self) -> u32 {
        let names = self.parent.children().unwrap_or_default();
        let siblings =
            names.iter().map(|name| self.parent.child(name)).filter(|group| *group != self.top);
        let sum: u64 = siblings.filter_map(|group| group.weight().ok()).map(u64::from).sum();
        let whole = u64::from(WEIGHT_MAX_PPM);
        u32::try_from(sum * whole / (sum + whole)).unwrap_or(WEIGHT_MAX_PPM)
    }

    /// Whether a group is one of these.
    fn has(&self, group: &Cgroup) -> bool {
        let is_movable = self.movable.as_ref().is_some_and(|movable| movable.group == *group);
        is_movable || group.folder().starts_with(self.top.folder())
    }

    /// Whether a group is that of a program.
    pub(super) fn is_program(&self, group: &Cgroup) -> bool {
        *group != self.others && group.folder().starts_with(self.top.folder())
    }

    /// Moves a process that is in any of these groups to the parent, so that it can have the
    /// real-time class.
    pub(super) fn leave(&self, process: &BoundProcess) -> Result<(), CgroupError> {
        match process.group(&self.hierarchy) {
            Some(group) if !self.empties_parent && self.has(&group) => {
                process.move_to(&self.parent, &self.hierarchy)
            }
            _ => Ok(()),
        }
    }

    /// Moves all processes to the parent and removes the groups.
    pub(super) fn end(self) {
        for (_, group) in self.users() {
            // Fails only if an ended program is still leaving it.
            let _ = group.remove();
        }
        // In version 2 a group that divides takes no processes.
        self.rest.unite();
        self.top.unite();
        if !self.was_divided {
            self.parent.unite();
        }
        // That of movable processes first: it is light beside the others.
        let movable = self.movable.as_ref().map(|movable| &movable.group);
        let all = movable.into_iter().chain([&self.others, &self.rest, &self.top]);
        let results: Vec<_> = all.map(|group| remove_with_processes(group, &self.parent)).collect();
        // Groups of programs that are still being left go with the rest.
        if results.iter().any(Result::is_err)
            && let Err(error) = remove_tree(&self.parent, &name_of_this_daemon())
        {
            // What is left in it weighs about as much as other groups.
            let _ = self.top.set_weight(ONE_PPM);
            tracing::warn!(event = "group not removed", %error, "a control group stays");
        }
    }
}

/// Why there are no groups.
#[derive(Debug)]
pub(super) enum BeginError {
    /// The process of a daemon that has groups there.
    OtherDaemon(u32),
    Cgroup(CgroupError),
}

impl From<CgroupError> for BeginError {
    fn from(error: CgroupError) -> Self {
        BeginError::Cgroup(error)
    }
}

/// Gives two groups equal parts of the parent's permission, as large as other groups leave.
fn permit_both(parent: &Cgroup, groups: [&Cgroup; 2]) -> Result<(), CgroupError> {
    let permit = |part| groups.iter().try_for_each(|of| of.permit_real_time_part_of(parent, part));
    let found = [2, 4, 8, 16].into_iter().find(|&part| permit(part).is_ok());
    // No part at all: a process keeps no permission in one of them that it loses in the other.
    if found.is_some() { Ok(()) } else { permit(u64::MAX) }
}

/// Whether a process may be moved, or is: if no process may stay in the parent, each one.
fn is_moved(pid: u32, empties_parent: bool) -> bool {
    if empties_parent {
        return true;
    }
    let is_program = process_facts(pid).is_some_and(|facts| !facts.is_kernel);
    is_program && pid != 1 && pid != std::process::id() && !has_real_time_thread(pid)
}

fn has_real_time_thread(pid: u32) -> bool {
    let is_fair = |class| matches!(class, Class::Ordinary | Class::Batch | Class::Idle);
    let threads = threads_of(pid).unwrap_or_default();
    threads.into_iter().any(|tid| class_of(tid).is_ok_and(|class| !is_fair(class)))
}
