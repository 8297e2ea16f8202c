//! Attaching: a process gets a number, pages, and a virtual processor on each CPU.
//!
//! Steps 1 and 2 of the diagram in [`super`]. Part of the server's thread: it waits neither for a
//! client nor for groups that the reaper drains.

use core::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use upcall_shm::DomainId;
use upcall_shm::user_area::AREA_BYTES;
use upcall_shm::wire::ToDomain;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::schedule::{self, Band};

use super::daemon::Daemon;
use super::event::DaemonEvent;
use super::raised_member::RaisedMember;
use super::session::{Attached, Session, SessionEnd, VirtualProcessor};
use crate::clock;
use crate::cpu::CpuState;
use crate::group::{DomainGroup, Member, PROXY_GENERATION};
use crate::kls::{self, Kls};
use crate::member_thread::{MemberProcess, MemberThread, RaiseError};
use crate::registry::Owner;

/// Most closed groups of a user on a CPU that are not freed yet when the user attaches again. Each
/// group has descriptors, and the daemon's number of descriptors is limited.
const UNREAPED_GROUPS_MAX: usize = 32;

/// Most descriptors of a domain on a CPU: five of its group, its area, five of its thread, and two
/// that are open for a moment.
const DOMAIN_DESCRIPTORS: u64 = 13;

impl Daemon {
    pub(super) fn attach(
        &mut self,
        session: u64,
        name: &str,
        policy: &str,
    ) -> Result<(), SessionEnd> {
        let Some(Session { credentials, domain, .. }) = self.sessions.get(&session) else {
            return Ok(());
        };
        if domain.is_some() {
            return Err(SessionEnd("it sent Hello twice".to_owned()));
        }
        let owner = Owner { uid: credentials.uid, pid: credentials.pid };
        let number = match self.registry.attach(owner, name, policy) {
            Ok(number) => number,
            Err(error) => {
                let reason = error.to_string();
                return Err(self.reject(session, reason));
            }
        };
        let needed = self.cpu_states.len() as u64 * DOMAIN_DESCRIPTORS;
        let placed = match self.make_room(needed, Some(session)) {
            true => self.create_virtual_processors(session, owner, number),
            false => Err(SessionEnd("the daemon has too few descriptors left".to_owned())),
        };
        if let Err(SessionEnd(reason)) = placed {
            self.registry.detach(number, clock::now());
            self.close_groups(owner.uid);
            return Err(self.reject(session, reason));
        }
        // Relaxed: a count.
        self.attached_ever.fetch_add(1, Ordering::Relaxed);
        self.events.push(DaemonEvent::Attached { domain: number, name: name.to_owned(), owner });
        Ok(())
    }

    /// Makes the pages of a domain on every CPU and sends them to the domain.
    fn create_virtual_processors(
        &mut self,
        session: u64,
        owner: Owner,
        number: u32,
    ) -> Result<(), SessionEnd> {
        let id = DomainId::new(number).ok_or("no such number")?;
        let found = self.registry.generation(number).and_then(NonZeroU64::new);
        let generation = found.ok_or("no such domain")?;
        let mut virtual_processors = Vec::new();
        for cpu_state in self.cpu_states.clone() {
            let group = self.group_of(&cpu_state, owner.uid)?;
            // Another domain of the user may have written invalid values.
            group.turn.repair();
            // The former domain of this number may have left the turn to itself.
            if group.turn.holder() == Ok(id) {
                group.turn.reset(DomainId::DAEMON);
            }
            let memory = SharedMapping::create_to_seal("upcall-domain", AREA_BYTES)?;
            // A refused lock is ignored: the first access to such a page may then be slow.
            let _ = memory.lock();
            memory.dont_fork()?;
            virtual_processors.push(VirtualProcessor { group, memory: Some(memory), member: None });
        }
        let welcome = ToDomain::Welcome {
            domain: number,
            generation: generation.get(),
            virtual_processors: u32::try_from(virtual_processors.len()).unwrap_or(u32::MAX),
            real_time: self.real_time.is_some(),
            switch_cost_ns: self.switch_cost.as_nanos(),
            defer_preemption_ns: self.config.defer_preemption.as_nanos(),
        };
        self.send(session, &welcome, &[])?;
        for virtual_processor in &virtual_processors {
            let VirtualProcessor { group, memory: Some(memory), .. } = virtual_processor else {
                continue;
            };
            let fds = [group.turn.memory().fd(), memory.fd(), group.kernel_fd.as_fd()];
            self.send(session, &ToDomain::VirtualProcessor { cpu: group.cpu }, &fds)?;
        }
        let band = self.band();
        if let Some(session) = self.sessions.get_mut(&session) {
            let handle = session.process.clone();
            let process = Arc::new(MemberProcess::new((owner.pid, owner.uid), handle, band));
            session.domain = Some(Attached { number: id, generation, process, virtual_processors });
        }
        Ok(())
    }

    /// The group of a user on a CPU. Makes it if there is none.
    fn group_of(
        &mut self,
        cpu_state: &Arc<CpuState>,
        uid: u32,
    ) -> Result<Arc<DomainGroup>, SessionEnd> {
        if let Some(group) = cpu_state.groups().iter().find(|group| group.uid == uid) {
            return Ok(group.clone());
        }
        let unreaped =
            self.reaper.as_ref().map_or(0, |reaper| reaper.unreaped_of(cpu_state.cpu, uid));
        if unreaped >= UNREAPED_GROUPS_MAX {
            let what = "former groups of the user are not freed yet, expected fewer than";
            return Err(SessionEnd(format!("{unreaped} {what} {UNREAPED_GROUPS_MAX}")));
        }
        let time_quantum = self.registry.time_quantum();
        let group = DomainGroup::new(cpu_state.cpu, uid)?.by_time_quantum(time_quantum);
        let group = Arc::new(group);
        // The thread starts before the group is added to its CPU, so that every group there has a
        // thread.
        let thread = kls::start(Kls::new(cpu_state.clone(), group.clone(), self.band()))?;
        cpu_state.set_groups(|groups| groups.push(group.clone()));
        // The other KLS threads may sleep below the domains, as long as their group is alone.
        cpu_state.groups().iter().for_each(|other| other.wake_kls());
        self.groups.push((group.clone(), thread));
        Ok(group)
    }

    /// Adds a domain's thread on a CPU to its group, which then gives it turns. A thread that has
    /// ended meanwhile, or that is of another process, is not added.
    pub(super) fn attach_thread(
        &mut self,
        session: u64,
        cpu: u32,
        tid: u32,
    ) -> Result<(), SessionEnd> {
        let (band, cpu_states) = (self.band(), self.cpu_states.clone());
        let Some(Session { credentials, .. }) = self.sessions.get(&session) else {
            return Ok(());
        };
        let pid = credentials.pid;
        let is_member = |member: &Arc<Member>| member.thread.is_thread((pid, tid));
        if self.groups.iter().any(|(group, _)| group.members().iter().any(is_member)) {
            return Err(
                "its thread is attached already, on another CPU or as another domain".into()
            );
        }
        self.domain_of(session)?;
        self.leave_programs(session);
        let Attached { number, generation, process, virtual_processors } =
            self.domain_of(session)?;
        let (number, generation) = (*number, *generation);
        let virtual_processor = virtual_processors
            .iter_mut()
            .find(|virtual_processor| virtual_processor.group.cpu == cpu);
        let virtual_processor =
            virtual_processor.ok_or("it has no virtual processor on that CPU")?;
        let memory =
            virtual_processor.memory.take().ok_or("its thread of that CPU is attached already")?;
        memory.seal_future_writes()?;
        let Some(thread) = MemberThread::open(process.clone(), tid)? else {
            // The session goes on: the domain may send next that it detaches.
            return Ok(());
        };
        let member = Member::new((number, generation), thread, memory)?;
        let group = virtual_processor.group.clone();
        // The thread runs from the moment at which it is raised. Until it is held, nothing of a
        // lower priority than the watchdog's delays this thread.
        let raise_or_hold = || {
            // The last step that can fail before the member is held: see `RaisedMember`.
            let Some(raised) = RaisedMember::raise(member, cpu)? else { return Ok(None) };
            group.kernel.attach(number, generation, 0, pid);
            hold_newcomer(&cpu_states, &group, &raised, band);
            Ok::<_, RaiseError>(Some(raised))
        };
        let raised = match band {
            Some(band) => schedule::at_priority(band.watchdog(), raise_or_hold),
            None => raise_or_hold(),
        };
        let Some(raised) = raised? else { return Ok(()) };
        let member = Arc::clone(&raised);
        virtual_processor.member = Some(raised);
        let others = group.members();
        group.set_members(|members| members.push(member.clone()));
        self.set_shares();
        self.set_limits(session);
        self.exchange_areas(session, &group, &member, &others)?;
        group.notify(DomainId::DAEMON);
        Ok(())
    }

    /// Sends the areas of the other members to a member, and its area to the others.
    fn exchange_areas(
        &mut self,
        session: u64,
        group: &Arc<DomainGroup>,
        member: &Arc<Member>,
        others: &[Arc<Member>],
    ) -> Result<(), SessionEnd> {
        let cpu = group.cpu;
        let (domain, generation) = (0, PROXY_GENERATION.get());
        let proxy = ToDomain::Peer { cpu, domain, generation };
        self.send(session, &proxy, &[group.proxy_fd.as_fd()])?;
        let peer_of = |member: &Member| ToDomain::Peer {
            cpu,
            domain: member.domain.number(),
            generation: member.generation.get(),
        };
        for other in others {
            let fd = other.area.memory().read_only_fd()?;
            self.send(session, &peer_of(other), &[fd.as_fd()])?;
        }
        let fd = member.area.memory().read_only_fd()?;
        let mut unresponsive = Vec::new();
        for other in others {
            let Some(to) = self.session_of(other.generation) else { continue };
            if self.send(to, &peer_of(member), &[fd.as_fd()]).is_err() {
                unresponsive.push(to);
            }
        }
        for session in unresponsive {
            self.end(session, "it does not read its messages");
        }
        Ok(())
    }

    /// Tells a process that it cannot be attached. Returns why its session ends.
    fn reject(&mut self, session: u64, reason: String) -> SessionEnd {
        self.report_refusal(session, &reason);
        let _ = self.send(session, &ToDomain::Rejected { reason: reason.clone() }, &[]);
        SessionEnd(reason)
    }
}

/// See [`CpuState::hold_newcomer`].
fn hold_newcomer(
    cpu_states: &[Arc<CpuState>],
    group: &DomainGroup,
    member: &Member,
    band: Option<Band>,
) {
    for cpu_state in cpu_states.iter().filter(|of| of.cpu == group.cpu) {
        cpu_state.hold_newcomer(group, member, (band, clock::now()));
    }
}
