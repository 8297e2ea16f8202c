//! The cost of moving a message through a stream, in each form. The bench compares it with a pipe,
//! a UNIX socket, `rtrb` in one process, iceoryx2, and plain copying. All run between two threads,
//! in one run.
//!
//! *Same core*: both threads are on one CPU. An end with nothing to do sleeps until a batch is
//! there, by futex. `rtrb` and iceoryx2 cannot sleep and yield instead. *Cross core*: the threads
//! are on two CPUs. Pipe and socket block; all others poll. One write to a pipe or socket is one
//! message, or a batch: `gathered` writes a batch that lies in one piece, and `writev` passes
//! messages that lie apart by writev(2) and readv(2). With `room` the pipe's buffer is as large as
//! the rings of the others (F_SETPIPE_SZ). The fastest pipe of a case is the one of the ratios, and
//! the streams are judged by it. The forms that copy move all bytes in and out. The forms in place
//! touch one word of the message at each end. The threads belong to one process, so no row contains
//! the change of address space between two domains on one CPU.
//!
//! A ring has room for two batches, but for at least 64 KiB (as a pipe has) and at most 512 KiB. A
//! larger ring leaves the cache of a CPU (1 MiB here) between writing and reading, while a pipe
//! does not. If a batch is more than half of its ring, a stream hands over a quarter of the ring at
//! a time, and gives back as much, so that both ends work at the same time. The others hand over
//! each message.
//!
//! iceoryx2 takes part only with `--features iceoryx2`, because it takes a minute to build. All
//! rows of a case take turns, block by block. The bench asserts nothing, because the machine is
//! shared. Read the ratios.

#![forbid(unsafe_code)]

use std::hint::{black_box, spin_loop};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use upcall::default_cpus;
use upcall_benches::{heading, percentile, smoke};
use upcall_shm::stream::{Reader, Stream, StreamForm, WAITING, Writer};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::{futex, schedule};

mod case;
#[cfg(feature = "iceoryx2")]
mod iceoryx;
mod verdict;

use case::{BATCHES, Case, PIPES, RING_BYTES_MAX, SAMPLES, SIZES, pause};
use verdict::Medians;

/// The most parts of one writev(2) or readv(2), IOV_MAX.
const PARTS_MAX: usize = 1024;
/// The number of turns of each row of a case.
const BLOCKS: usize = 15;
/// A row of a case. The function measures one block.
type Row = (&'static str, fn([u32; 2], Case) -> Vec<u64>);

/// Makes the form for a number of messages of a size.
type MakeForm = fn(u32, u32) -> StreamForm;

const IN_PLACE: [(&str, MakeForm); 2] = [
    ("stream, slots", |slots, slot_bytes| StreamForm::Slots { slots, slot_bytes }),
    ("stream, buffers", |buffers, buffer_bytes| StreamForm::Buffers { buffers, buffer_bytes }),
];

const ROWS: &[Row] = &[
    (PIPES[0], |cpus, case| in_pipe(cpus, case, Calls::Each, false)),
    (PIPES[1], |cpus, case| in_pipe(cpus, case, Calls::Piece, false)),
    (PIPES[2], |cpus, case| in_pipe(cpus, case, Calls::Piece, true)),
    (PIPES[3], |cpus, case| in_pipe(cpus, case, Calls::Parts, true)),
    ("UNIX socket", in_socket),
    ("rtrb, in process", in_rtrb),
    #[cfg(feature = "iceoryx2")]
    ("iceoryx2, copied", iceoryx::copied),
    #[cfg(feature = "iceoryx2")]
    ("iceoryx2, in place", iceoryx::in_place),
    ("stream, bytes", |cpus, case| {
        in_stream(cpus, case, |count, size| StreamForm::Bytes { capacity: count * size })
    }),
    ("stream, messages", |cpus, case| {
        in_stream(cpus, case, |count, size| StreamForm::Messages {
            capacity: (count * (size + 8)).next_power_of_two().min(RING_BYTES_MAX),
        })
    }),
    ("stream, slots", |cpus, case| in_stream(cpus, case, IN_PLACE[0].1)),
    ("stream, buffers", |cpus, case| in_stream(cpus, case, IN_PLACE[1].1)),
    ("memcpy, twice", |_, case| copies(case)),
];

fn main() {
    let cpus = default_cpus().unwrap_or_default();
    let last = cpus.last().copied().unwrap_or(0);
    let other = schedule::allowed_cpus().unwrap_or_default().into_iter().find(|&cpu| cpu != last);
    let features = if cfg!(feature = "iceoryx2") { " --features iceoryx2" } else { "" };
    println!("{}", heading(&format!("stream{features}")));
    println!("times are nanoseconds for one message; ratios of medians\n");
    println!(
        "{:>6} {:>7} {:>6} {:<22} {:>10} {:>10} {:>10} {:>8}",
        "cores", "bytes", "batch", "", "p10", "median", "p90", "/ best"
    );
    let mut medians = Medians::new();
    for (cores, second) in [("same", Some(last)), ("cross", other)] {
        let Some(second) = second else {
            println!("one CPU is allowed: nothing across cores");
            continue;
        };
        for size in SIZES {
            for batch in BATCHES {
                let case = Case::new(size, batch, cores == "cross");
                medians.insert((cores, size, batch), compare(cores, [last, second], case));
            }
        }
    }
    verdict::print(&medians);
    println!("\nin place: nanoseconds for one message of a batch of 16, with room for 32");
    println!("  alike: all units have 64 KiB, so that only the message's size differs");
    println!("  fitted: units have the message's size, so that small messages stand side by side");
    for (cores, second) in [("same", Some(last)), ("cross", other)] {
        let Some(second) = second else { continue };
        for (name, form) in IN_PLACE {
            for fitted in [false, true] {
                independence(cores, [last, second], name, form, fitted);
            }
        }
    }
}

/// Prints the cost of messages of each size, and the ratio of the largest to the smallest.
fn independence(cores: &str, cpus: [u32; 2], name: &str, form: MakeForm, fitted: bool) {
    let cases = SIZES.map(|size| Case { size, batch: 16, polls: cores == "cross", room: 32 });
    let mut samples = SIZES.map(|_| Vec::new());
    let largest = u32::try_from(SIZES[2]).expect("a size of this bench");
    for _ in 0..if smoke() { 1 } else { 3 * BLOCKS } {
        for (case, samples) in cases.into_iter().zip(&mut samples) {
            samples.extend(in_stream(cpus, case, |count, size| {
                form(count, if fitted { size } else { largest })
            }));
        }
    }
    print!("{cores:>6} core {name:<16} {:<6}", if fitted { "fitted" } else { "alike" });
    let medians = samples.map(|mut ps| percentile(&mut ps, 50.0).max(1) as f64);
    for (size, median) in SIZES.iter().zip(medians) {
        print!("  {size} bytes {:.1}", median / 1e3);
    }
    let times = medians[2] / medians[0];
    // Small messages side by side arrive with the prefetch of the neighbouring cache line.
    let verdict = if fitted { "" } else { verdict::holds(times <= 1.2) };
    println!("  {times:.2} times{verdict}");
}

/// Prints a case. Returns the medians of its rows.
fn compare(cores: &str, cpus: [u32; 2], case: Case) -> Vec<(&'static str, u64)> {
    let mut samples = vec![Vec::new(); ROWS.len()];
    for _ in 0..if smoke() { 1 } else { BLOCKS } {
        for ((_, measure), samples) in ROWS.iter().zip(&mut samples) {
            samples.extend(measure(cpus, case));
        }
    }
    let percentiles: Vec<[u64; 3]> = samples
        .iter_mut()
        .map(|samples_ps| [10.0, 50.0, 90.0].map(|percent| percentile(samples_ps, percent)))
        .collect();
    let names = ROWS.iter().map(|row| row.0);
    let medians: Vec<_> = names.zip(percentiles.iter().map(|[_, median, _]| *median)).collect();
    let base = verdict::best_pipe(&medians).map_or(1, |(_, median_ps)| median_ps.max(1));
    for ((name, _), [p10, median, p90]) in ROWS.iter().zip(percentiles) {
        println!(
            "{cores:>6} {:>7} {:>6} {name:<22} {:>10.1} {:>10.1} {:>10.1} {:>8.3}",
            case.size,
            case.batch,
            p10 as f64 / 1e3,
            median as f64 / 1e3,
            p90 as f64 / 1e3,
            median as f64 / base as f64,
        );
    }
    println!();
    medians
}

/// How many messages a system call passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// One.
    Each,
    /// A batch that lies in one piece.
    Piece,
    /// A batch whose messages have memory of their own, at most [`PARTS_MAX`].
    Parts,
}

/// A pipe. `room`: its buffer has the size of the rings of the other forms, where the system allows
/// that (fcntl(2), F_SETPIPE_SZ).
fn in_pipe(cpus: [u32; 2], case: Case, calls: Calls, room: bool) -> Vec<u64> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    if room {
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, case.room * case.size);
    }
    by_file(cpus, case, writer, reader, calls)
}

fn in_socket(cpus: [u32; 2], case: Case) -> Vec<u64> {
    let (writer, reader) = UnixStream::pair().expect("a pair of sockets");
    by_file(cpus, case, writer, reader, Calls::Each)
}

fn by_file(
    cpus: [u32; 2],
    case: Case,
    mut writer: impl Write + Send,
    mut reader: impl Read + Send,
    calls: Calls,
) -> Vec<u64> {
    let together = case.batch.min(PARTS_MAX);
    let (out, mut into) = (vec![7; case.size * case.batch], vec![0; case.size * case.batch]);
    let mut parts_in = vec![vec![0; case.size]; together];
    let send = move |message: &[u8], batch: usize| match calls {
        Calls::Each => (0..batch).for_each(|_| writer.write_all(message).expect("a reader")),
        Calls::Piece => writer.write_all(&out).expect("a reader"),
        Calls::Parts => (0..batch / together).for_each(|_| {
            let mut parts = vec![IoSlice::new(message); together];
            let mut parts = parts.as_mut_slice();
            while !parts.is_empty() {
                let written = writer.write_vectored(parts).expect("a reader");
                IoSlice::advance_slices(&mut parts, written);
            }
        }),
    };
    let receive = move |message: &mut [u8], batch: usize| match calls {
        Calls::Each => (0..batch).for_each(|_| reader.read_exact(message).expect("a writer")),
        Calls::Piece => reader.read_exact(&mut into).expect("a writer"),
        Calls::Parts => (0..batch / together).for_each(|_| {
            let mut parts: Vec<_> = parts_in.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            let mut parts = parts.as_mut_slice();
            while !parts.is_empty() {
                let read = reader.read_vectored(parts).expect("a writer");
                IoSliceMut::advance_slices(&mut parts, read);
            }
        }),
    };
    case.run(cpus, || Box::new(send), || Box::new(receive))
}

fn in_rtrb(cpus: [u32; 2], case: Case) -> Vec<u64> {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u8>::new(case.room * case.size);
    let send = move |message: &[u8], batch| {
        for _ in 0..batch {
            while producer.push_entire_slice(message).is_err() {
                pause(case);
            }
        }
    };
    let receive = move |message: &mut [u8], batch| {
        for _ in 0..batch {
            while consumer.pop_entire_slice(message).is_err() {
                pause(case);
            }
        }
    };
    case.run(cpus, || Box::new(send), || Box::new(receive))
}

fn in_stream(cpus: [u32; 2], case: Case, form: impl Fn(u32, u32) -> StreamForm) -> Vec<u64> {
    let small = |number| u32::try_from(number).expect("a size of this bench");
    let form = form(small(case.room), small(case.size));
    let bytes = form.words().expect("a size of this bench") * 8;
    let memory = SharedMapping::create("upcall-stream", bytes).expect("shared memory");
    let words = memory.words();
    let _ = Stream::create(words, form, 1, 0).expect("new memory");
    let end = || Stream::attach(words, 1).expect("a stream");
    let mut writer = end().writer().expect("the only one");
    let mut reader = end().reader().expect("the only one");
    let kind = match form {
        StreamForm::Bytes { .. } => Kind::Bytes,
        StreamForm::Messages { .. } => Kind::Messages,
        _ => Kind::InPlace,
    };
    let unit = match kind {
        Kind::Bytes => case.size,
        Kind::Messages => case.size + 8,
        Kind::InPlace => 1,
    };
    let part = case.part();
    let send = move |message: &[u8], batch: usize| {
        for left in (0..batch).rev() {
            while !write(&mut writer, message, kind) {
                // Waits for the rest of the batch, or for half of the ring, as the reader does.
                wait_for_room(&mut writer, case, ((left + 1).min(case.room / 2) * unit) as u64);
            }
            if left % part == 0 && writer.commit().expect("the reader is there").wake {
                wake(writer.peer_wait_word());
            }
        }
    };
    let receive = move |message: &mut [u8], batch: usize| {
        for left in (0..batch).rev() {
            while !read(&mut reader, message, kind) {
                // Waits for the rest of the batch, or for half of the ring. A writer without room
                // commits a part, and a message that does not fit leaves some room unused.
                wait_for_data(&mut reader, case, ((left + 1).min(case.room / 2) * unit) as u64);
            }
            if left % part == 0 && reader.release().wake {
                wake(reader.peer_wait_word());
            }
        }
    };
    case.run(cpus, || Box::new(send), || Box::new(receive))
}

/// The way in which bytes get in and out.
#[derive(Clone, Copy)]
enum Kind {
    /// Copied. The reader knows how many bytes make a message.
    Bytes,
    /// Copied.
    Messages,
    /// One word of each message is touched.
    InPlace,
}

fn write(writer: &mut Writer<&[AtomicU64]>, message: &[u8], kind: Kind) -> bool {
    let Kind::InPlace = kind else {
        return writer.push(message).expect("the reader is there");
    };
    let Some(room) = writer.reserve(message.len()).expect("the reader is there") else {
        return false;
    };
    if let Some(words) = room.payload().words() {
        words[0].store(7, Relaxed);
    }
    room.stage(message.len());
    true
}

fn read(reader: &mut Reader<&[AtomicU64]>, into: &mut [u8], kind: Kind) -> bool {
    if let Kind::Messages = kind {
        return reader.pop(into).expect("the writer is there").is_some();
    }
    let Some(message) = reader.front().expect("the writer is there") else { return false };
    if let Kind::Bytes = kind {
        if message.len() < into.len() {
            return false;
        }
        message.payload().copy_to(0, into);
        message.done_with(into.len());
        return true;
    }
    black_box(message.payload().words().map(|words| words[0].load(Relaxed)));
    message.done();
    true
}

fn wait_for_room(writer: &mut Writer<&[AtomicU64]>, case: Case, units: u64) {
    if case.polls {
        // The staged messages may fill the ring.
        let _ = writer.commit().expect("the reader is there");
        return spin_loop();
    }
    let wait = writer.wait_for(units);
    if wait.due.wake {
        wake(writer.peer_wait_word());
    }
    if wait.sleep {
        futex::wait_shared_until(writer.wait_word(), WAITING, None);
    }
    writer.finish_wait();
}

fn wait_for_data(reader: &mut Reader<&[AtomicU64]>, case: Case, units: u64) {
    if case.polls {
        let _ = reader.release();
        return spin_loop();
    }
    let wait = reader.wait(units);
    if wait.due.wake {
        wake(reader.peer_wait_word());
    }
    if wait.sleep {
        futex::wait_shared_until(reader.wait_word(), WAITING, None);
    }
    reader.finish_wait();
}

fn wake(word: &AtomicU64) {
    futex::wake_shared(word, 1);
}

/// Copies in and out through memory as large as the rings. No form that copies can be faster.
fn copies(case: Case) -> Vec<u64> {
    let samples = if smoke() { 2 } else { SAMPLES };
    let (from, mut into) = (vec![7u8; case.size], vec![0u8; case.size]);
    let mut ring = vec![0u8; case.size * case.room];
    let messages = case.batches() * case.batch;
    (0..samples)
        .map(|_| {
            let begun = Instant::now();
            for number in 0..messages {
                let at = number % case.room * case.size;
                let place = &mut ring[at..at + case.size];
                black_box(&mut *place).copy_from_slice(black_box(&from));
                black_box(&mut into).copy_from_slice(black_box(&*place));
            }
            let ps = begun.elapsed().as_nanos() * 1_000;
            u64::try_from(ps / messages as u128).unwrap_or(u64::MAX)
        })
        .collect()
}
