//! Handlers that read streams, on real threads and in several processes: order, counts, and that
//! nothing committed is lost. The tests do not check deadlines, which depend on the machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use upcall_runtime::activity::{Terms, WorkClass};
use upcall_runtime::discipline::{DWS, Discipline, PS, RMDP};
use upcall_runtime::stream::{
    Closed, End, Stream, StreamListener, StreamListenerError, StreamReader, StreamWriter,
};
use upcall_runtime::time::{Instant, Span};
use upcall_runtime::{Config, CreateError, Interrupt, Mode, Runtime, clock};
use upcall_sys::process::{self, Child, Exit, PidFd, SpawnOptions};

use support::{SLOTS, a_minute, cpu, ended, every_us};

fn start(mode: Mode, discipline: &'static Discipline) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { mode, cpus: vec![cpu()], discipline, ..Config::default() })
}

fn write(writer: &mut StreamWriter, number: u64) -> Result<(), Closed> {
    while !writer.push(&number.to_ne_bytes()).unwrap_or(false) {
        writer.commit()?;
        assert!(writer.wait(8, a_minute()), "the reader never made room");
    }
    writer.commit()
}

/// The next number, if there is one.
fn read(reader: &mut StreamReader) -> Option<u64> {
    let mut bytes = [0; 8];
    matches!(reader.pop(&mut bytes), Ok(Some(8))).then(|| u64::from_ne_bytes(bytes))
}

/// What a handler saw: the number of messages in each upcall, and their numbers.
#[derive(Debug, Default)]
struct Seen {
    counts: Vec<usize>,
    numbers: Vec<u64>,
    closed: Option<Closed>,
}

type Shown = Arc<Mutex<Seen>>;

/// A handler that takes all messages, as far as its batch allows, and records them.
fn take_all(
    seen: &Shown,
) -> impl FnMut(&mut StreamReader, &mut upcall_runtime::Batch<'_>) + Send + 'static {
    let seen = seen.clone();
    move |reader, batch| {
        let mut seen = seen.lock().unwrap();
        let mut count = 0;
        while let Some(message) = reader.next(batch) {
            let mut bytes = [0; 8];
            message.payload().copy_to(0, &mut bytes);
            message.done();
            seen.numbers.push(u64::from_ne_bytes(bytes));
            count += 1;
        }
        seen.counts.push(count);
        seen.closed = reader.closed();
    }
}

#[test]
fn a_handler_is_upcalled_when_its_level_is_reached_and_not_before() {
    for (mode, discipline) in
        [(Mode::Upcall, &DWS), (Mode::Upcall, &RMDP), (Mode::Threads, &RMDP), (Mode::Fifo, &RMDP)]
    {
        let (mut runtime, _alone) = start(mode, discipline);
        let stream = Stream::create(SLOTS, 0).unwrap();
        let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let seen = Shown::default();
        let need = every_us(1_000).batch(8);
        let id = runtime.stream_reader_handler("reader", need, reader, 4, take_all(&seen)).unwrap();
        runtime.run(id).unwrap();
        for number in 0..3 {
            write(&mut writer, number).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        assert!(seen.lock().unwrap().counts.is_empty(), "upcalled below its level");
        assert_eq!(writer.wakes(), 0, "a system call although the level is not reached");
        for number in 3..100 {
            write(&mut writer, number).unwrap();
        }
        let wakes = writer.wakes();
        drop(writer);
        ended(&mut runtime, id);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.numbers, (0..100).collect::<Vec<u64>>());
        assert_eq!(seen.closed, Some(Closed::Ended));
        // Only the last upcall may find less than the level.
        let before = &seen.counts[..seen.counts.len().saturating_sub(2)];
        assert!(before.iter().all(|&count| count >= 4), "{seen:?}");
        assert!(wakes >= 1 && wakes <= seen.counts.len() as u64, "{wakes} wakes, {seen:?}");
    }
}

#[test]
fn two_handlers_of_one_cpu_move_data_without_a_system_call() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let seen = Shown::default();
    let need = every_us(500).batch(16);
    let reader = runtime.stream_reader_handler("reader", need, reader, 2, take_all(&seen)).unwrap();
    let (mut number, wakes) = (0, Arc::new(Mutex::new(u64::MAX)));
    let counted = wakes.clone();
    let writer = runtime
        .handler("writer", every_us(2_000).batch(4), move |batch| {
            while number < 400 && batch.proceed() {
                assert!(writer.push(&u64::to_ne_bytes(number)).unwrap(), "the reader is behind");
                writer.commit().unwrap();
                number += 1;
            }
            *counted.lock().unwrap() = writer.wakes();
            if number == 400 {
                batch.finish();
            }
        })
        .unwrap();
    runtime.run(reader).unwrap();
    runtime.run(writer).unwrap();
    ended(&mut runtime, writer);
    assert_eq!(*wakes.lock().unwrap(), 0);
    // Dropping the writer ends the stream.
    assert!(runtime.close(writer).is_some());
    ended(&mut runtime, reader);
    assert_eq!(seen.lock().unwrap().numbers, (0..400).collect::<Vec<u64>>());
}

#[test]
fn a_reader_interrupts_an_outranked_handler_at_the_next_boundary_and_no_other() {
    for (reader_period_us, comes_between) in [(1_000, true), (900_000, false)] {
        let (mut runtime, _alone) = start(Mode::Upcall, &RMDP);
        let interrupts = Arc::new(Mutex::new(Vec::new()));
        let noted = interrupts.clone();
        runtime.on_interrupt(cpu(), move |kind| noted.lock().unwrap().push(kind)).unwrap();
        let stream = Stream::create(SLOTS, 0).unwrap();
        let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (reads, writes) = (log.clone(), log.clone());
        let reader = runtime
            .stream_reader_handler(
                "reader",
                every_us(reader_period_us),
                reader,
                1,
                move |reader, batch| {
                    if let Some(message) = reader.next(batch) {
                        message.done();
                        reads.lock().unwrap().push(1_000);
                    }
                    batch.finish();
                },
            )
            .unwrap();
        let writer = runtime
            .handler("writer", every_us(500_000).batch(10), move |batch| {
                let resumed = batch.resumed();
                while batch.proceed() {
                    let pdu = writes.lock().unwrap().iter().filter(|&&pdu| pdu < 1_000).count();
                    writes.lock().unwrap().push(pdu);
                    if pdu == 4 && !resumed {
                        assert!(writer.push(&[0; 8]).unwrap());
                        writer.commit().unwrap();
                    }
                }
                if batch.remaining() == 0 {
                    batch.finish();
                }
            })
            .unwrap();
        runtime.run(reader).unwrap();
        runtime.run(writer).unwrap();
        ended(&mut runtime, writer);
        ended(&mut runtime, reader);
        let mut expected: Vec<usize> = (0..10).collect();
        expected.insert(if comes_between { 5 } else { 10 }, 1_000);
        assert_eq!(*log.lock().unwrap(), expected);
        let told: &[Interrupt] = if comes_between { &[Interrupt::IoReady] } else { &[] };
        assert_eq!(*interrupts.lock().unwrap(), told);
        let _ = runtime.stop(|_, _| {});
    }
}

#[test]
fn the_batch_and_the_rate_limit_how_far_ahead_a_handler_works() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    for number in 0..40 {
        write(&mut writer, number).unwrap();
    }
    drop(writer);
    let seen = Shown::default();
    let terms = Terms { workahead_max: 2, ..Terms::default() };
    let need = (every_us(5_000).batch(8), terms);
    let id = runtime.stream_reader_handler("reader", need, reader, 1, take_all(&seen)).unwrap();
    let began = clock::now();
    runtime.run(id).unwrap();
    ended(&mut runtime, id);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.counts, [8, 8, 8, 8, 8]);
    // Five messages arrive a period apart. The last is processed at most two periods ahead.
    assert!(clock::now().since(began) >= Span::from_millis(10));
}

#[test]
fn invalid_streams_and_levels_are_refused_by_name() {
    let (mut runtime, _alone) = start(Mode::Upcall, &PS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let refused =
        runtime.stream_reader_handler("r", every_us(1_000), stream.reader().unwrap(), 1, |_, _| {});
    assert_eq!(refused, Err(CreateError::NotForStreams { policy: "ps" }));
    assert!(stream.reader().is_err(), "an end is not taken twice");
    assert_eq!(stream.writer().unwrap().commit(), Err(Closed::Ended));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(Stream::from_fd(file.into()).is_err());
}

#[test]
fn a_handler_that_panics_is_a_dead_reader_and_a_suspended_one_reads_on() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let mut writer = stream.writer().unwrap();
    let reader = stream.reader().unwrap();
    let interactive = Terms { class: WorkClass::Interactive, ..Terms::default() };
    let seen = Shown::default();
    let mut take = take_all(&seen);
    let id = runtime
        .stream_reader_handler(
            "reader",
            (every_us(1_000).batch(8), interactive),
            reader,
            1,
            move |reader, batch| {
                take(reader, batch);
                assert!(!batch.aborting());
            },
        )
        .unwrap();
    runtime.run(id).unwrap();
    runtime.suspend(id);
    ended(&mut runtime, id);
    write(&mut writer, 7).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(seen.lock().unwrap().counts.is_empty());
    runtime.run(id).unwrap();
    while seen.lock().unwrap().numbers != [7] {
        std::thread::yield_now();
    }
    runtime.give_abort_phase(id);
    // The handler waits for its stream, and is upcalled for the abort phase even without data.
    let report = runtime.abort(Some(clock::after(Span::from_secs(60))), |_, _| {});
    assert!(report.unfinished.is_empty() && report.activities[0].faulted);
    assert_eq!(writer.push(&[0; 8]).and_then(|_| Ok(writer.commit()?)), Err(Closed::Died.into()));
}

// The tests below need two processes. The other one is this program, started again. Its environment
// tells it which part to play.

const PART: &str = "UPCALL_TEST_PART";
const FD: i32 = 9;
const MESSAGES: u64 = 20_000;

fn other_process(part: &str, stream: &Stream) -> Child {
    let exe = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let part = format!("{PART}={part}");
    let command = ["env", &part, &exe, "--exact", "the_other_process", "--nocapture"];
    let options = SpawnOptions {
        stderr: process::Stream::Inherit,
        inherit: Some((stream.as_fd(), FD)),
        ..SpawnOptions::default()
    };
    let cpus = upcall_runtime::allowed_cpus().unwrap();
    process::spawn(&command.map(str::to_owned), &cpus, options).unwrap()
}

fn exit_of(child: &Child) -> Exit {
    let give_up = a_minute().unwrap();
    loop {
        if let Some(exit) = child.try_wait().unwrap() {
            return exit;
        }
        assert!(clock::now() < give_up, "the other process does not end");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Not a test of its own: the code of the other process of the tests below.
#[test]
fn the_other_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let inherited = || Stream::from_fd(process::inherited_fd(FD).unwrap()).unwrap();
    match part.as_str() {
        "write" => {
            let mut writer = inherited().writer().unwrap();
            (0..MESSAGES).for_each(|number| write(&mut writer, number).unwrap());
        }
        "writes forever" => {
            let mut writer = inherited().writer().unwrap();
            for number in 0.. {
                write(&mut writer, number).unwrap();
            }
        }
        "reads forever" => {
            let mut reader = inherited().reader().unwrap();
            for expected in 0.. {
                while reader.level() == Ok(0) {
                    reader.wait(1, a_minute());
                }
                assert_eq!(read(&mut reader), Some(expected));
                reader.release();
            }
        }
        part => {
            let (part, path) = part.split_once(" at:").unwrap();
            let path = Path::new(path);
            match part {
                "received, write" => {
                    let stream = Stream::create(SLOTS, 0).unwrap();
                    let _ = stream.send(path, End::Reader).unwrap();
                    let mut writer = stream.writer().unwrap();
                    drop(stream);
                    (0..100).for_each(|number| write(&mut writer, number).unwrap());
                }
                "received, write three, sleep" => {
                    let stream = Stream::create(SLOTS, 0).unwrap();
                    let _ = stream.send(path, End::Reader).unwrap();
                    let mut writer = stream.writer().unwrap();
                    (0..3).for_each(|number| write(&mut writer, number).unwrap());
                    std::thread::sleep(std::time::Duration::from_secs(60));
                }
                "received, read three, sleep" => {
                    let stream = Stream::create(SLOTS, 0).unwrap();
                    let _ = stream.send(path, End::Writer).unwrap();
                    let mut reader = stream.reader().unwrap();
                    for expected in 0..3 {
                        while reader.level() == Ok(0) {
                            reader.wait(1, a_minute());
                        }
                        assert_eq!(read(&mut reader), Some(expected));
                        reader.release();
                    }
                    std::thread::sleep(std::time::Duration::from_secs(60));
                }
                "accept, write for ever" => {
                    let received = StreamListener::bind(path).unwrap().accept(a_minute()).unwrap();
                    let mut writer = received.stream.writer().unwrap();
                    for number in 0.. {
                        write(&mut writer, number).unwrap();
                    }
                }
                "accept, go" => {
                    drop(StreamListener::bind(path).unwrap().accept(a_minute()).unwrap())
                }
                part => panic!("no part {part}"),
            }
        }
    }
}

#[test]
fn a_handler_reads_what_another_process_writes() {
    for discipline in [&DWS, &RMDP] {
        let (mut runtime, _alone) = start(Mode::Upcall, discipline);
        let stream = Stream::create(SLOTS, 0).unwrap();
        let seen = Shown::default();
        let need = every_us(100).batch(32);
        let reader = stream.reader().unwrap();
        let id =
            runtime.stream_reader_handler("reader", need, reader, 16, take_all(&seen)).unwrap();
        runtime.run(id).unwrap();
        let child = other_process("write", &stream);
        ended(&mut runtime, id);
        assert_eq!(exit_of(&child), Exit::Code(0));
        let seen = seen.lock().unwrap();
        assert!(seen.numbers.iter().copied().eq(0..MESSAGES));
        assert_eq!(seen.closed, Some(Closed::Ended));
        assert!(seen.counts.len() as u64 <= MESSAGES / 16 + 2, "upcalled below its level");
    }
}

fn kill(child: &Child) {
    child.kill_group().unwrap();
    assert_eq!(exit_of(child), Exit::Signal(9));
}

/// A path for a new listener, and the part of the process that listens there.
fn listener_of(part: &str) -> (PathBuf, String) {
    let name = part.replace([' ', ','], "-");
    let path = std::env::temp_dir().join(format!("upcall-{name}-{}", std::process::id()));
    let told = format!("{part} at:{}", path.display());
    (path, told)
}

/// Sends a stream to the other process, which will listen soon.
fn send(stream: &Stream, path: &Path, end: End) {
    let give_up = a_minute().unwrap();
    while stream.send(path, end).is_err() {
        assert!(clock::now() < give_up, "there is no listener");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// What a handler saw that reads 16 messages at a time until the writer is killed.
fn read_until_killed(reader: StreamReader, child: &Child, least: usize) -> Seen {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let seen = Shown::default();
    let need = every_us(100).batch(32);
    let id = runtime.stream_reader_handler("reader", need, reader, 16, take_all(&seen)).unwrap();
    runtime.run(id).unwrap();
    while seen.lock().unwrap().numbers.len() < least {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    kill(child);
    ended(&mut runtime, id);
    std::mem::take(&mut *seen.lock().unwrap())
}

#[test]
fn all_that_a_killed_writer_committed_is_read_before_its_death_is_found() {
    // The other process inherits the stream: its pidfd reports its end.
    let stream = Stream::create(SLOTS, 0).unwrap();
    let child = other_process("writes forever", &stream);
    stream.guard(&PidFd::open(child.pid()).unwrap(), End::Writer).unwrap();
    let inherited = read_until_killed(stream.reader().unwrap(), &child, 1_000);
    // The other process receives the stream: its connection reports its end.
    let unused = Stream::create(SLOTS, 0).unwrap();
    let (path, part) = listener_of("accept, write for ever");
    let child = other_process(&part, &unused);
    let stream = Stream::create(SLOTS, 0).unwrap();
    send(&stream, &path, End::Writer);
    let offered = read_until_killed(stream.reader().unwrap(), &child, 1_000);
    std::fs::remove_file(&path).unwrap();
    for seen in [inherited, offered] {
        assert!(seen.numbers.iter().copied().eq(0..seen.numbers.len() as u64));
        assert_eq!(seen.closed, Some(Closed::Died));
    }
}

#[test]
fn a_handler_below_its_level_is_upcalled_for_the_rest_when_its_writer_is_killed() {
    let unused = Stream::create(SLOTS, 0).unwrap();
    let (path, part) = listener_of("received, write three, sleep");
    let listener = StreamListener::bind(&path).unwrap();
    let child = other_process(&part, &unused);
    let accepted = listener.accept(a_minute()).unwrap();
    assert_eq!(accepted.end, End::Reader);
    let mut reader = accepted.stream.reader().unwrap();
    drop((listener, accepted));
    while reader.level() != Ok(3) {
        reader.wait(3, a_minute());
    }
    let seen = read_until_killed(reader, &child, 0);
    std::fs::remove_file(&path).unwrap();
    assert_eq!((seen.numbers, seen.closed), (vec![0, 1, 2], Some(Closed::Died)));
}

#[test]
fn a_writer_finds_that_its_reader_was_killed_and_does_not_wait() {
    let stream = Stream::create(SLOTS, 0).unwrap();
    let mut writer = stream.writer().unwrap();
    let child = other_process("reads forever", &stream);
    stream.guard(&PidFd::open(child.pid()).unwrap(), End::Reader).unwrap();
    (0..1_000).for_each(|number| write(&mut writer, number).unwrap());
    kill(&child);
    // The writer may be waiting for room by now, or will wait later.
    assert_eq!((1_000..).find_map(|number| write(&mut writer, number).err()), Some(Closed::Died));
}

#[test]
fn a_handler_that_waits_for_room_is_upcalled_when_its_reader_is_killed() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let unused = Stream::create(SLOTS, 0).unwrap();
    let (path, part) = listener_of("received, read three, sleep");
    let listener = StreamListener::bind(&path).unwrap();
    let child = other_process(&part, &unused);
    let accepted = listener.accept(a_minute()).unwrap();
    assert_eq!(accepted.end, End::Writer);
    let writer = accepted.stream.writer().unwrap();
    drop((listener, accepted));
    std::fs::remove_file(&path).unwrap();
    let (levels, closed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
    let (noted, found) = (levels.clone(), closed.clone());
    let mut number = 0_u64;
    let id = runtime
        .stream_writer_handler(
            "writer",
            every_us(100).batch(64),
            writer,
            16,
            move |writer, batch| {
                while let Some(room) = writer.next(8, batch) {
                    room.payload().fill(0, &number.to_ne_bytes());
                    room.stage(8);
                    number += 1;
                }
                writer.commit().unwrap_or(());
                noted.lock().unwrap().push(writer.level());
                *found.lock().unwrap() = writer.closed();
            },
        )
        .unwrap();
    runtime.run(id).unwrap();
    while levels.lock().unwrap().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    kill(&child);
    ended(&mut runtime, id);
    assert_eq!(*closed.lock().unwrap(), Some(Closed::Died));
    assert_eq!(levels.lock().unwrap().len(), 2, "upcalled without room, or not for the death");
}

#[test]
fn a_process_that_takes_a_stream_and_goes_without_its_end_is_found_dead() {
    let unused = Stream::create(SLOTS, 0).unwrap();
    let (path, part) = listener_of("accept, go");
    let child = other_process(&part, &unused);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let mut reader = stream.reader().unwrap();
    send(&stream, &path, End::Writer);
    assert!(reader.wait(1, a_minute()), "nobody told");
    assert_eq!(reader.front().unwrap_err(), Closed::Died);
    assert_eq!(exit_of(&child), Exit::Code(0));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_process_that_holds_a_pipe_open_counts_as_alive_until_it_is_closed() {
    let stream = Stream::create(SLOTS, 0).unwrap();
    // As after a kill: the end is neither dropped nor ended, and its descriptors are closed.
    let (mut writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let (line, held) = std::io::pipe().unwrap();
    stream.guard(&line, End::Writer).unwrap();
    drop(line);
    write(&mut writer, 7).unwrap();
    std::mem::forget(writer);
    assert!(!reader.wait(2, Some(clock::now() + Span::from_millis(20))));
    drop(held);
    assert!(reader.wait(2, a_minute()), "nobody told");
    assert_eq!(read(&mut reader), Some(7));
    assert_eq!(reader.front().unwrap_err(), Closed::Died);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(stream.guard(&file, End::Writer).unwrap_err().is_permission());
}

#[test]
fn a_stream_is_received_at_a_listener() {
    let (path, part) = listener_of("received, write");
    let listener = StreamListener::bind(&path).unwrap();
    assert!(matches!(listener.accept(Some(Instant::ZERO)), Err(StreamListenerError::Late)));
    let unused = Stream::create(SLOTS, 0).unwrap();
    let child = other_process(&part, &unused);
    let received = listener.accept(a_minute()).unwrap();
    assert_eq!(received.end, End::Reader);
    let mut reader = received.stream.reader().unwrap();
    for expected in 0..100 {
        while reader.level() == Ok(0) {
            assert!(reader.wait(1, a_minute()));
        }
        assert_eq!(read(&mut reader), Some(expected));
        reader.release();
    }
    assert!(reader.wait(1, a_minute()));
    // The connection hangs up, which does not change how the stream ended.
    assert_eq!(exit_of(&child), Exit::Code(0));
    assert_eq!(reader.front().unwrap_err(), Closed::Ended);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_source_that_rests_is_started_once_below_b_start_and_an_active_one_runs_on() {
    let stream = Stream::create(SLOTS, 16).unwrap();
    let (mut writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let source = std::thread::spawn(move || {
        let mut levels = Vec::new();
        for _ in 0..5 {
            while writer.push(&[1; 8]).unwrap() {}
            assert!(writer.rest(a_minute()), "the source was never started");
            levels.push(writer.level());
        }
        levels
    });
    let mut read = 0;
    while read < 5 * 64 {
        assert!(reader.wait(1, a_minute()));
        if let Ok(Some(message)) = reader.front() {
            message.done();
            reader.release();
            read += 1;
        } else {
            break;
        }
    }
    let levels = source.join().unwrap();
    assert_eq!(reader.starts(), 5);
    assert!(levels.iter().all(|&level| level < 16), "started too early: {levels:?}");
}
