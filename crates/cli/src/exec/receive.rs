//! `upcall exec --receive`: packet quotas of a program, and a program that has nothing else.
//!
//! The quotas hold as long as this command's connection is open. The daemon drops packets beyond
//! them in the driver of its interfaces.

use std::path::Path;

use serde::Serialize;
use upcall::OsError;
use upcall::clock;
use upcall::packet_quota::{
    GrantedPacketQuota, PacketQuotaCause, PacketQuotaConnection, PacketQuotaError, ReceiveNeed,
    UdpDestination,
};
use upcall::program::{Exit as End, HeldProgram};
use upcall::time::Span;
use upcall_cli::standard_error::say;

use super::received::{Received, rate};
use super::report::status_of;
use super::signals::Signals;
use super::start::{name_of, release, say_json};
use crate::args::ExecArgs;
use crate::exit::{Exit, Failure};
use crate::ps;
use crate::show;

/// How often the command looks whether the daemon still keeps the quotas.
const NEWS_EVERY: Span = Span::from_millis(100);

/// The quotas of a program that runs.
pub struct Receiving {
    /// `None`: the program has no quotas.
    connection: Option<PacketQuotaConnection>,
    quotas: Vec<(ReceiveNeed, GrantedPacketQuota)>,
    /// Whether the daemon has kept them so far.
    is_kept: bool,
}

/// The object of `--json` for a program without a share.
#[derive(Debug, Serialize)]
struct Report<'r> {
    program: &'r str,
    pid: u32,
    admitted: bool,
    exit_status: u8,
    signal: Option<i32>,
    duration_ns: u64,
    receive: Vec<Received>,
}

/// What a daemon refused, as the JSON shows it.
#[derive(Debug, Serialize)]
struct Refusal<'r> {
    admitted: bool,
    program: &'r str,
    cause: &'static str,
    reason: &'r str,
}

impl Receiving {
    /// Asks the daemon at `socket` for the quotas of a program, and says where packets are dropped.
    ///
    /// # Errors
    /// How the command ends if a quota is refused, or a failure: the daemon does not answer.
    pub fn begin(
        socket: &Path,
        args: &ExecArgs,
        (pid, name): (u32, &str),
    ) -> Result<Result<Receiving, Exit>, Failure> {
        let mut receiving = Receiving { connection: None, quotas: Vec::new(), is_kept: true };
        if args.receive.is_empty() {
            return Ok(Ok(receiving));
        }
        if let Some(twice) = named_twice(&args.receive) {
            return Err(Failure::new(format_args!("upcall: --receive names {twice} twice")));
        }
        let connection = PacketQuotaConnection::open(socket);
        let connection = connection.map_err(|error| ps::failed_request(socket, error))?;
        for need in &args.receive {
            match connection.limit(need, pid, name) {
                Ok(granted) => {
                    say_granted(need, &granted);
                    receiving.quotas.push((*need, granted));
                }
                Err(PacketQuotaError::Refused { cause, reason }) => {
                    return say_refused(args, name, cause, &reason).map(Err);
                }
                Err(PacketQuotaError::Daemon(error)) => {
                    return Err(ps::failed_request(socket, error));
                }
                Err(error) => return Err(Failure::of_error(error)),
            }
        }
        receiving.connection = Some(connection);
        Ok(Ok(receiving))
    }

    /// Says once if the daemon has ended, and with it the quotas of `name`, which runs on.
    pub fn take_news(&mut self, name: &str) {
        let Some(connection) = &self.connection else { return };
        if !self.is_kept || connection.is_kept() {
            return;
        }
        self.is_kept = false;
        let destinations: Vec<String> =
            self.quotas.iter().map(|(need, _)| need.destination.to_string()).collect();
        say(format_args!(
            "upcall: {name} runs on without its packet quota: the daemon has ended, and packets for \
             {} are not limited any more",
            destinations.join(", ")
        ));
    }

    /// What the quotas did so far.
    pub fn counts(&self) -> Vec<Received> {
        let of = |(need, granted): &(ReceiveNeed, GrantedPacketQuota)| {
            let connection = self.connection.as_ref();
            let counts = connection.and_then(|open| open.counts(need.destination).ok());
            Received {
                destination: need.destination.to_string(),
                interval_ns: granted.interval.as_nanos(),
                depth: granted.depth,
                kept_to_end: counts.is_some(),
                passed: counts.map(|counts| counts.passed),
                dropped: counts.map(|counts| counts.dropped),
            }
        };
        self.quotas.iter().map(of).collect()
    }
}

/// Runs a program that has quotas and nothing else, and reports.
///
/// # Errors
/// The machine has no process left, or the daemon does not answer. Nothing was run.
pub fn exec(
    args: &ExecArgs,
    socket: &Path,
    mut signals: Signals,
    mark_attached: impl FnOnce(),
) -> Result<Exit, Failure> {
    let name = name_of(&args.program);
    let held = HeldProgram::new(&args.program).map_err(Failure::of_error)?;
    let mut receiving = match Receiving::begin(socket, args, (held.pid(), &name))? {
        Ok(receiving) => receiving,
        Err(exit) => return Ok(exit),
    };
    mark_attached();
    let begun = clock::now();
    let program = match release(held, &name, &mut signals) {
        Ok(program) => program,
        Err(exit) => return Ok(exit),
    };
    let ended = signals.pass_on(&program, || {
        loop {
            let has_ended = program.wait_until(clock::now() + NEWS_EVERY)?;
            if has_ended {
                return Ok(());
            }
            receiving.take_news(&name);
        }
    });
    ended.map_err(|error: OsError| Failure::of_error(error))?;
    let duration_ns = clock::now().since(begun).as_nanos();
    let receive = receiving.counts();
    let pid = program.pid();
    let end: End = program.reap().map_err(Failure::of_error)?;
    let (exit_status, signal) = status_of(end);
    let report =
        Report { program: &name, pid, admitted: true, exit_status, signal, duration_ns, receive };
    match args.json {
        true => say_json(&report)?,
        false => say(report.text()),
    }
    Ok(Exit::Program(exit_status))
}

impl Report<'_> {
    fn text(&self) -> String {
        let end = match self.signal {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with {}", self.exit_status),
        };
        let mut text =
            format!("upcall: {} {end} after {}", self.program, show::span(self.duration_ns));
        for received in &self.receive {
            text += "\n";
            text += &received.line();
        }
        text
    }
}

fn say_granted(need: &ReceiveNeed, granted: &GrantedPacketQuota) {
    let destination = need.destination;
    let limit = rate(granted.interval.as_nanos());
    let depth = granted.depth;
    say(format_args!(
        "upcall: {destination} gets at most {limit}, and {depth} at once (burst=N changes that)"
    ));
    for place in &granted.places {
        say(format_args!("upcall: {place}"));
    }
}

/// A destination that two needs name.
fn named_twice(needs: &[ReceiveNeed]) -> Option<UdpDestination> {
    let all = needs.iter().map(|need| need.destination).enumerate();
    let mut twice = all.filter(|(at, of)| needs[..*at].iter().any(|need| need.destination == *of));
    twice.next().map(|(_, destination)| destination)
}

fn say_refused(
    args: &ExecArgs,
    name: &str,
    cause: PacketQuotaCause,
    reason: &str,
) -> Result<Exit, Failure> {
    say(format_args!("upcall: refused {name}: {reason}; nothing was run"));
    if args.json {
        let refusal =
            Refusal { admitted: false, program: name, cause: name_of_cause(cause), reason };
        say_json(&refusal)?;
    }
    Ok(match cause {
        PacketQuotaCause::Taken | PacketQuotaCause::Limit => Exit::Refused,
        _ => Exit::BadInput,
    })
}

/// The name of a cause, in one word or two.
fn name_of_cause(cause: PacketQuotaCause) -> &'static str {
    match cause {
        PacketQuotaCause::NoRight => "no right",
        PacketQuotaCause::NoInterface => "no interface",
        PacketQuotaCause::Interface => "interface",
        PacketQuotaCause::Taken => "taken",
        PacketQuotaCause::Limit => "limit",
        PacketQuotaCause::Terms => "terms",
        PacketQuotaCause::OtherNamespace => "other namespace",
        PacketQuotaCause::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = PacketQuotaCause::ALL.map(name_of_cause).into();
        assert_eq!(names.len(), PacketQuotaCause::ALL.len());
    }
}
