//! `upcall exec`: runs a program that nobody changed with a share of a CPU.
//!
//! ```text
//!   upcall exec                         process of the program        daemon
//!     (1) hold     ------------------>  waits
//!     (2) start    -------------------------------------------------> puts it into a group
//!     (3) release  ------------------>  executes the program
//!     (4) samples of run and wait       runs, starts others           keeps the share
//!     (5) report   <------------------  ends
//!         closed connection  ---------------------------------------> removes the group
//! ```
//!
//! The program gets the terminal and all streams. This command writes to standard error only: what
//! happens to the share meanwhile, and the report.
//!
//! | module | content |
//! |---|---|
//! | [`deadline`] | `--deadline`: the kernel's class in place of a daemon |
//! | [`receive`] | `--receive`: packet quotas |
//! | [`signals`] | which signals go on to the program |
//! | [`start`] | the name and the start of a program |
//! | [`received`] | what packet quotas did |
//! | [`report`] | the report, as JSON and as text |

use upcall::admission::Share;
use upcall::clock;
use upcall::program::{
    AdmittedProgram, HeldProgram, ProgramConnection, ProgramLag, ProgramMeter, ProgramNews,
    RunningProgram,
};
use upcall::time::{Instant, Span};
use upcall_cli::standard_error::say;

use crate::args::ExecArgs;
use crate::exit::{Exit, Failure};
use crate::own_daemon::{self, OwnDaemon};
use crate::program_request;
use crate::ps;
use receive::Receiving;
use report::{Measured, Report};
use signals::Signals;
use start::{name_of, release, say_json, say_not_run};

mod deadline;
mod receive;
mod received;
mod report;
mod signals;
mod start;

/// The time between two samples.
const SAMPLE_EVERY: Span = Span::from_millis(100);

/// Runs a program with a share, and reports.
///
/// # Errors
/// The daemon does not start or does not answer, or the machine has no process left. Nothing was
/// run.
pub fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    if args.deadline {
        return deadline::exec(args);
    }
    let name = name_of(&args.program);
    let mut signals = Signals::install()?;
    let (socket, mut own) = ensure_daemon(args)?;
    let socket = socket.as_path();
    if !args.terms.names_a_part() {
        let mark_attached = || own.iter_mut().for_each(OwnDaemon::mark_attached);
        return receive::exec(args, socket, signals, mark_attached);
    }
    let held = HeldProgram::new(&args.program).map_err(Failure::of_error)?;
    let connection = program_request::connect(socket)?;
    let need = program_request::need(&args.terms);
    let admitted = match connection.start(held.pid(), &need, &name) {
        Ok(admitted) => admitted,
        Err(error) => {
            let refused = program_request::refusal(socket, error)?;
            // Ends the daemon, so that the report comes last.
            drop(own);
            return say_not_run(args, &name, &refused);
        }
    };
    if let Some(own) = &mut own {
        own.mark_attached();
    }
    let mut receiving = match Receiving::begin(socket, args, (held.pid(), &name))? {
        Ok(receiving) => receiving,
        Err(exit) => return Ok(exit),
    };
    let mut watch = Watch::begin(&name, &connection, admitted, held.pid());
    let program = match release(held, &name, &mut signals) {
        Ok(program) => program,
        Err(exit) => return Ok(exit),
    };
    let ended = signals.pass_on(&program, || watch.until_end(&program, &mut receiving))?;
    let measured = Measured { receive: receiving.counts(), ..watch.measured(ended) };
    let exit = program.reap().map_err(Failure::of_error)?;
    let report = Report::new(&name, program.pid(), &need, exit, &measured);
    match args.json {
        true => say_json(&report)?,
        false => say(report.text()),
    }
    Ok(Exit::Program(report.exit_status))
}

/// The socket of the daemon. Starts a daemon if none answers.
fn ensure_daemon(args: &ExecArgs) -> Result<(std::path::PathBuf, Option<OwnDaemon>), Failure> {
    let named = args.daemon.socket.as_deref();
    let running = ps::socket(named)?;
    if own_daemon::answers(&running)? {
        if !args.interfaces.is_empty() {
            say(format_args!(
                "upcall: --interfaces is not used: the daemon at {} runs already, with interfaces of \
                 its own",
                running.display()
            ));
        }
        return Ok((running, None));
    }
    let socket = match named {
        Some(named) => named.to_owned(),
        None => upcall::own_daemon_socket().map_err(Failure::of_error)?,
    };
    let own = own_daemon::start(&socket, &daemon_arguments(args)?)?;
    Ok((socket, own))
}

/// The options of a daemon that has the CPUs of `upcalld`, and the CPU and the interfaces of the
/// command line.
fn daemon_arguments(args: &ExecArgs) -> Result<Vec<String>, Failure> {
    let cpu = args.terms.cpu;
    let mut cpus = upcall::default_cpus().map_err(Failure::of_error)?;
    cpus.extend(cpu.filter(|cpu| !cpus.contains(cpu)));
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let mut arguments = vec!["--cpus".to_owned(), cpus.join(",")];
    if !args.interfaces.is_empty() {
        arguments.extend(["--interfaces".to_owned(), args.interfaces.join(",")]);
    }
    Ok(arguments)
}

/// What is watched while the program runs.
struct Watch<'w> {
    name: &'w str,
    connection: &'w ProgramConnection,
    /// The present terms.
    admitted: AdmittedProgram,
    /// Whether the daemon keeps the terms, and has kept them from the start.
    is_kept: bool,
    /// Whether they were changed meanwhile.
    was_changed: bool,
    begun: Instant,
    meter: ProgramMeter,
    lag: ProgramLag,
}

impl<'w> Watch<'w> {
    fn begin(
        name: &'w str,
        connection: &'w ProgramConnection,
        admitted: AdmittedProgram,
        pid: u32,
    ) -> Self {
        let mut meter = ProgramMeter::new(pid);
        let begun = clock::now();
        let lag = ProgramLag::new(begun, meter.read());
        let (is_kept, was_changed) = (true, false);
        Watch { name, connection, admitted, is_kept, was_changed, begun, meter, lag }
    }

    /// Samples until the process of the program has ended. Returns when it did.
    fn until_end(
        &mut self,
        program: &RunningProgram,
        receiving: &mut Receiving,
    ) -> Result<Instant, Failure> {
        let mut next = self.begun;
        loop {
            // A sample that is late moves those after it.
            next = (next + SAMPLE_EVERY).max(clock::now());
            let has_ended = program.wait_until(next).map_err(Failure::of_error)?;
            let now = clock::now();
            self.lag.add(now, self.meter.read(), self.share());
            self.take_news(has_ended);
            if has_ended {
                return Ok(now);
            }
            receiving.take_news(self.name);
        }
    }

    /// The share that is kept at present.
    fn share(&self) -> Option<Share> {
        Share::from_ppm(self.admitted.share_ppm).filter(|_| self.is_kept)
    }

    /// Notes and says what the daemon said, or that it has gone.
    fn take_news(&mut self, has_ended: bool) {
        let name = self.name;
        while self.is_kept
            && let Some(news) = self.connection.news()
        {
            let lost = match news {
                ProgramNews::Changed(admitted) => {
                    (self.admitted, self.was_changed) = (admitted, true);
                    continue;
                }
                ProgramNews::Ended => "its share was given back",
                ProgramNews::DaemonGone => "the daemon has ended",
            };
            self.is_kept = false;
            let what = if has_ended { "ran to its end" } else { "runs on" };
            say(format_args!("upcall: {name} {what} without its share: {lost}"));
        }
    }

    fn measured(mut self, ended: Instant) -> Measured {
        Measured {
            admitted: self.admitted,
            is_kept: self.is_kept,
            was_changed: self.was_changed,
            duration: ended.since(self.begun),
            usage: self.meter.read(),
            lag: self.lag,
            receive: Vec::new(),
        }
    }
}
