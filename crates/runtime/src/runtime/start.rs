//! How a runtime and its scheduling threads start.

use std::sync::Arc;
use std::sync::mpsc;

use upcall_core::admission::{Platform, Reservations};
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;
use upcall_sys::schedule::{FifoRefusal, RealTime};

use crate::calibrate;
use crate::config::{Config, MemoryLock, Mode};
use crate::cpu::executor::Executor;
use crate::domain::Domain;
use crate::domain::error::AttachError;
use crate::domain::virtual_processor::VirtualProcessor;
use crate::mailbox::ACTIVITIES_MAX;
use crate::panics;
use crate::reactor::Reactor;
use crate::rights::Notice;
use crate::thread_error::ThreadError;
use crate::watchdog::Watchdog;

use super::{ExecutorThread, Runtime};

/// Stack that a scheduling thread touches before it starts.
const STACK_BYTES: usize = 256 * 1024;

/// Why a runtime did not start.
#[derive(Clone)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration names a CPU that this process may not use.
    CpuNotAllowed {
        /// The CPU.
        cpu: u32,
        /// The CPUs that it may use.
        allowed: Vec<u32>,
    },
    /// The configuration names a CPU twice.
    CpuTwice(u32),
    /// [`Config::trace`] in a mode in which the kernel decides.
    NothingToTrace(Mode),
    /// A thread of the runtime did not start.
    Thread(ThreadError),
    /// [`Config::daemon`] in a mode in which the kernel decides.
    NotAcrossDomains {
        /// The mode.
        mode: Mode,
    },
    /// The daemon did not attach this process.
    Attach(Arc<AttachError>),
    /// The system did not report which CPUs this process may use.
    Cpus(upcall_sys::OsError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::CpuNotAllowed { cpu, allowed } => {
                write!(f, "CPU {cpu} is not among the CPUs this process may use, {allowed:?}")
            }
            StartError::CpuTwice(cpu) => write!(f, "CPU {cpu} is named twice, expected once"),
            StartError::NothingToTrace(mode) => {
                write!(f, "mode {} keeps no trace, expected mode upcall", mode.name())
            }
            StartError::Thread(error) => write!(f, "a scheduling thread did not start: {error}"),
            StartError::NotAcrossDomains { mode } => {
                write!(f, "a daemon cannot schedule mode {}, expected mode upcall", mode.name())
            }
            StartError::Attach(error) => error.fmt(f),
            StartError::Cpus(error) => {
                write!(f, "the CPUs that this process may use are unknown: {error}")
            }
        }
    }
}

upcall_core::debug_as_display!(StartError);

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Attach(error) => Some(error.as_ref()),
            StartError::Cpus(error) => Some(error),
            StartError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// The CPUs that handlers use by default: all that are allowed but CPU 0, or CPU 0 if it is the
/// only one.
///
/// # Errors
/// The system did not report which CPUs this process may use.
pub fn default_cpus() -> Result<Vec<u32>, StartError> {
    let allowed = upcall_sys::schedule::allowed_cpus().map_err(StartError::Cpus)?;
    let rest: Vec<u32> = allowed.iter().copied().filter(|&cpu| cpu != 0).collect();
    Ok(if rest.is_empty() { allowed } else { rest })
}

impl Runtime {
    /// Starts the scheduling threads with the rights that this process has. [`Runtime::notices`]
    /// says what was not granted. Blocks for a few milliseconds.
    ///
    /// The first call in a process sets a panic hook (`std::panic::set_hook`). If a handler panics
    /// in a scheduling thread, the hook only notes the message and the location. It also notes the
    /// addresses of the backtrace if `RUST_BACKTRACE` asks for one. The thread `upcall-panics` then
    /// writes them to standard error. Noting takes about 50 us. Resolving the names takes 150 ms
    /// and more, which would delay the other handlers. In all other threads the hook calls the
    /// previous hook. A hook that the program sets later replaces both, in scheduling threads too.
    /// A handler's report holds its message
    /// ([`ActivityReport::panic`](crate::ActivityReport::panic)). A process that ends without
    /// [`Runtime::stop`] or drop may end before the message is written.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(mut config: Config) -> Result<Self, StartError> {
        let mut notices = Vec::new();
        panics::install().map_err(|error| StartError::Thread(error.into()))?;
        // Before the areas are mapped: the lock would fault in all of their pages.
        let locked = match config.memory_lock {
            MemoryLock::All => upcall_sys::memory::lock_all(),
            MemoryLock::OnFault => upcall_sys::memory::lock_on_fault(),
            MemoryLock::Off => Ok(()),
        };
        let (domain, virtual_processors) = attach(&mut config, &mut notices)?;
        if config.cpus.is_empty() {
            config.cpus = default_cpus()?;
        }
        if config.trace && config.mode != Mode::Upcall {
            return Err(StartError::NothingToTrace(config.mode));
        }
        check_cpus(&config.cpus)?;
        let real_time = match config.mode {
            Mode::Threads => None,
            Mode::Upcall | Mode::Fifo => match RealTime::granted() {
                Ok(granted) => Some(granted),
                Err(refusal) => {
                    // The daemon gives domains their class, and says if it cannot.
                    let notice = domain.is_none().then_some(Notice::NoRealTimeClass(refusal));
                    notices.extend(notice);
                    None
                }
            },
        };
        // This notice comes after that of the class, which matters more.
        notices.extend(locked.err().map(Notice::NoMemoryLock));
        let reservations = reservations(&mut config);
        let mut runtime = Runtime {
            config,
            reservations,
            domain,
            executors: Vec::new(),
            activities: Vec::new(),
            remotes: Vec::new(),
            inactive_epoch: Arc::default(),
            notices,
            real_time,
            reactor: None,
            virtual_time: None,
            watchdog: None,
        };
        if runtime.config.mode == Mode::Upcall {
            runtime.start_executors(virtual_processors).map_err(StartError::Thread)?;
        }
        Ok(runtime)
    }

    /// Starts an executor on each CPU, each with its virtual processor if there is a daemon.
    fn start_executors(
        &mut self,
        virtual_processors: Vec<VirtualProcessor>,
    ) -> Result<(), ThreadError> {
        let mut virtual_processors = virtual_processors.into_iter();
        for cpu in self.config.cpus.clone() {
            let executor = self.add_executor(cpu, virtual_processors.next());
            self.launch(executor)?;
        }
        Ok(())
    }

    pub(super) fn add_executor(
        &mut self,
        cpu: u32,
        virtual_processor: Option<VirtualProcessor>,
    ) -> usize {
        // A handler alone on its thread needs no policy: the kernel schedules it.
        let (meter_cpu, discipline) = match self.config.mode {
            Mode::Upcall => (false, self.config.discipline),
            Mode::Threads | Mode::Fifo => (true, &RMDP),
        };
        let (executor, link) = Executor::new(
            discipline,
            (meter_cpu, self.config.switch_cost.unwrap_or_default()),
            self.config.trace,
            self.inactive_epoch.clone(),
            virtual_processor,
        );
        self.executors.push(ExecutorThread {
            cpu,
            link,
            waiting: Some(executor),
            thread: None,
            taken: vec![false; ACTIVITIES_MAX as usize],
            closing: Vec::new(),
            retired: Vec::new(),
            has_interrupt_handler: false,
            peers_reserved: None,
        });
        self.executors.len() - 1
    }

    /// Starts the thread that waits for descriptors, at a priority above the handlers if granted.
    pub(super) fn start_reactor(&self) -> Result<Reactor, ThreadError> {
        Reactor::start(self.real_time.map(|real_time| real_time.band.reactor()))
    }

    /// Starts the thread of an executor, if it was not started yet.
    pub(super) fn launch(&mut self, index: usize) -> Result<(), ThreadError> {
        let highest = self.real_time.map(|real_time| real_time.band.handlers());
        let fifo_priority = match self.config.mode {
            // The daemon gives the thread its class.
            Mode::Upcall if self.domain.is_some() => None,
            Mode::Upcall => highest,
            Mode::Threads => None,
            Mode::Fifo => highest.map(|highest| self.rate_monotonic_priority(index, highest)),
        };
        let executor = &mut self.executors[index];
        let Some(mut waiting) = executor.waiting.take() else { return Ok(()) };
        let cpu = executor.cpu;
        let is_upcall = self.config.mode == Mode::Upcall;
        let (notices_in, notices) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name(format!("upcall-cpu{cpu}")).spawn(move || {
                let tid = upcall_sys::process::thread_id();
                let found = prepare_thread(cpu, fifo_priority);
                if is_upcall && fifo_priority.is_some() && has_class(&found) {
                    waiting.limit_surplus();
                }
                let _ = notices_in.send((tid, found));
                let outcomes = waiting.run();
                (outcomes, upcall_sys::schedule::thread_switches())
            })?;
        executor.thread = Some(thread);
        let (tid, found) = notices.recv().map_err(|_| ThreadError::Ended)?;
        if let Some(domain) = &self.domain {
            domain.thread(cpu, tid)?;
        }
        if let (true, Some(priority), true) = (is_upcall, fifo_priority, has_class(&found)) {
            self.watch_executor(index, priority)?;
        }
        for notice in found {
            let known = self
                .notices
                .iter()
                .any(|old| std::mem::discriminant(old) == std::mem::discriminant(&notice));
            if !known {
                self.notices.push(notice);
            }
        }
        Ok(())
    }
}

impl Runtime {
    /// Lets the watchdog of this process watch an executor. Starts it if this is the first one.
    fn watch_executor(&mut self, index: usize, priority: u8) -> Result<(), ThreadError> {
        let Some(real_time) = self.real_time else { return Ok(()) };
        let watchdog = match &mut self.watchdog {
            Some(watchdog) => watchdog,
            none => none.insert(Watchdog::start(real_time.band)?),
        };
        let executor = &self.executors[index];
        watchdog.watch(executor.cpu, priority, executor.link.shared.pulse.clone());
        Ok(())
    }
}

/// Attaches to the daemon that `config` names, if any. Fills in the daemon's CPUs and its cost of a
/// hand-off. Adds a notice of what the daemon cannot grant.
fn attach(
    config: &mut Config,
    notices: &mut Vec<Notice>,
) -> Result<(Option<Domain>, Vec<VirtualProcessor>), StartError> {
    let Some(daemon) = &config.daemon else { return Ok((None, Vec::new())) };
    if config.mode != Mode::Upcall {
        return Err(StartError::NotAcrossDomains { mode: config.mode });
    }
    let attached = Domain::attach(&daemon.socket, &daemon.name, config.discipline)
        .map_err(|error| StartError::Attach(Arc::new(error)))?;
    let (cpus, virtual_processors) = attached.virtual_processors.into_iter().unzip();
    config.cpus = cpus;
    config.switch_cost = Some(attached.switch_cost);
    notices.extend(attached.missing);
    Ok((Some(attached.domain), virtual_processors))
}

/// Checks that each CPU is named once and that this process may use it.
fn check_cpus(cpus: &[u32]) -> Result<(), StartError> {
    let allowed = upcall_sys::schedule::allowed_cpus().map_err(StartError::Cpus)?;
    for (position, &cpu) in cpus.iter().enumerate() {
        if cpus[..position].contains(&cpu) {
            return Err(StartError::CpuTwice(cpu));
        }
        if !allowed.contains(&cpu) {
            return Err(StartError::CpuNotAllowed { cpu, allowed });
        }
    }
    Ok(())
}

/// The empty reservations of `config`. Measures the cost of a hand-off if it is not given.
fn reservations(config: &mut Config) -> Reservations {
    let switch_cost = *config.switch_cost.get_or_insert_with(calibrate::switch_cost);
    let platform = Platform {
        cpus: config.cpus.clone(),
        cpu_limit: config.cpu_limit,
        switch_cost,
        wakeup_latency: config.wakeup_latency,
        // There is one domain, so no preemption between domains.
        defer_preemption: Span::ZERO,
    };
    Reservations::new(platform, config.discipline)
}

/// Whether a thread that asked for the real-time class got it.
fn has_class(found: &[Notice]) -> bool {
    !found.iter().any(|notice| matches!(notice, Notice::NoRealTimeClass(_)))
}

/// Pins the calling thread, raises its priority and faults in its stack. Returns what was not
/// granted.
fn prepare_thread(cpu: u32, fifo_priority: Option<u8>) -> Vec<Notice> {
    let mut notices = Vec::new();
    if let Err(error) = upcall_sys::schedule::pin_thread(&[cpu]) {
        notices.push(Notice::NoPinning { cpu, error });
    }
    upcall_sys::memory::prefault_stack::<STACK_BYTES>();
    if let Some(priority) = fifo_priority
        && let Err(error) = upcall_sys::schedule::set_fifo(priority)
    {
        notices.push(Notice::NoRealTimeClass(FifoRefusal::new(priority, error)));
    }
    notices
}
