//! `upcalld`, also `upcall daemon`: the kernel-level scheduler as a program.
//!
//! Tells what happens on standard error, a line each, and ends on SIGTERM, on Ctrl-C,
//! or with `--exit-when-idle` when its last domain has gone.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use upcall::policy::Discipline;
use upcall::time::Span;
use upcall_daemon::registry::Quota;
use upcall_daemon::server::{Access, Config, Daemon, Event, Stopper};

use crate::spec::{parse_duration, parse_share};

/// How long a daemon that ends when it is idle waits for its first domain.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
Examples:
  upcalld                                    one user's own, at the usual place
  sudo upcalld --access everyone --user-share 50%
  upcalld --cpus 2,3 --policy dws --kill

It prints a line for each domain that comes, goes, is refused or offends. SIGTERM and
Ctrl-C end it; domains then go on by themselves with what they had, and attach to the
next daemon at the same socket.";

/// What can be typed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct DaemonArgs {
    /// Where it listens; default: $UPCALL_SOCKET, or upcall.sock in $XDG_RUNTIME_DIR, or
    /// /run/upcall.sock for root, or upcall-UID/upcall.sock where temporary files are.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// CPUs that handlers may use: 1,2,3. Default: all but CPU 0.
    #[arg(long, value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// Who outranks whom, in all domains: rmdp, rm or dws.
    #[arg(long, default_value = "rmdp", value_parser = policy)]
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
    pub patience: Span,
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
    let failed = |error: &dyn fmt::Display| DaemonFailure(format!("upcalld: {error}"));
    let cpus = match args.cpus.is_empty() {
        true => upcall::default_cpus().map_err(|error| failed(&error))?,
        false => args.cpus.clone(),
    };
    let socket = match &args.socket {
        Some(named) => named.clone(),
        None => upcall::own_daemon_socket().map_err(|error| failed(&error))?,
    };
    let config = Config {
        access: match args.access {
            AccessArg::Owner => Access::Owner,
            AccessArg::Everyone => Access::Everyone,
        },
        cpu_limit: upcall::admission::Share::from_ppm(args.cpu_limit)
            .ok_or_else(|| failed(&"--cpu-limit: found 0 %, expected more"))?,
        switch_cost: args.switch_cost.0,
        wakeup_latency: args.wakeup_latency,
        patience: args.patience,
        discipline: args.policy,
        quota: Quota { domains_max: args.user_domains.into(), share_max_ppm: args.user_share },
        grace: args.grace,
        kill: args.kill,
        ..Config::new(socket.clone(), cpus.clone())
    };
    let daemon = Daemon::start(config).map_err(|error| failed(&error))?;
    stop_on_signals(daemon.stopper()).map_err(|error| failed(&error))?;
    let class = daemon.real_time();
    let class = class.map_or_else(|| "ordinary class".to_owned(), |class| class.to_string());
    if !args.quiet {
        say(format_args!(
            "{} on CPUs {cpus:?} by {}, hand-off {}, {class}",
            socket.display(),
            args.policy.name,
            daemon.switch_cost()
        ));
    }
    let stopper = daemon.stopper();
    if args.exit_when_idle {
        end_if_nobody_comes(&daemon);
    }
    daemon.run(|event, domains| {
        if !args.quiet || matches!(event, Event::Offence { .. } | Event::Trouble(_)) {
            say(line(event));
        }
        if args.exit_when_idle && domains == 0 && matches!(event, Event::Detached { .. }) {
            stopper.stop();
        }
    });
    Ok(())
}

/// Whoever read it may have gone; domains are served all the same.
fn say(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "upcalld: {line}");
}

fn stop_on_signals(stopper: Stopper) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("upcall-signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    })?;
    Ok(())
}

fn end_if_nobody_comes(daemon: &Daemon) {
    let (stopper, attached) = (daemon.stopper(), daemon.attached_ever());
    std::thread::spawn(move || {
        std::thread::sleep(FIRST_WITHIN);
        if attached.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            stopper.stop();
        }
    });
}

fn line(event: &Event) -> String {
    match event {
        Event::Attached { domain, name, owner } => {
            format!("domain {domain} `{name}`: process {} of user {}", owner.pid, owner.uid)
        }
        Event::Detached { domain, name, reason } => format!("domain {domain} `{name}`: {reason}"),
        Event::Refused { owner, reason } => {
            format!("process {} of user {} refused: {reason}", owner.pid, owner.uid)
        }
        Event::Offence { domain, name, cpu, measure, held } => {
            format!("domain {domain} `{name}` kept CPU {cpu} for {held}: {measure}")
        }
        Event::Trouble(what) => what.clone(),
        other => format!("{other:?}"),
    }
}

fn policy(text: &str) -> Result<&'static Discipline, String> {
    upcall::policy::discipline(text).ok_or_else(|| "expected rmdp, rm or dws".to_owned())
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
