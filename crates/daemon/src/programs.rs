//! Programs that nobody changed, each with a part of a CPU below the handlers
//! (docs/decisions/0020-programs.md).
//!
//! The kernel's fair class is EEVDF, the algorithm of proportional-share-1998. [`Programs`] gives
//! it the weights, by control groups (`groups`), and makes it choose again after each quantum
//! (`ticker`). Admission decides by [`upcall_core::admission::program`], and `shares` has the sums.
//!
//! ```text
//!  none -- (1) first admit --> divided --+-- (2) last end, drop --> none
//!                                 ^      |
//!                      (5) admit, change, end
//!                                        |
//!                                        +-- (3) killed --> left over -- (4) --> none
//! ```
//!
//! 1. The groups are made, and the processes of the parent go to `rest`, some to `movable` on a
//!    kernel with a fault (`movable`). The supervisor starts.
//! 2. All processes go where they came from, and the groups are removed.
//! 3. The weights stay as they are, and no ticker runs.
//! 4. The supervisor, or the next daemon at its start, removes the groups ([`Programs::clean_up`]).
//! 5. Only the weight of `rest` changes. With `movable`, processes are sorted again.
//!
//! What the server calls beside requests:
//!
//! | when | call |
//! |---|---|
//! | it starts, before anything else | [`Programs::clean_up`] |
//! | handlers came or went | [`Programs::set_load`] for each CPU |
//! | programs came, went or changed | `Registry::set_programs`, with [`Programs::on_cpus`] |
//! | before it gives a thread of a domain the real-time class | [`Programs::leave_rest`] |
//! | each 200 ms or so while there are programs | [`Programs::reap`] |
//!
//! `Registry::check_share` tests the quota of a user before a request.
//!
//! One thread uses it, the server's. Its calls block for some milliseconds, while the kernel moves
//! processes.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use upcall_core::admission::program::{CpuPrograms, PROGRAM_QUANTUM};
use upcall_core::admission::{CpuLoad, Share};
use upcall_core::time::Span;
use upcall_sys::cgroup::{Cgroup, CgroupError, Hierarchy};
use upcall_sys::clock::kernel_tick_ns;
use upcall_sys::process::effective_user;
use upcall_sys::schedule::{autogroup_nice, nice, set_autogroup_nice, set_nice};

pub use admitted::{Admitted, ProgramId, ProgramStatus};
use bound::BoundProcess;
pub use error::ProgramError;
use former_cpus::FormerCpus;
use groups::{BeginError, Groups};
use leaving::Leaving;
use members::{Candidate, Members, cpu_time};
pub use movable::kernel_has_fault;
use shares::{Part, Shares, Weight};
use supervisor::Supervisor;
pub use supervisor::{supervise, supervise_if_asked};
use ticker::Ticker;
pub use upcall_core::admission::program::ProgramNeed;

mod admitted;
mod bound;
mod error;
mod former_cpus;
mod groups;
mod leaving;
mod left_over;
mod members;
mod movable;
mod shares;
mod supervisor;
mod ticker;

/// The most programs of one user, root included: each one is a control group.
pub const PROGRAMS_MAX: usize = 64;
/// The best one.
const NICE_OF_SERVER: i32 = -20;
/// How long the end of the daemon waits for processes of programs that start others all the time.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// See the module's head. Dropping it ends the shares of all programs.
#[derive(Debug)]
pub struct Programs {
    supervisor_program: Option<PathBuf>,
    /// `None`: found at the first program.
    parent: Option<Cgroup>,
    shares: Shares,
    members: BTreeMap<ProgramId, Members>,
    /// Groups of ended programs that have processes yet. Each has a part in `shares`.
    leaving: VecDeque<(ProgramId, Leaving)>,
    admitted_ever: u64,
    /// How often [`Programs::reap`] was called while there were programs.
    turns: usize,
    tickers: Vec<Ticker>,
    /// `None`: there are no programs.
    divided: Option<Divided>,
}

/// What exists while there are programs.
#[derive(Debug)]
struct Divided {
    groups: Groups,
    /// `None`: the next start of a daemon does its work.
    supervisor: Option<Supervisor>,
    /// The nice value of the calling thread before. The thread competes with all programs together
    /// now, and one of its messages must not wait for them.
    former_nice: i32,
    /// The same of the autogroup of this process; `None`: it was not changed.
    former_autogroup_nice: Option<i32>,
}

impl Programs {
    /// No programs, for a daemon with these CPUs. Nothing is made before the first program.
    ///
    /// `supervisor` is the program that is executed as the supervisor, usually the daemon's own;
    /// its `main` calls [`supervise_if_asked`]. Without one, the groups of a killed daemon stay
    /// until the next start of a daemon. Starts a short-lived thread.
    pub fn new(cpus: Vec<u32>, supervisor: Option<PathBuf>) -> Programs {
        let kernel_tick = Span::from_nanos(kernel_tick_ns());
        Programs {
            supervisor_program: supervisor,
            parent: None,
            shares: Shares::new(cpus, ticker::is_permitted(), kernel_tick),
            members: BTreeMap::new(),
            leaving: VecDeque::new(),
            admitted_ever: 0,
            turns: 0,
            tickers: Vec::new(),
            divided: None,
        }
    }

    /// As [`Programs::new`], with all groups below `parent` instead of where
    /// [`Hierarchy::writable`] says. Only processes of `parent` are moved.
    pub fn below(parent: Cgroup, cpus: Vec<u32>, supervisor: Option<PathBuf>) -> Programs {
        let mut programs = Programs::new(cpus, supervisor);
        programs.parent = Some(parent);
        programs
    }

    /// Removes the groups that killed daemons left. Returns how many there were. For the start of a
    /// daemon. Blocks while processes are moved.
    ///
    /// # Errors
    /// See [`CgroupError`]. [`CgroupError::NoController`] and [`CgroupError::NoRight`] mean that a
    /// daemon like this one left nothing.
    pub fn clean_up() -> Result<usize, CgroupError> {
        Programs::clean_up_below(&Hierarchy::find()?.writable()?)
    }

    /// As [`Programs::clean_up`], below a group.
    ///
    /// # Errors
    /// See [`CgroupError`].
    pub fn clean_up_below(parent: &Cgroup) -> Result<usize, CgroupError> {
        let dead = left_over::count_dead(parent);
        left_over::remove_dead(parent)?;
        Ok(dead)
    }

    /// The load of the CPU where a need is to be placed, among `loads`: of [`ProgramNeed::cpu`], or
    /// of the first where it is admitted, or else of the one with the most room.
    ///
    /// # Errors
    /// [`ProgramError::Cpu`] if the daemon has no such CPU.
    pub fn place<'l>(
        &self,
        need: &ProgramNeed,
        loads: &'l [CpuLoad],
    ) -> Result<&'l CpuLoad, ProgramError> {
        let placed = self.shares.place(need, loads);
        placed.ok_or(ProgramError::Cpu(need.cpu.unwrap_or_default()))
    }

    /// Takes process `pid` of `user` (root: of any user) with its descendants as one program, on
    /// the CPU of `load`. It may just have started, or run for long.
    ///
    /// # Errors
    /// See [`ProgramError`]; then nothing has changed.
    pub fn admit(
        &mut self,
        user: u32,
        pid: u32,
        need: &ProgramNeed,
        load: &CpuLoad,
    ) -> Result<Admitted, ProgramError> {
        let cpu = load.cpu;
        if !self.shares.cpus.contains(&cpu) || need.cpu.is_some_and(|asked| asked != cpu) {
            return Err(ProgramError::Cpu(need.cpu.unwrap_or(cpu)));
        }
        if let Some(quantum) = need.quantum.filter(|&quantum| quantum < PROGRAM_QUANTUM)
            && ![0, effective_user()].contains(&user)
        {
            return Err(ProgramError::ShortQuantum { quantum });
        }
        let of_user = self.shares.parts.values().filter(|part| part.user == user);
        if of_user.count() >= PROGRAMS_MAX {
            return Err(ProgramError::TooMany { programs_max: PROGRAMS_MAX });
        }
        let supply = self.shares.cpu_with(load, need.quantum, None).admit(need)?;
        if supply.is_some() {
            self.check_quantum(load, need.quantum)?;
        }
        // Admission refuses a need without a share and without a weight.
        let of_rest = Weight::OfRest(need.weight.unwrap_or(1));
        let weight = supply.map_or(of_rest, |supply| Weight::Share(supply.share));
        let candidate = Candidate::new(pid, user)?;
        self.shares.loads.insert(cpu, *load);
        self.check_free(&candidate)?;
        let timing = need.cost.zip(need.period);
        let part = Part { user, cpu, weight, quantum: need.quantum, timing };
        let taken = self.take(&candidate, part);
        // Also after an error: without programs there are no groups.
        let settled = self.settle();
        let id = taken?;
        if let Err(error) = settled {
            self.end(id);
            return Err(error);
        }
        if let Some(Divided { groups, .. }) = &mut self.divided {
            groups.sort();
        }
        self.admitted(id).ok_or(ProgramError::Gone { pid })
    }

    /// Whether the process is in no program yet. Before a request moves any other process.
    fn check_free(&self, candidate: &Candidate) -> Result<(), ProgramError> {
        let Some(Divided { groups, .. }) = &self.divided else { return Ok(()) };
        match groups.is_program(&candidate.group(&groups.hierarchy)?) {
            true => Err(ProgramError::Taken { pid: candidate.pid() }),
            false => Ok(()),
        }
    }

    fn take(&mut self, candidate: &Candidate, part: Part) -> Result<ProgramId, ProgramError> {
        let pid = candidate.pid();
        self.begin(&part)?;
        let Some(Divided { groups, .. }) = &self.divided else {
            return Err(CgroupError::NoController.into());
        };
        let hierarchy = &groups.hierarchy;
        let origin = candidate.group(hierarchy)?;
        let mut former_cpus = FormerCpus::of(pid)?;
        let id = self.admitted_ever + 1;
        let group = groups.add(&folder_of(id), part.weight, part.user)?;
        // Also if it fails: the group may stay for a while.
        self.admitted_ever = id;
        let is_taken = |pid| hierarchy.group_of(pid).is_ok_and(|group| groups.is_program(&group));
        let quantum = part.quantum.unwrap_or(PROGRAM_QUANTUM);
        // Half, so that it is over whenever the ticker makes the kernel choose again: the kernel
        // protects a thread until the end of its slice.
        let slice = part.timing.map_or(quantum, |(cost, _)| cost.min(quantum)) / 2;
        let taken = candidate.take(&group, hierarchy, is_taken);
        let pinned = taken
            .and_then(|()| former_cpus.pin((pid, &group), (part.cpu, slice), hierarchy))
            // A cpuset may forbid the CPU.
            .and_then(|()| candidate.pin(part.cpu));
        if let Err(error) = pinned {
            let leaving = Leaving::new(group, groups.way_out(origin), Some(former_cpus));
            let account = (&mut self.shares, &mut self.leaving);
            begin_to_leave(groups, account, (id, part), leaving);
            return Err(error);
        }
        self.shares.parts.insert(id, part);
        let earlier = Span::ZERO;
        self.members.insert(id, Members { pid, group, origin, former_cpus, earlier });
        Ok(id)
    }

    /// Whether all programs of a CPU get what was promised if the ticker keeps this quantum, too.
    fn check_quantum(&self, load: &CpuLoad, asked: Option<Span>) -> Result<(), ProgramError> {
        let quantum = asked.unwrap_or(PROGRAM_QUANTUM);
        match self.shares.broken_by_quantum(load, asked) {
            None => Ok(()),
            Some(program) => Err(ProgramError::BreaksProgram { program, quantum }),
        }
    }

    /// Gives a program another share, or a share instead of a weight. `pid` is any of its
    /// processes. The load of its CPU is the last one that was told.
    ///
    /// # Errors
    /// See [`ProgramError`]; then nothing has changed.
    pub fn change(&mut self, user: u32, pid: u32, share: Share) -> Result<Admitted, ProgramError> {
        let id = self.program_of(user, pid)?;
        let part = self.shares.parts.get(&id).ok_or(ProgramError::Unknown { pid })?;
        let load = self.shares.loads.get(&part.cpu).ok_or(ProgramError::Cpu(part.cpu))?;
        let (cost, period) = part.timing.unzip();
        let need = ProgramNeed { share: Some(share), cost, period, ..ProgramNeed::default() };
        self.shares.cpu_with(load, part.quantum, Some(id)).admit(&need)?;
        self.check_quantum(load, part.quantum)?;
        self.change_to(id, pid, Weight::Share(share))
    }

    /// Gives a program another weight, or a weight instead of a share. `pid` is any of its
    /// processes.
    ///
    /// # Errors
    /// See [`ProgramError`]; then nothing has changed.
    pub fn change_weight(
        &mut self,
        user: u32,
        pid: u32,
        weight: u32,
    ) -> Result<Admitted, ProgramError> {
        let id = self.program_of(user, pid)?;
        ProgramNeed { weight: Some(weight), ..ProgramNeed::default() }.validated()?;
        self.change_to(id, pid, Weight::OfRest(weight))
    }

    fn change_to(
        &mut self,
        id: ProgramId,
        pid: u32,
        weight: Weight,
    ) -> Result<Admitted, ProgramError> {
        let unknown = ProgramError::Unknown { pid };
        let Some(Divided { groups, .. }) = &self.divided else { return Err(unknown) };
        let (members, part) = match (self.members.get_mut(&id), self.shares.parts.get_mut(&id)) {
            (Some(members), Some(part)) => (members, part),
            _ => return Err(unknown),
        };
        if part.weight.share().is_some() == weight.share().is_some() {
            members.group.set_weight(weight.ppm())?;
            part.weight = weight;
        } else {
            let group = groups.add(&folder_of(id), weight, part.user)?;
            let leaving = members.move_to(group, &groups.hierarchy)?;
            self.admitted_ever += 1;
            let former = (self.admitted_ever, *part);
            part.weight = weight;
            begin_to_leave(groups, (&mut self.shares, &mut self.leaving), former, leaving);
        }
        self.settle()?;
        self.admitted(id).ok_or(unknown)
    }

    /// The program that a process belongs to, if the user (root: any) may change it.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::Gone`] and [`ProgramError::Owner`].
    pub fn program_of(&self, user: u32, pid: u32) -> Result<ProgramId, ProgramError> {
        let unknown = ProgramError::Unknown { pid };
        let Some(Divided { groups, .. }) = &self.divided else { return Err(unknown) };
        let group = groups.hierarchy.group_of(pid).map_err(|_| ProgramError::Gone { pid })?;
        let mut all = self.members.iter();
        let (&id, _) = all.find(|(_, members)| members.group == group).ok_or(unknown)?;
        let is_users = self.shares.parts.get(&id).is_some_and(|part| part.user == user);
        if user == 0 || is_users { Ok(id) } else { Err(ProgramError::Owner { pid, user }) }
    }

    /// Ends a program's share: its processes go where they came from, on the CPUs that they had.
    /// Those that are left after a turn go in the next ones ([`Programs::reap`]). No effect if it
    /// has ended.
    pub fn end(&mut self, id: ProgramId) {
        let Some(members) = self.members.remove(&id) else { return };
        let part = self.shares.parts.remove(&id);
        if let Some((Divided { groups, .. }, part)) = self.divided.as_ref().zip(part) {
            let Members { group, origin, former_cpus, .. } = members;
            let leaving = Leaving::new(group, groups.way_out(origin), Some(former_cpus));
            let account = (&mut self.shares, &mut self.leaving);
            begin_to_leave(groups, account, (id, part), leaving);
        }
        warn_of(self.settle());
    }

    /// Whether processes of ended programs are still to be moved: [`Programs::reap`] goes on.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Goes on with a group of an ended program, each time with another one.
    fn empty_one(&mut self) {
        let Some(Divided { groups, .. }) = &self.divided else { return };
        let Some((id, leaving)) = self.leaving.pop_front() else { return };
        if leaving.empty(groups) {
            self.shares.parts.remove(&id);
            warn_of(self.settle());
        } else {
            self.leaving.push_back((id, leaving));
        }
    }

    /// Pins the threads of a program that it has let run on other CPUs, each time of another
    /// program: elsewhere its weight would count beside others.
    fn pin_one_again(&mut self) {
        let Some(Divided { groups, .. }) = &self.divided else { return };
        self.turns = self.turns.wrapping_add(1);
        let at = self.turns % self.members.len().max(1);
        if let Some((id, members)) = self.members.iter().nth(at)
            && let Some(part) = self.shares.parts.get(id)
        {
            members.pin_again(part.cpu, &groups.hierarchy, self.turns / self.members.len());
        }
    }

    /// Ends the programs without processes, and returns them. Goes on with the processes of a
    /// program that ended before. Sorts ordinary processes on a kernel with a fault. For every now
    /// and then, and for the end of a first process. Reads a file a program. Each of the two
    /// blocks for some 50 ms at most, and the end of the last program until all are moved back.
    pub fn reap(&mut self) -> Vec<ProgramId> {
        self.empty_one();
        let is_over = |of: &Members| !of.group.processes().is_ok_and(|all| !all.is_empty());
        let over = self.members.iter().filter(|(_, members)| is_over(members));
        let over: Vec<ProgramId> = over.map(|(&id, _)| id).collect();
        over.iter().for_each(|&id| self.end(id));
        self.pin_one_again();
        if let Some(Divided { groups, .. }) = &mut self.divided {
            groups.sort();
        }
        over
    }

    /// Tells that the load of a CPU has changed: handlers came or went.
    ///
    /// # Errors
    /// [`ProgramError::Cgroup`]: the weight of `rest` is not set.
    pub fn set_load(&mut self, load: &CpuLoad) -> Result<(), ProgramError> {
        self.shares.loads.insert(load.cpu, *load);
        self.settle()
    }

    /// What programs have of each CPU, for the admission of handlers: it refuses those that would
    /// break the promise to a program.
    pub fn on_cpus(&self, name_of: impl Fn(ProgramId) -> String) -> Vec<(u32, CpuPrograms)> {
        let of = |&cpu: &u32| (cpu, self.shares.on(cpu, &name_of));
        self.shares.cpus.iter().map(of).collect()
    }

    /// The sum of the shares of each user's programs, in millionths of a CPU.
    pub fn shares_of_users(&self) -> BTreeMap<u32, u64> {
        self.shares.of_users()
    }

    /// Moves a process to the parent if it is in one of the groups, before a thread of it gets the
    /// real-time class: version 1 may forbid the class in groups. It is no part of a program any
    /// longer.
    ///
    /// # Errors
    /// See [`CgroupError`].
    pub fn leave_rest(&self, pid: u32) -> Result<(), CgroupError> {
        match (&self.divided, BoundProcess::open(pid)) {
            (Some(Divided { groups, .. }), Some(process)) => groups.leave(&process),
            _ => Ok(()),
        }
    }

    /// All programs, in the order in which they were taken. Reads some files a program.
    pub fn status(&self) -> Vec<ProgramStatus> {
        let status_of = |(&id, members): (&ProgramId, &Members)| {
            let Admitted { cpu, share, weight, burst, .. } = self.admitted(id)?;
            let quantum = self.shares.cpu_now(cpu)?.quantum;
            let user = self.shares.parts.get(&id)?.user;
            let cpu_time = members.earlier + cpu_time(&members.group);
            let (pid, processes) = (members.pid, members.group.processes().map_or(0, |p| p.len()));
            Some(ProgramStatus {
                id,
                user,
                pid,
                cpu,
                share,
                weight,
                cpu_time,
                processes,
                burst,
                quantum,
            })
        };
        self.members.iter().filter_map(status_of).collect()
    }

    fn admitted(&self, id: ProgramId) -> Option<Admitted> {
        let Part { cpu, weight, quantum, .. } = *self.shares.parts.get(&id)?;
        let burst = self.shares.cpu_now(cpu)?.burst();
        let quantum = self.shares.promised(quantum);
        let ticker = self.tickers.iter().any(|ticker| ticker.cpu == cpu);
        let (share, weight) = (weight.share(), weight.of_rest());
        Some(Admitted { id, cpu, share, weight, burst, quantum, ticker })
    }

    /// Makes the groups if there are none. Moves ordinary processes as one more program needs it.
    fn begin(&mut self, part: &Part) -> Result<(), ProgramError> {
        if let Some(Divided { groups, .. }) = &mut self.divided {
            // The CPU of the program counts from its admission on: a refused request moves nobody.
            groups.sweep();
            return Ok(());
        }
        let one_more = part.weight.share().map(|_| part.cpu);
        let shared = self.shares.cpus_with_shares().chain(one_more).collect();
        let hierarchy = Hierarchy::find()?;
        let parent = match &self.parent {
            Some(parent) => parent.clone(),
            None => hierarchy.writable()?,
        };
        let former_nice = nice();
        // Before the first process is moved: all those in the groups together have a greater
        // weight than this thread, which moves the others. Fails without the right. Then the daemon
        // answers late while all CPUs are busy.
        let _ = set_nice(NICE_OF_SERVER);
        let groups = Groups::begin(hierarchy, &parent, shared).map_err(|error| {
            let _ = set_nice(former_nice);
            match error {
                BeginError::OtherDaemon(pid) => ProgramError::OtherDaemon { pid },
                BeginError::Cgroup(error) => error.into(),
            }
        })?;
        let start = |program: &PathBuf| match Supervisor::start(program, &parent) {
            Ok(supervisor) => Some(supervisor),
            Err(error) => {
                let event = "no supervisor";
                tracing::warn!(event, %error, "a killed daemon leaves its groups to the next one");
                None
            }
        };
        let supervisor = self.supervisor_program.as_ref().and_then(start);
        let former_autogroup_nice = raise_autogroup(&groups);
        self.divided = Some(Divided { groups, supervisor, former_nice, former_autogroup_nice });
        Ok(())
    }

    /// Fits the weight of `rest` and the tickers to the programs. Removes all groups after the last
    /// program.
    fn settle(&mut self) -> Result<(), ProgramError> {
        if self.members.is_empty() && self.leaving.is_empty() {
            self.tickers.clear();
            if let Some(divided) = self.divided.take() {
                divided.groups.end();
                drop(divided.supervisor);
                let _ = set_nice(divided.former_nice);
                let _ = divided.former_autogroup_nice.map(set_autogroup_nice);
            }
            return Ok(());
        }
        if let Some(Divided { groups, .. }) = &mut self.divided {
            groups.set_shared(self.shares.cpus_with_shares().collect());
            let rest_ppm = self.shares.rest_ppm(groups.outside_ppm());
            groups.set_rest(rest_ppm)?;
            groups.set_users(&self.shares.weights_of_users())?;
        }
        let shares = &self.shares;
        self.tickers.retain(|ticker| shares.ticks(ticker.cpu).is_some());
        for &cpu in &shares.cpus {
            let Some(quantum) = shares.ticks(cpu) else { continue };
            match self.tickers.iter().find(|ticker| ticker.cpu == cpu) {
                Some(ticker) => ticker.set_quantum(quantum),
                None => {
                    let ticker = Ticker::start(cpu, quantum).map_err(ProgramError::Ticker)?;
                    self.tickers.push(ticker);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let all: Vec<ProgramId> = self.members.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(id));
        let until = Instant::now() + LEAVE_WITHIN;
        while self.is_leaving() && Instant::now() < until {
            self.empty_one();
        }
        if self.is_leaving() {
            self.leaving.clear();
            self.shares.parts.clear();
            warn_of(self.settle());
        }
    }
}

/// Gives the session of this process the best nice value, if the kernel counts it as one. Then the
/// nice value of the thread counts inside the session only, and the session would have 0.4 % of the
/// weight of all programs. Returns the former value if it was changed.
fn raise_autogroup(groups: &Groups) -> Option<i32> {
    // Elsewhere the session of this process is not counted, and others of it would gain.
    let own = groups.hierarchy.group_of(std::process::id()).ok()?;
    let former = autogroup_nice().filter(|_| own.is_root())?;
    // Fails without the right. Then the daemon answers late while all CPUs are busy.
    set_autogroup_nice(NICE_OF_SERVER).ok().map(|()| former)
}

/// Lets the processes of a group go. As long as some are left, its part counts, without a promise.
fn begin_to_leave(
    groups: &Groups,
    (shares, all): (&mut Shares, &mut VecDeque<(ProgramId, Leaving)>),
    (id, part): (ProgramId, Part),
    leaving: Leaving,
) {
    if !leaving.empty(groups) {
        shares.parts.insert(id, Part { timing: None, ..part });
        all.push_back((id, leaving));
    }
}

/// The name of a program's control group.
fn folder_of(id: ProgramId) -> String {
    format!("{}{id}", left_over::PROGRAM)
}

fn warn_of<E: core::fmt::Display>(result: Result<(), E>) {
    if let Err(error) = result {
        tracing::warn!(event = "control groups", %error, "a change of control groups failed");
    }
}
