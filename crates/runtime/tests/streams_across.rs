//! Tests of streams between two processes: order, counts, and what each end finds when the other
//! process is killed. The tests do not check deadlines, which depend on the machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
#[path = "support/stream_handlers.rs"]
mod stream_handlers;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use upcall_runtime::discipline::{DWS, RMDP};
use upcall_runtime::stream::{
    Closed, End, Stream, StreamListener, StreamListenerError, StreamReader,
};
use upcall_runtime::time::{Instant, Span};
use upcall_runtime::{Mode, clock};
use upcall_sys::process::{self, Child, Exit, PidFd, SpawnOptions};

use stream_handlers::{Seen, Shown, read, start, take_all, write};
use support::{SLOTS, a_minute, ended, every_us, exit_of};

// The tests below need two processes. The other one is this program, started again. An environment
// variable tells it what to do.

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

/// A path for a new listener, and `part` with that path, for the process that listens there.
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
    assert!(reader.wait(1, a_minute()), "never notified of the end");
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
    assert!(reader.wait(2, a_minute()), "never notified of the end");
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
