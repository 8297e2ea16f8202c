//! The gates: the same on a developer's machine and in CI.
//!
//! `cargo xtask ci` runs them all, `cargo xtask check` what is quick of them, and
//! `cargo xtask NAME...` those named. Each is a file of its own under `gates/`;
//! `gates.rs` lists them in order. Beside them `cargo xtask soak`
//! runs what takes longer than a gate may.

#![forbid(unsafe_code)]

use gate::{Failure, Gate};
use std::process::ExitCode;
use workspace::Workspace;

mod child;
mod gate;
mod gates;
mod tokens;
mod workspace;

/// What the command line asks for.
#[derive(Debug)]
enum Request {
    Help,
    Run {
        gates: Vec<Gate>,
        keep_going: bool,
    },
    /// The crate whose circles are listed; none means every crate.
    ListCircles(Option<String>),
    /// The findings of the gate `files`, counted by folder.
    CountFiles,
    /// The arguments of the program `soak` of `benches/`.
    Soak(Vec<String>),
}

/// Exits with 0 if no gate failed, 1 if one did, 2 if the request made no sense.
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
    match Workspace::load().and_then(|workspace| run(&request, &workspace)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all that was asked for passed.
fn run(request: &Request, workspace: &Workspace) -> Result<bool, Failure> {
    match request {
        Request::Help => Ok(true),
        Request::Run { gates, keep_going } => Ok(gate::run(gates, workspace, *keep_going)),
        Request::ListCircles(name) => {
            gates::list_circles(workspace, name.as_deref()).map(|()| true)
        }
        Request::CountFiles => gates::count_findings(workspace).map(|()| true),
        Request::Soak(arguments) => {
            let mut command = child::cargo(&workspace.root);
            command.args(["run", "--release", "--locked", "-p", "upcall-benches", "--bin", "soak"]);
            Ok(child::status(command.arg("--").args(arguments))?.success())
        }
    }
}

/// The request in `arguments`, or what is wrong with them.
fn parse(arguments: &[String]) -> Result<Request, String> {
    if let Some(("soak", rest)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        return Ok(Request::Soak(rest.to_vec()));
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
The gates of this project: the same here and in CI.

Usage: cargo xtask ci [--keep-going]       every gate, in this order
       cargo xtask check [--keep-going]    what is quick of it, before each commit
       cargo xtask GATE... [--keep-going]  only those named
       cargo xtask edges --list-circles [CRATE]
                                           the circles among the files of crates/CRATE,
                                           or of every crate; does not fail for them
       cargo xtask files --list            how many findings of `files` each folder has
       cargo xtask soak streams [--messages N] [--kills N] [--seed N]
                                           streams between processes that are killed
                                           at random: until so much is done

Gates:
"
    .to_owned();
    for gate in gates::ALL.iter().chain(&gates::CHECK[gates::CHECK.len() - 1..]) {
        text += &format!("  {:11} {}\n", gate.name, gate.about);
    }
    text + "
--keep-going  run the rest after a failure; without it they count as skipped

Child commands are echoed behind `$`. A gate that cannot look is SKIPPED and
says why. The last line is `N passed, N failed, N skipped`. Exits with 1 if a
gate failed, 2 on bad usage, else 0. The target directory is cargo's own
(CARGO_TARGET_DIR is obeyed).
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
    fn check_is_a_part_of_ci_but_for_the_quick_tests() {
        let Ok(Request::Run { gates, .. }) = parsed(&["check"]) else { panic!("expected gates") };
        let is_in_ci = |name: &str| gates::ALL.iter().any(|gate| gate.name == name);
        let others: Vec<_> =
            gates.iter().map(|gate| gate.name).filter(|name| !is_in_ci(name)).collect();
        assert_eq!(others, ["quick"]);
        assert!(gates.len() < gates::ALL.len());
    }

    #[test]
    fn what_stands_behind_soak_is_for_it_alone() {
        let Ok(Request::Soak(rest)) = parsed(&["soak", "streams", "--kills", "ci"]) else {
            panic!("expected a soak");
        };
        assert_eq!(rest, ["streams", "--kills", "ci"]);
    }

    #[test]
    fn a_word_that_is_no_gate_is_refused() {
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
