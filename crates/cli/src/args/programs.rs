//! The command lines of `exec`, `share` and `adopt`: shares of programs that nobody changed.

use std::ffi::OsString;

use clap::ArgGroup;
use upcall::admission::Share;
use upcall::packet_quota::ReceiveNeed;
use upcall::time::Span;

use super::daemon_at::DaemonAt;
use super::values::{receive_need, share, short_duration};

/// Who may ask, as the three commands say it.
macro_rules! who_may_ask {
    () => {
        "
Who may ask:
  Root, the user of the daemon, and the users of `upcalld --program-users`; root for any
  process, the others for their own. The daemon needs the right to make control groups:
  as root, or in a group that was delegated to its user (systemd: Delegate=cpu). If a
  right is missing, the error names the user, or the file that the daemon cannot write.
"
    };
}

pub const EXEC_AFTER_HELP: &str = concat!(
    "\
Examples:
  upcall exec --share 45% -- ffmpeg -i in.mkv out.mp4
  upcall exec --cost 5ms --period 11ms -- ./player    5 ms of CPU in each 11 ms
  upcall exec --share 20% --cpu 1 --json -- make -j4 2> log    the last line is the report
  upcall exec --deadline --cost 5ms --period 11ms -- ./mixer    one thread, no handlers
  upcall exec --weight 2 -- ./batch    twice what all other processes get of what is left
  upcall exec --receive udp:5004@90/s --interfaces eth1 -- ./player    no share, no flood
  upcall exec --share 48% --receive udp:5004@90/s --interfaces eth1 -- ./player

A share is kept whatever else runs on the CPU: at least f (t - B) - 2 q of any time t in
which PROGRAM wants the CPU. f is the share, B the longest time for which real-time
handlers keep the CPU, q the quantum. What PROGRAM starts belongs to it. Use a share
of about a tenth more than the mean demand: a share equal to the demand has no slack.
--cost and --period without --share take the least share that suffices.

When PROGRAM ends, standard error has what was promised and what was measured. SIGTERM
and SIGHUP go to PROGRAM. If no daemon answers, one is started, and ends with the last
program. `upcall share` changes the share meanwhile.

--receive keeps a flood off PROGRAM and off all others: packets for the port beyond the
rate, and beyond a burst, are dropped in the driver of the interface, before any protocol
work. Without it, a flood takes the CPU time of the programs that it interrupts, whatever
their shares. PROGRAM needs no change. The quota is a tenth above RATE (90/s, 3/min, 50Hz).
As many packets as come in 10 ms may come at once, and 2 more; burst=N: N in place of 2. A
sender that sends several at once, such as a video frame, needs that. Packets that come by
other interfaces pass. What drops must not run on the CPU of PROGRAM: the command says where
it runs. In a network namespace start PROGRAM and its daemon by
`nsenter --net=/run/netns/NAME`: `ip netns exec` hides the control groups.

--deadline is for a program of one thread that starts no other: what it starts is
ordinary. It costs all handlers: each of them waits while PROGRAM uses its cost, on
whatever CPU the kernel runs it. So the command locks all CPUs, and is refused while a
daemon or a run of this user has one. The kernel stops PROGRAM when it has used its cost,
until the next period, and gives no part of a CPU that is idle. Nobody sees handlers of
other users' daemons: do not use it beside them.
",
    who_may_ask!(),
    "
Exit status:
  that of PROGRAM; 128 and the number of the signal that killed it
  2    bad usage, no daemon, or a right is missing; nothing was run
  3    refused, with the share that fits, or the port has a quota; nothing was run
  126  PROGRAM cannot be executed
  127  PROGRAM was not found"
);

pub const SHARE_AFTER_HELP: &str = concat!(
    "\
Examples:
  upcall share 4321 20%
  upcall share $(pgrep -o ffmpeg) 45%
  upcall share 4321 none    its processes run on as all others
",
    who_may_ask!(),
    "
Exit status:
  0  the share is changed
  2  bad usage, no daemon, or no program of this user has the process
  3  refused, with the share that fits; the program keeps the share that it had"
);

pub const ADOPT_AFTER_HELP: &str = concat!(
    "\
Examples:
  upcall adopt 4321 --share 20%
  upcall adopt $(pidof postgres | cut -d' ' -f1) --cost 2ms --period 20ms

The share lasts until the last process has ended, or until `upcall share PID none`. It
ends with the daemon: without a daemon that stays, use `upcalld`. Processes that PID
started earlier belong to the program, too.
",
    who_may_ask!(),
    "
Exit status:
  0  the process has the share
  2  bad usage, no daemon, no such process of this user, or a right is missing
  3  refused, with the share that fits"
);

/// What a program asks for.
#[derive(Debug, clap::Args)]
pub struct TermsArgs {
    /// The share of one CPU: 45%.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub share: Option<Share>,
    /// In place of a share: the weight, 1 to 100, beside other programs with weights, and
    /// beside all other processes together, which have weight 1. All programs of a user with
    /// weights together weigh as the heaviest. Promises nothing.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100),
        conflicts_with_all = ["share", "cost"]
    )]
    pub weight: Option<u32>,
    /// The CPU time that the program needs in each period: 5ms. Admission checks that the
    /// share suffices; without a share it takes the least one that does.
    #[arg(long, value_name = "TIME", value_parser = short_duration, requires = "period")]
    pub cost: Option<Span>,
    /// The period: 11ms.
    #[arg(long, value_name = "TIME", value_parser = short_duration, requires = "cost")]
    pub period: Option<Span>,
    /// The CPU. Default: the first of the daemon's CPUs where it fits.
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// How long another program may keep the CPU from it, 0.1 to 100 ms. The shortest quantum
    /// of a CPU holds for all its programs. Default: 1 ms.
    #[arg(long, value_name = "TIME", value_parser = short_duration)]
    pub quantum: Option<Span>,
}

impl TermsArgs {
    /// Whether there is a share, or something that takes its place.
    pub fn names_a_part(&self) -> bool {
        self.share.is_some() || self.weight.is_some() || self.cost.is_some()
    }
}

#[derive(Debug, clap::Args)]
#[command(group(needs(["share", "weight", "cost", "receive"])))]
pub struct ExecArgs {
    #[command(flatten)]
    pub terms: TermsArgs,
    #[command(flatten)]
    pub daemon: DaemonAt,
    /// Run the first thread of PROGRAM in the kernel's class SCHED_DEADLINE: it gets the cost in
    /// each period, before all other threads of the machine. Without a daemon, and only while no
    /// daemon and no run of this user has a CPU. Needs root.
    #[arg(
        long,
        requires = "cost",
        conflicts_with_all = ["share", "weight", "cpu", "quantum", "socket", "receive"]
    )]
    pub deadline: bool,
    /// Limit the packets for PROGRAM to what it can take, at the interfaces of the daemon:
    /// udp:5004@90/s, udp:10.0.0.2:5004@90/s, udp:5004@90/s,burst=8. Repeat it for more ports. With
    /// it alone, PROGRAM has no share. Needs root, or a daemon of your own with the rights.
    #[arg(long, value_name = "udp:PORT@RATE", value_parser = receive_need)]
    pub receive: Vec<ReceiveNeed>,
    /// The interfaces of a daemon that this command starts, as `upcalld --interfaces`.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "receive")]
    pub interfaces: Vec<String>,
    /// Write the report as one JSON object on one line, the last of standard error. Standard
    /// output belongs to the program.
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct ShareArgs {
    /// A process of the program.
    pub pid: u32,
    /// The share of one CPU, 20%, or none: the program gives its share back.
    #[arg(value_parser = share_or_none)]
    pub share: ShareArg,
    #[command(flatten)]
    pub daemon: DaemonAt,
    #[command(flatten)]
    pub output: LineOrObject,
}

#[derive(Debug, clap::Args)]
#[command(group(needs(["share", "weight", "cost"])))]
pub struct AdoptArgs {
    /// The process.
    pub pid: u32,
    #[command(flatten)]
    pub terms: TermsArgs,
    #[command(flatten)]
    pub daemon: DaemonAt,
    #[command(flatten)]
    pub output: LineOrObject,
}

/// The options of which at least one must be there.
fn needs<const N: usize>(options: [&'static str; N]) -> ArgGroup {
    ArgGroup::new("need").args(options).required(true).multiple(true)
}

/// The form of an answer.
#[derive(Debug, clap::Args)]
pub struct LineOrObject {
    /// Print one JSON object instead of a line.
    #[arg(long)]
    pub json: bool,
}

/// A share, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareArg(pub Option<Share>);

fn share_or_none(text: &str) -> Result<ShareArg, String> {
    match text {
        "none" => Ok(ShareArg(None)),
        text => share(text).map(|share| ShareArg(Some(share))),
    }
}
