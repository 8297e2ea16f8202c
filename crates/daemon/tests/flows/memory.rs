//! The memory of flows: sealed before the daemon looks at it, and charged to its program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use upcall_core::time::Span;
use upcall_runtime::net::{FlowCause, FlowForm, FlowMemory, FlowRequest, FrameSize, UdpFlow};
use upcall_runtime::status::status;
use upcall_shm::wire::{FlowReply, ToDaemon};
use upcall_sys::memfd::SharedMapping;

use super::raw::{RAW_FORM, Raw};
use super::{ECHO, OURS, Peer, Served, THEIRS, in_own_network, network, request, wait_for};

/// All frames that a user may have: 16 MiB.
const WHOLE: FlowForm = FlowForm { receive_slots: 4096, transmit_slots: 4096 };

/// Gives all pages of a file back to the system.
fn punch(fd: impl AsFd) -> Result<(), Errno> {
    let bytes = rustix::fs::fstat(&fd)?.st_size;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(fd, hole, 0, bytes.try_into().unwrap())
}

/// Starts the role `name` of this file in a process of its own, with the daemon's socket. It goes
/// on with each line that it reads.
fn role(name: &str, socket: &Path) -> Peer {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("memory::{name}"), "--include-ignored", "--nocapture"]);
    command.env("UPCALL_ROLE", socket).stdin(Stdio::piped()).stdout(Stdio::piped());
    Peer(command.spawn().unwrap())
}

/// Lets a role go on.
fn go_on(child: &mut Child) {
    writeln!(child.stdin.as_mut().unwrap()).unwrap();
}

/// The lines of a role up to the one that begins with `word`; that one.
fn line_of(output: &mut impl std::io::BufRead, word: &str) -> String {
    output.lines().map(Result::unwrap).find(|line| line.starts_with(word)).unwrap()
}

/// The daemon's socket, in a role.
fn socket_of_role() -> Option<PathBuf> {
    let socket = std::env::var_os("UPCALL_ROLE").map(PathBuf::from);
    if socket.is_none() {
        println!("skipped: it is a part of other tests");
    }
    socket
}

fn next_line() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Punches holes in the memory of its flow, before and after the daemon uses it.
#[test]
#[ignore = "a part of other tests"]
fn as_puncher() {
    let Some(socket) = socket_of_role() else { return };
    // Until it is sealed, nobody looks at it.
    let (_connection, fds) = Raw::offered(&socket, 5006, RAW_FORM);
    assert!(fds.iter().all(|fd| punch(fd) == Ok(())));
    let raw = Raw::open(&socket, 5005);
    println!("open");
    let mut tries = 0;
    for _ in 0..1000 {
        for memory in &raw.memory {
            assert_eq!(punch(memory.fd()), Err(Errno::PERM));
            // Another descriptor has no more rights.
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory.fd()));
            let again = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            assert_eq!(punch(&again), Err(Errno::PERM));
            tries += 2;
        }
    }
    assert!(!raw.is_closed());
    println!("refused {tries}");
    next_line();
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn the_memory_of_a_flow_cannot_be_punched_by_its_program() {
    in_own_network("memory::the_memory_of_a_flow_cannot_be_punched_by_its_program", || {
        let _peers = network();
        let served = Served::start();
        let mut honest = UdpFlow::open(&served.socket, &request(5004)).unwrap();
        let mut hostile = role("as_puncher", &served.socket);
        let mut output = BufReader::new(hostile.0.stdout.take().unwrap());
        line_of(&mut output, "open");
        let (peer, mut bytes) = (SocketAddr::new(THEIRS.parse().unwrap(), ECHO), [0; 8]);
        let mut looks = 0;
        wait_for("the echo", || {
            // Again, should the server not be there yet.
            if looks % 500 == 0 {
                assert!(honest.send(&[7; 8], peer).unwrap());
                honest.flush();
            }
            looks += 1;
            honest.receive(&mut bytes).unwrap().is_some()
        });
        assert_eq!(line_of(&mut output, "refused"), "refused 10000");
        assert_eq!(status(&served.socket).unwrap().flows.len(), 2);
        go_on(&mut hostile.0);
        drop(honest);
        served.end();
    });
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn a_flow_whose_memory_was_not_taken_is_not_opened() {
    in_own_network("memory::a_flow_whose_memory_was_not_taken_is_not_opened", || {
        let _peers = network();
        let served = Served::with(|config| config.silent_max = Span::from_millis(200));
        // What the program does with the memory before it says that it took it.
        let cause = |take: &dyn Fn([OwnedFd; 5])| {
            let (connection, fds) = Raw::offered(&served.socket, 5005, RAW_FORM);
            take(fds);
            match Raw::ask(&connection, &ToDaemon::TakeFlow).0 {
                Some(FlowReply::Refused { cause, reason }) => (cause, reason),
                other => panic!("{other:?}"),
            }
        };
        let each = |fds: [OwnedFd; 5], then: fn(SharedMapping)| {
            fds.iter().for_each(|fd| then(Raw::map(fd)));
        };
        let (of, reason) = cause(&drop);
        assert!(of == FlowCause::Memory && reason.contains("F_SEAL_FUTURE_WRITE"), "{reason}");
        let (of, reason) = cause(&|fds| each(fds, |memory| memory.populate().unwrap()));
        assert!(of == FlowCause::Memory && reason.contains("F_SEAL_FUTURE_WRITE"), "{reason}");
        let (of, reason) = cause(&|fds| each(fds, |memory| memory.seal_future_writes().unwrap()));
        assert!(of == FlowCause::Memory && reason.contains("lacks pages"), "{reason}");
        // Without queues in it.
        let (of, reason) = cause(&|fds| {
            each(fds, |memory| {
                memory.populate().unwrap();
                memory.seal_future_writes().unwrap();
            });
        });
        assert!(of == FlowCause::Memory && reason.contains("frame queue"), "{reason}");
        // A flow that nobody offered.
        let (connection, fds) = Raw::offered(&served.socket, 5005, RAW_FORM);
        drop(FlowMemory::take(fds, RAW_FORM, FrameSize::Half).unwrap());
        assert!(matches!(Raw::ask(&connection, &ToDaemon::TakeFlow).0, Some(FlowReply::Opened(_))));
        assert_eq!(Raw::ask(&connection, &ToDaemon::TakeFlow).0, None);
        wait_for("the end of the flow", || status(&served.socket).unwrap().flows.is_empty());
        // One that is never taken ends, and until then has nothing of the interface.
        let (connection, _fds) = Raw::offered(&served.socket, 5005, RAW_FORM);
        let state = status(&served.socket).unwrap();
        assert!(state.flows.is_empty() && state.owned_interfaces.is_empty(), "{state:?}");
        drop(UdpSocket::bind((OURS, 5005)).unwrap());
        wait_for(
            "the end of the connection",
            || !matches!(connection.peek(&mut [0]), Err(error) if error.is_would_block()),
        );
        let said = served.end();
        let is_opened = |line: &&String| line.starts_with("flow at") && !line.contains("ended");
        assert_eq!(said.iter().filter(is_opened).count(), 1, "{said:#?}");
    });
}

/// Keeps the memory of its flow after the flow has ended.
#[test]
#[ignore = "a part of other tests"]
fn as_keeper() {
    let Some(socket) = socket_of_role() else { return };
    next_line();
    let Raw { connection, memory, .. } = Raw::with_form(&socket, 5005, WHOLE);
    println!("open");
    next_line();
    drop(connection);
    println!("ended");
    next_line();
    drop(memory);
}

/// A memory group that ends with the test.
struct MemoryGroup {
    folder: PathBuf,
    usage: &'static str,
}

impl MemoryGroup {
    /// `None`: the system has no memory groups.
    fn new() -> Option<MemoryGroup> {
        let name = format!("upcall-test-{}", std::process::id());
        for (root, usage) in [
            ("/sys/fs/cgroup/memory", "memory.usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.current"),
        ] {
            let folder = Path::new(root).join(&name);
            if std::fs::create_dir(&folder).is_ok() {
                let group = MemoryGroup { folder, usage };
                if group.folder.join(usage).exists() {
                    return Some(group);
                }
            }
        }
        None
    }

    fn add(&self, child: &Child) {
        std::fs::write(self.folder.join("cgroup.procs"), child.id().to_string()).unwrap();
    }

    fn bytes(&self) -> usize {
        std::fs::read_to_string(self.folder.join(self.usage)).unwrap().trim().parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Its process has ended. A group in use is left.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
#[ignore = "needs root, ip, unshare and nsenter: an interface in its own network"]
fn the_memory_of_a_flow_is_charged_to_its_program_also_after_its_end() {
    let test = "memory::the_memory_of_a_flow_is_charged_to_its_program_also_after_its_end";
    let Some(group) = MemoryGroup::new() else {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no memory groups");
        return;
    };
    drop(group);
    in_own_network(test, || {
        const BYTES: usize = 16 << 20;
        let _peers = network();
        let served = Served::start();
        let group = MemoryGroup::new().unwrap();
        let mut keeper = role("as_keeper", &served.socket);
        let mut output = BufReader::new(keeper.0.stdout.take().unwrap());
        group.add(&keeper.0);
        go_on(&mut keeper.0);
        line_of(&mut output, "open");
        let charged = group.bytes();
        assert!(charged >= BYTES, "{charged} bytes");
        // The test, which has the daemon, maps the area and four queues of the flow.
        let maps = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let of_flow = ["receive", "received", "transmit", "transmitted"];
            let name =
                |line: &str| of_flow.iter().any(|of| line.contains(&format!("upcall {of} ")));
            maps.lines().filter(|line| name(line)).count()
        };
        assert!(maps() >= 4, "{}", maps());
        // The only flow that its user may have with so many frames.
        let whole = FlowRequest { form: WHOLE, ..request(5006) };
        assert!(UdpFlow::open(&served.socket, &whole).is_err());
        go_on(&mut keeper.0);
        line_of(&mut output, "ended");
        wait_for("the end of the flow", || status(&served.socket).unwrap().flows.is_empty());
        wait_for("the end of the mappings", || maps() == 0);
        // The program keeps what it pays for, and its user has all frames again.
        let charged = group.bytes();
        assert!(charged >= BYTES, "{charged} bytes");
        drop(UdpFlow::open(&served.socket, &whole).unwrap());
        go_on(&mut keeper.0);
        assert!(keeper.0.wait().unwrap().success());
        wait_for("the end of the charge", || group.bytes() < BYTES);
        served.end();
    });
}
