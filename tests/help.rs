//! The texts that explain the command: help, completions, manual pages.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::process::Command;

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
    // Only `run` starts the hidden commands.
    assert!(!done.stdout.contains("__"), "{}", done.stdout);
}

#[test]
fn the_help_of_each_command_shows_an_example() {
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
    for command in [
        "sim",
        "sweep",
        "plot",
        "daemon",
        "top",
        "ps",
        "exec",
        "share",
        "adopt",
        "bench",
        "completions",
        "man",
    ] {
        let help = upcall(&[command, "--help"]);
        help.assert_code(&[0]);
        assert!(help.stdout.contains("Examples:"), "{}", help.stdout);
    }
}

#[test]
fn the_help_of_programs_says_who_may_ask() {
    for command in ["exec", "share", "adopt"] {
        let help = upcall(&[command, "--help"]);
        help.assert_code(&[0]);
        let (before, after) = help.stdout.split_once("\n\nWho may ask:\n").expect("who may ask");
        assert!(before.contains("Examples:") && after.contains("\n\nExit status:\n"), "{command}");
        for who in ["Root", "user of the daemon", "--program-users", "Delegate=cpu"] {
            assert!(after.contains(who), "no `{who}`: {after}");
        }
    }
}

#[test]
fn the_version_is_printed() {
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
        // Only the command itself calls these.
        assert!(!done.stdout.contains("__send") && !done.stdout.contains("__spin"), "{shell}");
        // The policies of `sim` and `daemon`.
        assert!(done.stdout.contains("rmdp") && done.stdout.contains("dwcs"), "{shell}");
    }
}

/// Runs the script as bash does, and compares its completions after `words`.
#[test]
fn bash_completes_policies_modes_and_files() {
    let folder = folder();
    let script = folder.path().join("completions");
    let text = upcall(&["completions", "bash"]).stdout;
    assert!(text.contains("-o default upcall"), "{text}");
    fs::write(&script, text).expect("space on the disk");
    fs::write(folder.path().join("talk.toml"), "").expect("space on the disk");
    for (words, expected) in [
        ("upcall sim --policy ''", "rmdp rm dws ps dwcs"),
        ("upcall daemon --policy ''", "rmdp rm dws ps dwcs"),
        ("upcall run --mode ''", "upcall threads fifo"),
        // The script has no completion, so bash completes file names, as the script requests.
        ("upcall plan tal", ""),
        ("upcall plot x --output tal", "talk.toml"),
    ] {
        let ask = format!(
            ". ./completions; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMPREPLY=(); _upcall upcall \"${{COMP_WORDS[COMP_CWORD]}}\" \
             \"${{COMP_WORDS[COMP_CWORD - 1]}}\" 2>/dev/null; echo ${{COMPREPLY[@]}}"
        );
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", &ask]).current_dir(folder.path()).output().expect("bash");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{words}");
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
        // `upcall` has the flags of the daemon, too, and commands beside it.
        assert!(!done.stdout.contains("sweep"), "{shell}: the script completes `upcall`");
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let folder = folder();
    let path = folder.path().to_str().expect("UTF-8");
    upcall(&["man", path]).assert_code(&[0]);
    // A missing folder is created, with its parents.
    let below = folder.path().join("share/man/man1");
    upcall(&["man", below.to_str().expect("UTF-8")]).assert_code(&[0]);
    assert!(below.join("upcall-plan.1").is_file());
    // If it cannot be created, the command names it.
    let under_file = folder.path().join("upcall.1/man1");
    let under_file = under_file.to_str().expect("UTF-8");
    let refused = upcall(&["man", under_file]);
    refused.assert_code(&[2]);
    assert!(refused.stderr.contains(&format!("{under_file}: ")), "{refused:#?}");
    for page in ["upcall.1", "upcall-plan.1", "upcall-run.1", "upcall-bench-livelock.1"] {
        let text = fs::read_to_string(folder.path().join(page)).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
    let daemon = fs::read_to_string(folder.path().join("upcalld.8")).expect("the daemon's page");
    assert!(daemon.contains(".TH upcalld 8") && daemon.contains("user\\-share"), "{daemon}");
    let run = fs::read_to_string(folder.path().join("upcall-run.1")).expect("the page of run");
    assert!(run.contains("soft"), "{run}");
    // The hidden commands have no page.
    let pages = fs::read_dir(folder.path()).expect("the folder can be read");
    for page in pages.flatten() {
        let name = page.file_name().into_string().expect("UTF-8");
        assert!(!name.contains("__"), "{name}");
    }
}
