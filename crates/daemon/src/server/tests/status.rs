//! The status that an inspector gets, and what an inspector cannot do.

use super::*;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use upcall_runtime::status::{
    ActivityState, Status, StatusError, VirtualProcessorState, VirtualProcessorStatus, status,
};
use upcall_shm::DomainId;
use upcall_shm::user_area::{self, AREA_BYTES};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, StatusPart, TEXT_BYTES_MAX, ToDaemon, ToDomain};
use upcall_sys::local::Received;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::thread_id;
use upcall_sys::readiness::wait_until;

/// Activities of a domain. The messages of three such domains do not fit into a socket at once.
const MANY: usize = 128;

impl Running {
    /// Asks for the status until it satisfies `done`, and returns that status. Panics after a
    /// while.
    pub(super) fn status_when(&self, done: impl Fn(&Status) -> bool) -> Status {
        for _ in 0..5_000 {
            let reply = status(&self.socket).unwrap();
            if done(&reply) {
                return reply;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the status never met the condition: {:?}", status(&self.socket));
    }
}

/// A domain's connection without a runtime.
pub(super) struct ByHand(Connection);

impl ByHand {
    pub(super) fn connect(daemon: &Running) -> Self {
        ByHand(Connection::connect(&daemon.socket).unwrap())
    }

    pub(super) fn send(&self, message: &ToDaemon) {
        self.0.send(&message.encode(), &[]).unwrap();
    }

    /// The next message with its descriptors; `None` if the daemon has closed the connection.
    pub(super) fn receive(&self) -> Option<(ToDomain, Vec<OwnedFd>)> {
        wait_until(self.0.as_fd(), Direction::Readable, None).unwrap();
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let Received { len, fds } = self.0.receive(&mut buffer).ok()?;
        (len > 0).then(|| (ToDomain::decode(&buffer[..len]).unwrap(), fds))
    }

    /// Attaches. Returns the number, the generation, and CPU and descriptors of the only virtual
    /// processor.
    pub(super) fn attach(&self) -> (DomainId, u64, u32, Vec<OwnedFd>) {
        self.send(&ToDaemon::Hello { name: "by hand".into(), policy: "rmdp".into() });
        let Some((ToDomain::Welcome { domain, generation, .. }, _)) = self.receive() else {
            panic!("no welcome");
        };
        let Some((ToDomain::VirtualProcessor { cpu }, fds)) = self.receive() else {
            panic!("no virtual_processor")
        };
        (DomainId::new(domain).unwrap(), generation, cpu, fds)
    }

    pub(super) fn create(&self, name: &str) -> u32 {
        self.try_create(name).unwrap()
    }

    /// Why the daemon refuses an activity.
    pub(super) fn refusal_of(&self, name: &str) -> String {
        self.try_create(name).unwrap_err()
    }

    fn try_create(&self, name: &str) -> Result<u32, String> {
        let need = Need {
            period_ns: 1_000_000_000,
            deadline_ns: 1_000_000_000,
            batch: 1,
            quantum: 1,
            pdu_cost_ns: 1_000,
            ..Need::default()
        };
        self.send(&ToDaemon::Create { request: 1, unscreened: false, need, name: name.to_owned() });
        loop {
            match self.receive() {
                Some((ToDomain::Granted { order, .. }, _)) => return Ok(order),
                Some((ToDomain::Refused { reason, .. }, _)) => return Err(reason),
                Some((ToDomain::Peer { .. }, _)) => {}
                answer => panic!("{answer:?}"),
            }
        }
    }
}

#[test]
fn the_status_shows_a_domain_with_its_activities_until_it_detaches() {
    let daemon = Running::start(|_| {});
    let mut domain = daemon.domain("player");
    let runs = domain.handler("runs", params(10), spin).unwrap();
    domain.handler("rests", params(40), spin).unwrap();
    domain.run(runs).unwrap();
    let has_jobs = |virtual_processor: &VirtualProcessorStatus| virtual_processor.counters.jobs > 2;
    let reply =
        daemon.status_when(|reply| reply.domains[0].virtual_processors.iter().any(has_jobs));
    assert_eq!((reply.policy.as_str(), reply.cpus.len(), reply.domains.len()), ("rmdp", 1, 1));
    let player = &reply.domains[0];
    assert_eq!((player.name.as_str(), player.pid), ("player", std::process::id()));
    assert_eq!(player.uid, process::effective_user());
    let [virtual_processor] = &player.virtual_processors[..] else { panic!("{player:?}") };
    assert_eq!((virtual_processor.fault.as_str(), virtual_processor.cpu), ("", reply.cpus[0].cpu));
    assert!(
        virtual_processor.used_ns > 0
            && virtual_processor.counters.upcalls >= virtual_processor.counters.jobs,
        "{virtual_processor:?}"
    );
    // 4 PDUs of 150 us in 10 ms, and in 40 ms.
    assert_eq!(virtual_processor.reserved_ppm, 60_000 + 15_000);
    let [runs, rests] = &player.activities[..] else { panic!("{player:?}") };
    assert_eq!((runs.name.as_str(), rests.name.as_str()), ("runs", "rests"));
    assert_eq!((runs.period_ns, runs.batch, runs.pdu_cost_ns), (10_000_000, 4, 150_000));
    assert_eq!((runs.reserved_ppm, rests.reserved_ppm), (60_000, 15_000));
    assert!(runs.next_release_ns != u64::MAX && runs.response_ns_max < runs.deadline_ns);
    assert_eq!((rests.state, rests.next_release_ns), (ActivityState::Suspended, u64::MAX));
    assert!(reply.cpus[0].reserved_ppm >= virtual_processor.reserved_ppm);
    drop(domain);
    let reply = daemon.status_when(|reply| reply.domains.is_empty());
    assert_eq!(reply.cpus[0].reserved_ppm, 0);
    daemon.stop();
    assert!(matches!(status(Path::new("/nowhere")), Err(StatusError::Connect { .. })));
}

#[test]
fn a_slow_inspector_delays_no_other_and_gets_everything() {
    let daemon = Running::start(|_| {});
    let domain = ByHand::connect(&daemon);
    domain.attach();
    for order in 0..MANY {
        domain.create(&format!("{order:TEXT_BYTES_MAX$}"));
    }
    // Three replies do not fit into a socket.
    let slow: Vec<_> = (0..3).map(|_| ByHand::connect(&daemon)).collect();
    for slow in &slow {
        (0..3).for_each(|_| slow.send(&ToDaemon::Inspect));
    }
    let other = status(&daemon.socket).unwrap();
    assert_eq!(other.domains[0].activities.len(), MANY);
    assert_eq!(other.domains[0].virtual_processors, [], "its thread is not there");
    for slow in &slow {
        let (mut activities, mut ends) = (0, 0);
        while ends < 3 {
            match slow.receive().expect("more").0 {
                ToDomain::Status(StatusPart::Activity(_)) => activities += 1,
                ToDomain::Status(StatusPart::End { .. }) => ends += 1,
                _ => {}
            }
        }
        assert_eq!(activities, 3 * MANY);
    }
    daemon.stop();
}

#[test]
fn a_daemon_that_ends_before_its_reply_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ends");
    let listener = Listener::bind(&socket, Access::Owner).unwrap();
    let ends = std::thread::spawn(move || {
        wait_until(listener.as_fd(), Direction::Readable, None).unwrap();
        let inspector = listener.accept().unwrap().unwrap();
        // The request is read first. Otherwise the connection would be reset instead of closed.
        wait_until(inspector.as_fd(), Direction::Readable, None).unwrap();
        inspector.receive(&mut [0; MESSAGE_BYTES_MAX]).unwrap();
    });
    assert_eq!(status(&socket), Err(StatusError::Closed));
    ends.join().unwrap();
}

#[test]
fn a_domain_that_inspects_is_disconnected() {
    let daemon = Running::start(|_| {});
    let domain = ByHand::connect(&daemon);
    domain.attach();
    domain.send(&ToDaemon::Inspect);
    assert!(domain.receive().is_none());
    assert_eq!(status(&daemon.socket).unwrap().domains, []);
    daemon.stop();
}

#[test]
fn the_status_names_the_fault_of_an_invalid_area() {
    let daemon = Running::start(|_| {});
    let domain = ByHand::connect(&daemon);
    let (number, generation, cpu, mut fds) = domain.attach();
    let page = || SharedMapping::from_fd(fds[1].try_clone().unwrap(), AREA_BYTES).unwrap();
    let (mapping, raw_page) = (page(), page());
    fds.clear();
    let _owner = user_area::Owner::create(mapping, number, generation).unwrap();
    let (tid_in, tid) = mpsc::channel();
    let (_end, ends) = mpsc::channel::<()>();
    let _sleeper = std::thread::spawn(move || {
        tid_in.send(thread_id()).unwrap();
        let _ = ends.recv();
    });
    domain.send(&ToDaemon::Thread { cpu, tid: tid.recv().unwrap() });
    let virtual_processor = || {
        let mut reply = daemon.status_when(|reply| !reply.domains[0].virtual_processors.is_empty());
        reply.domains[0].virtual_processors.remove(0)
    };
    assert_eq!(
        (virtual_processor().fault.as_str(), virtual_processor().state),
        ("", VirtualProcessorState::Attached)
    );
    // A reserved word after the counters.
    let word: &[AtomicU64] = raw_page.as_ref();
    word[40].store(1, Ordering::Relaxed);
    assert!(virtual_processor().fault.contains("reserved"), "{}", virtual_processor().fault);
    daemon.stop();
}

#[test]
fn the_status_shows_offences() {
    let daemon = Running::start(|_| {});
    let (mut hog, mut other) = (daemon.domain("hog"), daemon.domain("other"));
    let over = Arc::new(AtomicBool::new(false));
    let handler_over = over.clone();
    let hogs = move |batch: &mut Batch<'_>| {
        // It never asks whether it may go on. It ends after 10 s even if the test fails.
        let until = upcall_runtime::clock::now() + Span::from_secs(10);
        while !handler_over.load(Ordering::Relaxed) && upcall_runtime::clock::now() < until {}
        while batch.proceed() {}
    };
    let hogging = hog.handler("hogs", params(10), hogs).unwrap();
    let waiting = other.handler("waits", params(10), spin).unwrap();
    other.run(waiting).unwrap();
    hog.run(hogging).unwrap();
    let offences = |reply: &Status, name: &str| {
        let named = reply.domains.iter().find(|domain| domain.name == name).unwrap();
        (named.offences(), named.state())
    };
    let reply = daemon.status_when(|reply| offences(reply, "hog").0 > 0);
    assert_eq!(offences(&reply, "other").0, 0);
    // It runs on, so the watchdog demotes it in the end.
    daemon.status_when(|reply| offences(reply, "hog").1 == Some(VirtualProcessorState::Demoted));
    over.store(true, Ordering::Relaxed);
    drop((hog, other));
    daemon.stop();
}
