use super::*;
use crate::gates::readme::commands;
use crate::gates::readme::reader::Account;
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

fn block(script: &str) -> Block {
    let text = format!("```sh\n{script}\n```\n");
    commands::of_document("README.md", &text).unwrap().remove(0)
}

/// The present user in an empty home, whose clone holds nothing.
fn reader(name: &str) -> Reader {
    let home = std::env::temp_dir().join(format!("upcall-readme-{name}-{}", std::process::id()));
    std::fs::create_dir_all(home.join("upcall")).unwrap();
    Reader {
        account: Account::Present,
        home,
        seen_home: PathBuf::new(),
        toolchain: PathBuf::from("/nowhere"),
    }
}

fn remove(reader: &Reader) {
    std::fs::remove_dir_all(&reader.home).unwrap();
}

fn exit(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

#[test]
fn a_block_fails_with_any_of_its_commands() {
    let reader = reader("broken");
    assert_eq!(run(&reader, &block("true\ntest -d ."), &[]), Ok(Outcome::Ran("")));
    for broken in ["cargo-of-no-toolchain run", "false\ntrue", "exit 2"] {
        let failure = run(&reader, &block(broken), &[]).unwrap_err();
        assert!(failure.0.starts_with("README.md:1: exit status"), "{broken}: {failure}");
    }
    remove(&reader);
}

#[test]
fn a_failure_in_another_shell_fails_the_block() {
    let reader = reader("beside");
    let first =
        block("for n in 1 2 3 4 5 6 7 8; do test -e there && exit 0; sleep 1; done; exit 1");
    assert_eq!(run(&reader, &first, &[block("touch there")]), Ok(Outcome::Ran("")));
    let failure = run(&reader, &block("true"), &[block("exit 3")]).unwrap_err();
    assert!(failure.0.contains("exit status: 3"), "{failure}");
    remove(&reader);
}

#[test]
fn a_block_must_end_as_the_document_says() {
    let soon = block("cargo run");
    assert_eq!(judge(&soon, exit(0), None), Ok(Outcome::Ran("")));
    for code in [1, 4, 101, 124, 130, 137] {
        assert!(judge(&soon, exit(code), None).is_err(), "{code}");
    }
    let broken = block("cargo run   # exits with 4");
    assert!(judge(&broken, exit(4), None).is_ok() && judge(&broken, exit(0), None).is_err());
    let lasts = block("cargo run   # 2 min");
    assert!(judge(&lasts, exit(124), None).is_ok() && judge(&lasts, exit(0), None).is_ok());
    for code in [1, 101, 137] {
        assert!(judge(&lasts, exit(code), None).is_err(), "{code}");
    }
}

#[test]
fn a_broken_promise_is_a_failure_only_with_the_right_to_fifo() {
    let quiet = || 7;
    let ends = |code, realtime| {
        attempts(&block("upcall run"), &Rights { realtime, stolen: &quiet }, || Ok(exit(code)))
    };
    assert!(ends(4, true).is_err());
    assert!(ends(4, false).is_ok());
    assert!(ends(0, true).is_ok());
    assert!(ends(2, false).is_err(), "a bad spec is always a failure");
}

#[test]
fn a_promise_broken_while_the_host_took_the_cpu_does_not_count() {
    let ticks = Cell::new(0);
    let busy = || ticks.replace(ticks.get() + 1);
    let rights = Rights { realtime: true, stolen: &busy };
    let outcome = attempts(&block("upcall run"), &rights, || Ok(exit(4))).unwrap();
    assert!(matches!(outcome, Outcome::Ran(note) if note.contains("not judged")), "{outcome:?}");
    assert!(attempts(&block("upcall run"), &rights, || Ok(exit(2))).is_err());
}

#[test]
fn an_expected_broken_promise_needs_one_attempt() {
    let runs = Cell::new(0);
    let rights = Rights { realtime: true, stolen: &|| 7 };
    let outcome = attempts(&block("upcall sim   # exits with 4"), &rights, || {
        runs.set(runs.get() + 1);
        Ok(exit(4))
    });
    assert_eq!((outcome, runs.get()), (Ok(Outcome::Ran("")), 1));
}

#[test]
fn a_block_that_changes_the_machine_or_runs_this_gate_is_skipped() {
    let why = |script| not_run(&block(script), &[]);
    assert!(why("cargo xtask ci").unwrap().contains("`cargo xtask ci`"));
    assert!(why("sudo apt-get install gcc").unwrap().contains("`sudo`"));
    assert!(why("sudo setcap a+ep upcall\nsudo systemctl start upcalld").is_some());
    assert_eq!(why("cargo run"), None);
    let text = "```console\n$ cargo install --path .\n```\n";
    let console = commands::of_document("README.md", text).unwrap().remove(0);
    assert!(not_run(&console, &[]).unwrap().contains("`console`"));
}

#[test]
fn a_program_is_built_before_the_run_that_is_interrupted() {
    let build = |script| build_of(script).unwrap();
    assert_eq!(build("cargo run --release -p a -- --b   # 2 min"), "cargo build --release -p a");
    assert_eq!(build("cargo run --example a   # 2 min"), "cargo build --example a");
    assert_eq!(build_of("upcalld   # until Ctrl-C"), None);
}

/// Else a daemon would end at the moment at which the command in another shell asks it.
#[test]
fn a_command_that_lasts_runs_on_beside_those_of_other_shells() {
    let lasts = block("upcalld   # until Ctrl-C");
    assert_eq!(limit(&lasts, &[]), INTERRUPT_AFTER);
    assert_eq!(limit(&lasts, &[block("upcall ps")]), BESIDE_AFTER + INTERRUPT_AFTER);
    assert_eq!(limit(&block("upcall ps"), &[block("upcall ps")]), LIMIT);
}
