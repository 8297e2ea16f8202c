//! Bad input, as a whole program: exit status 2, nothing on standard output, a first line on
//! standard error that a program can search, and no process started.
//!
//! The tests beside the reader check the text of each mistake in a spec
//! (`crates/cli/src/spec/tests`). These tests check that one mistake of each kind reaches the user.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use support::{Done, SpecFile, folder, free_port, upcall};

/// A valid stream, and a background load that creates a file.
fn good(port: u16, trace: &str) -> String {
    format!(
        "[[stream]]\nname = \"camera\"\nclass = \"continuous-media\"\nrate = \"90/s\"\n\
         pdu = \"1470 B\"\ndelay = \"50 ms\"\ncost = \"1 ms\"\n\
         receive = \"udp://127.0.0.1:{port}\"\n\
         [[background]]\nname = \"trace\"\ncommand = [\"touch\", \"{trace}\"]\n"
    )
}

/// Checks that the command ended as bad input must. Returns the first line on standard error.
#[track_caller]
fn first_line(done: &Done) -> &str {
    done.assert_code(&[2]);
    assert_eq!(done.stdout, "", "{done:#?}");
    done.stderr.lines().next().unwrap_or_default()
}

/// `plan` and `run` refuse `text` in the same way. The first line is `expected`, in which `SPEC`
/// stands for the path of the file.
#[track_caller]
fn assert_refused(text: impl AsRef<[u8]>, expected: &str) {
    let file = SpecFile::new(text);
    let expected = expected.replace("SPEC", file.path());
    for arguments in [&["plan", file.path()][..], &["run", file.path(), "--duration", "1s"]] {
        let done = upcall(arguments);
        assert_eq!(first_line(&done), expected, "{arguments:?}");
    }
}

/// `plan` refuses `good` with one edit, with an error at `place`, a line and a column. The reader's
/// own tests check the words.
#[track_caller]
fn assert_edit_refused(from: &str, to: &str, place: &str) {
    let text = good(5004, "/dev/null");
    assert!(text.contains(from), "{from}");
    let file = SpecFile::new(text.replacen(from, to, 1));
    let done = upcall(&["plan", file.path()]);
    let line = first_line(&done);
    assert!(line.starts_with(&format!("{}:{place}: stream \"camera\"", file.path())), "{line}");
    assert!(line.contains(", expected "), "{line}");
}

#[test]
fn a_mistake_is_reported_with_line_column_key_and_expected_value() {
    // A type, a unit, a range, an unknown key, and numbers that contradict each other.
    assert_edit_refused("\"90/s\"", "90", "4:8");
    assert_edit_refused("\"50 ms\"", "\"50 parsec\"", "6:9");
    assert_edit_refused("\"1470 B\"", "\"0 B\"", "5:7");
    assert_edit_refused("cost = \"1 ms\"", "cost = \"1 ms\"\ncolour = \"red\"", "8:1");
    // 90 times 20 ms a second has no mapping.
    assert_edit_refused("cost = \"1 ms\"", "cost = \"20 ms\"", "7:8");
}

#[test]
fn all_errors_of_a_file_are_reported_together() {
    let text = good(5004, "/dev/null").replace("\"90/s\"", "90").replace("\"1 ms\"", "\"1\"");
    let file = SpecFile::new(text);
    let done = upcall(&["plan", file.path()]);
    first_line(&done);
    let found = done.stderr.lines().filter(|line| line.starts_with(file.path())).count();
    assert_eq!(found, 2, "{done:#?}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = folder();
    let missing = folder.path().join("none.toml");
    for path in [missing.as_path(), folder.path(), Path::new("/dev/null")] {
        let path = path.to_str().expect("temporary paths are UTF-8");
        for command in ["plan", "run"] {
            let done = upcall(&[command, path]);
            assert!(first_line(&done).starts_with(&format!("{path}:")), "{done:#?}");
        }
    }
}

#[test]
fn an_empty_file_has_nothing_to_run() {
    assert_refused(
        "",
        "SPEC:1:1: found no stream and no task, expected at least one [[stream]] or [[task]]",
    );
}

#[test]
fn ten_megabytes_of_garbage_are_not_parsed() {
    // Its period is no power of two, so it aligns with no buffer.
    let garbage: Vec<u8> = (0..10_000_000_u32).map(|at| (at % 251) as u8).collect();
    assert_refused(&garbage, "SPEC: found more than 1048576 bytes, expected at most 1 MiB");
    // Just small enough to be parsed.
    let file = SpecFile::new(&garbage[..1 << 20]);
    let done = upcall(&["plan", file.path()]);
    assert!(first_line(&done).contains("expected UTF-8 text"), "{done:#?}");
    assert!(done.stderr.len() < 10_000, "an error of {} bytes", done.stderr.len());
}

#[test]
fn a_name_may_appear_once() {
    let one = "[[task]]\nname = \"t\"\nperiod = \"10 ms\"\ncost = \"1 ms\"\n";
    let file = SpecFile::new(one.to_owned() + one);
    let done = upcall(&["plan", file.path()]);
    assert!(first_line(&done).starts_with(&format!("{}:6:8: ", file.path())), "{done:#?}");
    let file = SpecFile::new(good(5004, "/dev/null") + &good(5006, "/dev/null"));
    let done = upcall(&["plan", file.path()]);
    let line = first_line(&done);
    assert!(line.contains("camera") && line.starts_with(&format!("{}:", file.path())), "{line}");
}

/// The outcome names a stream as the spec does.
#[test]
fn a_stream_has_its_name_in_the_plan() {
    let file = SpecFile::new(good(5004, "/dev/null"));
    let done = upcall(&["plan", file.path(), "--json"]);
    let plan = done.assert_code(&[0]).json();
    let _ = support::named(&plan, "activities", "camera");
}

#[test]
fn numbers_must_fit_each_other() {
    let task = |more: &str| format!("[[task]]\nname = \"t\"\nperiod = \"10 ms\"\n{more}\n");
    for (text, place) in [
        // The quantum is longer than the batch.
        (task("cost = \"1 ms\"\nbatch = 2\nquantum = 3"), ":6:11: "),
        // A period has more work than time.
        (task("cost = \"6 ms\"\nbatch = 2"), ":4:8: "),
        // The deadline is after the period.
        (task("cost = \"1 ms\"\ndeadline = \"11 ms\""), ":5:12: "),
    ] {
        let file = SpecFile::new(&text);
        let done = upcall(&["plan", file.path()]);
        let line = first_line(&done);
        assert!(line.starts_with(&format!("{}{place}", file.path())), "{line}\n{text}");
        assert!(line.contains("found ") && line.contains("expected "), "{line}");
    }
}

#[test]
fn a_missing_cpu_is_reported_with_its_place() {
    let text = "cpus = [1023]\n".to_owned() + &good(5004, "/dev/null");
    let file = SpecFile::new(text);
    for command in ["plan", "run"] {
        let done = upcall(&[command, file.path()]);
        let line = first_line(&done);
        assert!(line.starts_with(&format!("{}:1:9: cpus: found CPU 1023", file.path())), "{line}");
    }
}

#[test]
fn an_unknown_policy_is_reported_with_the_known_ones() {
    let file = SpecFile::new("policy = \"edf\"\n".to_owned() + &good(5004, "/dev/null"));
    let done = upcall(&["plan", file.path()]);
    let line = first_line(&done);
    assert!(line.starts_with(&format!("{}:1:10: policy: found \"edf\"", file.path())), "{line}");
    for known in ["rmdp", "rm", "dws", "ps", "dwcs"] {
        assert!(line.contains(&format!("\"{known}\"")), "{line}");
    }
    let file = SpecFile::new(good(5004, "/dev/null"));
    let done = upcall(&["sim", file.path(), "--policy", "edf"]);
    assert!(first_line(&done).contains("invalid value 'edf' for '--policy <POLICY>'"), "{done:?}");
    assert!(done.stderr.contains("[possible values: rmdp, rm, dws, ps, dwcs]"), "{done:?}");
}

#[test]
fn invalid_toml_is_a_syntax_error() {
    let file = SpecFile::new(good(5004, "/dev/null").replacen("[[stream]]", "[[stream", 1));
    let done = upcall(&["plan", file.path()]);
    assert!(first_line(&done).starts_with(&format!("{}:1:", file.path())), "{done:#?}");
}

#[test]
fn a_port_in_use_stops_the_run_before_anything_is_started() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port();
    let folder = folder();
    let trace = folder.path().join("trace");
    let file = SpecFile::new(good(port, trace.to_str().expect("UTF-8")));
    let done = upcall(&["run", file.path(), "--duration", "1s", "--json"]);
    let line = first_line(&done);
    assert!(
        line.starts_with(&format!("{}:8:11: stream \"camera\": receive: found ", file.path())),
        "{line}"
    );
    assert!(line.contains("in use"), "{line}");
    assert!(!trace.exists(), "the background load was started");
}

#[test]
fn a_foreign_address_is_reported_with_its_place() {
    // An address of TEST-NET-1 (RFC 5737), which no machine has.
    let text = good(5004, "/dev/null").replace("127.0.0.1", "192.0.2.1");
    let file = SpecFile::new(text);
    let done = upcall(&["run", file.path(), "--duration", "1s", "--json"]);
    assert!(first_line(&done).starts_with(&format!("{}:8:11: ", file.path())), "{done:#?}");
}

#[test]
fn a_missing_background_program_is_reported_with_its_place() {
    let text = good(free_port(), "/dev/null").replace("\"touch\"", "\"no-such-program\"");
    let file = SpecFile::new(text);
    let done = upcall(&["run", file.path(), "--duration", "1s", "--json"]);
    let line = first_line(&done);
    let place = format!("{}:11:11: background \"trace\": command: found ", file.path());
    assert!(line.starts_with(&place), "{line}");
}

#[test]
fn a_job_log_that_cannot_be_written_stops_the_run() {
    let folder = folder();
    let trace = folder.path().join("trace");
    let file = SpecFile::new(good(free_port(), trace.to_str().expect("UTF-8")));
    for log in ["/nowhere/jobs.csv", "/", "/proc/jobs.csv"] {
        for json in [&[][..], &["--json"]] {
            let arguments = [&["run", file.path(), "--duration", "1s", "--csv", log], json];
            let done = upcall(&arguments.concat());
            assert!(first_line(&done).starts_with(&format!("{log}: ")), "{done:#?}");
        }
    }
    assert!(!trace.exists(), "the background load was started");
}

#[test]
fn bad_usage_is_reported_and_runs_nothing() {
    let folder = folder();
    let trace = folder.path().join("trace");
    let file = SpecFile::new(good(free_port(), trace.to_str().expect("UTF-8")));
    let spec = file.path();
    for arguments in [
        &[][..],
        &["plan"],
        &["run"],
        &["fly", spec],
        &["plan", spec, "--jsn"],
        &["plan", spec, spec],
        &["run", spec, "--duration", "10"],
        &["run", spec, "--duration", "ten seconds"],
        &["run", spec, "--duration", "0s"],
        &["run", spec, "--duration", "-1s"],
        &["run", spec, "--duration", "8000000000000 s"],
        &["run", spec, "--duration"],
        &["run", spec, "--mode", "magic"],
        &["run", spec, "--mode", "fifo", "--compare"],
        &["completions", "tcsh"],
        &["completions"],
        &["man"],
        &["man", "/dev/null/man1"],
    ] {
        let done = upcall(arguments);
        done.assert_code(&[2]);
        assert_eq!(done.stdout, "", "{arguments:?}: {done:#?}");
        assert!(!done.stderr.trim().is_empty(), "{arguments:?}");
    }
    assert!(!trace.exists(), "the background load was started");
    assert!(fs::read_dir(folder.path()).is_ok());
}
