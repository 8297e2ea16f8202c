//! Processes of another user that try to keep the class which root's daemon gave to a thread.
//!
//! The children are those of the module [`support`]. They speak the protocol without the runtime.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::thread::JoinHandle;
use std::time::Duration;

use upcall_daemon::server::{Access, Config, Daemon, DaemonEvent, Stopper};
use upcall_shm::DomainId;
use upcall_shm::user_area::{AREA_BYTES, Owner};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, ToDaemon, ToDomain};
use upcall_sys::local::Connection;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{effective_user, thread_id};
use upcall_sys::readiness::{Direction, wait_until};
use upcall_sys::schedule::{Class, class_of, set_fifo_not_inherited_of};

use support::{ChildProcess, ROLE, read_line};

const NOBODY: u32 = 65534;
/// A set-uid program of root, in the folder where the children run. It sleeps.
const SLEEPER: &str = "./sleeper";

struct Running {
    stopper: Stopper,
    thread: JoinHandle<Vec<DaemonEvent>>,
    directory: tempfile::TempDir,
    program: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Running {
    fn start() -> Self {
        assert_eq!(effective_user(), 0, "only root can start the processes of another user");
        let alone = support::alone();
        let directory = tempfile::tempdir().unwrap();
        let program = support::program_for_all(directory.path());
        let sleeper = directory.path().join(SLEEPER);
        std::fs::copy("/bin/sleep", &sleeper).unwrap();
        chown(&sleeper, Some(0), Some(0)).unwrap();
        std::fs::set_permissions(&sleeper, PermissionsExt::from_mode(0o4755)).unwrap();
        let cpu = *upcall_runtime::default_cpus().unwrap().last().unwrap();
        let mut config = Config::new(directory.path().join("upcalld"), vec![cpu]);
        config.access = Access::Everyone;
        let daemon = Daemon::start(config).unwrap();
        assert!(daemon.real_time().is_some(), "root may use the real-time class");
        let stopper = daemon.stopper();
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            daemon.run(|event, _| events.push(event.clone()));
            events
        });
        Running { stopper, thread, directory, program, _alone: alone }
    }

    fn child(&self, role: &str) -> ChildProcess {
        let mut command = Command::new(&self.program);
        command.current_dir(self.directory.path());
        ChildProcess::start(command, NOBODY, role)
    }

    /// Stops the daemon. Returns why its domains were detached.
    fn stop(self) -> Vec<String> {
        self.stopper.stop();
        let reason = |event| match event {
            DaemonEvent::Detached { reason, .. } => Some(reason),
            _ => None,
        };
        self.thread.join().unwrap().into_iter().filter_map(reason).collect()
    }
}

/// No test of its own: the other tests start it.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split('|').collect::<Vec<_>>()[..] {
        ["blank"] => blank(),
        ["exec", priority] => exec_at(priority.parse().unwrap()),
        ["set-uid", when] => become_set_uid(when),
        ["attach", pid, cpu, program] => {
            attach_for(pid.parse().unwrap(), cpu.parse().unwrap(), program);
        }
        ["twice"] => twice(),
        _ => panic!("unknown role {role:?}"),
    }
}

/// A connected domain. Its thread on a CPU is not attached yet.
struct ByHand {
    connection: Connection,
    cpu: u32,
    area: OwnedFd,
    _owner: Option<Owner<SharedMapping>>,
}

impl ByHand {
    fn connect(has_area: bool) -> Self {
        let connection = Connection::connect(Path::new("upcalld")).unwrap();
        let hello = ToDaemon::Hello { name: "by hand".into(), policy: "rmdp".into() };
        connection.send(&hello.encode(), &[]).unwrap();
        let (welcome, _) = receive(&connection).unwrap();
        let ToDomain::Welcome { domain, generation, .. } = welcome else { panic!("{welcome:?}") };
        let (message, mut fds) = receive(&connection).unwrap();
        let ToDomain::VirtualProcessor { cpu } = message else { panic!("{message:?}") };
        let area = fds.remove(1);
        let mapping = || SharedMapping::from_fd(area.try_clone().unwrap(), AREA_BYTES).unwrap();
        let id = DomainId::new(domain).unwrap();
        let owner = has_area.then(|| Owner::create(mapping(), id, generation).unwrap());
        ByHand { connection, cpu, area, _owner: owner }
    }

    /// Makes the calling thread the domain's, and waits until it is raised.
    fn attach(&self) -> u8 {
        let tid = thread_id();
        self.connection.send(&ToDaemon::Thread { cpu: self.cpu, tid }.encode(), &[]).unwrap();
        loop {
            match class_of(tid).unwrap() {
                Class::Fifo { priority } => return priority,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// The next message; `None` if the connection has ended.
fn receive(connection: &Connection) -> Option<(ToDomain, Vec<OwnedFd>)> {
    wait_until(connection.as_fd(), Direction::Readable, None).unwrap();
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let received = connection.receive(&mut buffer).ok()?;
    let message = (received.len > 0).then(|| ToDomain::decode(&buffer[..received.len]).unwrap())?;
    Some((message, received.fds))
}

/// Attaches a thread although the user area is blank.
fn blank() {
    let by_hand = ByHand::connect(false);
    let tid = thread_id();
    by_hand.connection.send(&ToDaemon::Thread { cpu: by_hand.cpu, tid }.encode(), &[]).unwrap();
    while receive(&by_hand.connection).is_some() {}
    println!("#ended {tid}");
    let _ = (read_line(), by_hand.area);
}

#[test]
#[ignore = "needs root"]
fn a_thread_whose_attachment_fails_is_ordinary() {
    let daemon = Running::start();
    let mut child = daemon.child("blank");
    let tid: u32 = child.read_word("ended").parse().unwrap();
    assert_eq!(class_of(tid), Ok(Class::Ordinary));
    assert_eq!(daemon.stop().len(), 1);
}

/// A thread that is not the first one lowers itself, which needs no right, and executes a program.
fn exec_at(priority: u8) {
    let executes = move || {
        let by_hand = ByHand::connect(true);
        let raised = by_hand.attach();
        assert!(priority <= raised);
        set_fifo_not_inherited_of(thread_id(), priority).unwrap();
        println!("#executes {}", std::process::id());
        let error = Command::new("/bin/sleep").arg("60").exec();
        panic!("{error}");
    };
    std::thread::spawn(executes).join().unwrap();
}

fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < give_up, "after a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_that_a_raised_thread_executes_is_ordinary_at_any_priority() {
    let daemon = Running::start();
    for priority in [60, 59, 58, 57, 1] {
        let mut child = daemon.child(&format!("exec|{priority}"));
        let pid: u32 = child.read_word("executes").parse().unwrap();
        wait_for("it executes", || name_of(pid) == "sleep");
        let is_ordinary = || class_of(pid) == Ok(Class::Ordinary);
        let give_up = std::time::Instant::now() + Duration::from_secs(60);
        while !is_ordinary() && std::time::Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(class_of(pid), Ok(Class::Ordinary), "it lowered itself to {priority}");
    }
    daemon.stop();
}

/// Leaves its connection to a child, and becomes a set-uid program: before its thread is attached,
/// or once it has the real-time class.
fn become_set_uid(when: &str) {
    let script = "until chrt -p $$ | grep -q FIFO; do sleep 0.01; done; exec $0 60";
    let by_hand = ByHand::connect(true);
    let (pid, cpu) = (std::process::id(), by_hand.cpu);
    let (program, mut becomes) = match when {
        "attached" => ("sh", Command::new("sh")),
        _ => ("sleeper", Command::new(SLEEPER)),
    };
    match when {
        "attached" => becomes.args(["-c", script, SLEEPER]),
        _ => becomes.arg("60"),
    };
    println!("#pid {pid}");
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["child", "--exact", "--nocapture"]);
    holder.env(ROLE, format!("attach|{pid}|{cpu}|{program}"));
    let connection = by_hand.connection.as_fd().try_clone_to_owned().unwrap();
    // It ends with its connection.
    let _holder = holder.stdin(Stdio::from(connection)).spawn();
    let error = becomes.stdout(Stdio::null()).exec();
    panic!("{error}");
}

fn thread_of(cpu: u32, tid: u32) -> Vec<u8> {
    ToDaemon::Thread { cpu, tid }.encode()
}

/// Attaches the first thread of process `pid` once it runs `program`. The connection of that
/// process is the standard input of this one.
fn attach_for(pid: u32, cpu: u32, program: &str) {
    let connection = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    wait_for("the program runs", || name_of(pid) == program);
    (&connection).write_all(&thread_of(cpu, pid)).unwrap();
    let mut is_attached = false;
    loop {
        wait_until(connection.as_fd(), Direction::Readable, None).unwrap();
        let length = (&connection).read(&mut [0; MESSAGE_BYTES_MAX]).unwrap_or(0);
        if !std::mem::replace(&mut is_attached, true) {
            println!("#then {}", if length == 0 { "ended" } else { "attached" });
        }
        if length == 0 {
            return;
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_set_uid_program_is_not_raised_for_the_user_that_connected() {
    let daemon = Running::start();
    let mut child = daemon.child("set-uid|later");
    let pid: u32 = child.read_word("pid").parse().unwrap();
    let cpus = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned()
    };
    let before = cpus();
    assert_eq!(child.read_word("then"), "ended");
    assert_eq!((class_of(pid), cpus()), (Ok(Class::Ordinary), before));
    let reasons = daemon.stop();
    assert_eq!(
        reasons,
        ["its thread has other user ids: found real 65534, effective 0, saved 0, \
          expected 65534, who connected"]
    );
}

#[test]
#[ignore = "needs root"]
fn a_domain_that_becomes_a_set_uid_program_loses_the_class() {
    let daemon = Running::start();
    let mut child = daemon.child("set-uid|attached");
    let pid: u32 = child.read_word("pid").parse().unwrap();
    wait_for("the set-uid program runs", || name_of(pid) == "sleeper");
    // The watchdog looks after 0.3 s. A busy machine may take longer: no time is asserted.
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while class_of(pid) != Ok(Class::Ordinary) && std::time::Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(class_of(pid), Ok(Class::Ordinary));
    daemon.stop();
}

/// Attaches one thread as two domains.
fn twice() {
    let (one, other) = (ByHand::connect(true), ByHand::connect(true));
    one.attach();
    other.connection.send(&thread_of(other.cpu, thread_id()), &[]).unwrap();
    while receive(&other.connection).is_some() {}
    println!("#ended {}", thread_id());
    read_line();
}

#[test]
#[ignore = "needs root"]
fn a_thread_belongs_to_one_domain() {
    let daemon = Running::start();
    let mut child = daemon.child("twice");
    let tid: u32 = child.read_word("ended").parse().unwrap();
    assert!(matches!(class_of(tid), Ok(Class::Fifo { .. })), "the first domain goes on");
    child.write_line("end");
    drop(child);
    let reasons = daemon.stop();
    assert!(reasons.iter().any(|reason| reason.contains("attached already")), "{reasons:?}");
}
