//! The program that reads, in a process of its own and in one of the variants. It has any number of
//! network activities, each fed by a stream, pipe or socket, and of device activities, each clocked
//! by a timer. It only records the arrival of each message. All its threads are `SCHED_FIFO` on one
//! CPU.

use std::fs::File;
use std::future::poll_fn;
use std::io::{ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use upcall::activity::{ActivityParams, Terms};
use upcall::discipline::DWS;
use upcall::stream::{Stream, StreamReader};
use upcall::time::{Instant, Span};
use upcall::{Batch, Config, FIFO_PRIORITY, HandlerId, Runtime};
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule;

use crate::log::{Log, open};
use crate::variant::Variant;

/// The environment variable that gives a process started by this one its role.
pub const ROLE: &str = "UPCALL_BENCH_ROLE";
/// Bytes of a message. The first word is the time at which it was sent.
pub const MESSAGE_BYTES: usize = 64;
/// Where a reader reads bytes, it reads all that have arrived, up to this many messages.
const READ_BYTES: usize = 64 * MESSAGE_BYTES;
/// Time to the first release.
const LEAD_NS: u64 = 3_000_000;

/// The task of a reader.
#[derive(Clone)]
pub struct ReaderSpec {
    pub variant: Variant,
    pub cpu: u32,
    pub devices: u32,
    /// Period of each device.
    pub period_ns: u64,
    /// The gap that the streams' handlers declare.
    pub gap_ns: u64,
    /// The paths of its inputs.
    pub inputs: Vec<String>,
}

impl ReaderSpec {
    /// The text for [`ReaderSpec::parse`].
    pub fn text(&self, log: &Log) -> String {
        let ReaderSpec { variant, cpu, devices, period_ns, gap_ns, inputs } = self;
        let (variant, log, inputs) = (variant.word(), log.path(), inputs.join(" "));
        format!("{variant} {cpu} {devices} {period_ns} {gap_ns} {log} {inputs}")
    }

    fn parse(text: &str) -> (Self, Log) {
        let mut words = text.split_whitespace();
        let mut word = || words.next().expect("a spec of this bench");
        let variant = Variant::of(word());
        let mut number = || word().parse().expect("a number");
        let [cpu, devices, period_ns, gap_ns]: [u64; 4] = std::array::from_fn(|_| number());
        let small = |number| u32::try_from(number).expect("a small number");
        let log = Log::open(word());
        let inputs = words.map(str::to_owned).collect();
        (
            ReaderSpec {
                variant,
                cpu: small(cpu),
                devices: small(devices),
                period_ns,
                gap_ns,
                inputs,
            },
            log,
        )
    }
}

/// Reads until the standard input ends.
pub fn serve(text: &str) {
    let (spec, log) = ReaderSpec::parse(text);
    let log = Arc::new(log);
    let runtime = match spec.variant {
        Variant::Split | Variant::SplitAhead | Variant::Task => Some(in_upcalls(&spec, &log)),
        Variant::ThreadPipe | Variant::ThreadRanked | Variant::ThreadSocket => {
            in_threads(&spec, &log);
            None
        }
        Variant::Epoll | Variant::EpollRanked => {
            let (spec, log, pipes) = (spec.clone(), log.clone(), pipes(&spec));
            std::thread::spawn(move || by_epoll(&spec, &log, pipes));
            None
        }
        Variant::Tokio => {
            let (spec, log, pipes) = (spec.clone(), log.clone(), pipes(&spec));
            std::thread::spawn(move || in_tokio(&spec, &log, pipes));
            None
        }
    };
    // Gives the threads that must run first time to wait.
    std::thread::sleep(Duration::from_millis(2));
    log.set_ready();
    let _ = std::io::stdin().read(&mut [0]);
    drop(runtime);
    std::process::exit(0);
}

/// Moves the thread to its CPU and into its class.
fn prepare(cpu: u32) {
    schedule::pin_thread(&[cpu]).expect("the CPU is allowed");
    // `main` reports a refusal.
    let _ = schedule::set_fifo(FIFO_PRIORITY);
}

/// The priority change that a thread needs for each new deadline, if it is to be ranked by
/// deadlines.
struct Rank {
    changes: bool,
    more: u8,
}

impl Rank {
    fn of(variant: Variant) -> Self {
        Rank { changes: matches!(variant, Variant::ThreadRanked | Variant::EpollRanked), more: 0 }
    }

    fn change(&mut self) {
        if self.changes {
            self.more = 1 - self.more;
            let _ = schedule::set_fifo(FIFO_PRIORITY + self.more);
        }
    }
}

/// The first due time of device `nth`. Devices are not in phase.
fn first_due(spec: &ReaderSpec, nth: u32) -> u64 {
    monotonic_ns() + LEAD_NS + spec.period_ns * u64::from(nth) / u64::from(spec.devices)
}

/// The configuration of a runtime of this bench.
pub fn config(cpu: u32) -> Config {
    Config {
        cpus: vec![cpu],
        discipline: &DWS,
        unscreened: true,
        switch_cost: Some(Span::from_micros(1)),
        ..Config::default()
    }
}

/// The declaration of a handler of this bench. Messages may be processed ahead of time.
pub fn need(gap_ns: u64, batch: u32) -> (ActivityParams, Terms) {
    let cost = Span::from_nanos((gap_ns / u64::from(batch)).clamp(1, 100));
    let terms = Terms { workahead_max: 1_000, ..Terms::default() };
    (ActivityParams::new(Span::from_nanos(gap_ns), cost).batch(batch), terms)
}

fn in_upcalls(spec: &ReaderSpec, log: &Arc<Log>) -> Runtime {
    let mut runtime = Runtime::start(config(spec.cpu)).expect("the CPU is allowed");
    for (input, nth) in spec.inputs.iter().zip(0..) {
        let reader =
            Stream::from_fd(open(input)).and_then(|stream| stream.reader()).expect("a stream");
        let level = spec.variant.level().expect("tasks read nothing here");
        let log = log.clone();
        let network = move |reader: &mut StreamReader, batch: &mut Batch<'_>| {
            while let Some(message) = reader.next(batch) {
                log.arrived(message.payload().words().map_or(0, |words| words[0].load(Relaxed)));
                message.done();
            }
        };
        let need = need(spec.gap_ns, 16);
        let created =
            runtime.stream_reader_handler(&format!("network{nth}"), need, reader, level, network);
        runtime.run(created.expect("unscreened")).expect("the executor runs");
    }
    for nth in 0..spec.devices {
        let due_ns = first_due(spec, nth);
        let id = device(&mut runtime, spec, nth, due_ns, log.clone());
        runtime.run_at(&[id], Instant::from_nanos(due_ns)).expect("the executor runs");
    }
    runtime
}

fn device(
    runtime: &mut Runtime,
    spec: &ReaderSpec,
    nth: u32,
    due_ns: u64,
    log: Arc<Log>,
) -> HandlerId {
    let (mut due_ns, period_ns) = (due_ns, spec.period_ns);
    let (name, mut need) = (format!("device{nth}"), need(period_ns, 1));
    need.1.workahead_max = 0;
    let created = match spec.variant {
        Variant::Task => runtime.task(&name, need, async move |task| {
            loop {
                log.arrived(due_ns);
                due_ns += period_ns;
                task.timed_sleep(Instant::from_nanos(due_ns)).await;
            }
        }),
        _ => runtime.handler(&name, need, move |batch| {
            while batch.proceed() {
                log.arrived(due_ns);
                due_ns += period_ns;
            }
        }),
    };
    created.expect("unscreened")
}

fn in_threads(spec: &ReaderSpec, log: &Arc<Log>) {
    let cpu = spec.cpu;
    for input in &spec.inputs {
        let mut input: Box<dyn Read + Send> = match spec.variant {
            Variant::ThreadSocket => Box::new(UnixStream::connect(input).expect("the child reads")),
            _ => Box::new(File::open(input).expect("a pipe")),
        };
        let (log, mut rank) = (log.clone(), Rank::of(spec.variant));
        std::thread::spawn(move || {
            prepare(cpu);
            let mut bytes = [0; READ_BYTES];
            while let Ok(read @ 1..) = input.read(&mut bytes) {
                note(&bytes[..read], &log);
                rank.change();
            }
        });
    }
    for nth in 0..spec.devices {
        let (mut due_ns, period_ns, log) = (first_due(spec, nth), spec.period_ns, log.clone());
        let mut rank = Rank::of(spec.variant);
        std::thread::spawn(move || {
            prepare(cpu);
            loop {
                sleep_until_ns(due_ns);
                log.arrived(due_ns);
                due_ns += period_ns;
                rank.change();
            }
        });
    }
}

/// Records all messages in `bytes`. No write ends inside a message, and so no read does.
fn note(bytes: &[u8], log: &Log) {
    for message in bytes.chunks_exact(MESSAGE_BYTES) {
        let mut word = [0; 8];
        word.copy_from_slice(&message[..8]);
        log.arrived(u64::from_ne_bytes(word));
    }
}

fn by_epoll(spec: &ReaderSpec, log: &Log, mut fds: Vec<OwnedFd>) {
    prepare(spec.cpu);
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let mut dues_ns = Vec::new();
    for nth in 0..spec.devices {
        let due_ns = first_due(spec, nth);
        dues_ns.push(due_ns);
        fds.push(timer(due_ns, spec.period_ns));
    }
    for (fd, nth) in fds.iter().zip(0..) {
        let data = epoll::EventData::new_u64(nth);
        epoll::add(&set, fd, data, epoll::EventFlags::IN).expect("epoll");
    }
    let (mut bytes, mut rank) = ([0; READ_BYTES], Rank::of(spec.variant));
    loop {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 16];
        let (events, _) = match epoll::wait(&set, &mut events, None) {
            Err(Errno::INTR) => continue,
            found => found.expect("epoll"),
        };
        for event in events.iter() {
            let nth = usize::try_from(event.data.u64()).expect("a small number");
            let Ok(read) = rustix::io::read(&fds[nth], &mut bytes) else { continue };
            match nth.checked_sub(spec.inputs.len()) {
                Some(device) => {
                    let due_ns = &mut dues_ns[device];
                    for _ in 0..expirations(&bytes) {
                        log.arrived(*due_ns);
                        *due_ns += spec.period_ns;
                    }
                }
                // The other end is gone, and this process ends soon.
                None if read == 0 => return,
                None => note(&bytes[..read], log),
            }
            if spec.variant == Variant::EpollRanked {
                rank.change();
                // The thread waits only after a read in vain.
                let _ = rustix::io::read(&fds[nth], &mut bytes);
            }
        }
    }
}

/// The non-blocking reading ends of the pipes. The parent closes its own copies once this process
/// is ready.
fn pipes(spec: &ReaderSpec) -> Vec<OwnedFd> {
    let open = |path: &String| {
        let fd = File::open(path).expect("a pipe").into();
        rustix::io::ioctl_fionbio(&fd, true).expect("a pipe");
        fd
    };
    spec.inputs.iter().map(open).collect()
}

fn timer(due_ns: u64, period_ns: u64) -> OwnedFd {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).expect("timerfd");
    let span = |ns| Timespec::try_from(Duration::from_nanos(ns)).expect("a short time");
    let times = Itimerspec { it_interval: span(period_ns), it_value: span(due_ns) };
    rustix::time::timerfd_settime(&fd, TimerfdTimerFlags::ABSTIME, &times).expect("timerfd");
    fd
}

/// The number of expirations that a timerfd reports (timerfd_create(2)).
fn expirations(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_ne_bytes(word)
}

fn in_tokio(spec: &ReaderSpec, log: &Arc<Log>, pipes: Vec<OwnedFd>) {
    prepare(spec.cpu);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("epoll").block_on(async {
        for pipe in pipes {
            let mut pipe = Receiver::from_owned_fd(pipe).expect("a pipe");
            let log = log.clone();
            tokio::spawn(async move {
                let mut bytes = [0; READ_BYTES];
                loop {
                    let mut into = ReadBuf::new(&mut bytes);
                    let read = poll_fn(|context| Pin::new(&mut pipe).poll_read(context, &mut into));
                    match read.await {
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Ok(()) if !into.filled().is_empty() => note(into.filled(), &log),
                        _ => return,
                    }
                }
            });
        }
        for nth in 0..spec.devices {
            let mut due_ns = first_due(spec, nth);
            let (period_ns, log) = (spec.period_ns, log.clone());
            tokio::spawn(async move {
                let lead = Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()));
                let first = tokio::time::Instant::now() + lead;
                let mut interval = tokio::time::interval_at(first, Duration::from_nanos(period_ns));
                loop {
                    interval.tick().await;
                    log.arrived(due_ns);
                    due_ns += period_ns;
                }
            });
        }
        std::future::pending::<()>().await;
    });
}
