//! Sends a file through a stream to a handler of another process, and compares its checksum.
//!
//! ```sh
//! cargo run --release -p upcall --example file_stream -- Cargo.lock   # or another file
//! ```
//!
//! ```text
//!   this process                                     the reader: this program again
//!   file -- IoPump::source --> StreamWriter == stream ==> StreamReader -- handler, upcalled
//!                              StreamListener <---------- Stream::send       at its level
//! ```
//!
//! The reader creates the stream, because it knows its levels. A file is a passive source: it rests
//! when the stream is full, and the reader starts it again below `B_start`. If either process is
//! killed, the other finds out by itself.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use upcall::activity::ActivityParams;
use upcall::stream::{Carried, CarryEnd, Closed, End, IoPump, Stream, StreamForm, StreamListener};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

/// The environment variable with the path of the listener.
pub const LISTENER: &str = "UPCALL_LISTENER";
/// The reader's line of output begins with this word.
const RECEIVED: &str = "received ";

const FORM: StreamForm = StreamForm::Slots { slots: 64, slot_bytes: 4096 };
/// `B_wakeup`: the handler is upcalled when the stream is filled to a quarter.
const WAKEUP_LEVEL: u64 = 16;
/// `B_start`: the file is read further when the stream is filled to an eighth or less.
const START_LEVEL: u64 = 8;

/// Length and checksum of a sequence of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The number of bytes.
    pub bytes: u64,
    /// The checksum: FNV-1a of 64 bits.
    pub sum: u64,
}

impl Content {
    /// No bytes.
    pub const NONE: Content = Content { bytes: 0, sum: 0xCBF2_9CE4_8422_2325 };

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        for &byte in bytes {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }

    /// The content of a file, read with ordinary calls.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let (mut content, mut file, mut block) = (Content::NONE, File::open(path)?, [0; 65_536]);
        loop {
            match file.read(&mut block)? {
                0 => return Ok(content),
                len => content.add(&block[..len]),
            }
        }
    }
}

/// The process that has the file. It starts `reader`, which finds the path of the listener in its
/// environment. Returns the number of bytes sent, and the content that the reader reports.
pub fn send(path: &Path, mut reader: Command) -> Result<(u64, Content), Box<dyn Error>> {
    let at = std::env::temp_dir().join(format!("upcall-listener-{}", std::process::id()));
    let listener = StreamListener::bind(&at)?;
    let mut child = reader.env(LISTENER, &at).stdout(Stdio::piped()).spawn()?;
    let received = listener.accept(Some(clock::now() + Span::from_secs(60)))?;
    std::fs::remove_file(&at)?;
    let pump = IoPump::start()?;
    let source = pump.source(File::open(path)?, received.stream.writer()?)?;
    let mut received = None;
    for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
        let line = line?;
        if let Some((bytes, sum)) =
            line.strip_prefix(RECEIVED).and_then(|numbers| numbers.split_once(' '))
        {
            received = Some(Content { bytes: bytes.parse()?, sum: sum.parse()? });
        }
    }
    child.wait()?;
    match source.wait(None).ok_or("the I/O pump ended")? {
        Carried { bytes, end: CarryEnd::EndOfInput, .. } => {
            Ok((bytes, received.ok_or("the reader said nothing")?))
        }
        Carried { bytes, end, .. } => Err(format!("after {bytes} bytes: {end:?}").into()),
    }
}

/// The process that reads. It prints what it received on standard output.
pub fn receive(listener: &Path) -> Result<(), Box<dyn Error>> {
    let stream = Stream::create(FORM, START_LEVEL)?;
    let reader = stream.reader()?;
    stream.send(listener, End::Writer)?;
    let result = Arc::new(Mutex::new((Content::NONE, None)));
    let shown = result.clone();
    let (mut content, mut block) = (Content::NONE, [0; 4096]);
    let mut runtime = Runtime::start(Config::default())?;
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(20)).batch(32);
    let sum = runtime.stream_reader_handler(
        "sum",
        need,
        reader,
        WAKEUP_LEVEL,
        move |reader, batch| {
            while let Some(message) = reader.next(batch) {
                let len = message.payload().copy_to(0, &mut block);
                message.done();
                content.add(&block[..len]);
            }
            if reader.closed().is_some() {
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = (content, reader.closed());
            }
        },
    )?;
    runtime.run(sum)?;
    runtime.wait(&[sum], None);
    let (content, closed) = *result.lock().unwrap_or_else(PoisonError::into_inner);
    if closed != Some(Closed::Ended) {
        return Err(format!("after {} bytes: {closed:?}", content.bytes).into());
    }
    println!("{RECEIVED}{} {}", content.bytes, content.sum);
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    if let Some(path) = std::env::var_os(LISTENER) {
        return receive(path.as_ref());
    }
    let path: PathBuf = std::env::args_os().nth(1).ok_or("usage: file_stream FILE")?.into();
    let (sent, received) = send(&path, Command::new(std::env::current_exe()?))?;
    let expected = Content::of(&path)?;
    if received != expected || sent != expected.bytes {
        return Err(format!("{received:?} received, expected {expected:?}").into());
    }
    println!("{} bytes, checksum {:016x}: the same on both sides", received.bytes, received.sum);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("file_stream: {error}");
            ExitCode::FAILURE
        }
    }
}
