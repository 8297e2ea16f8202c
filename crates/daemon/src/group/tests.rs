//! What a group publishes to its members, on real pages.

use upcall_core::time::Span;
use upcall_shm::kernel_area::Reader;
use upcall_sys::memfd::ReadOnlyMapping;
use upcall_sys::process::{PidFd, UserIdFile};
use upcall_sys::schedule::Band;

use std::sync::OnceLock;

use super::*;
use crate::member_thread::MemberProcess;

/// A process as a domain of its user.
pub(crate) fn member_process(pid: u32) -> Arc<MemberProcess> {
    let uid = UserIdFile::open(pid, pid).unwrap().read().unwrap().real;
    let handle = Arc::new(PidFd::open(pid).unwrap());
    Arc::new(MemberProcess::new((pid, uid), handle, Some(Band::WHOLE)))
}

/// The process and a thread of it that sleeps for ever. The tests change its class.
pub(crate) fn sleeping_thread() -> (u32, u32) {
    static TID: OnceLock<u32> = OnceLock::new();
    let tid = *TID.get_or_init(|| {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Nobody writes to the pipe, or closes it.
            let (mut reader, _writer) = std::io::pipe().unwrap();
            tell.send(thread_id()).unwrap();
            let _ = std::io::Read::read(&mut reader, &mut [0]);
        });
        told.recv().unwrap()
    });
    (std::process::id(), tid)
}

/// A new member of `group` with the given process and thread, and the writing end of its area.
pub(crate) fn member(
    group: &DomainGroup,
    number: u32,
    (pid, tid): (u32, u32),
) -> (Arc<Member>, Owner<SharedMapping>) {
    let (domain, generation) = (DomainId::new(number).unwrap(), NonZeroU64::MIN);
    let area = SharedMapping::create("user", user_area::AREA_BYTES).unwrap();
    let fd = area.fd().try_clone_to_owned().unwrap();
    let owner = Owner::create(area, domain, generation.get()).unwrap();
    let memory = SharedMapping::from_fd(fd, user_area::AREA_BYTES).unwrap();
    let process = member_process(pid);
    let thread = MemberThread::open(process, tid).unwrap().expect("the thread runs");
    let member = Arc::new(Member::new((domain, generation), thread, memory).unwrap());
    group.kernel.attach(domain, generation, 1, pid);
    group.set_members(|members| members.push(member.clone()));
    (member, owner)
}

#[test]
fn a_member_gets_a_resume_interrupt_exactly_when_it_returns() {
    let group = DomainGroup::new(0, 0).unwrap();
    let (member, _owner) = member(&group, 1, sleeping_thread());
    let domain = member.domain;

    let fd = group.kernel_fd.try_clone().unwrap();
    let mapping = ReadOnlyMapping::from_fd(fd, kernel_area::AREA_BYTES).unwrap();
    let kernel = Reader::attach(mapping).unwrap();
    let mut seen = kernel.interrupts(domain);
    let mut interrupts_after = |state| {
        group.set_state(&member, state);
        let now = kernel.interrupts(domain);
        let since: Vec<Interrupt> = now.since(seen).collect();
        seen = now;
        since
    };
    assert_eq!(interrupts_after(State::Attached), []);
    for away in [State::Blocked, State::Stopped, State::Demoted] {
        assert_eq!(interrupts_after(away), []);
        assert_eq!(interrupts_after(State::Attached), [Interrupt::Resume], "{away:?}");
        assert_eq!(interrupts_after(State::Attached), []);
    }
}

/// Found by the bench `hostile`: a daemon did not end after a domain had overwritten the word on
/// which its thread sleeps.
#[test]
fn a_kls_thread_ends_though_its_wake_word_was_overwritten() {
    let cpu = *upcall_sys::schedule::allowed_cpus().unwrap().last().unwrap();
    let cpu_state = Arc::new(crate::cpu::CpuState::new(cpu));
    let group = Arc::new(DomainGroup::new(cpu, 1000).unwrap());
    cpu_state.set_groups(|groups| groups.push(group.clone()));
    let thread = crate::kls::start(crate::kls::Kls::new(cpu_state, group.clone(), None)).unwrap();
    let wake_word = group.turn.wake_word(DomainId::DAEMON);
    while !wake_word.is_asleep() {
        std::thread::yield_now();
    }
    // The thread sets the word shortly before it sleeps in the kernel. Once it sleeps there, an
    // overwritten word keeps a notification from waking it.
    std::thread::sleep(std::time::Duration::from_millis(20));
    wake_word.word().store(0, Ordering::Relaxed);
    group.quit();
    thread.join().unwrap();
}

#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn domains_that_wake_the_kls_thread_without_end_get_little_of_the_cpu() {
    let cpus = upcall_sys::schedule::allowed_cpus().unwrap();
    let cpu = *cpus.last().unwrap();
    let cpu_state = Arc::new(crate::cpu::CpuState::new(cpu));
    let group = Arc::new(DomainGroup::new(cpu, 1000).unwrap());
    cpu_state.set_groups(|groups| groups.push(group.clone()));
    let kls = crate::kls::Kls::new(cpu_state, group.clone(), Some(Band::WHOLE));
    let thread = crate::kls::start(kls).unwrap();
    let wake_word = group.turn.wake_word(DomainId::DAEMON);
    while !wake_word.is_asleep() {
        std::thread::yield_now();
    }
    // As an ordinary thread of a domain does it on a CPU that has nothing else to do.
    upcall_sys::schedule::pin_thread(&cpus[..1]).unwrap();
    upcall_sys::schedule::set_fifo(1).unwrap();
    let ((_, before_ns), begin) = (group.kls_usage(), crate::clock::now());
    let mut elapsed = Span::ZERO;
    while elapsed < Span::from_millis(300) {
        for _ in 0..1_000 {
            if wake_word.notify() {
                futex::wake_shared(wake_word.word(), 1);
            }
        }
        elapsed = crate::clock::now().since(begin);
    }
    let used = Span::from_nanos(group.kls_usage().1 - before_ns);
    assert!(used < elapsed / 4, "{used} of {elapsed}");
    group.quit();
    thread.join().unwrap();
}
