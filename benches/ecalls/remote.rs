//! The same measurements between two processes. The bench starts itself as the second process, on
//! this CPU or on another.
//!
//! The process that receives an event sleeps, unless a row says that it is awake. The kernel's own
//! round trips stand beside each row.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant as Wall;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getppid, pidfd_getfd, pidfd_open};
use rustix::thread::{Timespec, nanosleep};
use upcall::channel::{
    self, Client, Form, Forms, HANDLER_TERMS, HandlerTerms, Posted, Raise, Raiser, Route, Service,
    ServiceTerms,
};
use upcall_sys::process::PidFd;
use upcall_sys::schedule;

use crate::row::{REAL_TIME_SIGNAL, Row, per_event, row, timed};

/// The environment variable that makes a process the remote one: its name and its CPU.
const ROLE: &str = "UPCALL_ECALLS_OTHER";
/// Round trips of a sample.
const TURNS: u64 = 8;
/// Posts of a sample. The rings have room for them and for their replies.
const POSTS: u64 = 256;
const RINGS: Forms =
    Forms { to_service: Form::Ring { slots: 1_024 }, to_client: Form::Ring { slots: 1_024 } };

/// The commands that an event carries: stay awake, send a reply, only count, sleep again.
const AWAKE: u64 = 1;
const REPLY: u64 = 2;
const COUNTED: u64 = 3;
const ASLEEP: u64 = 4;

fn raise(word: u64) -> Raise {
    Raise::row(0).words([word, 0, 0, 0, 0])
}

fn free(route: Route) -> ServiceTerms {
    let terms = HandlerTerms { pending_max: 1_024, invocations_max: 1 << 16, ..HANDLER_TERMS };
    ServiceTerms::new(RINGS, route.terms(terms)).call(|words| words.map(|word| word + 1))
}

/// Replies to each event with the same event.
fn echo() -> Route {
    Route::to(|events| {
        while let Some(event) = events.take() {
            let _ = events.raise(event.peer, &raise(event.words[0]));
        }
    })
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{name}.sock"))
}

/// If this process is the remote one, runs its part. Returns whether it was.
pub fn run_as_remote() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    let (name, cpu) = role.rsplit_once(' ').expect("a name and a CPU");
    schedule::pin_thread(&[cpu.parse().expect("a CPU")]).expect("the CPU is allowed");
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(REAL_TIME_SIGNAL, flag.clone()).expect("a signal");
    let service = Service::in_thread(name, free(echo())).expect("a service");
    let polled = Client::polled(&format!("{name}-first")).expect("the other's service");
    let eventfds = [0; 2].map(|_| eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
    let listener = UnixListener::bind(socket(name)).expect("a socket");
    println!("{} {}", eventfds[0].as_raw_fd(), eventfds[1].as_raw_fd());
    std::thread::spawn(move || reply_on_sockets(&listener));
    std::thread::spawn(move || reply_on_eventfds(&eventfds));
    std::thread::spawn(move || reply_on_a_channel(polled, &service));
    std::thread::spawn(reply_on_pipes);
    let first = PidFd::open(getppid().map_or(0, |pid| pid.as_raw_pid().cast_unsigned()));
    let first = first.expect("the parent is there");
    // The loop runs in the first thread, because signals of a process reach this thread.
    loop {
        wait_for_signal(&flag);
        first.queue_signal(REAL_TIME_SIGNAL, 0).expect("the parent is there");
    }
}

fn reply_on_pipes() {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut bytes = [0; 8];
    while input.read_exact(&mut bytes).is_ok() {
        output.write_all(&bytes).and_then(|()| output.flush()).expect("a pipe");
    }
    std::process::exit(0);
}

fn reply_on_sockets(listener: &UnixListener) {
    for stream in listener.incoming() {
        let mut stream = stream.expect("a client");
        std::thread::spawn(move || {
            let mut bytes = [0; 40];
            while stream.read_exact(&mut bytes).is_ok() {
                let _ = stream.write_all(&bytes);
            }
        });
    }
}

fn reply_on_eventfds([there, back]: &[OwnedFd; 2]) {
    loop {
        write_eventfd(back, read_eventfd(there));
    }
}

fn write_eventfd(fd: &OwnedFd, value: u64) {
    rustix::io::write(fd, &value.to_ne_bytes()).expect("an eventfd");
}

fn read_eventfd(fd: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(fd, &mut bytes).expect("an eventfd");
    u64::from_ne_bytes(bytes)
}

/// Sleeps until an event sets it awake. Then it polls without end.
fn reply_on_a_channel(mut client: Client, service: &Service) {
    let (mut is_awake, mut counted) = (false, 0);
    // The raiser of replies, towards the second client of this service, once that client exists.
    let mut replies = None;
    loop {
        match client.take().expect("the first process is there") {
            Some(event) => match event.words[0] {
                REPLY => {
                    let to: Option<&Raiser> = replies.as_ref();
                    to.expect("an AWAKE event came first")
                        .raise(&raise(REPLY))
                        .expect("the peer is there");
                }
                COUNTED => counted += 1,
                word => {
                    is_awake = word == AWAKE;
                    replies = service.raiser(service.clients()[1]);
                    client.raise(&raise(counted)).expect("the peer is there");
                }
            },
            None if is_awake => std::hint::spin_loop(),
            None => {
                client.wait(None);
            }
        }
    }
}

/// Waits for a signal. A signal that comes before the sleep costs a sleep of a millisecond. This is
/// rare, because each process waits for the signal of the other.
fn wait_for_signal(flag: &AtomicBool) {
    while !flag.swap(false, SeqCst) {
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
    }
}

/// The remote process, as the first process sees it.
struct RemoteProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    name: String,
    eventfds: [OwnedFd; 2],
    /// The last word that the remote process raised to the service of this one, and the number of
    /// such events.
    last_raised: Arc<[AtomicU64; 2]>,
    service: Service,
}

impl RemoteProcess {
    fn start(cpu: u32) -> Arc<std::sync::Mutex<RemoteProcess>> {
        let name = format!("ecalls-{}-{cpu}", std::process::id());
        let last_raised = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let handler_raised = last_raised.clone();
        let route = Route::to(move |events| {
            while let Some(event) = events.take() {
                handler_raised[0].store(event.words[0], SeqCst);
                handler_raised[1].fetch_add(1, SeqCst);
            }
        });
        let service = Service::in_thread(&format!("{name}-first"), free(route));
        let service = service.expect("a service");
        let exe = std::env::current_exe().expect("a program");
        let mut child = Command::new(exe)
            .env(ROLE, format!("{name} {cpu}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the same program again");
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the child prints a line");
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a child");
        let fetch = |number: &str| {
            let number = number.parse().expect("a number");
            pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).expect("an eventfd of a child")
        };
        let (there, back) = line.trim().split_once(' ').expect("two numbers");
        let eventfds = [fetch(there), fetch(back)];
        Arc::new(
            RemoteProcess { child, input, output, name, eventfds, last_raised, service }.into(),
        )
    }

    /// Sends a command to the remote thread that polls or sleeps, and waits for its reply.
    fn set_mode(&self, word: u64) -> u64 {
        let before = self.last_raised[1].load(SeqCst);
        let to = self.service.clients()[0];
        self.service.raise(to, &raise(word)).expect("the peer is there");
        while self.last_raised[1].load(SeqCst) == before {
            std::thread::yield_now();
        }
        self.last_raised[0].load(SeqCst)
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(socket(&self.name));
    }
}

/// Rows with a remote process on `own`, the CPU of this process, and on `other_cpu` if there is
/// another CPU.
pub fn rows(own: u32, other_cpu: Option<u32>) -> Vec<Row> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(REAL_TIME_SIGNAL, flag.clone()).expect("a signal");
    let mut rows = Vec::new();
    if let Some(other_cpu) = other_cpu {
        let other = RemoteProcess::start(other_cpu);
        rows.extend(awake(&other));
        rows.extend(asleep(&other, &flag, "other CPU"));
    }
    rows.extend(asleep(&RemoteProcess::start(own), &flag, "same CPU"));
    rows
}

type Shared = Arc<std::sync::Mutex<RemoteProcess>>;

/// Waits for the event that the remote process raises back, asleep until it comes.
fn wait_for_event(client: &mut Client) {
    while client.take().expect("the peer is there").is_none() {
        client.wait(None);
    }
}

/// Rows that need no kernel: the remote process polls on its own CPU.
fn awake(other: &Shared) -> [Row; 3] {
    let name = other.lock().expect("one thread").name.clone();
    let mut posts = Client::polled(&name).expect("its service");
    let mut turns = Client::polled(&name).expect("its service");
    let (raises, replies) = (other.clone(), other.clone());
    [
        row("across: post, no notification", move || {
            let raiser = posts.raiser();
            let ps = timed(POSTS, || {
                assert_eq!(raiser.post(&raise(COUNTED)), Ok(Posted::Stored));
            });
            raiser.notify().expect("the peer is there");
            (0..POSTS).for_each(|_| wait_for_event(&mut posts));
            ps
        }),
        row("across: raise, peer awake, other CPU", move || {
            let other = raises.lock().expect("one thread");
            let before = other.set_mode(AWAKE);
            let raiser =
                other.service.raiser(other.service.clients()[0]).expect("the peer is there");
            let calls = raiser.system_calls();
            let ps = timed(POSTS, || {
                assert_eq!(raiser.raise(&raise(COUNTED)), Ok(Posted::Stored));
            });
            assert_eq!(raiser.system_calls(), calls, "it is awake");
            assert_eq!(other.set_mode(ASLEEP), before + POSTS, "each came");
            ps
        }),
        row("across: round trip, both awake", move || {
            let other = replies.lock().expect("one thread");
            other.set_mode(AWAKE);
            let raiser =
                other.service.raiser(other.service.clients()[0]).expect("the peer is there");
            let ps = timed(POSTS, || {
                raiser.raise(&raise(REPLY)).expect("the peer is there");
                while turns.take().expect("the peer is there").is_none() {
                    std::hint::spin_loop();
                }
            });
            other.set_mode(ASLEEP);
            ps
        }),
    ]
}

/// Round trips in which each process wakes the other.
fn asleep(other: &Shared, flag: &Arc<AtomicBool>, place: &str) -> Vec<Row> {
    let (name, pid) = {
        let other = other.lock().expect("one thread");
        (other.name.clone(), other.child.id())
    };
    let mut client = Client::polled(&name).expect("its service");
    let mut stream = UnixStream::connect(socket(&name)).expect("its socket");
    let (path, flag) = (socket(&name), flag.clone());
    let peer = PidFd::open(pid).expect("a child");
    let named = |what: &str| &*Box::leak(format!("{what}, {place}").into_boxed_str());
    let [pipe, eventfds] = [other.clone(), other.clone()];
    let turn = |stream: &mut UnixStream| {
        let mut bytes = [1; 40];
        stream.write_all(&bytes).and_then(|()| stream.read_exact(&mut bytes)).expect("a socket");
    };
    vec![
        row(named("across: raise, handler, raised back"), move || {
            timed(TURNS, || {
                client.raise(&raise(REPLY)).expect("the peer is there");
                wait_for_event(&mut client);
            })
        }),
        row(named("pipe: round trip"), move || {
            let mut other = pipe.lock().expect("one thread");
            timed(TURNS, || {
                let mut bytes = [1; 8];
                other.input.write_all(&bytes).expect("a pipe");
                other.output.read_exact(&mut bytes).expect("a pipe");
            })
        }),
        row(named("eventfd: round trip"), move || {
            let other = eventfds.lock().expect("one thread");
            timed(TURNS, || {
                write_eventfd(&other.eventfds[0], 1);
                read_eventfd(&other.eventfds[1]);
            })
        }),
        row(named("signal: rt_sigqueueinfo and back"), move || {
            flag.store(false, SeqCst);
            timed(TURNS, || {
                peer.queue_signal(REAL_TIME_SIGNAL, 0).expect("a child");
                wait_for_signal(&flag);
            })
        }),
        row(named("call by name"), move || {
            timed(TURNS, || {
                assert_eq!(channel::call(&name, &[1; 5], None), Ok([2; 5]));
            })
        }),
        row(named("UNIX socket: connect, round trip"), move || {
            let begun = Wall::now();
            for _ in 0..TURNS {
                turn(&mut UnixStream::connect(&path).expect("its socket"));
            }
            per_event(begun, TURNS)
        }),
        row(named("UNIX socket: round trip"), move || timed(TURNS, || turn(&mut stream))),
    ]
}
