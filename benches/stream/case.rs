//! One measurement: so many messages of one size, from one thread to another.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::time::Instant;

use upcall_benches::smoke;
use upcall_sys::schedule;

pub const SIZES: [usize; 3] = [64, 1 << 10, 64 << 10];
pub const BATCHES: [usize; 3] = [1, 16, 256];
/// The rows of pipes. The ratios refer to the fastest of a case.
pub const PIPES: [&str; 4] =
    ["pipe", "pipe, gathered", "pipe, gathered, room", "pipe, writev, room"];
/// Samples of a turn.
pub const SAMPLES: usize = 5;
/// Most bytes of a ring. The head of `main.rs` gives the reason.
pub const RING_BYTES_MAX: u32 = 512 << 10;

/// The writing end: writes a batch of equal messages.
pub type Send<'a> = Box<dyn FnMut(&[u8], usize) + 'a>;
/// The reading end: reads a batch, into a buffer for one message.
pub type Receive<'a> = Box<dyn FnMut(&mut [u8], usize) + 'a>;
/// One measurement.
#[derive(Clone, Copy)]
pub struct Case {
    pub size: usize,
    pub batch: usize,
    /// Whether an end with nothing to do polls and does not sleep.
    pub polls: bool,
    /// Messages that the ring has room for.
    pub room: usize,
}

impl Case {
    pub fn new(size: usize, batch: usize, polls: bool) -> Self {
        let room = (2 * batch).max((64 << 10) / size).min(RING_BYTES_MAX as usize / size);
        Case { size, batch, polls, room: room.next_power_of_two() }
    }

    /// Messages that a stream hands over at a time: a batch, or a part of it.
    pub fn part(self) -> usize {
        if 2 * self.batch <= self.room { self.batch } else { (self.room / 4).max(1) }
    }

    /// Batches of one sample.
    pub fn batches(self) -> usize {
        let messages = if self.size > 4096 { 256 } else { 4096 };
        (messages / self.batch).max(4)
    }

    /// Moves messages. Returns picoseconds of one message for each sample, as the reader measures
    /// them. Each end is created by its own thread and lives until the other is done.
    pub fn run<'a>(
        self,
        cpus: [u32; 2],
        send: impl FnOnce() -> Send<'a> + std::marker::Send,
        receive: impl FnOnce() -> Receive<'a> + std::marker::Send,
    ) -> Vec<u64> {
        let samples = if smoke() { 2 } else { SAMPLES };
        let batches = self.batches();
        // The first sample warms the caches.
        let total = (samples + 1) * batches;
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                schedule::pin_thread(&cpus[..1]).expect("the CPU is allowed");
                let (mut send, message) = (send(), vec![7; self.size]);
                together.wait();
                (0..total).for_each(|_| send(&message, self.batch));
                together.wait();
            });
            let reader = scope.spawn(|| {
                schedule::pin_thread(&cpus[1..]).expect("the CPU is allowed");
                let (mut receive, mut message) = (receive(), vec![0; self.size]);
                together.wait();
                let mut sample = || {
                    let begun = Instant::now();
                    (0..batches).for_each(|_| receive(&mut message, self.batch));
                    let ps = begun.elapsed().as_nanos() * 1_000;
                    u64::try_from(ps / (batches * self.batch) as u128).unwrap_or(u64::MAX)
                };
                sample();
                let samples = (0..samples).map(|_| sample()).collect();
                together.wait();
                samples
            });
            reader.join().expect("no measurement panics")
        })
    }
}

/// The pause of an end that has nothing to do and that no peer wakes.
#[inline]
pub fn pause(case: Case) {
    if case.polls { spin_loop() } else { std::thread::yield_now() }
}
