//! Handlers that read numbers from a stream, for the tests of streams.

use std::sync::{Arc, Mutex, MutexGuard};

use upcall_runtime::discipline::Discipline;
use upcall_runtime::stream::{Closed, StreamReader, StreamWriter};
use upcall_runtime::{Config, Mode, Runtime};

use crate::support::{self, a_minute, cpu};

pub fn start(mode: Mode, discipline: &'static Discipline) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { mode, cpus: vec![cpu()], discipline, ..Config::default() })
}

pub fn write(writer: &mut StreamWriter, number: u64) -> Result<(), Closed> {
    while !writer.push(&number.to_ne_bytes()).unwrap_or(false) {
        writer.commit()?;
        assert!(writer.wait(8, a_minute()), "the reader never made room");
    }
    writer.commit()
}

/// The next number, if there is one.
pub fn read(reader: &mut StreamReader) -> Option<u64> {
    let mut bytes = [0; 8];
    matches!(reader.pop(&mut bytes), Ok(Some(8))).then(|| u64::from_ne_bytes(bytes))
}

/// What a handler saw: how many messages in each upcall, and the numbers in them.
#[derive(Debug, Default)]
pub struct Seen {
    pub counts: Vec<usize>,
    pub numbers: Vec<u64>,
    pub closed: Option<Closed>,
}

pub type Shown = Arc<Mutex<Seen>>;

/// A handler that takes all messages, as far as its batch allows, and records them.
pub fn take_all(
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
