//! Reads messages that are already there, and goes on to the next. No variant waits.
//!
//! All readers are in this process, on one CPU, in `SCHED_FIFO`. Where several take turns, each has
//! its own stream or pipe, and the next message always belongs to another reader. The bench asserts
//! this.

use std::future::poll_fn;
use std::hint::black_box;
use std::io::{PipeReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rustix::event::epoll;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use upcall::stream::{Stream, StreamForm, StreamReader, StreamWriter};
use upcall::time::Span;
use upcall::{Batch, FIFO_PRIORITY, HandlerId, Runtime, clock};
use upcall_sys::clock::monotonic_ns;
use upcall_sys::schedule;

use crate::reader::{MESSAGE_BYTES, config, need};

/// Readers that take turns.
const READERS: usize = 8;
/// Messages of each reader: 64,000 bytes, as many as a pipe has room for.
const MESSAGES: usize = 1_000;
/// Messages of one sample.
const STRETCH: u64 = 125;
/// The least gap between two messages that handlers here declare, in ns. So they are never ahead of
/// time.
const GAP_NS: u64 = 100;

/// Picoseconds for one message, of each sample.
pub type Measure = fn(u32) -> Vec<u64>;

/// Rows of the table.
pub const ROWS: [(&str, Measure); 9] = [
    ("stream: next message of the upcall, proceed()", one_upcall),
    ("stream: a message an upcall, 8 handlers in turn", handlers_in_turn),
    ("stream: a message and time_advance(), 8 tasks in turn", tasks_in_turn),
    ("thread: read(2) of a pipe", |cpu| alone(cpu, read_pipe)),
    (THREADS, threads_in_turn),
    ("thread: read(2), and a call to change its priority", |cpu| alone(cpu, read_and_rank)),
    ("thread: recv(2) of a UNIX socket", |cpu| alone(cpu, read_socket)),
    ("epoll: epoll_wait, read(2) of a pipe", |cpu| alone(cpu, read_by_epoll)),
    ("tokio: read of a pipe, yield_now(), 8 tasks in turn", tokio_in_turn),
];
/// The work of the paper's threads for a message.
pub const THREADS: &str = "thread: read(2), sched_yield(2), 8 threads in turn";

/// Counts messages, and records the time of each stretch of them.
#[derive(Default)]
struct Meter {
    messages: AtomicU64,
    turns: AtomicU64,
    last: AtomicU64,
    begun_ns: AtomicU64,
    samples_ps: Mutex<Vec<u64>>,
}

impl Meter {
    /// Records that reader `me` is done with a message. No two calls overlap, because all readers
    /// are on one CPU and none interrupts another.
    #[inline]
    fn note(&self, me: u64) {
        // All operations are Relaxed, for the reason above.
        let messages = self.messages.load(Relaxed) + 1;
        self.messages.store(messages, Relaxed);
        if self.last.load(Relaxed) != me {
            self.last.store(me, Relaxed);
            self.turns.store(self.turns.load(Relaxed) + 1, Relaxed);
        }
        if messages % STRETCH == 1 {
            let now_ns = monotonic_ns();
            let begun_ns = self.begun_ns.load(Relaxed);
            self.begun_ns.store(now_ns, Relaxed);
            if messages > 1 {
                let ps = (now_ns - begun_ns) * 1_000 / STRETCH;
                self.samples_ps.lock().expect("no measurement panics").push(ps);
            }
        }
    }

    /// Waits until all messages were read. Returns the samples.
    fn samples(&self, readers: usize) -> Vec<u64> {
        while self.messages.load(Relaxed) < (readers * MESSAGES) as u64 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (turns, messages) = (self.turns.load(Relaxed), self.messages.load(Relaxed));
        // In tokio the last reader of a round is the first of the next.
        assert!(readers == 1 || turns * 10 >= messages * 8, "{turns} turns of {messages} messages");
        std::mem::take(&mut self.samples_ps.lock().expect("no measurement panics"))
    }
}

/// A stream that holds all messages. It lives as long as the writer.
fn filled_stream() -> (StreamWriter, StreamReader) {
    let (slots, slot_bytes) = (1_024, u32::try_from(MESSAGE_BYTES).expect("small"));
    let stream = Stream::create(StreamForm::Slots { slots, slot_bytes }, 0).expect("memory");
    let mut writer = stream.writer().expect("a new stream");
    for _ in 0..MESSAGES {
        assert!(writer.push(&[7; MESSAGE_BYTES]).expect("the other end is there"), "there is room");
    }
    writer.commit().expect("the other end is there");
    (writer, stream.reader().expect("a new stream"))
}

fn filled_pipe() -> (impl Write, PipeReader) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[7; MESSAGES * MESSAGE_BYTES]).expect("the queue has room");
    (writer, reader)
}

fn touch(reader: &mut StreamReader, batch: &mut Batch<'_>) -> bool {
    let Some(message) = reader.next(batch) else { return false };
    black_box(message.payload().words().map(|words| words[0].load(Relaxed)));
    message.done();
    true
}

fn one_upcall(cpu: u32) -> Vec<u64> {
    let mut runtime = Runtime::start(config(cpu)).expect("the CPU is allowed");
    let (writer, reader) = filled_stream();
    let meter = Arc::new(Meter::default());
    let mine = meter.clone();
    let whole = u32::try_from(MESSAGES).expect("small");
    let handler = move |reader: &mut StreamReader, batch: &mut Batch<'_>| {
        while touch(reader, batch) {
            mine.note(0);
        }
    };
    let created = runtime.stream_reader_handler(
        "all",
        need(GAP_NS * u64::from(whole), whole),
        reader,
        1,
        handler,
    );
    runtime.run(created.expect("unscreened")).expect("the executor runs");
    let samples = meter.samples(1);
    runtime.stop(|_, _| {});
    drop(writer);
    samples
}

fn handlers_in_turn(cpu: u32) -> Vec<u64> {
    in_turn(cpu, |runtime, nth, reader, meter| {
        let name = format!("h{nth}");
        runtime
            .stream_reader_handler(&name, need(GAP_NS, 1), reader, 1, move |reader, batch| {
                if touch(reader, batch) {
                    meter.note(nth);
                }
            })
            .expect("unscreened")
    })
}

fn tasks_in_turn(cpu: u32) -> Vec<u64> {
    in_turn(cpu, |runtime, nth, mut reader, meter| {
        let task = async move |task: upcall::Task| {
            let mut critical = clock::now();
            while let Ok(Some(message)) = reader.front() {
                black_box(message.payload().words().map(|words| words[0].load(Relaxed)));
                message.done();
                reader.release();
                meter.note(nth);
                critical += Span::from_nanos(GAP_NS);
                task.time_advance(critical).await;
            }
        };
        runtime.task(&format!("t{nth}"), need(GAP_NS, 1), task).expect("unscreened")
    })
}

fn in_turn(
    cpu: u32,
    mut create: impl FnMut(&mut Runtime, u64, StreamReader, Arc<Meter>) -> HandlerId,
) -> Vec<u64> {
    let mut runtime = Runtime::start(config(cpu)).expect("the CPU is allowed");
    let meter = Arc::new(Meter::default());
    let (mut writers, mut ids) = (Vec::new(), Vec::new());
    for nth in 0..READERS as u64 {
        let (writer, reader) = filled_stream();
        writers.push(writer);
        ids.push(create(&mut runtime, nth, reader, meter.clone()));
    }
    let at = clock::now() + Span::from_millis(1);
    runtime.run_at(&ids, at).expect("the executor runs");
    let samples = meter.samples(READERS);
    runtime.stop(|_, _| {});
    samples
}

fn prepare(cpu: u32) {
    schedule::pin_thread(&[cpu]).expect("the CPU is allowed");
    // `main` reports a refusal.
    let _ = schedule::set_fifo(FIFO_PRIORITY);
}

/// Measures one thread.
fn alone(cpu: u32, read_all: fn(&Meter)) -> Vec<u64> {
    let meter = Meter::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            prepare(cpu);
            read_all(&meter);
        });
    });
    meter.samples(1)
}

fn read_pipe(meter: &Meter) {
    let (_writer, mut reader) = filled_pipe();
    read(&mut reader, || meter.note(0));
}

fn read_and_rank(meter: &Meter) {
    let (_writer, mut reader) = filled_pipe();
    let mut rank = 0;
    read(&mut reader, || {
        // A call as for a deadline that differs from the last.
        rank = 1 - rank;
        let _ = black_box(schedule::set_fifo(FIFO_PRIORITY + rank));
        meter.note(0);
    });
}

fn read_socket(meter: &Meter) {
    let (mut writer, mut reader) =
        std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    // A message takes more space in a socket, so not all fit at once.
    let mut message = [0; MESSAGE_BYTES];
    for _ in 0..MESSAGES as u64 / STRETCH {
        for _ in 0..STRETCH {
            writer.write_all(&[7; MESSAGE_BYTES]).expect("the queue has room");
        }
        let begun_ns = monotonic_ns();
        for _ in 0..STRETCH {
            reader.read_exact(&mut message).expect("the peer is there");
        }
        let ps = (monotonic_ns() - begun_ns) * 1_000 / STRETCH;
        meter.samples_ps.lock().expect("no measurement panics").push(ps);
    }
    meter.messages.store(MESSAGES as u64, Relaxed);
}

fn read_by_epoll(meter: &Meter) {
    let (_writer, mut reader) = filled_pipe();
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let data = epoll::EventData::new_u64(0);
    epoll::add(&set, &reader, data, epoll::EventFlags::IN).expect("epoll");
    let no_time = rustix::time::Timespec::default();
    read(&mut reader, || {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 16];
        // After the last message no event is there.
        black_box(epoll::wait(&set, &mut events, Some(&no_time)).is_ok());
        meter.note(0);
    });
}

/// Reads all messages, and calls `then` after each.
fn read(reader: &mut impl Read, mut then: impl FnMut()) {
    let mut message = [0; MESSAGE_BYTES];
    for _ in 0..MESSAGES {
        reader.read_exact(&mut message).expect("the peer is there");
        black_box(message[0]);
        then();
    }
}

fn threads_in_turn(cpu: u32) -> Vec<u64> {
    let (meter, together) = (Meter::default(), Barrier::new(READERS));
    std::thread::scope(|scope| {
        for nth in 0..READERS as u64 {
            let (meter, together) = (&meter, &together);
            scope.spawn(move || {
                prepare(cpu);
                let (_writer, mut reader) = filled_pipe();
                together.wait();
                read(&mut reader, || {
                    meter.note(nth);
                    std::thread::yield_now();
                });
            });
        }
    });
    meter.samples(READERS)
}

fn tokio_in_turn(cpu: u32) -> Vec<u64> {
    let meter = Arc::new(Meter::default());
    let mine = meter.clone();
    let thread = std::thread::spawn(move || {
        prepare(cpu);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("epoll").block_on(async {
            let tasks: Vec<_> = (0..READERS as u64)
                .map(|nth| {
                    let (writer, reader) = filled_pipe();
                    let meter = mine.clone();
                    let fd = OwnedFd::from(reader);
                    rustix::io::ioctl_fionbio(&fd, true).expect("a pipe");
                    let mut pipe = Receiver::from_owned_fd(fd).expect("a pipe");
                    tokio::spawn(async move {
                        let _writer = writer;
                        for _ in 0..MESSAGES {
                            let mut message = [0; MESSAGE_BYTES];
                            let mut into = ReadBuf::new(&mut message);
                            let read = poll_fn(|context| {
                                Pin::new(&mut pipe).poll_read(context, &mut into)
                            });
                            read.await.expect("the writer is there");
                            black_box(into.filled().len());
                            meter.note(nth);
                            tokio::task::yield_now().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("no task panics");
            }
        });
    });
    thread.join().expect("no measurement panics");
    meter.samples(READERS)
}
