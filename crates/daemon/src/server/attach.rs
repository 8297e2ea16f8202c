//! Attaching: a process gets a number, pages, and a virtual processor on each CPU.
//!
//! Steps 1 and 2 of the diagram in [`super`]. Part of the server's thread: it waits for no
//! client, nor for the groups that leave.

use core::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use upcall_shm::DomainId;
use upcall_shm::user_area::AREA_BYTES;
use upcall_shm::wire::ToDomain;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{ThreadState, thread_state};
use upcall_sys::schedule;

use super::session::{Attached, Over, Session, VirtualProcessor};
use super::{Daemon, Event};
use crate::cpu::CpuState;
use crate::group::{DomainGroup, Member, PROXY_GENERATION};
use crate::kls::{self, Kls};
use crate::registry::Owner;

/// So many groups of a user on a CPU may be on their way out when it comes back: each has
/// descriptors, of which the daemon has but so many for all.
const LEAVING_MAX: usize = 32;

impl Daemon {
    pub(super) fn attach(&mut self, session: u64, name: &str, policy: &str) -> Result<(), Over> {
        let Some(Session { credentials, domain, .. }) = self.sessions.get(&session) else {
            return Ok(());
        };
        if domain.is_some() {
            return Err(Over("it said hello twice".to_owned()));
        }
        let owner = Owner { uid: credentials.uid, pid: credentials.pid };
        let number = match self.registry.attach(owner, name, policy) {
            Ok(number) => number,
            Err(error) => {
                let reason = error.to_string();
                return Err(self.rejected(session, reason));
            }
        };
        let placed = self.virtual_processors_for(session, owner, number);
        if let Err(Over(reason)) = placed {
            self.registry.detach(number);
            self.close_groups(owner.uid);
            return Err(self.rejected(session, reason));
        }
        // Relaxed: a count.
        self.attached_ever.fetch_add(1, Ordering::Relaxed);
        self.events.push(Event::Attached { domain: number, name: name.to_owned(), owner });
        Ok(())
    }

    /// Makes the pages of a domain on every CPU, and hands them over.
    fn virtual_processors_for(
        &mut self,
        session: u64,
        owner: Owner,
        number: u32,
    ) -> Result<(), Over> {
        let id = DomainId::new(number).ok_or("no such number")?;
        let found = self.registry.generation(number).and_then(NonZeroU64::new);
        let generation = found.ok_or("no such domain")?;
        let mut virtual_processors = Vec::new();
        for cpu_state in self.cpu_states.clone() {
            let group = self.group(&cpu_state, owner.uid)?;
            // Somebody may be scribbling on it.
            group.turn.repair();
            // Whoever had the number may have left the turn or the bell as they were.
            if group.turn.holder() == Ok(id) {
                group.turn.reset(DomainId::DAEMON);
            }
            let memory = SharedMapping::create_to_seal("upcall-domain", AREA_BYTES)?;
            // Refused is as good as before: such a page may be slow once.
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
        self.say(session, &welcome, &[])?;
        for virtual_processor in &virtual_processors {
            let VirtualProcessor { group, memory: Some(memory), .. } = virtual_processor else {
                continue;
            };
            let fds = [group.turn.memory().fd(), memory.fd(), group.kernel_fd.as_fd()];
            self.say(session, &ToDomain::VirtualProcessor { cpu: group.cpu }, &fds)?;
        }
        if let Some(session) = self.sessions.get_mut(&session) {
            session.domain = Some(Attached { number: id, generation, virtual_processors });
        }
        Ok(())
    }

    /// The group of a user on a CPU, made if there is none.
    fn group(&mut self, cpu_state: &Arc<CpuState>, uid: u32) -> Result<Arc<DomainGroup>, Over> {
        if let Some(group) = cpu_state.groups().iter().find(|group| group.uid == uid) {
            return Ok(group.clone());
        }
        let leaving =
            self.reaper.as_ref().map_or(0, |reaper| reaper.leaving_of(cpu_state.cpu, uid));
        if leaving >= LEAVING_MAX {
            let what = "former groups of the user are not freed yet, expected fewer than";
            return Err(Over(format!("{leaving} {what} {LEAVING_MAX}")));
        }
        let group = Arc::new(DomainGroup::new(cpu_state.cpu, uid)?);
        // Before it is a group of its site: none is without a thread.
        let thread = kls::start(Kls::new(cpu_state.clone(), group.clone(), self.band()))?;
        cpu_state.set_groups(|groups| groups.push(group.clone()));
        self.groups.push((group.clone(), thread));
        Ok(group)
    }

    /// A domain's thread of a CPU is there: from now on it takes part. A thread that has ended
    /// meanwhile, or is of another process, takes no part.
    pub(super) fn virtual_processor(
        &mut self,
        session: u64,
        cpu: u32,
        tid: u32,
    ) -> Result<(), Over> {
        let band = self.band();
        let pid = self.sessions.get(&session).map_or(0, |session| session.credentials.pid);
        let Attached { number, generation, virtual_processors } = self.domain_of(session)?;
        let (number, generation) = (*number, *generation);
        let virtual_processor = virtual_processors
            .iter_mut()
            .find(|virtual_processor| virtual_processor.group.cpu == cpu);
        let virtual_processor = virtual_processor.ok_or("it has no virtual_processor there")?;
        let memory =
            virtual_processor.memory.take().ok_or("it has its virtual_processor there already")?;
        if thread_state(pid, tid)? == ThreadState::Dead {
            // No reason to end the session: the domain may say next that it detaches.
            return Ok(());
        }
        memory.seal_future_writes()?;
        let member = Member::new((number, generation), (pid, tid), memory)?;
        let member = Arc::new(member);
        schedule::pin_thread_of(tid, &[cpu])?;
        if let Some(band) = band {
            let priority = band.handlers();
            schedule::set_fifo_not_inherited_of(tid, priority).map_err(|error| {
                let why =
                    "its RLIMIT_RTPRIO is lower, or it has capabilities that the daemon lacks";
                format!("its thread cannot have real-time priority {priority} ({why}): {error}")
            })?;
        }
        virtual_processor.member = Some(member.clone());
        let group = virtual_processor.group.clone();
        let others = group.members();
        group.kernel.attach(number, generation, 0, pid);
        group.set_members(|members| members.push(member.clone()));
        self.set_limits(session);
        self.introduce(session, &group, &member, &others)?;
        group.notify(DomainId::DAEMON);
        Ok(())
    }

    /// Tells a member of the others, and the others of it.
    fn introduce(
        &mut self,
        session: u64,
        group: &Arc<DomainGroup>,
        member: &Arc<Member>,
        others: &[Arc<Member>],
    ) -> Result<(), Over> {
        let cpu = group.cpu;
        let (domain, generation) = (0, PROXY_GENERATION.get());
        let proxy = ToDomain::Peer { cpu, domain, generation };
        self.say(session, &proxy, &[group.proxy_fd.as_fd()])?;
        let peer_of = |member: &Member| ToDomain::Peer {
            cpu,
            domain: member.domain.number(),
            generation: member.generation.get(),
        };
        for other in others {
            let fd = other.area.memory().read_only_fd()?;
            self.say(session, &peer_of(other), &[fd.as_fd()])?;
        }
        let fd = member.area.memory().read_only_fd()?;
        let mut deaf = Vec::new();
        for other in others {
            let Some(to) = self.session_of(other.generation) else { continue };
            if self.say(to, &peer_of(member), &[fd.as_fd()]).is_err() {
                deaf.push(to);
            }
        }
        for session in deaf {
            self.end(session, "it does not listen");
        }
        Ok(())
    }

    /// A domain cannot be attached: it is told so, and its session ends.
    fn rejected(&mut self, session: u64, reason: String) -> Over {
        self.refused(session, &reason);
        let _ = self.say(session, &ToDomain::Rejected { reason: reason.clone() }, &[]);
        Over(reason)
    }
}
