//! How a runtime is set up.

use upcall_core::admission::Share;
use upcall_core::discipline::Discipline;
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;
use upcall_sys::schedule::Band;

/// Priority of the scheduling threads in `SCHED_FIFO`, where any priority is granted
/// ([`Band::WHOLE`]).
///
/// It is above that of threaded interrupt handlers (50), so that a flood of interrupts does not
/// delay handlers. It is below that of the watchdog.
pub const FIFO_PRIORITY: u8 = Band::WHOLE.handlers();

/// What decides which handler runs next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One real-time thread for each CPU, and the policy decides.
    #[default]
    Upcall,
    /// The ordinary way: one ordinary thread for each handler, and the kernel decides.
    Threads,
    /// The expert's way: one `SCHED_FIFO` thread for each handler, with priorities by rate.
    Fifo,
}

impl Mode {
    /// Every mode, in the order a comparison runs them.
    pub const ALL: [Mode; 3] = [Mode::Upcall, Mode::Threads, Mode::Fifo];

    /// The name used on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Upcall => "upcall",
            Mode::Threads => "threads",
            Mode::Fifo => "fifo",
        }
    }
}

/// Which memory of the process a [`Runtime`](crate::Runtime) locks. The kernel does not write out
/// locked pages, so no handler waits for them.
///
/// The lock belongs to the process: it holds for all its threads, and stays when the runtime is
/// gone. `VmLck` of `/proc/self/status` counts address space, also the part that `malloc` reserves
/// for each thread and never uses. `Locked` of `/proc/self/smaps` counts the memory in use. A
/// program with 23 threads:
///
/// | | `VmLck` | in memory |
/// |---|---|---|
/// | `All` | 1,031,392 KiB | 48,375 KiB: the threads' stacks, whole |
/// | `OnFault` | 1,031,392 KiB | 955 KiB |
/// | `Off` | 0 | 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryLock {
    /// All present and future memory is locked: no handler ever waits for a page. Creating a thread
    /// or mapping also takes the time to fill its memory.
    #[default]
    All,
    /// Each page is locked from its first use on. A handler waits for a page (a minor fault, some
    /// microseconds) only when it is the first to use it. The stacks of the scheduling threads are
    /// faulted in at their start.
    OnFault,
    /// No memory is locked: a handler waits whenever the kernel has taken a page away. A lock that
    /// the program itself made stays.
    Off,
}

impl MemoryLock {
    /// Every setting.
    pub const EVERY: [MemoryLock; 3] = [MemoryLock::All, MemoryLock::OnFault, MemoryLock::Off];

    /// The name used in the C API.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryLock::All => "all",
            MemoryLock::OnFault => "on-fault",
            MemoryLock::Off => "off",
        }
    }
}

/// How a [`Runtime`](crate::Runtime) is set up. [`Config::default`] uses every allowed CPU but CPU
/// 0, reserves at most 90 % of each, and measures the cost of a hand-off.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// use upcall::discipline::DWS;
/// use upcall::{Attach, Config, Runtime, daemon_socket};
///
/// // One CPU, and the policy that tasks need.
/// let alone = Config { cpus: vec![1], discipline: &DWS, ..Config::default() };
/// // As one process among others, under a daemon.
/// let attach = Attach { socket: daemon_socket()?, name: "player".into() };
/// let among_others = Config { daemon: Some(attach), ..Config::default() };
/// let runtime = Runtime::start(alone)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The CPUs that the handlers may use. If it is empty, they use all allowed CPUs but CPU 0, or
    /// the only one.
    pub cpus: Vec<u32>,
    /// The share of a CPU that admission may reserve at most.
    pub cpu_limit: Share,
    /// The cost of a hand-off in admission; `None` measures it.
    pub switch_cost: Option<Span>,
    /// The longest wake-up latency that admission allows for; zero by default.
    pub wakeup_latency: Span,
    /// The policy of upcall mode. Admission uses it in every mode. One of [`RMDP`] (rate
    /// monotonic, delayed preemption; the default), [`RM`](upcall_core::discipline::RM),
    /// [`DWS`](upcall_core::discipline::DWS) (deadlines; tasks need it),
    /// [`PS`](upcall_core::discipline::PS) (shares) and [`DWCS`](upcall_core::discipline::DWCS)
    /// (windows). For another time quantum of PS put
    /// [`ps_with_quantum`](upcall_core::discipline::ps_with_quantum) into a `static`.
    pub discipline: &'static Discipline,
    /// What decides which handler runs next.
    pub mode: Mode,
    /// Whether handlers run even if admission refuses them. Then nothing is promised.
    pub unscreened: bool,
    /// Whether the core's inputs and commands are kept for [`Runtime::poll_trace`]. Only in upcall
    /// mode. Takes 4 MiB for each CPU.
    ///
    /// [`Runtime::poll_trace`]: crate::Runtime::poll_trace
    pub trace: bool,
    /// Which memory of the process is locked. If the lock is not granted,
    /// [`Notice::NoMemoryLock`](crate::Notice::NoMemoryLock) says so.
    pub memory_lock: MemoryLock,
    /// If set, the process takes part as a domain of this daemon. The daemon then sets the CPUs and
    /// the cost of a hand-off, and decides admission. Only in upcall mode. The policy and its time
    /// quantum must be those of the daemon. Groups (PS) with names are shared with the user's other
    /// domains ([`naming_groups`](upcall_core::discipline::Discipline::naming_groups)).
    pub daemon: Option<Attach>,
}

/// The socket and the name by which a process attaches to a daemon, `upcalld`: see
/// [`Config::daemon`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The daemon's socket.
    pub socket: std::path::PathBuf,
    /// The domain's name, shown to people.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            cpus: Vec::new(),
            cpu_limit: Share::CPU_LIMIT_DEFAULT,
            switch_cost: None,
            wakeup_latency: Span::ZERO,
            discipline: &RMDP,
            mode: Mode::default(),
            unscreened: false,
            trace: false,
            memory_lock: MemoryLock::default(),
            daemon: None,
        }
    }
}
