//! How a runtime is set up.

use upcall_core::admission::Share;
use upcall_core::policy::Discipline;
use upcall_core::policy::rmdp::RMDP;
use upcall_core::time::Span;
use upcall_sys::schedule::Band;

/// Priority of the scheduling threads in `SCHED_FIFO`, where any priority is granted
/// ([`Band::WHOLE`]).
///
/// Above threaded interrupt handlers (50), so that a flood of interrupts does
/// not come first, and with room above for a guardian.
pub const FIFO_PRIORITY: u8 = Band::WHOLE.handlers();

/// Who decides what runs next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Upcall: one real-time thread a CPU, the policy decides.
    #[default]
    Upcall,
    /// The ordinary way: one ordinary thread a handler, the kernel decides.
    Threads,
    /// The expert's way: one `SCHED_FIFO` thread a handler, priorities by rate.
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

/// How a [`Runtime`](crate::Runtime) is set up. [`Config::default`] uses every
/// allowed CPU but CPU 0, gives away at most 90 % of each, and measures the
/// cost of a hand-off.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs the handlers may use. Empty: all allowed but CPU 0, or the only one.
    pub cpus: Vec<u32>,
    /// Most of a CPU that admission gives away.
    pub cpu_limit: Share,
    /// Cost of a hand-off in admission; `None` measures it.
    pub switch_cost: Option<Span>,
    /// Longest wake-up latency that admission allows for; zero by default.
    pub wakeup_latency: Span,
    /// By which policy, in upcall mode; admission goes by it in every mode.
    pub discipline: &'static Discipline,
    /// Who decides.
    pub mode: Mode,
    /// Run what admission refuses all the same: no promise is made then.
    pub unscreened: bool,
    /// Keep what crosses the core's interface for [`Runtime::poll_trace`]. Only in
    /// upcall mode. Takes 4 MiB a CPU.
    ///
    /// [`Runtime::poll_trace`]: crate::Runtime::poll_trace
    pub trace: bool,
    /// Take part as one domain among other processes: the CPUs, the cost of a hand-off
    /// and admission are the daemon's. Only in upcall mode, under `rmdp`, `rm` or `dws`.
    pub daemon: Option<Attach>,
}

/// Where and as what a process attaches to a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The daemon's socket.
    pub socket: std::path::PathBuf,
    /// The domain's name, for people.
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
            daemon: None,
        }
    }
}
