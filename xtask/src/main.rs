//! The gates: checks of the whole project, the same on a developer's machine and in CI.
//!
//! `cargo xtask check` runs the quick gates, `cargo xtask ci` runs all of them, and
//! `cargo xtask NAME...` runs the named ones. Each gate has a file of its own under `gates/`, and
//! `gates.rs` lists them in order. `cargo xtask soak` runs a test that takes longer than a gate
//! may, and `cargo xtask results` measures the stored results again.

#![forbid(unsafe_code)]

use gate::{Failure, Gate};
use std::process::ExitCode;
use workspace::Workspace;

mod child;
mod failure;
mod gate;
mod gates;
mod results;
mod steal;
mod tokens;
mod workspace;

/// The request of the command line.
#[derive(Debug)]
enum Request {
    Help,
    Run {
        gates: Vec<Gate>,
        keep_going: bool,
    },
    /// The crate whose circles are listed; none means every crate.
    ListCircles(Option<String>),
    /// How many findings of the gate `files` each folder has.
    CountFiles,
    /// The stored results to measure or to check.
    Results(results::Request),
    /// The arguments of the program `soak` of `benches/`.
    Soak(Vec<String>),
}

/// Exits with 0 if no gate failed, with 1 if one failed, with 2 on bad usage.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let request = match parse(&arguments) {
        Ok(Request::Help) => {
            print!("{}", help());
            return ExitCode::SUCCESS;
        }
        Ok(request) => request,
        Err(message) => {
            eprintln!("error: {message}\n\n{}", help());
            return ExitCode::from(2);
        }
    };
    let ran = Workspace::load().and_then(|mut workspace| {
        if let Request::Run { gates, .. } = &request {
            workspace.chosen = gates.iter().map(|gate| gate.name).collect();
        }
        run(&request, &workspace)
    });
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the request. True if no gate failed.
fn run(request: &Request, workspace: &Workspace) -> Result<bool, Failure> {
    match request {
        Request::Help => Ok(true),
        Request::Run { gates, keep_going } => Ok(gate::run(gates, workspace, *keep_going)),
        Request::ListCircles(name) => {
            gates::list_circles(workspace, name.as_deref()).map(|()| true)
        }
        Request::CountFiles => gates::count_findings(workspace).map(|()| true),
        Request::Results(request) => results::run(request, workspace),
        Request::Soak(arguments) => {
            let mut command = child::cargo(&workspace.root);
            command.args(["run", "--release", "--locked", "-p", "upcall-benches", "--bin", "soak"]);
            Ok(child::status(command.arg("--").args(arguments))?.success())
        }
    }
}

/// The request in `arguments`, or the mistake in them.
fn parse(arguments: &[String]) -> Result<Request, String> {
    if let Some(("soak", rest)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        return Ok(Request::Soak(rest.to_vec()));
    }
    if let Some(("results", rest)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        return results::parse(rest).map(Request::Results);
    }
    if let [edges, list, rest @ ..] = arguments
        && (edges.as_str(), list.as_str()) == ("edges", "--list-circles")
    {
        return match rest {
            [] => Ok(Request::ListCircles(None)),
            [name] => Ok(Request::ListCircles(Some(name.clone()))),
            [_, other, ..] => Err(format!("found `{other}`, expected one crate")),
        };
    }
    if arguments == ["files", "--list"] {
        return Ok(Request::CountFiles);
    }
    let (mut chosen, mut keep_going) = (Vec::new(), false);
    for argument in arguments {
        match argument.as_str() {
            "--help" | "-h" | "help" => return Ok(Request::Help),
            "--keep-going" => keep_going = true,
            "ci" => chosen.extend(gates::ALL),
            "check" => chosen.extend(gates::CHECK),
            name => chosen.push(gates::named(name).ok_or_else(|| {
                format!("found `{name}`, expected `ci`, `check` or the name of a gate")
            })?),
        }
    }
    if chosen.is_empty() {
        return Err("found no command, expected `ci`, `check` or the name of a gate".to_owned());
    }
    Ok(Request::Run { gates: chosen, keep_going })
}

fn help() -> String {
    let mut text = "\
Checks the whole project. A gate is one check; the gates are the same here and in CI.

Usage: cargo xtask check [--keep-going]    the quick gates: run them for every change
       cargo xtask ci [--keep-going]       every gate: run them before you merge
       cargo xtask GATE... [--keep-going]  only the named gates

       cargo xtask edges --list-circles [CRATE]
                          print the circles among the files of CRATE (core, xtask, ...)
                          or of every crate, and exit with 0
       cargo xtask files --list
                          print how many findings of `files` each folder has
       cargo xtask soak streams [--messages N] [--kills N] [--seed N]
                          stream messages between processes that are killed at
                          random, until the given numbers are reached
       cargo xtask results [NAME...] [--dirty]
                          measure the named results of docs/results again, or all of
                          them (an hour), and docs/run.svg; --dirty allows changes
                          that are not committed
       cargo xtask results --list | --check
                          print the results with their times and commands; check that
                          all are of one commit

Gates, in the order of `ci` (* marks those of `check`):
"
    .to_owned();
    let in_check = |gate: &Gate| gates::CHECK.iter().any(|other| other.name == gate.name);
    for gate in gates::ALL.iter().chain(&gates::CHECK[gates::CHECK.len() - 1..]) {
        let mark = if in_check(gate) { '*' } else { ' ' };
        text += &format!("{mark} {:10} {}\n", gate.name, gate.about);
    }
    text + "
--keep-going  run the later gates after a failure too; else they count as skipped

Each child command is printed after `$`. A gate that cannot check is SKIPPED and says
why. The last line is `N passed, N failed, N skipped`. The exit status is 0 if no gate
failed, 1 if one failed, 2 on bad usage. Cargo's target directory is used
(CARGO_TARGET_DIR).
"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Request, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn ci_is_every_gate_and_a_name_is_one() {
        let Ok(Request::Run { gates, keep_going: true }) = parsed(&["ci", "--keep-going"]) else {
            panic!("expected all gates");
        };
        assert_eq!(gates.len(), gates::ALL.len());
        let Ok(Request::Run { gates, keep_going: false }) = parsed(&["edges", "fmt"]) else {
            panic!("expected two gates");
        };
        assert_eq!(gates.iter().map(|gate| gate.name).collect::<Vec<_>>(), ["edges", "fmt"]);
    }

    #[test]
    fn check_is_a_part_of_ci_except_for_quick() {
        let Ok(Request::Run { gates, .. }) = parsed(&["check"]) else { panic!("expected gates") };
        let is_in_ci = |name: &str| gates::ALL.iter().any(|gate| gate.name == name);
        let others: Vec<_> =
            gates.iter().map(|gate| gate.name).filter(|name| !is_in_ci(name)).collect();
        assert_eq!(others, ["quick"]);
        assert!(gates.len() < gates::ALL.len());
    }

    #[test]
    fn the_arguments_after_soak_belong_to_it() {
        let Ok(Request::Soak(rest)) = parsed(&["soak", "streams", "--kills", "ci"]) else {
            panic!("expected a soak");
        };
        assert_eq!(rest, ["streams", "--kills", "ci"]);
    }

    #[test]
    fn the_lists_of_findings_are_no_gates() {
        assert!(matches!(parsed(&["edges", "--list-circles"]), Ok(Request::ListCircles(None))));
        let Ok(Request::ListCircles(Some(name))) = parsed(&["edges", "--list-circles", "core"])
        else {
            panic!("expected the circles of one crate");
        };
        assert_eq!(name, "core");
        assert!(parsed(&["edges", "--list-circles", "core", "shm"]).is_err());
        assert!(matches!(parsed(&["files", "--list"]), Ok(Request::CountFiles)));
    }

    #[test]
    fn an_unknown_word_is_refused() {
        assert!(parsed(&["edge"]).unwrap_err().contains("`edge`"));
        assert!(parsed(&[]).is_err() && parsed(&["--keep-going"]).is_err());
        assert!(matches!(parsed(&["--help"]), Ok(Request::Help)));
    }

    #[test]
    fn every_gate_has_its_own_name_and_a_line_in_the_help() {
        let help = help();
        for (index, gate) in gates::ALL.iter().enumerate() {
            assert!(help.contains(gate.about), "{}", gate.name);
            assert!(gates::ALL[..index].iter().all(|other| other.name != gate.name));
        }
    }
}
