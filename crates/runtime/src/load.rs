//! Load for a run: embedded senders in one process, and background programs in processes of their
//! own.
//!
//! The senders' process is this program, started again. It reports through a shared page
//! (`load_page` of the crate `upcall-shm`). The parent does not trust the page: it copies each
//! value once, then validates it. Each process ends with its handle, and with the thread that
//! started it.

use upcall_core::time::{Instant, Span};
use upcall_shm::load_page::{LoadParent, PAGE_BYTES, State, StreamCounters};
use upcall_sys::OsError;
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{self, Child, SpawnOptions, Stream};

mod plan;
mod sender;

use plan::PAGE_FD;
pub use plan::{LoadError, SenderPlan};
pub use sender::serve;

/// How long the senders' process may take to get ready, and to end. The parent notices at once that
/// the process has died. The limit is for a process that gets little time on a busy machine.
const READY_WITHIN: Span = Span::from_secs(60);
/// How long a background program may take to end by itself.
const END_WITHIN: Span = Span::from_millis(100);
/// What one embedded sender did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Datagrams that the kernel took from the sender.
    pub offered: u64,
    /// How often the sender was late and moved its schedule.
    pub slips: u64,
}

/// The senders' process, as its parent holds it.
#[derive(Debug)]
pub struct Senders {
    child: Child,
    page: LoadParent<SharedMapping>,
}

impl Senders {
    /// Starts `command` with a plan for each stream on `cpus`, and waits until it is ready. Call it
    /// from a thread that stays: the child ends with that thread.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn spawn(
        command: &[String],
        cpus: &[u32],
        plans: &[SenderPlan],
    ) -> Result<Self, LoadError> {
        let page =
            LoadParent::create(SharedMapping::create("upcall-load", PAGE_BYTES)?, plans.len())?;
        let mut command = command.to_vec();
        command.extend(plans.iter().map(ToString::to_string));
        let options = SpawnOptions {
            stderr: Stream::Inherit,
            inherit: Some((page.memory().fd(), PAGE_FD)),
            ..SpawnOptions::default()
        };
        let child = process::spawn(&command, cpus, options)?;
        let mut senders = Senders { child, page };
        senders.wait_for(State::Ready)?;
        Ok(senders)
    }

    /// Starts the senders at `at`. The first packets follow one interval later.
    pub fn start(&self, at: Instant) {
        self.page.start(at.as_nanos());
    }

    /// Ends the senders, and returns the counts of each.
    ///
    /// # Errors
    /// See [`LoadError`]. The process is ended in any case.
    pub fn stop(mut self) -> Result<Vec<SenderCounts>, LoadError> {
        self.page.stop();
        self.wait_for(State::Done)?;
        let counts = self.page.streams().iter().map(SenderCounts::from).collect();
        self.child.terminate(END_WITHIN.as_nanos())?;
        Ok(counts)
    }

    fn wait_for(&mut self, state: State) -> Result<(), LoadError> {
        let give_up_ns = monotonic_ns() + READY_WITHIN.as_nanos();
        while monotonic_ns() < give_up_ns {
            // Checks first whether the process has ended, so that the poll below sees its last
            // state.
            let ended = self.child.try_wait()?.is_some();
            if self.page.poll()? >= state {
                return Ok(());
            }
            if ended {
                break;
            }
            sleep_until_ns(monotonic_ns() + 1_000_000);
        }
        Err(LoadError::Silent)
    }
}

impl From<&StreamCounters> for SenderCounts {
    fn from(counters: &StreamCounters) -> Self {
        SenderCounts { offered: counters.offered, slips: counters.slips }
    }
}

/// A program that competes for the CPU, without any guarantee.
#[derive(Debug)]
pub struct BackgroundLoad {
    child: Child,
}

impl BackgroundLoad {
    /// Starts `command` on `cpus` in the ordinary class, without input and output. Call it from a
    /// thread that stays: the child ends with that thread.
    ///
    /// # Errors
    /// The error of the system: no such program, no right to run it.
    pub fn start(command: &[String], cpus: &[u32]) -> Result<Self, OsError> {
        Ok(BackgroundLoad { child: process::spawn(command, cpus, SpawnOptions::default())? })
    }

    /// Ends the program and all processes that it started. Returns the CPU time that they used
    /// together.
    pub fn stop(mut self) -> Span {
        let used = self.child.terminate(END_WITHIN.as_nanos()).unwrap_or_default();
        Span::from_nanos(used.cpu_ns())
    }
}

/// The code of a background load's process: `threads` threads that compute until they are killed.
pub fn spin(threads: u32) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut state = 1u64;
                loop {
                    // Marsaglia's xorshift: a computation that the compiler does not remove.
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    std::hint::black_box(state);
                }
            });
        }
    });
}

/// How many received packets the network interfaces of this host dropped since boot, all together.
/// 0 if the system does not report it (Documentation/ABI/testing/sysfs-class-net-statistics).
pub fn interface_drops() -> u64 {
    let Ok(interfaces) = std::fs::read_dir("/sys/class/net") else { return 0 };
    let count = |folder: &std::path::Path, name: &str| -> u64 {
        std::fs::read_to_string(folder.join("statistics").join(name))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    interfaces
        .flatten()
        .map(|interface| {
            let folder = interface.path();
            count(&folder, "rx_dropped") + count(&folder, "rx_missed_errors")
        })
        .sum()
}
