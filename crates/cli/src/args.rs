//! The command line: commands, options and their help.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use upcall::discipline::{DISCIPLINES, Discipline};
use upcall::time::Span;
use upcall_cli::arrivals::Recording;

pub use bench::{BenchCommand, LivelockArgs, LivelockRole, SendersArg};
pub use daemon_at::DaemonAt;
use programs::{ADOPT_AFTER_HELP, EXEC_AFTER_HELP, SHARE_AFTER_HELP};
pub use programs::{AdoptArgs, ExecArgs, ShareArg, ShareArgs, TermsArgs};
use values::{duration, short_duration};

mod bench;
mod daemon_at;
mod programs;
#[cfg(test)]
mod tests;
mod values;

const AFTER_HELP: &str = "\
Examples:
  upcall plan examples/conference.toml              would it fit, and why (not)?
  upcall run examples/conference.toml               run it for 10 s, live
  upcall run examples/conference.toml --compare     the same load three ways, side by side
  upcall run my.toml --duration 1min --csv jobs.csv --json > outcome.json
  upcall sim my.toml --duration 1min                the same policy code in virtual time
  upcall exec --share 45% -- ffmpeg -i in.mkv out.mp4    a share for any program
  sudo upcall bench livelock                        what a flood of packets does, and a quota

Exit status:
  0  admitted / every promise kept
  2  bad usage or a bad spec file; nothing was run
  3  admission refused; nothing was run
  4  a promise was broken
  that of the program, for exec

The spec file is described in docs/spec.md.";

const PLAN_AFTER_HELP: &str = "\
Examples:
  upcall plan examples/conference.toml
  upcall plan my.toml --json | jq .refusals

Exit status:
  0  admitted
  2  bad usage or a bad spec file
  3  admission refused";

const RUN_AFTER_HELP: &str = "\
Examples:
  upcall run examples/conference.toml --compare
  upcall run my.toml --duration 1min --csv jobs.csv --json > outcome.json
  upcall run my.toml --trace live.pftrace           for ui.perfetto.dev and --replay

Exit status:
  0  every promise kept; where nothing was promised, nothing was broken
  2  bad usage or a bad spec file, nothing was run; or the outcome, the job log or
     the trace could not be written
  3  refused, nothing was run: by admission here or in the daemon; or another run or
     a daemon has the CPU (docs/spec.md, \"One CPU is promised once\")
  4  a promise was broken; where nothing was promised, the same judgement failed";

const SIM_AFTER_HELP: &str = "\
Examples:
  upcall sim examples/conference.toml --duration 1min
  upcall sim my.toml --policy rm --soft --json
  upcall sim my.toml --arrivals camera=call.pcapng:5004    as a real network sent them
  upcall sim my.toml --trace out.pftrace            for ui.perfetto.dev
  upcall sim --replay live.pftrace                  does the core still decide the same?
  upcall sim --vopr 10000                           random scenarios, every promise checked

Exit status:
  0  every promise kept; or the same commands
  2  bad usage, a bad spec file, recording or trace, or a trace with gaps
  3  admission refused
  4  a promise was broken; or other commands than recorded";

const SWEEP_AFTER_HELP: &str = "\
Examples:
  upcall sweep examples/sweep.toml -o results.csv
  upcall sweep examples/sweep.toml -o results.csv --json > curve.json
  upcall sweep examples/sweep.toml -o results.parquet      typed columns, for pandas or DuckDB

Exit status:
  0  all sets are in the file, or it was interrupted
  2  bad usage, a bad sweep file, or results that cannot be written";

const PLOT_AFTER_HELP: &str = "\
Examples:
  upcall sim my.toml --trace my.pftrace && upcall plot my.pftrace -o my.svg
  upcall plot my.pftrace --from 1s --to 1200ms -o second.svg
  upcall run my.toml --compare --json > my.json && upcall plot my.json -o my.svg";

const TOP_AFTER_HELP: &str = "\
Examples:
  upcall top
  upcall top --socket /run/upcall.sock --interval 500ms

Exit status:
  0  the user quit it
  2  bad usage, no daemon, or no terminal";

const PS_AFTER_HELP: &str = "\
Examples:
  upcall ps
  upcall ps --json | jq '.domains[] | {name, state, misses}'

The JSON is one object, {\"policy\", \"real_time\", \"cpus\": [...], \"domains\": [{...,
\"virtual_processors\": [...], \"activities\": [...]}]}; times are whole nanoseconds, shares are
parts of one CPU. docs/observing.md has every field.

Exit status:
  0  printed
  2  bad usage, or no daemon";

const BENCH_AFTER_HELP: &str = "\
Examples:
  sudo upcall bench livelock --duration 1min --runs 5
  upcall bench livelock --help                      what it measures, and how";

const NET_AFTER_HELP: &str = "\
Examples:
  upcall net
  upcall net --json | jq '.packet_quotas[] | {destination, passed, dropped}'
  ip netns exec lab upcall net    the interfaces of another network namespace

The path is the best one that the driver allows. \"AF_XDP\": between the driver and memory of a
process; no command takes it yet. \"sockets\": the kernel's protocols. Where the driver runs XDP, a
daemon with `--interfaces` drops packets beyond a quota there (`upcall exec --receive`).

Exit status:
  0  printed
  2  bad usage, or the daemon at --socket does not answer";

const COMPLETIONS_AFTER_HELP: &str = "\
Examples:
  upcall completions bash > ~/.local/share/bash-completion/completions/upcall
  upcall completions zsh > ~/.zfunc/_upcall
  upcall completions fish > ~/.config/fish/completions/upcall.fish";

const MAN_AFTER_HELP: &str = "\
Examples:
  upcall man ~/.local/share/man/man1 && man upcall-plan
  sudo upcall man /usr/local/share/man/man1";

/// Real-time streams on stock Linux: say what a stream needs, get it or a reason.
#[derive(Debug, Parser)]
#[command(name = "upcall", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Map and admit a spec; run nothing.
    ///
    /// Prints each activity with its period, batch, quantum, buffers and
    /// worst-case response, every schedulability test, and for each refusal the
    /// reason and one change that would fit.
    #[command(after_help = PLAN_AFTER_HELP)]
    Plan(PlanArgs),
    /// Admit a spec and run it on this machine.
    ///
    /// Receives and sends real packets, starts the senders and the background
    /// load the spec names, shows live state, and prints the outcome. Ctrl-C
    /// ends the run early and prints the outcome so far.
    #[command(after_help = RUN_AFTER_HELP)]
    Run(RunArgs),
    /// Run a spec in virtual time, with the same policy code.
    ///
    /// Costs are as declared. Hand-offs are free unless the spec says what they
    /// cost. The same spec gives the same output, byte for byte.
    #[command(after_help = SIM_AFTER_HELP)]
    Sim(SimArgs),
    /// Draw a trace or an outcome as SVG.
    ///
    /// For a trace (`--trace` of run and sim), draws the schedule with one row per
    /// activity, under ps the lag of each activity over the same time, and
    /// histograms: the slack of each activity, its lag under ps, and the wake-up
    /// latency of each CPU in a live run. Lag and wake-ups come from a replay and
    /// are left out if records are missing. For an outcome (`--json` of run and
    /// sim), draws responses against deadlines, and ranges of lag.
    #[command(after_help = PLOT_AFTER_HELP)]
    Plot(PlotArgs),
    /// Admit and simulate random task sets over a grid, on all cores.
    ///
    /// Writes a CSV row for each set and policy (columns: sweep, set, policy,
    /// utilization, activities, quantum, switch_cost_ns, admitted, test, jobs,
    /// misses, switches, busy_ns, duration_ns) in the order of the sets, and
    /// prints the admitted part at each point. After an interruption the same
    /// command continues where it stopped, and the final file is the same. A name
    /// that ends in .parquet gets a Parquet file with the same columns, typed, when
    /// all sets are done; until then the rows are in a CSV beside it,
    /// results.parquet.csv.
    #[command(after_help = SWEEP_AFTER_HELP)]
    Sweep(SweepArgs),
    /// Schedule the handlers of several processes in one order.
    ///
    /// The same as the program `upcalld`. `upcall run` starts one by itself for a spec
    /// with several domains, or with streams at `xdp://`, if none is running.
    Daemon(upcall_cli::daemon::DaemonArgs),
    /// Watch a running daemon: CPUs, domains and their activities, live.
    ///
    /// Shows reservations against use, hand-offs, misses, slack and actions of the
    /// watchdog. Keys: q quits, arrows scroll, s sorts by another column, h shows help.
    /// Only root and the daemon's own user see the domains of others.
    #[command(after_help = TOP_AFTER_HELP)]
    Top(TopArgs),
    /// Print the state of a running daemon, once.
    #[command(after_help = PS_AFTER_HELP)]
    Ps(PsArgs),
    /// Show the network interfaces, what each can do, and the packet quotas.
    #[command(after_help = NET_AFTER_HELP)]
    Net(NetArgs),
    /// Run a program that nobody changed with a share of a CPU, or a limit of its packets.
    ///
    /// Admits the share beside all others, or refuses it with one that fits. Starts the
    /// program, waits for its end, and reports share, lag and waiting times beside what
    /// was promised.
    #[command(after_help = EXEC_AFTER_HELP)]
    Exec(ExecArgs),
    /// Give a program another share while it runs, or none.
    #[command(after_help = SHARE_AFTER_HELP)]
    Share(ShareArgs),
    /// Give a share to a process that runs already.
    #[command(after_help = ADOPT_AFTER_HELP)]
    Adopt(AdoptArgs),
    /// Run an experiment of a paper on this machine.
    #[command(subcommand, after_help = BENCH_AFTER_HELP)]
    Bench(BenchCommand),
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_AFTER_HELP)]
    Completions {
        /// The shell.
        shell: Shell,
        /// The program to complete.
        #[arg(long, value_enum, default_value_t = ProgramArg::Upcall)]
        program: ProgramArg,
    },
    /// Write the manual pages of upcall and upcalld into a folder.
    #[command(after_help = MAN_AFTER_HELP)]
    Man {
        /// The folder, for example ~/.local/share/man/man1; created if it is missing.
        folder: PathBuf,
    },
    /// The embedded senders' process; started by `run`.
    #[command(name = SEND_COMMAND, hide = true)]
    Send {
        /// One argument per stream, in the form that `upcall::load` writes.
        streams: Vec<String>,
    },
    /// One domain's process; started by `run`, which sends it messages.
    #[command(name = DOMAIN_COMMAND, hide = true)]
    Domain,
    /// A background load's process; started by `run`.
    #[command(name = SPIN_COMMAND, hide = true)]
    Spin {
        /// Threads that spin.
        threads: u32,
    },
    /// A process of `bench livelock`.
    #[command(name = LIVELOCK_COMMAND, hide = true)]
    Livelock {
        #[command(subcommand)]
        role: LivelockRole,
    },
}

/// Name of the hidden command of the senders' process.
pub const SEND_COMMAND: &str = "__send";
/// Name of the hidden command of a domain's process.
pub const DOMAIN_COMMAND: &str = "__domain";
/// Name of the hidden command of a spinning background load.
pub const SPIN_COMMAND: &str = "__spin";
/// Name of the hidden command of the processes of `bench livelock`.
pub const LIVELOCK_COMMAND: &str = "__livelock";

#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// The spec file (TOML).
    pub spec: PathBuf,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The spec file (TOML).
    pub spec: PathBuf,
    /// How long to run (each mode, with --compare): 10s, 1500ms, 2min.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Span,
    /// How handlers are scheduled.
    #[arg(long, value_enum, default_value_t = ModeArg::Upcall, conflicts_with = "compare")]
    pub mode: ModeArg,
    /// Run the same load in all three modes in turn and compare.
    ///
    /// The exit status is that of the upcall mode: the others promise nothing.
    #[arg(long)]
    pub compare: bool,
    /// Run the set even if admission refuses it.
    #[arg(long)]
    pub soft: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Write a line for each job: name,period,run,wakeup_latency,slack in
    /// microseconds, as rt-app logs them (with --compare, a column `mode` first).
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a Perfetto trace, for ui.perfetto.dev or `upcall sim --replay`. In mode
    /// upcall only. With several domains, the file has a scheduler for each.
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    pub trace: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct SimArgs {
    /// The spec file (TOML).
    #[arg(required_unless_present_any = ["replay", "vopr"])]
    pub spec: Option<PathBuf>,
    /// How long to run, in virtual time: 10s, 1500ms, 2min.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Span,
    /// The policy to use in place of the spec's.
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub policy: Option<&'static Discipline>,
    /// How long a released handler may wait while the domain that has the CPU runs less
    /// urgent handlers of its own, as `upcalld --defer-preemption`. Only under rmdp, and
    /// with several domains.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = short_duration)]
    pub defer_preemption: Span,
    /// The first seed of --vopr. Nothing else is random.
    #[arg(long, default_value_t = 0, requires = "vopr")]
    pub seed: u64,
    /// The PDUs of stream or task NAME arrive as recorded in FILE; may be repeated.
    ///
    /// FILE is a capture (pcap or pcapng; every packet, or with :PORT the UDP datagrams
    /// to that port; times count from the first), a trace of `upcall run` or `sim` (the
    /// PDUs of each job of that name at its release, counted from the first), or text
    /// (one time per line from the start: `0.02` in seconds, or `20ms`; `#` begins a
    /// comment). A path that itself ends in a colon and a number takes one more colon:
    /// `NAME=call:5004:`. At most 10 million arrivals. Arrivals out of order are sorted,
    /// and a truncated capture is used up to its end; standard error reports both.
    #[arg(
        long,
        value_name = "NAME=FILE[:PORT]",
        value_parser = OsStringValueParser::new().try_map(|text| Recording::parse(&text))
    )]
    pub arrivals: Vec<Recording>,
    /// Write a Perfetto trace, for ui.perfetto.dev or --replay.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Replay the inputs of a trace, live or simulated, and compare every command of
    /// the core with the recorded one.
    #[arg(
        long,
        value_name = "TRACE",
        conflicts_with_all = ["spec", "duration", "policy", "defer_preemption", "seed", "arrivals",
            "trace", "soft"]
    )]
    pub replay: Option<PathBuf>,
    /// Check N random scenarios instead of a spec. Each seed draws a machine, a set and
    /// faults, under every policy (or --policy) and every checker. Prints the first
    /// seed that breaks a promise.
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["spec", "duration", "defer_preemption", "arrivals", "trace", "soft",
            "replay"],
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub vopr: Option<u64>,
    /// Run the set even if admission refuses it.
    #[arg(long)]
    pub soft: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct PlotArgs {
    /// A trace, or the JSON of an outcome.
    #[arg(value_name = "TRACE|JSON")]
    pub file: PathBuf,
    /// The SVG file to write; a name with another ending, such as .png, is refused.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Draw a trace from this time after its start: 10s, 1500ms. Default: just before
    /// the first release.
    #[arg(long, value_parser = duration)]
    pub from: Option<Span>,
    /// Draw it up to this time. Default: four of the longest periods.
    #[arg(long, value_parser = duration)]
    pub to: Option<Span>,
}

#[derive(Debug, clap::Args)]
pub struct SweepArgs {
    /// The sweep file (TOML).
    pub file: PathBuf,
    /// The file of results, continued if it exists. Parquet if its name ends in .parquet.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Number of threads; default: all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub daemon: DaemonAt,
    /// Time between updates: 1s, 500ms.
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub interval: Span,
}

#[derive(Debug, clap::Args)]
pub struct PsArgs {
    #[command(flatten)]
    pub daemon: DaemonAt,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct NetArgs {
    #[command(flatten)]
    pub daemon: DaemonAt,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// A program of this package.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ProgramArg {
    /// The command.
    Upcall,
    /// The daemon.
    Upcalld,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModeArg {
    /// One real-time thread per CPU; it upcalls handlers in rank order.
    Upcall,
    /// One ordinary thread per stream, as in most programs.
    Threads,
    /// One SCHED_FIFO thread per stream, with rate-monotonic priorities.
    Fifo,
}

impl From<ModeArg> for upcall::Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Upcall => upcall::Mode::Upcall,
            ModeArg::Threads => upcall::Mode::Threads,
            ModeArg::Fifo => upcall::Mode::Fifo,
        }
    }
}

/// The command line without hidden subcommands, which `clap_complete` would offer.
pub fn visible() -> clap::Command {
    let all = Args::command();
    let visible = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("upcall").version(env!("CARGO_PKG_VERSION")).subcommands(visible)
}

/// Parses the name of a policy. Shells complete the names.
fn policies() -> impl TypedValueParser<Value = &'static Discipline> {
    let names = DISCIPLINES.iter().map(|discipline| discipline.name);
    PossibleValuesParser::new(names).try_map(|name| {
        upcall::discipline::by_name(&name).ok_or_else(|| format!("there is no policy {name}"))
    })
}
