//! `upcall share` and `upcall adopt`: the shares of programs that run.

use std::path::Path;

use serde::Serialize;
use upcall::admission::Share;
use upcall::program::{AdmittedProgram, RefusedProgram};

use crate::args::{AdoptArgs, ShareArg, ShareArgs};
use crate::exit::{Exit, Failure};
use crate::program_request::{self, Refusal};
use crate::standard_output::{print, print_json};
use crate::{ps, show};

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Output {
    admitted: bool,
    pid: u32,
    /// Null: the program has none any more.
    id: Option<u64>,
    cpu: Option<u32>,
    /// As a part of the CPU; null for a weight.
    share: Option<f64>,
    weight: Option<u32>,
    burst_ns: Option<u64>,
    quantum_ns: Option<u64>,
}

/// Changes the share of a program.
///
/// # Errors
/// There is no daemon, or no such program: as one line.
pub fn share(args: &ShareArgs) -> Result<Exit, Failure> {
    let socket = ps::socket(args.daemon.socket.as_deref())?;
    let connection = program_request::connect(&socket)?;
    let done = match args.share {
        ShareArg(Some(share)) => connection.change(args.pid, share).map(Some),
        ShareArg(None) => connection.release(args.pid).map(|()| None),
    };
    match done {
        Ok(admitted) => print_place(args.pid, admitted.as_ref(), args.output.json),
        Err(error) => {
            let refused = program_request::refusal(&socket, error)?;
            print_refusal(args.pid, &refused, "nothing was changed", args.output.json)
        }
    }
}

/// Gives a process a share.
///
/// # Errors
/// There is no daemon, or no such process, or a right is missing: as one line.
pub fn adopt(args: &AdoptArgs) -> Result<Exit, Failure> {
    let socket = ps::socket(args.daemon.socket.as_deref())?;
    let connection = program_request::connect(&socket)?;
    let name = name_of(args.pid);
    match connection.adopt(args.pid, &program_request::need(&args.terms), &name) {
        Ok(admitted) => print_place(args.pid, Some(&admitted), args.output.json),
        Err(error) => {
            let refused = program_request::refusal(&socket, error)?;
            print_refusal(args.pid, &refused, "nothing was changed", args.output.json)
        }
    }
}

fn print_place(pid: u32, admitted: Option<&AdmittedProgram>, json: bool) -> Result<Exit, Failure> {
    match json {
        true => print_json(&Output::of(pid, admitted))?,
        false => print(&format!("{}\n", line(pid, admitted)))?,
    }
    Ok(Exit::Kept)
}

fn print_refusal(
    pid: u32,
    refused: &RefusedProgram,
    consequence: &str,
    json: bool,
) -> Result<Exit, Failure> {
    let program = format!("process {pid}");
    if json {
        print_json(&Refusal::of(&program, refused))?;
    }
    Ok(program_request::say_refused(&program, refused, consequence))
}

/// What a process has now, in one line.
fn line(pid: u32, admitted: Option<&AdmittedProgram>) -> String {
    let Some(admitted) = admitted else {
        return format!("process {pid} has no share any more");
    };
    let (id, cpu) = (admitted.id, admitted.cpu);
    let terms = match Share::from_ppm(admitted.share_ppm) {
        Some(share) => format!("{share} of CPU {cpu}"),
        None => format!("weight {} on CPU {cpu}", admitted.weight),
    };
    let quantum = show::span(admitted.quantum_ns);
    let keeper = if admitted.ticker { "" } else { ", kept by the tick of the kernel only" };
    format!("process {pid}, program {id}: {terms}, quantum {quantum}{keeper}")
}

impl Output {
    fn of(pid: u32, admitted: Option<&AdmittedProgram>) -> Self {
        let share = admitted.and_then(|admitted| Share::from_ppm(admitted.share_ppm));
        Output {
            admitted: admitted.is_some(),
            pid,
            id: admitted.map(|admitted| admitted.id),
            cpu: admitted.map(|admitted| admitted.cpu),
            share: share.map(Share::as_f64),
            weight: admitted.map(|admitted| admitted.weight).filter(|&weight| weight > 0),
            burst_ns: admitted.map(|admitted| admitted.burst_ns),
            quantum_ns: admitted.map(|admitted| admitted.quantum_ns),
        }
    }
}

/// The name of a process, for display: as the kernel has it, or else its number.
fn name_of(pid: u32) -> String {
    let comm = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
    comm.map_or_else(|_| pid.to_string(), |name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_a_process_has_now() {
        let admitted = AdmittedProgram {
            id: 3,
            cpu: 1,
            share_ppm: 450_000,
            weight: 0,
            burst_ns: 0,
            quantum_ns: 1_000_000,
            ticker: true,
        };
        assert_eq!(line(7, Some(&admitted)), "process 7, program 3: 45 % of CPU 1, quantum 1 ms");
        let weighted = AdmittedProgram { share_ppm: 0, weight: 2, ticker: false, ..admitted };
        assert_eq!(
            line(7, Some(&weighted)),
            "process 7, program 3: weight 2 on CPU 1, quantum 1 ms, kept by the tick of the \
             kernel only"
        );
        assert_eq!(line(7, None), "process 7 has no share any more");
    }
}
