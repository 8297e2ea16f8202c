//! Runs every command of the guides and examples, word for word, in a fresh clone.
//!
//! The commands come from the guides (every README.md and `docs/*.md`) and from the heads of the
//! examples. `readme/commands.rs` finds them. A new user without any right runs them in one clone,
//! then root runs them in another clone (`readme/reader.rs`). The user compiles every crate of this
//! project, and root goes on with what the user compiled: root can build what the user can. What
//! runs in virtual time alone needs no right, so root does not repeat it. `readme/attempt.rs`
//! decides which commands cannot run here and whether a command ended as the document says. The
//! report at the end names every command with its result for each account.

mod attempt;
mod commands;
mod fresh;
mod plan;
mod reader;

use super::tasks::TASKS;
use crate::child;
use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;
use attempt::Outcome;
use commands::Block;
use reader::Reader;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The commands in the documents work as written.
pub const GATE: Gate = Gate {
    name: "readme",
    about: "the commands of the guides and examples work as written, in a fresh clone",
    run,
};

/// The command that is all of CI, and the file that CI runs.
const CI: (&str, &str) = ("cargo xtask ci", ".ci/run");

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    if !workspace.root.join(".git").exists() || !child::is_installed("git") {
        return Ok(Verdict::Skipped("no git repository to clone, or no git".to_owned()));
    }
    let status = child::output(
        Command::new("git").current_dir(&workspace.root).args(["status", "--porcelain"]),
    )?;
    if !status.stdout.is_empty() {
        println!("note: changes that are not committed are not checked");
    }
    let (accounts, skipped) = reader::accounts();
    let (mut findings, mut report) = (Vec::new(), Vec::new());
    // All clones first: cargo compiles again what is older than the files of a clone.
    let readers = accounts.iter().map(|account| fresh::reader(workspace, *account));
    let readers = readers.collect::<Result<Vec<Reader>, Failure>>()?;
    let mut before: Option<&Reader> = None;
    let mut simulated = BTreeSet::new();
    for reader in &readers {
        match before {
            None => fresh::libraries(workspace, reader)?,
            Some(before) => fresh::take_build(before, reader)?,
        }
        all_of(workspace, reader, &mut simulated, (&mut findings, &mut report))?;
        before = Some(reader);
    }
    for reader in &readers {
        fresh::remove(&reader.home)?;
    }
    println!();
    report.extend(skipped.iter().map(|why| format!("skipped: {why}")));
    for line in &report {
        println!("{line}");
    }
    let ran = report.iter().filter(|line| line.starts_with("ok")).count();
    let others = skipped.map_or(String::new(), |why| format!("; skipped: {why}"));
    judge(&findings, format!("{ran} runs of commands{others}"))
}

/// Runs every block of the reader's clone, except lines of `simulated`, which ran before in another
/// account. Adds the lines that ran in virtual time alone to it, the failures to `findings`, and a
/// line for each block to `report`.
fn all_of(
    workspace: &Workspace,
    reader: &Reader,
    simulated: &mut BTreeSet<String>,
    (findings, report): (&mut Vec<String>, &mut Vec<String>),
) -> Result<(), Failure> {
    let clone = Workspace {
        root: reader.clone_folder(),
        metadata: workspace.metadata.clone(),
        chosen: Vec::new(),
    };
    let blocks = match blocks_of(&clone)? {
        Ok(blocks) => blocks,
        Err(refused) => {
            findings.extend(refused);
            return Ok(());
        }
    };
    findings.extend(not_ci(&clone, &blocks)?);
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut in_turn: Vec<&[Block]> = groups(&blocks).collect();
    // Last, because the program keeps the rights that `sudo setcap` gives it.
    in_turn.sort_by_key(|group| group.iter().any(attempt::names_sudo));
    for group in in_turn {
        let Some((block, beside)) = group.split_first() else { continue };
        let begun = Instant::now();
        let all_in =
            |lines: &dyn Fn(&str) -> bool| beside.is_empty() && block.script.lines().all(lines);
        let outcome = if all_in(&|line| done.contains(line)) {
            Ok(Outcome::Skipped("the same lines ran before".to_owned()))
        } else if all_in(&|line| simulated.contains(line)) {
            Ok(Outcome::Skipped("it ran in another account, and needs no right".to_owned()))
        } else {
            attempt::run(reader, block, beside)
        };
        let (word, note) = match &outcome {
            Ok(Outcome::Ran(note)) => ("ok", (*note).to_owned()),
            Ok(Outcome::Skipped(why)) => ("skipped", why.clone()),
            Err(failure) => ("FAILED", failure.0.clone()),
        };
        let took_s = begun.elapsed().as_secs_f64();
        let (account, place) = (reader.account.name(), &block.place);
        let first = block.script.lines().next().unwrap_or_default();
        report.push(format!("{word:7} {account:4} {took_s:6.1} s  {place}  {first}  {note}"));
        println!("--- {word}: {note}");
        if matches!(outcome, Ok(Outcome::Ran(_))) {
            done.extend(block.script.lines());
        }
        findings.extend(outcome.err().map(|failure| format!("{account}: {failure}")));
    }
    findings.extend(plan::is_admitted(reader).err().map(|failure| failure.0));
    simulated.extend(done.into_iter().filter(|line| is_simulated(line)).map(str::to_owned));
    Ok(())
}

/// All blocks of the guides and examples of `clone`, or a line for each mistake in them.
fn blocks_of(clone: &Workspace) -> Result<Result<Vec<Block>, Vec<String>>, Failure> {
    let files = clone.files()?;
    let (mut blocks, mut refused) = (Vec::new(), Vec::new());
    // The README comes first, as for a user.
    let guides = files.iter().filter(|path| is_guide(path) && *path != "README.md");
    let guides = std::iter::once("README.md").chain(guides.map(String::as_str));
    let examples = files.iter().map(String::as_str).filter(|path| is_example(path));
    for (path, is_example) in
        guides.map(|path| (path, false)).chain(examples.map(|path| (path, true)))
    {
        let text = clone.read(path.to_owned())?.text;
        let found = if is_example {
            commands::of_example(path, &text)
        } else {
            commands::of_document(path, &text)
        };
        match found {
            Ok(found) => blocks.extend(found),
            Err(findings) => refused.extend(findings),
        }
    }
    Ok(if refused.is_empty() { Ok(blocks) } else { Err(refused) })
}

/// Whether the document at `path` is written for users. Decisions and results are not.
fn is_guide(path: &str) -> bool {
    let path = Path::new(path);
    let is_page = path.extension().is_some_and(|ending| ending == "md");
    let in_docs = path.starts_with("docs");
    let is_readme = path.file_name().is_some_and(|name| name == "README.md");
    is_page && if in_docs { path.iter().count() == 2 } else { is_readme }
}

/// Whether `path` is an example: a spec, a C program, or a Rust example, but not a module of one.
fn is_example(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["examples", name] => name.ends_with(".toml"),
        ["crates", _, "examples", name] => {
            [".rs", ".c", ".cpp"].iter().any(|ending| name.ends_with(ending))
        }
        ["crates", _, "examples", _, name] => *name == "main.rs",
        _ => false,
    }
}

/// Whether the command of `line` runs in virtual time alone: an example of the simulator, or a
/// command of `upcall` that simulates. What it may do and how long it takes depends on no right.
fn is_simulated(line: &str) -> bool {
    let line = line.split_once(" # ").map_or(line, |(command, _)| command);
    let Some(arguments) = line.strip_prefix("cargo run --release ") else { return false };
    let commands = ["-- sim ", "-- sweep ", "-- bench livelock --virtual "];
    let named = ["-p upcall-sim --example "].iter().chain(&commands);
    let simulates = named.into_iter().any(|begin| arguments.starts_with(begin));
    simulates && !arguments.contains(['|', ';', '&'])
}

/// Each block with the blocks that run beside it.
fn groups(blocks: &[Block]) -> impl Iterator<Item = &[Block]> {
    blocks.chunk_by(|_, next| next.beside)
}

/// Checks that the README has the command of CI, that CI runs this command alone, and that every
/// `cargo xtask NAME` exists.
fn not_ci(clone: &Workspace, blocks: &[Block]) -> Result<Vec<String>, Failure> {
    let (command, file) = CI;
    let mut findings = Vec::new();
    if !blocks.iter().any(|block| block.place.starts_with("README.md:") && block.script == command)
    {
        findings.push(format!("README.md: no block has the command `{command}`"));
    }
    let text = clone.read(file.to_owned())?.text;
    if text.lines().last() != Some(&*format!("exec {command}")) {
        findings.push(format!("{file}: its last line is not `exec {command}`"));
    }
    for block in blocks {
        if let Some(task) = attempt::task_of_gates(&block.script)
            && !TASKS.contains(&task)
        {
            findings.push(format!("{}: `cargo xtask {task}` does not exist", block.place));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guides_and_examples_are_found_by_their_paths() {
        for path in ["README.md", "fuzz/README.md", "crates/capi/README.md", "docs/spec.md"] {
            assert!(is_guide(path), "{path}");
        }
        for path in ["docs/results/README.md", "docs/decisions/0001-a.md", "CHANGELOG.md"] {
            assert!(!is_guide(path), "{path}");
        }
        for path in ["examples/a.toml", "crates/x/examples/a.rs", "crates/x/examples/a/main.rs"] {
            assert!(is_example(path), "{path}");
        }
        for path in ["crates/x/examples/a/set.rs", "examples/a.jsonl", "crates/x/src/a.rs"] {
            assert!(!is_example(path), "{path}");
        }
    }

    #[test]
    fn what_runs_in_virtual_time_is_found_by_its_words() {
        for line in [
            "cargo run --release -p upcall-sim --example dws_utilization   # 2 min",
            "cargo run --release -- sim examples/groups.toml --duration 10s",
            "cargo run --release -- sweep examples/sweep.toml -o results.csv",
        ] {
            assert!(is_simulated(line), "{line}");
        }
        for line in [
            "cargo run --release -- run examples/conference.toml --compare",
            "cargo run --release -- sim examples/groups.toml && target/release/upcall run a.toml",
            "cargo run --release -p upcall --example tasks",
            "cargo build --release -p upcall-capi   # for -p upcall-sim --example a",
        ] {
            assert!(!is_simulated(line), "{line}");
        }
    }

    #[test]
    fn a_block_in_another_shell_belongs_to_the_one_before() {
        let text = "```sh\na\n```\nIn another shell:\n```sh\nb\n```\nThen:\n```sh\nc\n```\n";
        let blocks = commands::of_document("README.md", text).unwrap();
        let sizes: Vec<usize> = groups(&blocks).map(<[Block]>::len).collect();
        assert_eq!(sizes, [2, 1]);
    }

    #[test]
    fn the_command_of_ci_is_in_the_readme_of_this_repository() {
        let workspace = Workspace::load().unwrap();
        let blocks = blocks_of(&workspace).unwrap().unwrap();
        let main = "cargo run --release -- run examples/conference.toml --compare";
        assert_eq!(blocks[0].script, main);
        assert_eq!(not_ci(&workspace, &blocks).unwrap(), Vec::<String>::new());
        let others = commands::of_document("README.md", "```sh\ncargo xtask c1\n```\n").unwrap();
        let found = not_ci(&workspace, &others).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`cargo xtask ci`") && found[1].contains("`cargo xtask c1`"));
    }
}
