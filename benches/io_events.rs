//! The cost of an event in a loop over 10,000 idle and 100 active descriptors. The bench compares
//! the I/O event service with select, poll, epoll and plain io_uring in one run (ecalls-2001 §3.2).
//!
//! A round writes to some of the active eventfds, learns which are ready, and reads them. The bench
//! measures the CPU time of the whole process, with service threads and interrupts. It subtracts
//! the cost of the same round without any watching, in which the loop knows the ready descriptors.
//! The variants take turns, block by block, and only one watches at a time.
//!
//! The bench only asserts that every event came, because the machine is shared. Read the ratios.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd};
use rustix::io::Errno;

use upcall::io_events::{Feed, Interest, Poller};
use upcall::thread_cpu_ns;
use upcall_benches::{heading, percentile, smoke};
use upcall_sys::clock::process_cpu_ns;
use upcall_sys::descriptors::raise_limit;
use upcall_sys::io_uring::{After, PollRing};
use upcall_sys::schedule::{allowed_cpus, pin_thread};
use upcall_sys::select::SelectSet;

const IDLE: usize = 10_000;
const ACTIVE: usize = 100;
/// The most events that one call of epoll_wait takes.
const EVENTS_MAX: usize = 256;

/// One way to learn which descriptors are ready.
trait Watch {
    /// Blocks until a descriptor is ready, and calls `ready` with the index of each ready
    /// descriptor.
    fn collect(&mut self, ready: &mut dyn FnMut(usize));
    /// Stops watching, before the next variant starts.
    fn end(&mut self) {}
}

/// The set, and the index of each descriptor by its number.
struct Select<'a>(SelectSet<'a>, Vec<usize>);

impl<'a> Select<'a> {
    fn new(fds: &'a [OwnedFd]) -> Self {
        let number = |fd: &OwnedFd| usize::try_from(fd.as_raw_fd()).expect("open");
        let mut indices = vec![0; fds.iter().map(number).max().map_or(0, |last| last + 1)];
        fds.iter().enumerate().for_each(|(at, fd)| indices[number(fd)] = at);
        Select(SelectSet::new(fds), indices)
    }
}

impl Watch for Select<'_> {
    fn collect(&mut self, ready: &mut dyn FnMut(usize)) {
        let Select(set, indices) = self;
        let report = |fd| ready(indices[usize::try_from(fd).expect("open")]);
        set.wait(report).expect("select");
    }
}

struct Poll<'a>(Vec<PollFd<'a>>);

impl Watch for Poll<'_> {
    fn collect(&mut self, ready: &mut dyn FnMut(usize)) {
        rustix::event::poll(&mut self.0, None).expect("poll");
        (0..self.0.len()).filter(|&at| !self.0[at].revents().is_empty()).for_each(ready);
    }
}

struct Epoll(OwnedFd);

impl Epoll {
    fn new(fds: &[OwnedFd], flags: epoll::EventFlags) -> Self {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        for (at, fd) in (0..).zip(fds) {
            epoll::add(&set, fd, epoll::EventData::new_u64(at), flags).expect("epoll");
        }
        Epoll(set)
    }
}

impl Watch for Epoll {
    fn collect(&mut self, ready: &mut dyn FnMut(usize)) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let (events, _) = loop {
            match epoll::wait(&self.0, &mut events, None) {
                Err(Errno::INTR) => {}
                other => break other.expect("epoll"),
            }
        };
        events.iter().for_each(|event| ready(index(event.data.u64())));
    }
}

/// Multishot polls and nothing else: the bare interface, without the page that the service keeps.
struct Ring(PollRing, usize);

impl Ring {
    fn new(fds: &[OwnedFd]) -> Self {
        let mut ring = PollRing::new(32_768).expect("io_uring");
        for (at, fd) in (0..).zip(fds) {
            ring.watch(fd.as_raw_fd(), true, false, at).expect("io_uring");
        }
        ring.submit().expect("io_uring");
        Ring(ring, fds.len())
    }
}

impl Watch for Ring {
    fn collect(&mut self, ready: &mut dyn FnMut(usize)) {
        self.0.wait(None).expect("io_uring");
        self.0.harvest(|found| {
            assert_eq!(found.after, After::Watched, "the ring is large enough");
            ready(index(found.token));
        });
    }

    fn end(&mut self) {
        (0..self.1 as u64).for_each(|at| self.0.unwatch(at).expect("io_uring"));
        self.0.submit().expect("io_uring");
        while self.0.harvest(drop) {}
    }
}

struct Service<'a>(Poller, &'a [OwnedFd]);

impl<'a> Service<'a> {
    fn new(fds: &'a [OwnedFd], feed: Feed) -> Self {
        let mut poller = Poller::fed_by(feed).expect("a poller");
        for (at, fd) in fds.iter().enumerate() {
            poller.add(fd, at, Interest::Readable).expect("below 65,536");
        }
        poller.try_next();
        // The thread has armed all descriptors once it reports the last one, so the last one must
        // be ready.
        rustix::io::write(&fds[fds.len() - 1], &1u64.to_ne_bytes()).expect("eventfd");
        let last = poller.wait(None).expect("io_uring").map(|event| event.key);
        assert_eq!(last, Some(fds.len() - 1));
        read(&fds[fds.len() - 1]);
        Service(poller, fds)
    }
}

impl Watch for Service<'_> {
    fn collect(&mut self, ready: &mut dyn FnMut(usize)) {
        let mut next = self.0.wait(None).expect("io_uring");
        while let Some(event) = next {
            ready(event.key);
            next = self.0.try_next();
        }
    }

    fn end(&mut self) {
        self.1.iter().for_each(|fd| self.0.delete(fd).expect("it was added"));
        self.0.try_next();
    }
}

fn index(data: u64) -> usize {
    usize::try_from(data).expect("an index")
}

/// Whether the eventfd had a value. One call suffices, because a read empties an eventfd.
fn read(fd: &OwnedFd) -> bool {
    rustix::io::read(fd, &mut [0; 8]).is_ok()
}

fn write(fd: &OwnedFd) {
    rustix::io::write(fd, &1u64.to_ne_bytes()).expect("eventfd");
}

/// The rows of the tables. The first row is subtracted from all others.
const VARIANTS: [&str; 9] = [
    "no watching",
    "select",
    "poll",
    "epoll, level",
    "epoll, edge",
    "plain io_uring",
    "service, own ring",
    "service, thread in io_uring",
    "service, thread in epoll",
];
const SELECT: usize = 1;
const POLL: usize = 2;
/// The row to which the ratios refer.
const BASE: usize = 3;

fn watch<'a>(variant: usize, fds: &'a [OwnedFd]) -> Option<Box<dyn Watch + 'a>> {
    let level = epoll::EventFlags::IN;
    Some(match variant {
        0 => return None,
        SELECT => Box::new(Select::new(fds)),
        POLL => Box::new(Poll(
            fds.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect(),
        )),
        3 => Box::new(Epoll::new(fds, level)),
        4 => Box::new(Epoll::new(fds, level | epoll::EventFlags::ET)),
        5 => Box::new(Ring::new(fds)),
        6 => Box::new(Service::new(fds, Feed::Ring)),
        7 => Box::new(Service::new(fds, Feed::RingThread)),
        _ => Box::new(Service::new(fds, Feed::EpollThread)),
    })
}

/// The thread that writes.
#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// The loop's own thread, before it looks for events.
    Loop,
    /// A thread on the other CPU, while the loop waits.
    Other,
}

struct Scene {
    title: &'static str,
    writer: Writer,
    /// Descriptors that become ready in a round.
    batch: usize,
    rounds: usize,
}

const SCENES: [Scene; 4] = [
    Scene {
        title: "100 at once, written by the loop's thread",
        writer: Writer::Loop,
        batch: 100,
        rounds: 100,
    },
    Scene {
        title: "one at a time, written by the loop's thread",
        writer: Writer::Loop,
        batch: 1,
        rounds: 1_000,
    },
    Scene {
        title: "100 at once, written on the other CPU",
        writer: Writer::Other,
        batch: 100,
        rounds: 100,
    },
    Scene {
        title: "one at a time, written on the other CPU",
        writer: Writer::Other,
        batch: 1,
        rounds: 1_000,
    },
];

fn main() {
    println!("{}", heading("io_events"));
    let wanted = (IDLE + ACTIVE + 100) as u64;
    let limit = raise_limit().expect("RLIMIT_NOFILE");
    assert!(limit >= wanted, "{limit} descriptors are allowed, {wanted} are needed");
    let fds: Arc<[OwnedFd]> =
        (0..IDLE + ACTIVE).map(|_| eventfd(0, EventfdFlags::NONBLOCK).expect("eventfd")).collect();
    println!("descriptors: {IDLE} idle and {ACTIVE} active eventfds");
    println!(
        "select: with sets as long as needed, not the C library's, which end at descriptor 1023"
    );
    let cpus = allowed_cpus().expect("sched_getaffinity");
    if let [_, .., last] = cpus[..] {
        // The thread of a service runs on the CPU of the thread that starts it, which is the
        // loop's.
        pin_thread(&[last]).expect("sched_setaffinity");
    }
    let blocks = if smoke() { 1 } else { 11 };
    for scene in &SCENES {
        if scene.writer == Writer::Other && cpus.len() < 2 {
            println!("\n{}: needs a second CPU", scene.title);
            continue;
        }
        let mut samples = BTreeMap::<usize, Vec<f64>>::new();
        for block in 0..blocks {
            for turn in 0..VARIANTS.len() {
                let variant = (turn + block) % VARIANTS.len();
                // This variant knows the ready descriptors, but not when they become ready. It
                // would spin.
                if variant == 0 && scene.writer == Writer::Other {
                    continue;
                }
                let mut watch = watch(variant, &fds);
                let cost = measure(scene, variant, watch.as_deref_mut(), &fds, cpus[0]);
                if let Some(mut watch) = watch {
                    watch.end();
                }
                samples.entry(variant).or_default().push(cost);
            }
        }
        print(scene, &samples);
    }
    println!("\n{CONTENTS}");
}

const CONTENTS: &str = "\
what a row contains
  first columns  the write (if the loop does it), the waiting and looking for events, and the
                 read: CPU time of all threads except the writer
  /epoll         the row minus the row `no watching`, over the same of `epoll, level`, by the
                 medians of a block; the three columns are p10, median and p90 of these ratios";

/// The descriptor of the `nth` active one. Active descriptors lie among the idle ones.
fn active(nth: usize) -> usize {
    nth % ACTIVE * (IDLE + ACTIVE) / ACTIVE
}

/// CPU nanoseconds for an event.
fn measure(
    scene: &Scene,
    variant: usize,
    watch: Option<&mut (dyn Watch + '_)>,
    fds: &Arc<[OwnedFd]>,
    cpu: u32,
) -> f64 {
    let rounds = if smoke() { scene.rounds / 10 } else { scene.rounds };
    // Each call of select or poll scans all descriptors, so a twentieth of the rounds takes long
    // enough.
    let rounds = if [SELECT, POLL].contains(&variant) { rounds.div_ceil(20) } else { rounds };
    let go = Arc::new(AtomicU64::new(0));
    let writer =
        (scene.writer == Writer::Other).then(|| start_writer(scene.batch, rounds, fds, &go, cpu));
    let own = scene.writer == Writer::Loop;
    let before = process_cpu_ns(std::process::id()).expect("its clock");
    rounds_of(rounds, scene.batch, watch, fds, |round| {
        if own {
            (0..scene.batch).for_each(|nth| write(&fds[active(round * scene.batch + nth)]));
        } else {
            // Pairs with the Acquire of the writer.
            go.store(round as u64 + 1, Ordering::Release);
        }
    });
    let after = process_cpu_ns(std::process::id()).expect("its clock");
    let writer_ns = writer.map_or(0, |writer| writer.join().expect("the writer does not panic"));
    after.saturating_sub(before).saturating_sub(writer_ns) as f64 / (rounds * scene.batch) as f64
}

fn rounds_of(
    rounds: usize,
    batch: usize,
    mut watch: Option<&mut (dyn Watch + '_)>,
    fds: &[OwnedFd],
    mut write_all: impl FnMut(usize),
) {
    for round in 0..rounds {
        write_all(round);
        let mut left = batch;
        match &mut watch {
            Some(watch) => {
                while left > 0 {
                    watch.collect(&mut |at| left -= usize::from(read(&fds[at])));
                }
            }
            None => (0..batch).for_each(|nth| {
                read(&fds[active(round * batch + nth)]);
            }),
        }
    }
}

/// Starts the writer. Its result is its own CPU time.
fn start_writer(
    batch: usize,
    rounds: usize,
    fds: &Arc<[OwnedFd]>,
    go: &Arc<AtomicU64>,
    cpu: u32,
) -> std::thread::JoinHandle<u64> {
    let (fds, go) = (fds.clone(), go.clone());
    std::thread::spawn(move || {
        pin_thread(&[cpu]).expect("sched_setaffinity");
        for round in 0..rounds {
            // Pairs with the Release of the loop.
            while go.load(Ordering::Acquire) <= round as u64 {
                std::hint::spin_loop();
            }
            (0..batch).for_each(|nth| write(&fds[active(round * batch + nth)]));
        }
        thread_cpu_ns()
    })
}

fn print(scene: &Scene, samples: &BTreeMap<usize, Vec<f64>>) {
    println!("\n{}", scene.title);
    println!(
        "{:<30} {:>9} {:>9} {:>9}   {:>7} {:>7} {:>7}",
        "CPU ns for an event", "p10", "median", "p90", "/epoll", "median", "p90"
    );
    let less = |variant: usize, block: usize| {
        samples[&variant][block] - samples.get(&0).map_or(0.0, |bare| bare[block])
    };
    for (&variant, found) in samples {
        let name = VARIANTS[variant];
        let [p10, median, p90] = three(found.iter().copied());
        print!("{name:<30} {p10:>9.0} {median:>9.0} {p90:>9.0}");
        if variant > 0 {
            let ratios = (0..found.len()).map(|block| less(variant, block) / less(BASE, block));
            let [p10, median, p90] = three(ratios);
            print!("   {p10:>7.2} {median:>7.2} {p90:>7.2}");
        }
        println!();
    }
}

/// The tenth, the fiftieth and the ninetieth percentile.
fn three(samples: impl Iterator<Item = f64>) -> [f64; 3] {
    // The percentile works on whole numbers, so values are in thousandths. Only noise makes one
    // negative.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small, and not negative"
    )]
    let mut samples: Vec<u64> = samples.map(|sample| (sample.max(0.0) * 1_000.0) as u64).collect();
    [10.0, 50.0, 90.0].map(|percent| percentile(&mut samples, percent) as f64 / 1_000.0)
}
