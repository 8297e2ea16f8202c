//! What the kernel alone takes to wake a thread across CPUs: the part of the bound that no
//! scheduler outside the kernel can avoid.
//!
//! The threads of this module are plain threads of this process with the classes and CPUs that
//! domains have. They run no code of Upcall except the functions that set the class, the CPU and
//! the timer slack, and that read the clock. An ordinary thread on the other CPU wakes a FIFO
//! thread. A second FIFO thread of the same priority runs on that thread's CPU and calls
//! `sched_yield`(2) without end. The woken thread stores a flag and sleeps. The time ends when the
//! second thread runs again and sees the flag. So it contains what the kernel does for a yield at a
//! boundary, and no quantum and no hand-off. The second thread works and sleeps as the worse domain
//! does.
//!
//! All threads belong to one process, so no time contains a switch of address spaces. That makes
//! the bound smaller, never larger.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::Duration;

use rustix::thread::futex;
use upcall_benches::measured_cpu;
use upcall_sys::schedule;
use upcall_sys::schedule::Band;

use crate::domains::{JOB, PERIOD, Ran, now_ns, pause_of, pin_away_from};

/// Which threads take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// The waker wakes the thread by a futex.
    Futex,
    /// The waker writes to a pipe. A thread of a higher priority reads, and wakes by a futex.
    Pipe,
    /// A futex, as above. The woken thread wakes a second thread and sleeps. The second thread
    /// stops the one that yields. A third thread, of a lower priority, then wakes the first again,
    /// where the time ends. A domain of another user has this way, with its hand-off.
    Relay,
}

/// The words on which the threads sleep. 1: to run.
#[derive(Default)]
struct Words {
    woken: AtomicU32,
    asked: AtomicU32,
    lower: AtomicU32,
    passed: AtomicU32,
    back: AtomicU32,
    /// The woken thread has run, and sleeps.
    has_run: AtomicBool,
    /// The thread that yields must stop.
    stops: AtomicBool,
    /// Until when that thread yields, in ns. 0: it sleeps.
    busy_until_ns: AtomicU64,
    /// When the last wake-up was over, in ns.
    ran: Ran,
    is_over: AtomicBool,
}

impl Words {
    /// Sleeps until the word is 1, and clears it. False at the end of the measurement.
    fn wait(&self, word: &AtomicU32) -> bool {
        // Acquire pairs with the Release in `wake`.
        while word.swap(0, Ordering::Acquire) == 0 {
            let _ = futex::wait(word, futex::Flags::PRIVATE, 0, None);
        }
        !self.is_over.load(Ordering::Relaxed)
    }

    /// The body of the woken thread.
    fn run(&self, way: Way, is_busy: bool) {
        while self.wait(&self.woken) {
            if way == Way::Relay {
                wake(&self.asked);
                self.wait(&self.passed);
                self.ran.note();
                wake(&self.back);
            } else if is_busy {
                // Relaxed: both threads run on one CPU, and the flag orders no other data.
                self.has_run.store(true, Ordering::Relaxed);
            } else {
                self.ran.note();
            }
        }
    }

    /// Yields for the time of a job in each period, and sleeps for the rest.
    fn yield_in_jobs(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let until_ns = now_ns() + JOB.as_nanos();
            self.busy_until_ns.store(until_ns, Ordering::Relaxed);
            while now_ns() < until_ns {
                std::thread::yield_now();
                if self.has_run.swap(false, Ordering::Relaxed) {
                    self.ran.note();
                }
                // Acquire pairs with the Release of the second thread.
                if self.stops.swap(false, Ordering::Acquire) {
                    wake(&self.lower);
                    if !self.wait(&self.back) {
                        return;
                    }
                }
            }
            self.busy_until_ns.store(0, Ordering::Relaxed);
            std::thread::sleep(Duration::from_nanos(PERIOD.as_nanos() - JOB.as_nanos()));
        }
    }

    /// Blocks until the thread that yields does so for 2 ms more, and is not asleep.
    fn await_job(&self) {
        while self.busy_until_ns.load(Ordering::Relaxed) < now_ns() + 2_000_000 {
            std::thread::sleep(Duration::from_micros(700));
        }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for word in [&self.woken, &self.asked, &self.lower, &self.passed, &self.back] {
            wake(word);
        }
    }
}

fn wake(word: &AtomicU32) {
    // Release pairs with the Acquire in `Words::wait`.
    word.store(1, Ordering::Release);
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}

/// The times from the wake-up to the run in ns. `is_busy`: the other FIFO thread yields during
/// each; otherwise the CPU is idle, and there is no [`Way::Relay`].
///
/// Pins the calling thread to the other CPUs.
pub(crate) fn samples(way: Way, is_busy: bool, rounds: u32) -> Vec<u64> {
    let (words, band, cpu) = (Words::default(), Band::WHOLE, measured_cpu());
    let words = &words;
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        fifo(scope, cpu, band.handlers(), move || words.run(way, is_busy));
        if is_busy {
            fifo(scope, cpu, band.handlers(), || words.yield_in_jobs());
        }
        match way {
            Way::Futex => {}
            Way::Pipe => {
                scope.spawn(move || {
                    let _ = schedule::set_fifo(band.reactor());
                    while (&reader).read(&mut [0; 8]).is_ok_and(|bytes| bytes > 0) {
                        wake(&words.woken);
                    }
                });
            }
            Way::Relay => {
                fifo(scope, cpu, band.handlers(), || {
                    while words.wait(&words.asked) {
                        // Release pairs with the Acquire in `yield_in_jobs`.
                        words.stops.store(true, Ordering::Release);
                    }
                });
                fifo(scope, cpu, band.kernel_level(), || {
                    while words.wait(&words.lower) {
                        wake(&words.passed);
                    }
                });
            }
        }
        pin_away_from(cpu);
        std::thread::sleep(Duration::from_millis(50));
        for round in 0..rounds {
            std::thread::sleep(pause_of(round));
            if is_busy {
                words.await_job();
            }
            let woken_ns = now_ns();
            match way {
                Way::Pipe => writer.write_all(&[1]).expect("there is room"),
                Way::Futex | Way::Relay => wake(&words.woken),
            }
            samples.push(words.ran.after(woken_ns) - woken_ns);
        }
        words.end();
        drop(writer);
    });
    samples
}

/// Starts a FIFO thread on the measured CPU.
fn fifo<'scope>(
    scope: &'scope Scope<'scope, '_>,
    cpu: u32,
    priority: u8,
    body: impl FnOnce() + Send + 'scope,
) {
    scope.spawn(move || {
        // Without the right the bench says so before.
        let _ = schedule::set_fifo(priority);
        let _ = schedule::pin_thread(&[cpu]);
        let _ = schedule::set_timer_slack_least();
        body();
    });
}
