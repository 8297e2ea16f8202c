//! `upcalld`, also `upcall daemon`: the kernel-level scheduler as a program.
//!
//! Tells what happens on standard error, a line each, and ends on SIGTERM, on Ctrl-C,
//! or with `--exit-when-idle` when its last domain has gone.
//!
//! | module | what |
//! |---|---|
//! | `log` | `tracing` events as lines |
//! | `metrics` | the numbers of `upcall ps` for Prometheus |
//! | `service` | what a service manager is told |

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use upcall::discipline::{DISCIPLINES, Discipline};
use upcall::time::Span;
use upcall_daemon::registry::Quota;
use upcall_daemon::server::{Access, Config, Daemon, Event, Listener, Stopper};

use crate::spec::{parse_duration, parse_share};

mod log;
mod metrics;
mod service;

/// How long a daemon that ends when it is idle waits for its first domain.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
Examples:
  upcalld                                    one user's own, at the usual place
  sudo upcalld --access everyone --user-share 50%
  upcalld --cpus 2,3 --policy dws --kill

It prints a line for each domain that comes, goes, is refused or offends. SIGTERM and
Ctrl-C end it; domains then go on by themselves with what they had, and attach to the
next daemon at the same socket.

A service manager may pass the socket (LISTEN_FDS) and is told when the daemon is ready
(NOTIFY_SOCKET). RUST_LOG=info shows the events of `tracing` with their fields.";

/// Upcall's daemon: one order of handlers over all processes, and who keeps it.
#[derive(Debug, clap::Parser)]
#[command(name = "upcalld", version, max_term_width = 100)]
pub struct Program {
    /// The same as of `upcall daemon`.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// What can be typed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct DaemonArgs {
    /// Where it listens; default: $UPCALL_SOCKET, or upcall.sock in $XDG_RUNTIME_DIR, or
    /// /run/upcall.sock for root, or upcall-UID/upcall.sock where temporary files are.
    /// With --access everyone: $UPCALL_SOCKET, or /run/upcall.sock.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// CPUs that handlers may use: 1,2,3. Default: all but CPU 0.
    #[arg(long, value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// Who outranks whom, in all domains.
    #[arg(long, default_value = "rmdp", value_parser = policies())]
    pub policy: &'static Discipline,
    /// Most of a CPU that admission gives away.
    #[arg(long, default_value = "90%", value_parser = share)]
    pub cpu_limit: u32,
    /// Charged per hand-off in admission: 5us, or auto to measure it.
    #[arg(long, default_value = "auto", value_parser = switch_cost)]
    pub switch_cost: SwitchCost,
    /// How late the kernel may wake a CPU, as admission assumes it.
    #[arg(long, default_value = "0us", value_parser = duration)]
    pub wakeup_latency: Span,
    /// How long a released handler may wait while its CPU's process goes on with less urgent
    /// ones of its own: fewer switches, later answers. Admission counts it. Only under rmdp.
    #[arg(long, default_value = "0us", value_parser = duration)]
    pub defer_preemption: Span,
    /// Who may attach: its own user, or everyone (then run it as root).
    #[arg(long, value_enum, default_value = "owner")]
    pub access: AccessArg,
    /// Most domains of one user.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub user_domains: u16,
    /// Most of one CPU that a user other than root may reserve in all: 50%, 400%.
    #[arg(long, default_value = "100000%", value_parser = percent)]
    pub user_share: u64,
    /// CPU time beyond its longest quantum in which a domain must yield.
    #[arg(long, default_value = "5ms", value_parser = duration)]
    pub grace: Span,
    /// Kill a domain that had to be demoted.
    #[arg(long)]
    pub kill: bool,
    /// End when the last domain has gone.
    #[arg(long)]
    pub exit_when_idle: bool,
    /// Serve metrics for Prometheus at this loopback address: 127.0.0.1:9435. Every local
    /// user can read them, the names of all domains included.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = metrics::http::loopback)]
    pub metrics: Option<SocketAddr>,
    /// Say only what goes wrong.
    #[arg(long)]
    pub quiet: bool,
}

/// Who may attach.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum AccessArg {
    /// The user that runs it, and root.
    Owner,
    /// Every user.
    Everyone,
}

/// A cost, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct SwitchCost(Option<Span>);

/// Why it did not run.
#[derive(Debug)]
pub struct DaemonFailure(String);

impl fmt::Display for DaemonFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Serves until it is told to end.
///
/// # Errors
/// It cannot listen, or the CPUs are not there: in a line.
pub fn serve(args: &DaemonArgs) -> Result<(), DaemonFailure> {
    log::start(args.quiet);
    let cpus = match args.cpus.is_empty() {
        true => upcall::default_cpus().map_err(failed)?,
        false => args.cpus.clone(),
    };
    let passed = Listener::passed().map_err(failed)?;
    let socket = socket(args, passed.as_ref())?;
    let scrapers = args.metrics.map(listen_for_scrapers).transpose()?;
    let config = config(args, socket.clone(), cpus.clone())?;
    let daemon = match passed {
        Some(listener) => Daemon::start_at(config, listener),
        None => Daemon::start(config),
    }
    .map_err(failed)?;
    stop_on_signals(daemon.stopper()).map_err(failed)?;
    let counts = Arc::new(metrics::Counts::default());
    if let Some(listener) = scrapers {
        let source = metrics::Source::new(socket.clone(), counts.clone());
        metrics::http::start(listener, source).map_err(failed)?;
    }
    let class = daemon.real_time();
    let class = class.map_or_else(|| "ordinary class".to_owned(), |class| class.to_string());
    let (policy, cost) = (args.policy.name, daemon.switch_cost());
    let how = format!("on CPUs {cpus:?} by {policy}, hand-off {cost}, {class}");
    tracing::info!("{} {how}", socket.display());
    service::ready(&how);
    let stopper = daemon.stopper();
    if args.exit_when_idle {
        end_if_nobody_comes(&daemon);
    }
    daemon.run(|event, domains| {
        counts.count(event);
        if args.exit_when_idle && domains == 0 && matches!(event, Event::Detached { .. }) {
            stop(&stopper);
        }
    });
    Ok(())
}

fn failed(error: impl fmt::Display) -> DaemonFailure {
    DaemonFailure(format!("upcalld: {error}"))
}

/// Where the daemon listens. A socket that a service manager has passed is where it is.
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
            Err(failed(format_args!("--socket: found {named}, the service manager passed {path}")))
        }
        _ => Ok(path),
    }
}

fn listen_for_scrapers(address: SocketAddr) -> Result<TcpListener, DaemonFailure> {
    let listener = TcpListener::bind(address)
        .map_err(|error| failed(format_args!("--metrics {address}: {error}")))?;
    // With port 0 the kernel chooses.
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!("metrics at http://{address}/metrics");
    Ok(listener)
}

fn config(args: &DaemonArgs, socket: PathBuf, cpus: Vec<u32>) -> Result<Config, DaemonFailure> {
    Ok(Config {
        access: match args.access {
            AccessArg::Owner => Access::Owner,
            AccessArg::Everyone => Access::Everyone,
        },
        cpu_limit: upcall::admission::Share::from_ppm(args.cpu_limit)
            .ok_or_else(|| failed("--cpu-limit: found 0 %, expected more"))?,
        switch_cost: args.switch_cost.0,
        wakeup_latency: args.wakeup_latency,
        defer_preemption: args.defer_preemption,
        discipline: args.policy,
        quota: Quota { domains_max: args.user_domains.into(), share_max_ppm: args.user_share },
        grace: args.grace,
        kill: args.kill,
        ..Config::new(socket, cpus)
    })
}

/// Ends the daemon in order, and tells the service manager first.
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

fn end_if_nobody_comes(daemon: &Daemon) {
    let (stopper, attached) = (daemon.stopper(), daemon.attached_ever());
    std::thread::spawn(move || {
        std::thread::sleep(FIRST_WITHIN);
        if attached.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            stop(&stopper);
        }
    });
}

/// One of the policies that hold across processes, by its name, which shells complete.
fn policies() -> impl TypedValueParser<Value = &'static Discipline> {
    let across = DISCIPLINES.iter().filter(|discipline| discipline.compares_across_domains());
    PossibleValuesParser::new(across.map(|discipline| discipline.name)).try_map(|name| {
        upcall::discipline::by_name(&name).ok_or_else(|| format!("there is no policy {name}"))
    })
}

fn share(text: &str) -> Result<u32, String> {
    parse_share(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Span, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn switch_cost(text: &str) -> Result<SwitchCost, String> {
    match text {
        "auto" => Ok(SwitchCost(None)),
        text => duration(text).map(Some).map(SwitchCost),
    }
}

/// Millionths; more than a whole is meant to be possible.
fn percent(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').map(str::trim).and_then(|text| text.parse::<u64>().ok());
    number.and_then(|percent| percent.checked_mul(10_000)).ok_or_else(|| {
        format!("found \"{text}\", expected whole percent of a CPU, as in 50% or 400%")
    })
}
