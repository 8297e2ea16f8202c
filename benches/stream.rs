//! What it costs to move a message by a stream, in each of its ways, against a pipe, a UNIX
//! socket, `rtrb` in process, and the copying alone; one run, two threads.
//!
//! Same core: both threads on one CPU; who finds nothing sleeps until a batch is there (by
//! futex; `rtrb`, which cannot, yields). Cross core: two CPUs; streams and `rtrb` poll, pipe
//! and socket block. One write of a pipe or socket is one message, or (`gathered`) a batch. Copied
//! ways copy all bytes in and out, those in place touch one word of the message at each end. Threads
//! of one process: the change of address space that two domains on one CPU pay is in no row.
//!
//! Nothing here is asserted: the machine is shared. Read the ratios.

#![forbid(unsafe_code)]

use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use upcall::default_cpus;
use upcall_benches::{heading, percentile, smoke};
use upcall_shm::stream::{Reader, Stream, WAITING, Way, Writer};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::{futex, schedule};

const SIZES: [usize; 3] = [64, 1 << 10, 64 << 10];
const BATCHES: [usize; 3] = [1, 16, 256];
/// What the ratios are to.
const BASE: &str = "pipe";

/// One end that writes: a batch of equal messages, all of them.
type Send<'a> = Box<dyn FnMut(&[u8], usize) + std::marker::Send + 'a>;
/// One end that reads: a batch, into a buffer for one message.
type Receive<'a> = Box<dyn FnMut(&mut [u8], usize) + std::marker::Send + 'a>;

/// One measurement.
#[derive(Clone, Copy)]
struct Case {
    size: usize,
    batch: usize,
    /// Who finds nothing looks again and does not sleep.
    polls: bool,
}

fn main() {
    let cpus = default_cpus().unwrap_or_default();
    let last = cpus.last().copied().unwrap_or(0);
    let other = schedule::allowed_cpus().unwrap_or_default().into_iter().find(|&cpu| cpu != last);
    println!("{}", heading("stream"));
    println!("times are nanoseconds for one message; ratios of medians\n");
    println!(
        "{:>6} {:>7} {:>6} {:<22} {:>10} {:>10} {:>10} {:>8}",
        "cores", "bytes", "batch", "", "p10", "median", "p90", "/ pipe"
    );
    for (cores, second) in [("same", Some(last)), ("cross", other)] {
        let Some(second) = second else {
            println!("one CPU is allowed: nothing across cores");
            continue;
        };
        for size in SIZES {
            for batch in BATCHES {
                compare(cores, [last, second], Case { size, batch, polls: cores == "cross" });
            }
        }
    }
}

fn compare(cores: &str, cpus: [u32; 2], case: Case) {
    let mut rows = vec![
        (BASE, in_pipe(cpus, case, false)),
        ("pipe, gathered", in_pipe(cpus, case, true)),
        ("UNIX socket", in_socket(cpus, case)),
        ("rtrb, in process", in_rtrb(cpus, case)),
        (
            "stream, messages",
            in_stream(cpus, case, |count, size| Way::Messages {
                capacity: (count * (size + 8)).next_power_of_two(),
            }),
        ),
        (
            "stream, slots",
            in_stream(cpus, case, |slots, slot_bytes| Way::Slots { slots, slot_bytes }),
        ),
        (
            "stream, buffers",
            in_stream(cpus, case, |buffers, buffer_bytes| Way::Buffers { buffers, buffer_bytes }),
        ),
        ("memcpy, twice", copies(case)),
    ];
    let base = percentile(&mut rows[0].1, 50.0).max(1) as f64;
    for (name, samples_ps) in &mut rows {
        let mut at = |percent| percentile(samples_ps, percent) as f64;
        println!(
            "{cores:>6} {:>7} {:>6} {name:<22} {:>10.1} {:>10.1} {:>10.1} {:>8.3}",
            case.size,
            case.batch,
            at(10.0) / 1e3,
            at(50.0) / 1e3,
            at(90.0) / 1e3,
            at(50.0) / base,
        );
    }
    println!();
}

impl Case {
    /// Messages that find room: two batches, and no fewer than 64 KiB.
    fn room(self) -> usize {
        (2 * self.batch).max((64 << 10) / self.size).next_power_of_two()
    }

    /// Batches of one sample.
    fn batches(self) -> usize {
        let messages = if self.size > 4096 { 256 } else { 4096 };
        (messages / self.batch).max(4)
    }

    /// Moves messages; picoseconds of one, of each sample, as the reader sees them.
    fn run(self, cpus: [u32; 2], mut send: Send<'_>, mut receive: Receive<'_>) -> Vec<u64> {
        let samples = if smoke() { 2 } else { 21 };
        let batches = self.batches();
        // The first warms up.
        let total = (samples + 1) * batches;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                schedule::pin_thread(&cpus[..1]).expect("the CPU is allowed");
                let message = vec![7; self.size];
                (0..total).for_each(|_| send(&message, self.batch));
            });
            let reader = scope.spawn(move || {
                schedule::pin_thread(&cpus[1..]).expect("the CPU is allowed");
                let mut message = vec![0; self.size];
                let mut sample = || {
                    let begun = Instant::now();
                    (0..batches).for_each(|_| receive(&mut message, self.batch));
                    let ps = begun.elapsed().as_nanos() * 1_000;
                    u64::try_from(ps / (batches * self.batch) as u128).unwrap_or(u64::MAX)
                };
                sample();
                (0..samples).map(|_| sample()).collect()
            });
            reader.join().expect("no measurement panics")
        })
    }
}

fn in_pipe(cpus: [u32; 2], case: Case, gathered: bool) -> Vec<u64> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    by_file(cpus, case, writer, reader, gathered)
}

fn in_socket(cpus: [u32; 2], case: Case) -> Vec<u64> {
    let (writer, reader) = UnixStream::pair().expect("a pair of sockets");
    by_file(cpus, case, writer, reader, false)
}

fn by_file(
    cpus: [u32; 2],
    case: Case,
    mut writer: impl Write + std::marker::Send,
    mut reader: impl Read + std::marker::Send,
    gathered: bool,
) -> Vec<u64> {
    let (out, mut into) = (vec![7; case.size * case.batch], vec![0; case.size * case.batch]);
    let send: Send<'_> = Box::new(move |message, batch| match gathered {
        true => writer.write_all(&out).expect("the reader is there"),
        false => (0..batch).for_each(|_| writer.write_all(message).expect("the reader is there")),
    });
    let receive: Receive<'_> = Box::new(move |message, batch| match gathered {
        true => reader.read_exact(&mut into).expect("the writer is there"),
        false => (0..batch).for_each(|_| reader.read_exact(message).expect("the writer is there")),
    });
    case.run(cpus, send, receive)
}

fn in_rtrb(cpus: [u32; 2], case: Case) -> Vec<u64> {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u8>::new(case.room() * case.size);
    let pause = move || if case.polls { spin_loop() } else { std::thread::yield_now() };
    let send: Send<'_> = Box::new(move |message, batch| {
        for _ in 0..batch {
            while producer.push_entire_slice(message).is_err() {
                pause();
            }
        }
    });
    let receive: Receive<'_> = Box::new(move |message, batch| {
        for _ in 0..batch {
            while consumer.pop_entire_slice(message).is_err() {
                pause();
            }
        }
    });
    case.run(cpus, send, receive)
}

fn in_stream(cpus: [u32; 2], case: Case, way: impl Fn(u32, u32) -> Way) -> Vec<u64> {
    let small = |number| u32::try_from(number).expect("a size of this bench");
    let way = way(small(case.room()), small(case.size));
    let bytes = way.words().expect("a size of this bench") * 8;
    let memory = SharedMapping::create("upcall-stream", bytes).expect("shared memory");
    let words = memory.words();
    let _ = Stream::create(words, way, 1, 0).expect("new memory");
    let end = || Stream::attach(words, 1).expect("a stream");
    let mut writer = end().writer().expect("the only one");
    let mut reader = end().reader().expect("the only one");
    let copied = matches!(way, Way::Messages { .. });
    let unit = if copied { case.size + 8 } else { 1 };
    let send: Send<'_> = Box::new(move |message, batch| {
        for _ in 0..batch {
            while !write(&mut writer, message, copied) {
                wait_for_room(&mut writer, case);
            }
        }
        if writer.commit().expect("the reader is there").wake {
            wake(writer.peer_bell());
        }
    });
    let receive: Receive<'_> = Box::new(move |message, batch| {
        for left in (1..=batch).rev() {
            while !read(&mut reader, message, copied) {
                // For the rest of the batch: a writer that found no room committed a part.
                wait_for_data(&mut reader, case, (left * unit) as u64);
            }
        }
        if reader.release().wake {
            wake(reader.peer_bell());
        }
    });
    case.run(cpus, send, receive)
}

fn write(writer: &mut Writer<&[AtomicU64]>, message: &[u8], copied: bool) -> bool {
    if copied {
        return writer.push(message).expect("the reader is there");
    }
    let Some(room) = writer.reserve(message.len()).expect("the reader is there") else {
        return false;
    };
    if let Some(words) = room.span().words() {
        words[0].store(7, Relaxed);
    }
    room.stage(message.len());
    true
}

fn read(reader: &mut Reader<&[AtomicU64]>, into: &mut [u8], copied: bool) -> bool {
    if copied {
        return reader.pop(into).expect("the writer is there").is_some();
    }
    let Some(message) = reader.front().expect("the writer is there") else { return false };
    black_box(message.span().words().map(|words| words[0].load(Relaxed)));
    message.done();
    true
}

fn wait_for_room(writer: &mut Writer<&[AtomicU64]>, case: Case) {
    if case.polls {
        return spin_loop();
    }
    let wait = writer.wait(case.size);
    if wait.due.wake {
        wake(writer.peer_bell());
    }
    if wait.sleep {
        futex::wait_shared_until(writer.bell(), WAITING, None);
    }
    writer.rouse();
}

fn wait_for_data(reader: &mut Reader<&[AtomicU64]>, case: Case, units: u64) {
    if case.polls {
        return spin_loop();
    }
    let wait = reader.wait(units);
    if wait.due.wake {
        wake(reader.peer_bell());
    }
    if wait.sleep {
        futex::wait_shared_until(reader.bell(), WAITING, None);
    }
    reader.rouse();
}

fn wake(bell: &AtomicU64) {
    futex::wake_shared(bell, 1);
}

/// Copying in and out through memory as large as the rings: what no way that copies can beat.
fn copies(case: Case) -> Vec<u64> {
    let samples = if smoke() { 2 } else { 21 };
    let (from, mut into) = (vec![7u8; case.size], vec![0u8; case.size]);
    let mut ring = vec![0u8; case.size * case.room()];
    let messages = case.batches() * case.batch;
    (0..samples)
        .map(|_| {
            let begun = Instant::now();
            for number in 0..messages {
                let at = number % case.room() * case.size;
                let place = &mut ring[at..at + case.size];
                black_box(&mut *place).copy_from_slice(black_box(&from));
                black_box(&mut into).copy_from_slice(black_box(&*place));
            }
            let ps = begun.elapsed().as_nanos() * 1_000;
            u64::try_from(ps / messages as u128).unwrap_or(u64::MAX)
        })
        .collect()
}
