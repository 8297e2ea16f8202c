//! `cargo xtask results`: measures the stored results of `docs/results` again.
//!
//! [`ALL`] lists them, each with its commands. For each result the command builds the program
//! first, waits until the host leaves the machine alone, and runs the program. It stores the output
//! below a head: machine, kernel, date, commit, command, load before the run, how long it took, and
//! the time that the host took meanwhile. The pictures that a result draws get the same head, and
//! the README gets the table of the result `conference`. A program that fails leaves its stored
//! file as it was. A bench that prints what does not hold, and exits with 1, has not failed.
//!
//! A tree with changes is refused, because the head names the commit. The stored results themselves
//! do not count: the results before this one changed them. No result is written if the commit or
//! the tree changed after the begin.

use crate::child;
use crate::failure::Failure;
use crate::workspace::Workspace;
use head::Measured;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

mod head;
pub mod shown;

/// Where the results are.
const FOLDER: &str = "docs/results/";
/// The line of a stored file that names its commit.
const COMMIT: &str = "commit:";

/// What follows the commit if the tree had changes.
const CHANGES: &str = ", and changes that are not committed";

/// One stored result: a text in [`FOLDER`] with this name.
#[derive(Debug)]
struct Stored {
    name: &'static str,
    /// About how long it takes, without building.
    seconds: u64,
    /// What runs, without the word `cargo`. The outputs of several commands are joined.
    commands: &'static [&'static str],
}

const fn stored(name: &'static str, seconds: u64, commands: &'static [&'static str]) -> Stored {
    Stored { name, seconds, commands }
}

/// All results, the quick ones first.
const ALL: &[Stored] = &[
    stored("price", 10, &["bench -p upcall-benches --bench price"]),
    stored("ecalls-table1", 15, &["bench -p upcall-benches --bench ecalls"]),
    stored("pick", 20, &["bench -p upcall-benches --bench pick"]),
    stored("experiment2", 10, &["run --release -p upcall-sim --example experiment2"]),
    stored("video-players", 60, &["run --release -p upcall-sim --example video_players"]),
    stored("dws-utilization", 120, &["run --release -p upcall-sim --example dws_utilization"]),
    stored("simulator", 120, &["bench -p upcall-benches --bench simulator"]),
    stored(
        "livelock",
        780,
        &[
            "run --release -p upcall-cli --bin upcall -- bench livelock --runs 3",
            "run --release -p upcall-cli --bin upcall -- bench livelock --flood 1k,10k,100k,1M",
        ],
    ),
    stored("udp", 960, &["bench -p upcall-benches --bench udp"]),
    stored("simso", 60, &["bench -p upcall-benches --bench simso"]),
    stored(
        "conference",
        35,
        &[
            "run --release -p upcall-cli --bin upcall -- run examples/conference.toml --compare",
            "run --release -p upcall-cli --bin upcall -- run examples/conference.toml --duration 2s \
             --trace target/conference.pftrace",
            "run --release -p upcall-cli --bin upcall -- plot target/conference.pftrace --from 1s \
             --to 1200ms -o docs/run.svg",
        ],
    ),
    stored("handoff", 90, &["bench -p upcall-benches --bench handoff"]),
    stored("io-events", 120, &["bench -p upcall-benches --bench io_events"]),
    stored("stream", 180, &["bench -p upcall-benches --bench stream --features iceoryx2"]),
    stored("split-level-table1", 120, &["bench -p upcall-benches --bench split_level -- table"]),
    stored(
        "split-level-figure9",
        120,
        &["bench -p upcall-benches --bench split_level -- figure --draw \
           docs/results/split-level-figure9.svg"],
    ),
    stored("processes", 300, &["bench -p upcall-benches --bench processes -- 16 86 256 9"]),
    stored("processes-whole", 360, &["bench -p upcall-benches --bench processes -- 16"]),
    stored("wake", 240, &["bench -p upcall-benches --bench wake"]),
    stored("programs", 300, &["bench -p upcall-benches --bench programs"]),
    stored("shares", 240, &["bench -p upcall-benches --bench shares"]),
    stored("hostile", 480, &["bench -p upcall-benches --bench hostile"]),
    stored("figure7", 540, &["bench -p upcall-benches --bench figure7"]),
    stored(
        "ps-lag",
        480,
        &["test --release -p upcall-core --test ps_lag -- --include-ignored --nocapture \
           --test-threads=1"],
    ),
    stored("soak-streams", 360, &["xtask soak streams --messages 1000000000 --kills 1000"]),
    stored(
        "video-players-real",
        1_800,
        &["bench -p upcall-benches --bench video_players -- --figures"],
    ),
];

/// The pictures that a result draws.
fn pictures(name: &str) -> &'static [&'static str] {
    match name {
        shown::RESULT => &[shown::PICTURE],
        "split-level-figure9" => &["docs/results/split-level-figure9.svg"],
        "video-players-real" => &[
            "docs/results/video-players-real-figure4.svg",
            "docs/results/video-players-real-figure5.svg",
        ],
        _ => &[],
    }
}

/// What `cargo xtask results` is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Results by name; none means all.
    names: Vec<String>,
    /// Measure in a tree with changes, and say so in the head.
    dirty: bool,
    action: Action,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Action {
    #[default]
    Measure,
    List,
    Check,
}

/// The request in the arguments after `results`, or the mistake in them.
///
/// # Errors
/// An unknown option, or a name that is no stored result.
pub fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    for argument in arguments {
        match argument.as_str() {
            "--dirty" => request.dirty = true,
            "--list" => request.action = Action::List,
            "--check" => request.action = Action::Check,
            name if ALL.iter().any(|stored| stored.name == name) => {
                request.names.push(name.to_owned());
            }
            other => {
                let names: Vec<_> = ALL.iter().map(|stored| stored.name).collect();
                return Err(format!("found `{other}`, expected one of {}", names.join(", ")));
            }
        }
    }
    Ok(request)
}

/// Answers the request. True if every result was measured, or is of one commit.
///
/// # Errors
/// The tree has changes, a stored file cannot be read or written, or git is missing.
pub fn run(request: &Request, workspace: &Workspace) -> Result<bool, Failure> {
    let chosen: Vec<&Stored> = ALL
        .iter()
        .filter(|stored| {
            request.names.is_empty() || request.names.iter().any(|name| name == stored.name)
        })
        .collect();
    match request.action {
        Action::Measure => measure_all(&chosen, request.dirty, workspace),
        Action::Check => check(workspace),
        Action::List => {
            for stored in &chosen {
                println!(
                    "{:<20} {:>5} s  cargo {}",
                    stored.name, stored.seconds, stored.commands[0]
                );
            }
            println!("{:<20} {:>5} s", "all", seconds_of(&chosen));
            Ok(true)
        }
    }
}

fn seconds_of(results: &[&Stored]) -> u64 {
    results.iter().map(|stored| stored.seconds).sum()
}

/// Measures each of `chosen`. A failure does not end the run. True if none failed.
fn measure_all(chosen: &[&Stored], dirty: bool, workspace: &Workspace) -> Result<bool, Failure> {
    let commit = commit(workspace, dirty)?;
    let mut failed = Vec::new();
    for (place, stored) in chosen.iter().enumerate() {
        println!(
            "\n=== {} ({} of {}): about {} s, and {} s left after it",
            stored.name,
            place + 1,
            chosen.len(),
            stored.seconds,
            seconds_of(&chosen[place + 1..])
        );
        let begun = Instant::now();
        match measure(stored, (&commit, dirty), workspace) {
            Ok(path) => println!("--- wrote {path} in {} s", begun.elapsed().as_secs()),
            Err(failure) => {
                println!("--- {} FAILED, its file stays as it was: {failure}", stored.name);
                failed.push(stored.name);
            }
        }
    }
    println!("\n{} measured, {} failed", chosen.len() - failed.len(), failed.len());
    if !failed.is_empty() {
        println!("again: cargo xtask results {}", failed.join(" "));
    }
    Ok(failed.is_empty())
}

/// Builds and runs the program of one result, and stores its output. Returns the path. The tree
/// must still be that of the commit, also if `dirty` allows changes.
fn measure(
    stored: &Stored,
    (begun_at, dirty): (&str, bool),
    workspace: &Workspace,
) -> Result<String, Failure> {
    for build in stored.commands.iter().filter_map(|command| build_of(command)) {
        child::succeed(&mut cargo(workspace, &build))?;
    }
    head::wait_for_calm();
    let begun = Measured::begin();
    let mut output = String::new();
    for command in stored.commands {
        let mut command = cargo(workspace, command);
        let (status, text) = child::shown(&mut command)?;
        if !status.success() && !is_verdict(status.code(), &text) {
            return Err(child::exited(&command, status));
        }
        output.push_str(&text);
    }
    same_tree(begun_at, &commit(workspace, dirty)?)?;
    let commands: Vec<String> =
        stored.commands.iter().map(|command| format!("cargo {command}")).collect();
    let head = begun.end(begun_at, &commands);
    let text = format!("{head}\n{}", head::without_own_head(&output));
    for picture in pictures(stored.name) {
        let headed = shown::with_head(&workspace.read((*picture).to_owned())?.text, &head);
        let headed =
            headed.ok_or_else(|| Failure(format!("{picture}: the run did not draw it")))?;
        write(workspace, picture, &headed)?;
    }
    if stored.name == shown::RESULT {
        let readme = shown::with_table(&workspace.read(shown::README.to_owned())?.text, &text);
        let readme = readme.ok_or_else(|| Failure("README or output without its table".into()))?;
        write(workspace, shown::README, &readme)?;
    }
    let path = format!("{FOLDER}{}.txt", stored.name);
    write(workspace, &path, &text)?;
    Ok(path)
}

/// Whether a program ran to its end and found that something does not hold. That is a result.
fn is_verdict(code: Option<i32>, output: &str) -> bool {
    code == Some(1) && output.lines().any(|line| line.starts_with("DOES NOT HOLD"))
}

/// Requires that the commit of the tree did not change since the begin.
fn same_tree(begun_at: &str, now: &str) -> Result<(), Failure> {
    match now == begun_at {
        true => Ok(()),
        false => Err(Failure(format!("the tree was {begun_at} at the begin, and now is {now}"))),
    }
}

fn write(workspace: &Workspace, path: &str, text: &str) -> Result<(), Failure> {
    std::fs::write(workspace.root.join(path), text)
        .map_err(|error| Failure(format!("{path}: {error}")))
}

fn cargo(workspace: &Workspace, words: &str) -> Command {
    let mut command = child::cargo(&workspace.root);
    command.args(words.split_whitespace());
    command
}

/// The command that builds what `command` runs. `None` if it is a task of this program.
fn build_of(command: &str) -> Option<String> {
    let own = command.split(" -- ").next().unwrap_or(command);
    match own.split_once(' ')? {
        ("run", rest) => Some(format!("build {rest}")),
        ("bench" | "test", _) => Some(format!("{own} --no-run")),
        _ => None,
    }
}

/// The commit of the tree, with a remark if the tree has changes and `dirty` allows that.
fn commit(workspace: &Workspace, dirty: bool) -> Result<String, Failure> {
    let git = |arguments: &[&str]| -> Result<String, Failure> {
        let mut command = Command::new("git");
        let output = child::output(command.current_dir(&workspace.root).args(arguments))?;
        if !output.status.success() {
            return Err(child::exited(&command, output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned();
    let changed = git(&["status", "--porcelain"])?;
    match changes(&changed).as_slice() {
        [] => Ok(commit),
        _ if dirty => Ok(format!("{commit}{CHANGES}")),
        changes => Err(Failure(format!(
            "the tree has changes, so no commit names it: {}; commit them, or allow them with --dirty",
            changes.join(", ")
        ))),
    }
}

/// The changed files in the output of `git status --porcelain` that measuring does not write.
fn changes(status: &str) -> Vec<&str> {
    let paths = status.lines().filter_map(|line| line.get(3..));
    let is_written = |path: &&str| path.starts_with(FOLDER) || written_beside(path);
    paths.filter(|path| !is_written(path)).collect()
}

/// Whether `path` is written with a result, outside of [`FOLDER`].
fn written_beside(path: &str) -> bool {
    [shown::PICTURE, shown::README].contains(&path)
}

/// Prints the results of each commit. True if all are of one, without changes.
fn check(workspace: &Workspace) -> Result<bool, Failure> {
    let mut texts = Vec::new();
    for stored in ALL {
        let path = format!("{FOLDER}{}.txt", stored.name);
        let text = std::fs::read_to_string(workspace.root.join(&path)).unwrap_or_default();
        texts.push((stored.name, text));
        for picture in pictures(stored.name) {
            let text = std::fs::read_to_string(workspace.root.join(picture)).unwrap_or_default();
            texts.push((picture, text));
        }
    }
    let by_commit = by_commit(&texts);
    for (commit, names) in &by_commit {
        println!("{commit}: {}", names.join(", "));
    }
    let verdict = verdict(&by_commit);
    println!("{}", verdict.unwrap_or_else(|why| why));
    Ok(verdict.is_ok())
}

/// Whether all results are of one commit, and of nothing else.
fn verdict(by_commit: &BTreeMap<&str, Vec<&str>>) -> Result<&'static str, &'static str> {
    if by_commit.keys().any(|commit| commit.ends_with(CHANGES)) {
        return Err("measured with changes that no commit has");
    }
    match by_commit.len() == 1 && !by_commit.contains_key(NO_COMMIT) {
        true => Ok("all of one commit"),
        false => Err("not all of one commit"),
    }
}

/// How [`by_commit`] names the results without a commit.
const NO_COMMIT: &str = "no commit";

/// The names of the results of each commit.
fn by_commit<'a>(texts: &'a [(&'a str, String)]) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, text) in texts {
        let commit = text.lines().find_map(|line| line.strip_prefix(COMMIT));
        found.entry(commit.map_or(NO_COMMIT, str::trim)).or_default().push(name);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Request, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn results_are_chosen_by_name() {
        assert_eq!(parsed(&[]), Ok(Request::default()));
        let request = parsed(&["price", "--dirty", "pick"]).unwrap();
        assert_eq!(
            (request.names.as_slice(), request.dirty),
            (&["price".into(), "pick".into()][..], true)
        );
        assert!(parsed(&["prices"]).unwrap_err().contains("price, ecalls-table1"));
    }

    /// The time in seconds that a row of the page names behind the command, as in "(2 min; ...".
    fn seconds_of_row(row: &str) -> Option<u64> {
        let (number, rest) = row.rsplit_once("` (")?.1.split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        Some(if rest.starts_with("min") { number * 60 } else { number })
    }

    #[test]
    fn the_times_are_not_less_than_those_of_the_page() {
        let workspace = Workspace::load().unwrap();
        let page = workspace.read(format!("{FOLDER}README.md")).unwrap().text;
        let mut found = 0;
        for Stored { name, seconds, .. } in ALL {
            let begin = format!("| `{name}.txt`");
            let Some(row) = page.lines().find(|line| line.starts_with(&begin)) else { continue };
            let of_page = seconds_of_row(row).unwrap_or_else(|| panic!("{row}"));
            assert!((of_page..=2 * of_page).contains(seconds), "{name}: {seconds} s, {of_page} s");
            found += 1;
        }
        assert!(found > 15, "{found} rows");
    }

    #[test]
    fn no_result_is_measured_twice() {
        for (place, stored) in ALL.iter().enumerate() {
            assert!(ALL[..place].iter().all(|other| other.name != stored.name), "{}", stored.name);
        }
    }

    #[test]
    fn each_stored_text_is_one_that_can_be_measured_again() {
        let workspace = Workspace::load().unwrap();
        let stored = std::fs::read_dir(workspace.root.join(FOLDER)).unwrap();
        for entry in stored {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(name) = name.strip_suffix(".txt") {
                assert!(ALL.iter().any(|stored| stored.name == name), "{name}: no command");
            }
        }
    }

    #[test]
    fn each_stored_picture_is_drawn_by_a_result() {
        let workspace = Workspace::load().unwrap();
        let drawn: Vec<_> = ALL.iter().flat_map(|stored| pictures(stored.name)).collect();
        assert!(drawn.iter().all(|path| workspace.root.join(path).exists()), "{drawn:?}");
        for entry in std::fs::read_dir(workspace.root.join(FOLDER)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("{FOLDER}{name}");
            let is_drawn = || drawn.iter().any(|drawn| **drawn == path);
            assert!(!name.ends_with(".svg") || is_drawn(), "{name}: no result draws it");
        }
    }

    #[test]
    fn each_bench_has_a_stored_result() {
        let workspace = Workspace::load().unwrap();
        let packages = workspace.metadata.packages.iter();
        let benches = packages
            .filter(|package| package.name.as_str() == "upcall-benches")
            .flat_map(|package| &package.targets)
            .filter(|target| target.is_bench());
        for bench in benches {
            let option = format!("--bench {}", bench.name);
            let runs_it = |command: &&str| format!("{command} ").contains(&format!("{option} "));
            let is_stored = ALL.iter().flat_map(|stored| stored.commands).any(runs_it);
            assert!(is_stored, "{}: no result", bench.name);
        }
    }

    #[test]
    fn a_program_is_built_before_it_is_measured() {
        let build = |command| build_of(command).unwrap_or_default();
        assert_eq!(build("bench -p b --bench price -- x"), "bench -p b --bench price --no-run");
        assert_eq!(build("run --release --example e"), "build --release --example e");
        assert_eq!(build_of("xtask soak streams"), None);
    }

    #[test]
    fn a_bench_that_finds_what_does_not_hold_has_a_result() {
        let found = "table\nDOES NOT HOLD: 1 rows: fork\n";
        assert!(is_verdict(Some(1), found));
        assert!(!is_verdict(Some(1), "table\n"), "it failed");
        assert!(!is_verdict(Some(101), found), "it panicked later");
        assert!(!is_verdict(None, found), "it was killed");
    }

    #[test]
    fn a_tree_that_changed_meanwhile_has_no_result() {
        assert!(same_tree("123", "123").is_ok());
        let failure = same_tree("123", "456").unwrap_err();
        assert_eq!(failure.0, "the tree was 123 at the begin, and now is 456");
        assert!(same_tree("123", &format!("123{CHANGES}")).is_err());
    }

    #[test]
    fn stored_results_are_no_changes() {
        let status = " M docs/results/price.txt\n?? docs/results/new.txt\n M docs/run.svg\n";
        assert_eq!(changes(&format!("{status} M README.md\n")), [""; 0]);
        assert_eq!(changes(" M docs/results/a.txt\n M crates/a.rs\n"), ["crates/a.rs"]);
    }

    #[test]
    fn results_of_two_commits_and_of_none_are_told_apart() {
        let texts = [
            ("a", "machine: x\ncommit: 123\n".to_owned()),
            ("b", "commit:  123".to_owned()),
            ("c", String::new()),
        ];
        let found = by_commit(&texts);
        assert_eq!(found["123"], ["a", "b"]);
        assert_eq!(found[NO_COMMIT], ["c"]);
        assert!(verdict(&found).is_err());
    }

    #[test]
    fn results_with_changes_are_of_no_commit() {
        let of = |commit| verdict(&BTreeMap::from([(commit, vec!["a"])])).is_ok();
        assert!(of("123"));
        assert!(!of("123, and changes that are not committed"));
        assert!(!of(NO_COMMIT));
    }
}
