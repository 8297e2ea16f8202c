//! A stream between two processes. The first process binds a listener, starts this program again as
//! the second process, and writes. The second process creates the stream, sends it to the listener,
//! and reads it in a handler.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use newcomer::{Outcome, expect, print_notices};
use upcall::activity::ActivityParams;
use upcall::stream::{End, Stream, StreamForm, StreamListener};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const FRAMES: u64 = 1000;
const FRAME_BYTES: usize = 1024;

fn main() -> Outcome {
    match std::env::args_os().nth(1) {
        None => camera(),
        Some(listener) => display(Path::new(&listener)),
    }
}

/// The process that writes. It binds the listener before it starts the other process, so that the
/// other process finds it.
fn camera() -> Outcome {
    let path = std::env::temp_dir().join(format!("newcomer-{}", std::process::id()));
    let listener = StreamListener::bind(&path)?;
    let mut display = Command::new(std::env::current_exe()?).arg(&path).spawn()?;
    let written = write(&listener);
    std::fs::remove_file(&path)?; // the file stays when the listener is dropped
    if written.is_err() {
        end(&mut display);
    }
    println!("camera: process {} wrote {} frames", std::process::id(), written?);
    let status = display.wait()?;
    if status.success() { Ok(()) } else { Err(format!("the second process: {status}").into()) }
}

/// Writes numbered frames. Returns their number.
fn write(listener: &StreamListener) -> Outcome<u64> {
    let received = listener.accept(Some(clock::after(Span::from_secs(3))))?;
    expect("the end for this process", received.end, End::Writer)?;
    let mut writer = received.stream.writer()?;
    let mut frame = [0; FRAME_BYTES];
    for number in 1..=FRAMES {
        frame[..8].copy_from_slice(&number.to_le_bytes());
        while !writer.push(&frame)? {
            if !writer.wait(FRAME_BYTES, Some(clock::after(Span::from_secs(3)))) {
                return Err("the second process reads nothing".into());
            }
        }
    }
    writer.end();
    Ok(FRAMES)
}

fn end(display: &mut Child) {
    let _ = display.kill(); // it may have ended by itself
    let _ = display.wait();
}

/// The process that reads.
fn display(listener: &Path) -> Outcome {
    let mut upcall = Runtime::start(Config::default())?;
    print_notices(&upcall);
    let stream =
        Stream::create(StreamForm::Slots { slots: 64, slot_bytes: FRAME_BYTES as u32 }, 0)?;
    let reader = stream.reader()?;
    stream.send(listener, End::Writer)?;

    let sum = Arc::new(AtomicU64::new(0));
    let added = sum.clone();
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(50)).batch(16);
    let display =
        upcall.stream_reader_handler("display", need, reader, 8, move |reader, batch| {
            let mut number = [0; 8];
            while let Some(frame) = reader.next(batch) {
                frame.payload().copy_to(0, &mut number);
                frame.done();
                added.fetch_add(u64::from_le_bytes(number), Ordering::Relaxed);
            }
        })?;
    upcall.run(display)?;
    let finished = upcall.wait(&[display], Some(clock::after(Span::from_secs(4))));
    let report = upcall.stop(|_, _| {});
    let counters = report.activities[0].counters.ok_or("the handler did not yield")?;
    println!(
        "display: process {} read {} frames in {} jobs, {} of them late",
        std::process::id(),
        counters.pdus,
        counters.jobs,
        counters.misses,
    );
    expect("handlers that finished", finished, vec![display])?;
    expect("frames", counters.pdus, FRAMES)?;
    expect("sum of their numbers", sum.load(Ordering::Relaxed), (1..=FRAMES).sum())
}
