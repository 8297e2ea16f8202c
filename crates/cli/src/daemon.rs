//! `upcalld`, also `upcall daemon`: the program that runs the kernel-level scheduler.
//!
//! The program prints each event of the daemon as a line on standard error. It ends on SIGTERM and
//! on Ctrl-C. With `--exit-when-idle` it ends when the last domain and the last program have gone.
//!
//! | module | what it holds |
//! |---|---|
//! | `log` | `tracing` events as lines |
//! | `metrics` | the numbers of `upcall ps` for Prometheus |
//! | `service` | messages to a service manager |

use std::error::Error;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use upcall::discipline::{DISCIPLINES, Discipline};
use upcall::packet_quota::limit_of;
use upcall::time::Span;
use upcall_daemon::registry::Quota;
use upcall_daemon::server::{
    Access, CONNECTIONS_MAX_DEFAULT, Config, Daemon, DaemonEvent, Listener, Stopper,
};

use crate::cpu_lock::{CpuLockError, CpuLocks};
use crate::spec::{parse_duration, parse_packet_period, parse_share};

pub use upcall_daemon::programs::supervise_if_asked;

mod log;
mod metrics;
mod service;

/// How long a daemon with `--exit-when-idle` waits for its first domain or program.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
Examples:
  upcalld                                    for one user, at the default socket
  sudo upcalld --access everyone --user-share 50%
  upcalld --cpus 2,3 --policy dws --kill

It prints a line for each domain that attaches, detaches, is refused or offends. SIGTERM
and Ctrl-C end it. Domains then run on with what they have, and attach to the next daemon
at the same socket.

A service manager may pass the socket (LISTEN_FDS). The daemon reports to it when it is
ready (NOTIFY_SOCKET). RUST_LOG=info shows the events of `tracing` with their fields.";

/// Upcall's daemon: keeps one order of handlers over all processes.
#[derive(Debug, clap::Parser)]
#[command(name = "upcalld", version, max_term_width = 100)]
pub struct Program {
    /// The arguments of `upcall daemon`.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// The arguments of the command line.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct DaemonArgs {
    /// Path of the socket. Default: $UPCALL_SOCKET, or upcall.sock in $XDG_RUNTIME_DIR, or
    /// /run/upcall.sock for root, or upcall-UID/upcall.sock in the folder of temporary files. With
    /// --access everyone: $UPCALL_SOCKET, or /run/upcall.sock.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// CPUs that handlers may use: 1,2,3. Default: all but CPU 0.
    #[arg(long, value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// The order of handlers, in all domains.
    #[arg(long, default_value = "rmdp", value_parser = policies())]
    pub policy: &'static Discipline,
    /// Longest service of a domain at a time, only under ps [default: 1ms]. A spec says it by
    /// `time_quantum`: the domains and the daemon must agree.
    #[arg(long, value_parser = duration)]
    pub time_quantum: Option<Span>,
    /// Share of a CPU that admission may reserve. Under ps ordinary programs have the rest.
    #[arg(long, default_value = "90%", value_parser = share)]
    pub cpu_limit: u32,
    /// Cost of a hand-off in admission: 5us, or auto to measure it.
    #[arg(long, default_value = "auto", value_parser = switch_cost)]
    pub switch_cost: SwitchCost,
    /// Longest wake-up latency of the kernel that admission allows for.
    #[arg(long, default_value = "0us", value_parser = duration)]
    pub wakeup_latency: Span,
    /// How long a released handler may wait while the process that has the CPU runs less urgent
    /// handlers of its own. Saves switches and delays responses; admission counts the delay. Only
    /// under rmdp.
    #[arg(long, default_value = "0us", value_parser = duration)]
    pub defer_preemption: Span,
    /// Who may attach: the daemon's own user, or everyone (then run it as root).
    #[arg(long, value_enum, default_value = "owner")]
    pub access: AccessArg,
    /// Most domains of one user. Default: 32, which is all places; with --access everyone, or with
    /// a socket of a service manager, 24: one user cannot take the places of all.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub user_domains: Option<u16>,
    /// Most that a user other than root may reserve on all CPUs, in percent of one CPU: 50%, 400%.
    #[arg(long, default_value = "100000%", value_parser = percent)]
    pub user_share: u64,
    /// Most connections of one user. Each connection takes descriptors of the daemon.
    #[arg(long, default_value_t = CONNECTIONS_MAX_DEFAULT)]
    pub user_connections: usize,
    /// How long a connection that is no domain may send nothing before the daemon closes it.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub silent_timeout: Span,
    /// Users, by number, who may run what admission refuses (`upcall run --soft`): 1000,1001. Root
    /// and the daemon's own user may. Such work runs only while no reserved work is ready.
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub soft_users: Vec<u32>,
    /// Users, by number, who may ask for shares of their programs (`upcall exec`): 1000,1001. Root
    /// and the daemon's own user may. Such users can delay one another and ordinary programs.
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub program_users: Vec<u32>,
    /// Interfaces on which the daemon may drop packets beyond a quota (`upcall exec --receive`):
    /// eth1,eth2. It attaches a program to their drivers while there are quotas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub interfaces: Vec<String>,
    /// The most packets for all destinations without a quota, on each interface with quotas:
    /// 20000/s. Default: no limit. Address resolution (ARP, neighbor discovery) always passes.
    #[arg(long, value_name = "RATE", value_parser = other_packets, requires = "interfaces")]
    pub other_packets: Option<OtherPackets>,
    /// CPU time beyond its longest quantum that a domain may take to yield.
    #[arg(long, default_value = "5ms", value_parser = duration)]
    pub grace: Span,
    /// Kill a domain that has been demoted.
    #[arg(long)]
    pub kill: bool,
    /// End when the last domain has detached and the last program has ended.
    #[arg(long)]
    pub exit_when_idle: bool,
    /// Serve metrics for Prometheus at this loopback address: 127.0.0.1:9435. Every local user can
    /// read them, including the names of all domains.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = metrics::http::loopback)]
    pub metrics: Option<SocketAddr>,
    /// Print warnings only.
    #[arg(long)]
    pub quiet: bool,
}

/// Who may attach.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum AccessArg {
    /// The user that runs the daemon, and root.
    Owner,
    /// Every user.
    Everyone,
}

/// The time between two packets, and how many may be ahead of it.
#[derive(Clone, Copy, Debug)]
pub struct OtherPackets(Span, u32);

/// The cost of a hand-off; `None` measures it.
#[derive(Clone, Copy, Debug)]
pub struct SwitchCost(Option<Span>);

/// Why the daemon did not run. Its text is one line.
#[derive(Debug)]
pub struct DaemonFailure(Box<dyn Error + Send + Sync>);

impl fmt::Display for DaemonFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upcalld: {}", self.0)
    }
}

impl Error for DaemonFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// Serves until a signal ends the daemon.
///
/// # Errors
/// The daemon cannot listen, or a CPU is not usable: as one line.
pub fn serve(args: &DaemonArgs) -> Result<(), DaemonFailure> {
    let log = log::start(args.quiet).map_err(failed)?;
    let cpus = match args.cpus.is_empty() {
        true => upcall::default_cpus().map_err(failed)?,
        false => args.cpus.clone(),
    };
    let passed = Listener::passed().map_err(failed)?;
    let socket = socket(args, passed.as_ref())?;
    let scrapers = args.metrics.map(listen_for_scrapers).transpose()?;
    let config = config(args, socket.clone(), cpus.clone(), passed.is_some())?;
    let _locks = lock(&cpus)?;
    let daemon = match passed {
        Some(listener) => Daemon::start_at(config, listener),
        None => Daemon::start(config),
    }
    .map_err(failed)?;
    stop_on_signals(daemon.stopper()).map_err(failed)?;
    let counts = Arc::new(metrics::Counts::new(daemon.refused_ever(), log.lost_lines()));
    if let Some(listener) = scrapers {
        let source = metrics::Source::new(socket.clone(), counts.clone());
        metrics::http::start(listener, source).map_err(failed)?;
    }
    let class = daemon.real_time();
    let class = class.map_or_else(|| "ordinary class".to_owned(), |class| class.to_string());
    let (policy, cost) = (args.policy.name, daemon.switch_cost());
    let mut how = format!("on CPUs {cpus:?} by {policy}, hand-off {cost}, {class}");
    if !args.interfaces.is_empty() {
        how += &format!(", packet quotas and flows on {}", args.interfaces.join(", "));
    }
    for name in &args.interfaces {
        if let Err(error) = upcall_daemon::interface::index(name) {
            let event = "interfaces";
            tracing::warn!(event, name, %error, "interface {name}: {error}: packet quotas and flows are refused");
        }
    }
    tracing::info!("{} {how}", socket.display());
    service::ready(&how);
    let stopper = daemon.stopper();
    if args.exit_when_idle {
        stop_without_clients(&daemon);
    }
    daemon.run(|event, clients| {
        counts.count(event);
        let is_end = matches!(
            event,
            DaemonEvent::Detached { .. }
                | DaemonEvent::ProgramEnded { .. }
                | DaemonEvent::PacketQuotaEnded { .. }
                | DaemonEvent::FlowEnded { .. }
        );
        if args.exit_when_idle && clients == 0 && is_end {
            stop(&stopper);
        }
    });
    Ok(())
}

fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> DaemonFailure {
    DaemonFailure(error.into())
}

/// The path where the daemon listens: that of a passed socket, or the path by the arguments.
fn socket(args: &DaemonArgs, passed: Option<&Listener>) -> Result<PathBuf, DaemonFailure> {
    let Some(listener) = passed else {
        return match (&args.socket, args.access) {
            (Some(named), _) => Ok(named.clone()),
            (None, AccessArg::Everyone) => Ok(upcall::system_daemon_socket()),
            (None, AccessArg::Owner) => upcall::own_daemon_socket().map_err(failed),
        };
    };
    let path = listener.path().map_err(failed)?;
    let path = path.ok_or_else(|| failed("the socket of the service manager has no path"))?;
    match &args.socket {
        Some(named) if *named != path => {
            let (named, path) = (named.display(), path.display());
            Err(failed(format!("--socket: found {named}, the service manager passed {path}")))
        }
        _ => Ok(path),
    }
}

/// Locks the CPUs of a daemon that has the right to the real-time class. A run or a daemon that
/// holds one already schedules real-time work there.
fn lock(cpus: &[u32]) -> Result<Option<CpuLocks>, DaemonFailure> {
    if upcall::RealTime::granted().is_err() {
        return Ok(None);
    }
    match CpuLocks::take(cpus, "upcalld") {
        Ok(locks) => Ok(Some(locks)),
        Err(held @ CpuLockError::Held { .. }) => {
            Err(failed(format!("{held}; wait for its end, or name other --cpus")))
        }
        Err(error) => {
            tracing::warn!("a run may use the same CPUs: {error}");
            Ok(None)
        }
    }
}

fn listen_for_scrapers(address: SocketAddr) -> Result<TcpListener, DaemonFailure> {
    let listener = TcpListener::bind(address)
        .map_err(|error| failed(format!("--metrics {address}: {error}")))?;
    // With port 0 the kernel chooses the port.
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!("metrics at http://{address}/metrics");
    Ok(listener)
}

/// `is_passed`: several users may have access to the socket, whatever `--access` says.
fn config(
    args: &DaemonArgs,
    socket: PathBuf,
    cpus: Vec<u32>,
    is_passed: bool,
) -> Result<Config, DaemonFailure> {
    let access = match args.access {
        AccessArg::Owner => Access::Owner,
        AccessArg::Everyone => Access::Everyone,
    };
    let default = if is_passed || access == Access::Everyone { 24 } else { 32 };
    let domains_max = args.user_domains.unwrap_or(default).into();
    Ok(Config {
        access,
        cpu_limit: upcall::admission::Share::from_ppm(args.cpu_limit)
            .ok_or_else(|| failed("--cpu-limit: found 0 %, expected more"))?,
        switch_cost: args.switch_cost.0,
        wakeup_latency: args.wakeup_latency,
        defer_preemption: args.defer_preemption,
        discipline: discipline(args)?,
        quota: Quota { domains_max, share_max_ppm: args.user_share },
        connections_max: args.user_connections,
        silent_max: args.silent_timeout,
        soft_users: args.soft_users.clone(),
        program_users: args.program_users.clone(),
        interfaces: args.interfaces.clone(),
        other_packets: args.other_packets.map(|OtherPackets(interval, depth)| (interval, depth)),
        grace: args.grace,
        kill: args.kill,
        // Without it, the next daemon removes what a killed one left.
        supervisor: std::env::current_exe().ok(),
        ..Config::new(socket, cpus)
    })
}

/// Tells the service manager that the daemon ends, and ends it.
fn stop(stopper: &Stopper) {
    service::stopping();
    stopper.stop();
}

fn stop_on_signals(stopper: Stopper) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("upcall-signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            stop(&stopper);
        }
    })?;
    Ok(())
}

fn stop_without_clients(daemon: &Daemon) {
    let (stopper, attached) = (daemon.stopper(), daemon.attached_ever());
    std::thread::spawn(move || {
        std::thread::sleep(FIRST_WITHIN);
        if attached.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            stop(&stopper);
        }
    });
}

/// The policy, with its time quantum.
fn discipline(args: &DaemonArgs) -> Result<&'static Discipline, DaemonFailure> {
    let Some(quantum) = args.time_quantum else { return Ok(args.policy) };
    if args.policy.time_quantum.is_none() || quantum.is_zero() {
        return Err(failed(format!(
            "--time-quantum {quantum} with --policy {}: expected more than 0, and --policy ps",
            args.policy.name
        )));
    }
    // Once, at the start of the daemon.
    Ok(Box::leak(Box::new(upcall::discipline::ps_with_quantum(quantum))))
}

/// Parses the name of a policy. Shells complete the names.
fn policies() -> impl TypedValueParser<Value = &'static Discipline> {
    PossibleValuesParser::new(DISCIPLINES.iter().map(|discipline| discipline.name)).try_map(
        |name| {
            upcall::discipline::by_name(&name).ok_or_else(|| format!("there is no policy {name}"))
        },
    )
}

fn share(text: &str) -> Result<u32, String> {
    parse_share(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Span, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn other_packets(text: &str) -> Result<OtherPackets, String> {
    let (interval, depth) = limit_of(parse_packet_period(text)?, None);
    Ok(OtherPackets(interval, depth))
}

fn switch_cost(text: &str) -> Result<SwitchCost, String> {
    match text {
        "auto" => Ok(SwitchCost(None)),
        text => duration(text).map(Some).map(SwitchCost),
    }
}

/// Millionths of a CPU; more than one CPU is possible.
fn percent(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').map(str::trim).and_then(|text| text.parse::<u64>().ok());
    number.and_then(|percent| percent.checked_mul(10_000)).ok_or_else(|| {
        format!("found \"{text}\", expected whole percent of a CPU, as in 50% or 400%")
    })
}
