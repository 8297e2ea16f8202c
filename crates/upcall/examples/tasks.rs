//! Tasks: `async` code scheduled by deadline (deadline/workahead scheduling).
//!
//! ```sh
//! cargo run --release -p upcall --example tasks -- 50   # messages of each stream
//! ```
//!
//! A small continuous-media server as in split-level-1991 §5.1, all on one CPU and in one thread. A
//! *player* gives a block to its device every 10 ms and never early. A *reader* takes blocks from a
//! pipe as soon as they come. It may be five blocks ahead of their times, but only while no other
//! activity needs the CPU. An *answer* to a user is more urgent than work ahead.
//!
//! It prints one line for each task, such as `reader: messages 50, missed 0, ahead 44`. It prints
//! each missing right on standard error.

use std::error::Error;
use std::io::{PipeReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall::activity::{ActivityParams, Terms, WorkClass};
use upcall::discipline::DWS;
use upcall::time::{Instant, Span};
use upcall::{Config, Runtime, Task, clock};

const PERIOD: Span = Span::from_millis(10);
/// A block of audio: 10 ms of 64 kbit/s.
const BLOCK_BYTES: usize = 80;
/// The most blocks that the reader may be ahead.
const WORKAHEAD_MAX: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let messages = std::env::args().nth(1).map_or(Ok(50), |argument| argument.parse::<u32>())?;
    let cpus = upcall::default_cpus()?.into_iter().take(1).collect();
    let mut runtime = Runtime::start(Config { discipline: &DWS, cpus, ..Config::default() })?;

    let need = ActivityParams::new(PERIOD, Span::from_micros(100));
    let ahead = Terms { workahead_max: WORKAHEAD_MAX, ..Terms::default() };
    let interactive = Terms { class: WorkClass::Interactive, ..Terms::default() };
    let start = clock::now() + Span::from_millis(20);
    let early = Arc::new(AtomicU64::new(0));
    let (input, mut output) = std::io::pipe()?;

    let counted = early.clone();
    let ids = [
        runtime.task("player", need, async move |task| play(task, start, messages).await)?,
        runtime.task("reader", (need, ahead), async move |task| {
            if let Err(error) = read(task, start, messages, input, &counted).await {
                eprintln!("reader: {error}");
            }
        })?,
        runtime.task("answer", (need, interactive), async move |task| {
            task.timed_sleep(start + PERIOD.saturating_mul(3)).await;
        })?,
    ];
    runtime.run_at(&ids, start)?;
    for notice in runtime.notices() {
        eprintln!("{notice}");
    }
    // All blocks of the file come at once.
    for _ in 0..messages {
        output.write_all(&[0; BLOCK_BYTES])?;
    }
    for id in ids {
        runtime.wait(&[id], None);
    }
    for activity in runtime.stop(|_, _| {}).activities {
        let Some(counters) = activity.counters else { continue };
        print!("{}: messages {}, missed {}", activity.name, counters.completed, counters.misses);
        match activity.name.as_str() {
            "reader" => println!(", ahead {}", early.load(Ordering::Relaxed)),
            _ => println!(),
        }
    }
    Ok(())
}

/// Plays a block at each of its times.
async fn play(task: Task, start: Instant, messages: u32) {
    for message in 1..u64::from(messages) {
        // The task must not be preempted between updates of the device's position and the table of
        // blocks.
        let mask = task.mask_preemption();
        std::hint::black_box(message);
        drop(mask);
        task.timed_sleep(start + PERIOD.saturating_mul(message)).await;
    }
}

/// Reads each block when it has come. Each has its own time.
async fn read(
    task: Task,
    start: Instant,
    messages: u32,
    mut input: PipeReader,
    early: &AtomicU64,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut block = [0; BLOCK_BYTES];
    for message in 1..u64::from(messages) {
        let critical = start + PERIOD.saturating_mul(message);
        task.io_wait_at(&input, critical).await?;
        input.read_exact(&mut block)?;
        // Relaxed: read after the runtime has stopped.
        early.fetch_add(u64::from(clock::now() < critical), Ordering::Relaxed);
        for sample in &mut block {
            *sample /= 2;
            task.checkpoint().await;
        }
    }
    Ok(())
}
