//! Load around a run: embedded senders and background programs, each in a
//! process of its own.
//!
//! The senders' process is this program started again; it reports through a
//! shared page (`load_page` of the crate `upcall-shm`), which the parent reads as it reads
//! any peer: copied once, then validated. Every process started here ends with
//! its handle, and with the thread that started it.

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

/// Time the senders' process has to get ready, and to end. One that died is
/// noticed at once; this is for one that a busy machine gives little time.
const READY_WITHIN: Span = Span::from_secs(60);
/// Time a background program has to end by itself.
const END_WITHIN: Span = Span::from_millis(100);
/// What one embedded sender did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Datagrams the kernel took from it.
    pub offered: u64,
    /// Times it was late and moved its schedule.
    pub slips: u64,
}

/// The senders' process, seen from its parent.
#[derive(Debug)]
pub struct Senders {
    child: Child,
    page: LoadParent<SharedMapping>,
}

impl Senders {
    /// Starts `command` with a plan for each stream on `cpus`, and waits until
    /// it is ready. Call from a thread that stays: the child ends with it.
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

    /// Lets them begin at `at`; the first packets follow an interval later.
    pub fn start(&self, at: Instant) {
        self.page.start(at.as_nanos());
    }

    /// Ends them, and says what each stream was offered.
    ///
    /// # Errors
    /// See [`LoadError`]; the process is ended all the same.
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
            // Its end is looked at first: what it did before is then seen.
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

/// A program that competes for the CPU, outside of any promise.
#[derive(Debug)]
pub struct BackgroundLoad {
    child: Child,
}

impl BackgroundLoad {
    /// Starts `command` on `cpus` in the ordinary class, with neither input nor
    /// output. Call from a thread that stays: the child ends with it.
    ///
    /// # Errors
    /// The system's: no such program, no right to run it.
    pub fn start(command: &[String], cpus: &[u32]) -> Result<Self, OsError> {
        Ok(BackgroundLoad { child: process::spawn(command, cpus, SpawnOptions::default())? })
    }

    /// Ends it and all it started; the CPU time they took together.
    pub fn stop(mut self) -> Span {
        let used = self.child.terminate(END_WITHIN.as_nanos()).unwrap_or_default();
        Span::from_nanos(used.cpu_ns())
    }
}

/// A background load's process: `threads` threads that compute until killed.
pub fn spin(threads: u32) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut state = 1u64;
                loop {
                    // Marsaglia's xorshift: computation no compiler removes.
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    std::hint::black_box(state);
                }
            });
        }
    });
}

/// Packets that network interfaces of this host dropped on receive since boot,
/// all together; 0 if the system does not tell
/// (Documentation/ABI/testing/sysfs-class-net-statistics).
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
