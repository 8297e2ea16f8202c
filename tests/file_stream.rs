//! The example `file_stream`: a file goes through a stream to a handler of another process.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../crates/upcall/examples/file_stream.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::path::Path;
use std::process::Command;

use example::{Content, LISTENER, receive, send};
use support::machine;
use upcall::stream::{End, Stream, StreamForm};

/// A command for this program again, with one of the tests below as the reader.
fn reader(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    command
}

/// Not a test of its own: the process that reads.
#[test]
fn as_the_reader() {
    let Some(path) = std::env::var_os(LISTENER) else { return };
    println!(); // ends the line of the test harness
    receive(Path::new(&path)).unwrap();
}

/// Not a test of its own: a process that reads a little and is killed.
#[test]
fn as_a_reader_that_is_killed() {
    let Some(listener) = std::env::var_os(LISTENER) else { return };
    let stream = Stream::create(StreamForm::Slots { slots: 4, slot_bytes: 64 }, 2).unwrap();
    let mut reader = stream.reader().unwrap();
    stream.send(Path::new(&listener), End::Writer).unwrap();
    for _ in 0..10 {
        assert!(reader.wait(2, None));
        reader.front().unwrap().unwrap().done();
        reader.release();
    }
    let myself = std::process::id().to_string();
    let _ = Command::new("kill").args(["-KILL", &myself]).status();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_file_arrives_unchanged_in_another_process() {
    let _machine = machine();
    // Some megabytes, and not a multiple of the slot size.
    let file = std::env::current_exe().unwrap();
    let expected = Content::of(&file).unwrap();
    assert!(expected.bytes > 1_000_000);
    let (sent, received) = send(&file, reader("as_the_reader")).unwrap();
    assert_eq!((sent, received), (expected.bytes, expected));
    let empty = Path::new("/dev/null");
    assert_eq!(send(empty, reader("as_the_reader")).unwrap(), (0, Content::NONE));
}

#[test]
fn the_sender_finds_the_death_of_a_killed_reader() {
    let _machine = machine();
    let file = std::env::current_exe().unwrap();
    let error = send(&file, reader("as_a_reader_that_is_killed")).unwrap_err();
    assert!(error.to_string().ends_with("Closed(stream's other end died)"), "{error}");
}
