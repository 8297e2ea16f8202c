//! Two processes and a stream: a handler writes frames, and a handler of another process reads
//! them.
//!
//! ```sh
//! cargo run --release -p upcall --example stream_processes
//! ```
//!
//! ```text
//!   this process, the camera                      the display: this program again
//!   handler, upcalled when there is room          handler, upcalled when 8 frames are there
//!      StreamWriter ============ shared memory ============> StreamReader
//!   StreamListener::accept  <------- the stream's memory --------- Stream::send
//! ```
//!
//! The display creates the stream and sends it to a path. The camera takes the writing end. After
//! 200 frames the camera ends the stream, and then both handlers are finished. The display prints
//! `display: 200 frames, 0 out of order`, the camera `camera: 200 frames`.
//!
//! Each of the two processes has its own admission. If `UPCALL_SOCKET` names the socket of a daemon
//! (`upcalld`), both are its domains, and one admission covers both.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall::activity::ActivityParams;
use upcall::stream::{Closed, End, Stream, StreamForm, StreamListener};
use upcall::time::Span;
use upcall::{Attach, Config, Runtime, clock};

/// The environment variable with the path of the camera's listener.
const LISTENER: &str = "UPCALL_EXAMPLE_LISTENER";
const FRAMES: u64 = 200;
const FRAME_BYTES: usize = 1024;
const FORM: StreamForm = StreamForm::Slots { slots: 32, slot_bytes: 1024 };
/// Each handler is upcalled when 8 frames are there, or when there is room for 8.
const LEVEL: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var_os(LISTENER) {
        Some(path) => display(Path::new(&path)),
        None => camera(),
    }
}

/// The process that the user started. It writes.
fn camera() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("upcall-camera-{}", std::process::id()));
    let listener = StreamListener::bind(&path)?;
    let mut display = Command::new(std::env::current_exe()?).env(LISTENER, &path).spawn()?;
    let received = listener.accept(Some(clock::now() + Span::from_secs(10)));
    std::fs::remove_file(&path)?;

    let mut runtime = start("camera")?;
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let writer = received?.stream.writer()?;
    let handler =
        runtime.stream_writer_handler("camera", need(), writer, LEVEL, move |writer, batch| {
            while counted.load(Ordering::Relaxed) < FRAMES {
                let Some(chunk) = writer.next(FRAME_BYTES, batch) else { return };
                // Relaxed: only this handler writes it, and the program reads it at the end.
                let number = counted.fetch_add(1, Ordering::Relaxed);
                chunk.payload().fill(0, &number.to_le_bytes());
                chunk.stage(FRAME_BYTES);
            }
            writer.end();
        })?;
    runtime.run(handler)?;
    runtime.wait(&[handler], None);
    let status = display.wait()?;
    println!("camera: {} frames", sent.load(Ordering::Relaxed));
    if status.success() { Ok(()) } else { Err(format!("the display: {status}").into()) }
}

/// The process that the camera started. It reads.
fn display(listener: &Path) -> Result<(), Box<dyn Error>> {
    let stream = Stream::create(FORM, 0)?;
    let reader = stream.reader()?;
    stream.send(listener, End::Writer)?;

    let mut runtime = start("display")?;
    let result = Arc::new(Counts::default());
    let counted = result.clone();
    let mut header = [0; 8];
    let handler =
        runtime.stream_reader_handler("display", need(), reader, LEVEL, move |reader, batch| {
            while let Some(frame) = reader.next(batch) {
                frame.payload().copy_to(0, &mut header);
                frame.done();
                // Relaxed: only this handler writes them, and the program reads them at the end.
                let expected = counted.frames.fetch_add(1, Ordering::Relaxed);
                let is_next = u64::from_le_bytes(header) == expected;
                counted.out_of_order.fetch_add(u64::from(!is_next), Ordering::Relaxed);
            }
            counted
                .died
                .fetch_add(u64::from(reader.closed() == Some(Closed::Died)), Ordering::Relaxed);
        })?;
    runtime.run(handler)?;
    runtime.wait(&[handler], None);
    println!(
        "display: {} frames, {} out of order",
        result.frames.load(Ordering::Relaxed),
        result.out_of_order.load(Ordering::Relaxed)
    );
    match result.died.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err("the camera died".into()),
    }
}

/// The counts of the display's handler.
#[derive(Default)]
struct Counts {
    frames: AtomicU64,
    out_of_order: AtomicU64,
    died: AtomicU64,
}

/// Up to 8 frames of at most 20 us each, every 5 ms.
fn need() -> ActivityParams {
    ActivityParams::new(Span::from_millis(5), Span::from_micros(20)).batch(8)
}

/// Starts a runtime: alone, or as a domain of the daemon that the environment names.
fn start(name: &str) -> Result<Runtime, Box<dyn Error>> {
    let daemon = std::env::var_os("UPCALL_SOCKET")
        .map(|socket| Attach { socket: socket.into(), name: name.into() });
    let runtime = Runtime::start(Config { daemon, ..Config::default() })?;
    for notice in runtime.notices() {
        eprintln!("{name}: {notice}");
    }
    Ok(runtime)
}
