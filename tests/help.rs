//! What teaches the command: help, completions, manual pages.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;

use support::{folder, upcall};

/// Exit statuses of the contract, as `--help` must show them.
const STATUSES: [&str; 4] = ["0 ", "2 ", "3 ", "4 "];

#[test]
fn the_help_shows_examples_and_exit_statuses() {
    let done = upcall(&["--help"]);
    done.assert_code(&[0]);
    for command in ["plan", "run", "completions", "man"] {
        let listed = done.stdout.lines().any(|line| line.trim_start().starts_with(command));
        assert!(listed, "no `{command}`: {}", done.stdout);
    }
    assert!(done.stdout.contains("Examples:"), "{}", done.stdout);
    let (_, statuses) = done.stdout.split_once("Exit status:").expect("exit statuses");
    for status in STATUSES {
        assert!(statuses.lines().any(|line| line.trim_start().starts_with(status)), "{status}");
    }
    // Started by `run` only.
    assert!(!done.stdout.contains("__"), "{}", done.stdout);
}

#[test]
fn every_command_that_runs_a_spec_tells_its_exit_statuses_and_an_example() {
    for command in ["plan", "run"] {
        for arguments in [&[command, "--help"][..], &["help", command]] {
            let done = upcall(arguments);
            done.assert_code(&[0]);
            let help = &done.stdout;
            assert!(help.contains(&format!("upcall {command} ")), "no example: {help}");
            assert!(help.contains("Exit status:"), "no exit statuses: {help}");
        }
    }
    let run = upcall(&["run", "--help"]).stdout;
    for option in ["--duration", "--mode", "--compare", "--soft", "--json", "--csv"] {
        assert!(run.contains(option), "no `{option}`: {run}");
    }
    for command in ["completions", "man"] {
        let help = upcall(&[command, "--help"]);
        help.assert_code(&[0]);
        assert!(help.stdout.contains("xample"), "{}", help.stdout);
    }
}

#[test]
fn the_version_is_told() {
    let done = upcall(&["--version"]);
    done.assert_code(&[0]);
    assert_eq!(done.stdout, format!("upcall {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn there_are_completions_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let done = upcall(&["completions", shell]);
        done.assert_code(&[0]);
        for word in ["plan", "run", "compare", "duration"] {
            assert!(done.stdout.contains(word), "{shell}: no `{word}`");
        }
        assert!(done.stderr.is_empty(), "{done:#?}");
    }
}

#[test]
fn there_are_completions_for_the_daemon() {
    for shell in ["bash", "zsh", "fish"] {
        let done = upcall(&["completions", shell, "--program", "upcalld"]);
        done.assert_code(&[0]);
        for word in ["upcalld", "user-share", "metrics"] {
            assert!(done.stdout.contains(word), "{shell}: no `{word}`");
        }
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let folder = folder();
    let path = folder.path().to_str().expect("UTF-8");
    upcall(&["man", path]).assert_code(&[0]);
    for page in ["upcall.1", "upcall-plan.1", "upcall-run.1"] {
        let text = fs::read_to_string(folder.path().join(page)).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
    let daemon = fs::read_to_string(folder.path().join("upcalld.8")).expect("of the daemon");
    assert!(daemon.contains(".TH upcalld 8") && daemon.contains("user\\-share"), "{daemon}");
    let run = fs::read_to_string(folder.path().join("upcall-run.1")).expect("it is there");
    assert!(run.contains("soft"), "{run}");
    // The hidden commands are nobody's to read about.
    let pages = fs::read_dir(folder.path()).expect("it is ours");
    for page in pages.flatten() {
        let name = page.file_name().into_string().expect("UTF-8");
        assert!(!name.contains("__"), "{name}");
    }
}
