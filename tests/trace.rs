//! `--trace` and `--replay`, as a whole program. A replay decides the same as the recorded run,
//! live or in virtual time. A file that is not such a trace is refused.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{Done, SpecFile, example, machine, upcall};
use upcall::activity::Claim;
use upcall::discipline::DISCIPLINES;
use upcall::scheduler::Command;
use upcall_sim::trace::{Crossing, Record, Trace, Writer, read};

/// One task that must yield to the other, in two domains.
const TASKS: &str = r#"
[[task]]
name = "fast"
period = "10 ms"
cost = "300 us"
batch = 4
share = "30 %"
domain = "control"
[[task]]
name = "slow"
period = "35 ms"
cost = "500 us"
batch = 20
quantum = 2
share = "40 %"
domain = "media"
"#;

/// A folder that is removed with the test, and the path of a file in it that does not exist yet.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = support::folder();
    let path = folder.path().join("out.pftrace");
    (folder, path)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// `upcall sim` of half a second into `path`, in one process: several domains would be several.
fn simulate(path: &Path) {
    let spec = SpecFile::new(TASKS.replace("media", "control"));
    let done = upcall(&["sim", spec.path(), "--duration", "500ms", "--trace", text(path)]);
    done.assert_code(&[0]);
}

fn replay(path: &Path) -> Done {
    upcall(&["sim", "--replay", text(path)])
}

/// Changes the trace in `path` with `change`.
fn rewrite(path: &Path, change: impl FnOnce(&mut Trace)) {
    let mut trace = read(&fs::read(path).expect("the trace was written")).expect("a trace");
    change(&mut trace);
    let mut writer = Writer::new(Vec::new(), &trace.header).expect("a Vec takes all bytes");
    for ((cpu, _), records) in trace.header.cpus.iter().zip(&trace.records) {
        for record in records {
            writer.record(*cpu, record).expect("a Vec takes all bytes");
        }
    }
    fs::write(path, writer.finish().expect("a Vec takes all bytes")).expect("the file is writable");
}

#[test]
fn a_live_run_gives_the_same_commands_again() {
    let _machine = machine();
    let (_folder, path) = file();
    // Several domains would be several processes. `domains.rs` tests those.
    let spec = SpecFile::new(TASKS.replace("media", "control"));
    let run = upcall(&["run", spec.path(), "--duration", "1s", "--json", "--trace", text(&path)]);
    // Without rights or time the machine may break promises, but the core still decides.
    run.assert_code(&[0, 4]);
    let jobs: u64 = run.json()["activities"]
        .as_array()
        .expect("the contract's list")
        .iter()
        .map(|activity| activity["completed"].as_u64().expect("a count"))
        .sum();

    let done = replay(&path);
    done.assert_code(&[0]);
    assert!(done.stdout.ends_with("same commands\n"), "{done:#?}");
    assert!(done.stdout.contains("clock monotonic"), "{done:#?}");
    let json = upcall(&["sim", "--json", "--replay", text(&path)]).json();
    assert_eq!((&json["same"], &json["lost"]), (&true.into(), &0.into()));
    // At least one command began and one ended each job.
    assert!(json["commands"].as_u64() >= Some(2 * jobs) && jobs > 50, "{jobs} {json}");

    let trace = read(&fs::read(&path).expect("the trace was written")).expect("a trace");
    let names: Vec<_> = trace.header.activities.iter().map(|named| &*named.name).collect();
    let domains: Vec<_> = trace.header.activities.iter().map(|named| &*named.domain).collect();
    assert_eq!((names, domains), (vec!["fast", "slow"], vec!["control", "control"]));
}

/// The file has the groups of the spec: without them the commands would differ.
#[test]
fn a_live_run_and_a_simulation_with_groups_give_the_same_commands_again() {
    let _machine = machine();
    let groups = fs::read_to_string(example("groups.toml")).expect("the example");
    let spec = SpecFile::new(groups);
    for command in ["sim", "run"] {
        let (_folder, path) = file();
        // The hogs of the example are late on purpose. Nothing is promised to them.
        upcall(&[command, spec.path(), "--duration", "500ms", "--trace", text(&path)])
            .assert_code(&[0, 4]);
        let done = replay(&path);
        done.assert_code(&[0]);
        assert!(done.stdout.ends_with("same commands\n"), "{done:#?}");
        rewrite(&path, |trace| {
            assert_eq!(trace.header.groups.len(), 3);
            trace.header.groups[0].claim = Claim::Weight(1);
        });
        replay(&path).assert_code(&[4]);
    }
}

#[test]
fn a_simulation_gives_the_same_commands_again_under_every_policy() {
    let spec = SpecFile::new(TASKS);
    for discipline in DISCIPLINES {
        let (_folder, path) = file();
        let policy = ["--policy", discipline.name];
        let arguments = ["sim", spec.path(), "--duration", "500ms", "--soft", "--trace"];
        upcall(&[&arguments[..], &[text(&path)], &policy].concat()).assert_code(&[0, 4]);
        let json = upcall(&["sim", "--json", "--replay", text(&path)]).json();
        assert_eq!(json["same"], true, "{json}");
        assert_eq!(json["policy"], discipline.name);
        assert_eq!(json["clock"], "virtual");
        assert!(json["commands"].as_u64() > Some(100), "{json}");
    }
}

#[test]
fn a_replay_shows_the_first_different_command() {
    let (_folder, path) = file();
    simulate(&path);
    rewrite(&path, |trace| {
        let upcalled = trace.records[0].iter_mut().find_map(|record| match &mut record.crossing {
            Crossing::Command(Some(Command::Upcall { pdus_max, .. })) => Some(pdus_max),
            _ => None,
        });
        *upcalled.expect("something was upcalled") += 1;
    });
    let done = replay(&path);
    done.assert_code(&[4]);
    assert!(done.stdout.contains("other commands: CPU 0, record "), "{done:#?}");
    assert!(done.stdout.contains("pdus_max: 5") && done.stdout.contains("pdus_max: 4"));
    let json = upcall(&["sim", "--json", "--replay", text(&path)]).json();
    assert_eq!((&json["same"], &json["divergence"]["cpu"]), (&false.into(), &0.into()));
}

#[test]
fn a_trace_with_a_gap_gives_no_verdict() {
    let (_folder, path) = file();
    simulate(&path);
    rewrite(&path, |trace| {
        let now = trace.records[0][50].now;
        let gap = Record { now, crossing: Crossing::Lost { records: 30 } };
        trace.records[0].splice(50..80, [gap]);
    });
    let done = replay(&path);
    done.assert_code(&[2]);
    assert!(done.stderr.contains("30 records were lost"), "{done:#?}");
    assert!(!done.stdout.contains("same commands"), "{done:#?}");
}

#[test]
fn an_incomplete_trace_is_refused_with_its_place() {
    let (_folder, path) = file();
    let done = replay(&path);
    assert!(done.assert_code(&[2]).stderr.contains("out.pftrace"), "{done:#?}");
    simulate(&path);
    let whole = fs::read(&path).expect("the trace was written");
    fs::write(&path, &whole[..whole.len() - 1]).expect("the file is writable");
    let done = replay(&path);
    assert!(done.assert_code(&[2]).stderr.contains("the file ends inside a packet"), "{done:#?}");
    fs::write(&path, TASKS.trim_start()).expect("the file is writable");
    let done = replay(&path);
    assert!(done.assert_code(&[2]).stderr.contains("no Perfetto trace"), "{done:#?}");
}

#[test]
fn a_trace_without_a_record_proves_nothing() {
    let (_folder, path) = file();
    simulate(&path);
    rewrite(&path, |trace| trace.records.iter_mut().for_each(Vec::clear));
    let done = replay(&path);
    assert!(done.assert_code(&[2]).stderr.contains("nothing to compare"), "{done:#?}");
}

#[test]
fn a_trace_of_a_mode_without_the_core_is_refused() {
    let (_folder, path) = file();
    let spec = SpecFile::new(TASKS);
    for options in [&["--mode", "threads"][..], &["--mode", "fifo"], &["--compare"]] {
        let arguments = [&["run", spec.path(), "--trace", text(&path)], options].concat();
        let done = upcall(&arguments);
        assert!(done.assert_code(&[2]).stderr.contains("--trace"), "{done:#?}");
        assert!(!path.exists());
    }
}
