//! Mistakes in the file itself, in background loads, and between entries.

use super::{STREAM, TASK, assert_errors, edited, parse};
use crate::spec::source::FAULTS_MAX;
use crate::spec::{ACTIVITIES_MAX, FILE_BYTES_MAX, Spec};
use std::fmt::Write;
use std::path::Path;

/// A valid background load.
const BACKGROUND: &str = r#"[[background]]
name = "hog"
command = ["stress-ng", "--cpu", "1"]
"#;

#[test]
fn every_mistake_in_the_keys_of_the_file_is_named() {
    for (line, expected) in FILE_MISTAKES {
        assert_errors(&format!("{line}\n{TASK}"), expected);
    }
}

#[test]
fn every_mistake_in_a_background_load_is_named() {
    for (edits, expected) in BACKGROUND_MISTAKES {
        assert_errors(&format!("{TASK}{}", edited(BACKGROUND, edits)), expected);
    }
}

#[test]
fn a_file_without_stream_and_task_is_refused() {
    const NEEDED: &str =
        "found no stream and no task, expected at least one [[stream]] or [[task]]";
    for (text, position) in [
        ("", "1:1"),
        ("\n\n# nothing\n", "4:1"),
        ("policy = \"rm\"\n", "2:1"),
        ("stream = []\n", "2:1"),
        ("task = []\nstream = []", "2:12"),
        (BACKGROUND, "4:1"),
    ] {
        assert_errors(text, &[&format!("{position}: {NEEDED}")]);
    }
}

#[test]
fn names_are_unique() {
    let again = |position: &str, owner: &str, name: &str, line: usize| {
        format!(
            "{position}: {owner} \"{name}\": name: found \"{name}\" again, \
             expected another name: line {line} has it already"
        )
    };
    assert_errors(
        &format!("{TASK}{TASK}{TASK}"),
        &[&again("6:8", "task", "t1", 2), &again("10:8", "task", "t1", 2)],
    );
    let camera = TASK.replace("t1", "camera");
    assert_errors(&format!("{STREAM}{camera}"), &[&again("10:8", "task", "camera", 2)]);
    assert_errors(&format!("{camera}{STREAM}"), &[&again("6:8", "stream", "camera", 2)]);
    assert_errors(
        &format!("{TASK}{BACKGROUND}{BACKGROUND}"),
        &[&again("9:8", "background", "hog", 6)],
    );
    let same = BACKGROUND.replace("hog", "t1");
    assert!(parse(&format!("{TASK}{same}")).is_ok(), "background loads have names of their own");
}

#[test]
fn two_streams_cannot_receive_at_one_address() {
    let other = STREAM.replace("camera", "b");
    let taken = |address: &str| {
        format!(
            "16:11: stream \"b\": receive: found {address}, taken by stream \"camera\" on \
             line 8, expected another port"
        )
    };
    for host in ["127.0.0.1", "localhost"] {
        let other = other.replace("127.0.0.1", host);
        assert_errors(&format!("{STREAM}{other}"), &[&taken("127.0.0.1:5004")]);
    }
    let any = other.replace("127.0.0.1", "0.0.0.0");
    assert_errors(&format!("{STREAM}{any}"), &[&taken("0.0.0.0:5004")]);
    for free in ["127.0.0.1:5005", "127.0.0.2:5004", "[::1]:5004", "[::]:5004"] {
        let other = other.replace("127.0.0.1:5004", free);
        assert!(parse(&format!("{STREAM}{other}")).is_ok(), "{free}");
    }
    let task = format!("{TASK}receive = \"udp://127.0.0.1:5004\"\n");
    assert_eq!(parse(&format!("{STREAM}{task}")).unwrap_err().lines().count(), 1, "unknown there");
    let sends = edited(&other, &["-receive", "send = \"udp://127.0.0.1:5004\""]);
    assert!(parse(&format!("{STREAM}{sends}")).is_ok());
}

#[test]
fn errors_between_entries_and_within_them_are_both_reported() {
    let b = STREAM.replace("camera", "b").replace("rate =", "rte =");
    assert_errors(
        &format!("{STREAM}{b}"),
        &[
            r#"9:1: stream "b": rate: missing, expected one of rate, bandwidth, frame with frame_rate"#,
            r#"12:1: stream "b": rte: found an unknown key, did you mean "rate"?"#,
            r#"16:11: stream "b": receive: found 127.0.0.1:5004, taken by stream "camera" on line 8, expected another port"#,
        ],
    );
}

#[test]
fn other_toml_forms_are_read_or_refused_at_their_position() {
    assert_errors(
        "[[task]]\n[task.cost]\nx = 1\n",
        &[
            r#"1:1: task 1: name: missing, expected a name such as "camera""#,
            r#"1:1: task 1: period: missing, expected a duration such as "20 ms""#,
            r#"2:1: task 1: cost: found a table, expected a duration such as "20 ms""#,
        ],
    );
    assert_errors(
        "[[tsak]]\nname = \"t1\"\n",
        &[r#"1:3: tsak: found an unknown key, did you mean "task"?"#],
    );
    assert_errors(
        "task = [{ name = \"t1\", period = \"40 ms\", cost = \"50 ms\" }]\n",
        &[
            r#"1:49: task "t1": cost: found "50 ms", expected a batch to fit into the period, 40 ms; it takes 50 ms"#,
        ],
    );
    assert_errors(
        &format!("{TASK}cost = \"1 ms\"\n"),
        &["5:1: cost: found it a second time, expected it once"],
    );
    assert_errors(
        &format!("{TASK}\"na\\u006de\" = \"t2\"\n"),
        &[r#"5:1: "na\\u006de": found it a second time, expected it once"#],
    );
    assert_errors(
        &format!("{TASK}\u{e9} = \"x\"\n"),
        &["5:1: syntax: invalid unquoted key, expected letters, numbers, `-`, `_`"],
    );
    assert_errors(
        &format!("{}a = 1", "a.".repeat(100)),
        &[" found a key of 80 parts or more, expected fewer"],
    );
}

#[test]
fn lines_and_columns_are_those_of_an_editor() {
    const UNKNOWN: &str = r#"perod: found an unknown key, did you mean "period"?"#;
    let windows = format!("{TASK}perod = 1\n").replace('\n', "\r\n");
    assert_errors(&windows, &[&format!("5:1: task \"t1\": {UNKNOWN}")]);
    let marked = format!("\u{feff}polcy = 1\n{TASK}");
    assert_errors(&marked, &[r#"1:1: polcy: found an unknown key, did you mean "policy"?"#]);
    let wide = "task = [{ name = \"\u{e9}\u{4e2d}\", cost = 1, period = \"1 s\" }]\n";
    assert_errors(
        wide,
        &["1:31: task \"\u{e9}\u{4e2d}\": cost: found 1, expected a duration such as \"20 ms\""],
    );
}

#[test]
fn at_most_twenty_errors_are_reported() {
    let task = |index: usize| format!("[[task]]\nname = \"t{index}\"\ncost = \"1 ms\"\n");
    let text: String = (0..FAULTS_MAX).map(task).collect();
    let error = parse(&text).unwrap_err();
    assert_eq!(error.lines().count(), FAULTS_MAX);
    assert!(!error.to_string().contains("more error"));
    let error = parse(&(text.clone() + &task(20))).unwrap_err();
    assert_eq!(error.lines().count(), FAULTS_MAX);
    assert!(error.lines().last().unwrap().contains("\"t19\""), "the first in the file are kept");
    assert!(error.to_string().ends_with("\nand 1 more error"));
    let error = parse(&(text + &task(20) + &task(21))).unwrap_err();
    assert!(error.to_string().ends_with("\nand 2 more errors"));
}

#[test]
fn unknown_keys_are_reported_in_the_order_of_the_file() {
    let keys = |count: usize| (0..count).rev().map(|n| format!("x{n} = 1\n")).collect::<String>();
    let error = parse(&(keys(25) + TASK)).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), FAULTS_MAX);
    assert!(lines[0].starts_with("spec.toml:1:1: x24: found an unknown key, expected one of"));
    assert!(lines[19].starts_with("spec.toml:20:1: x5: "));
    assert!(error.to_string().ends_with("\nand 5 more errors"));
}

#[test]
fn activities_above_the_limit_are_refused_at_the_first_above() {
    let mut text = STREAM.to_string();
    for index in 1..ACTIVITIES_MAX {
        write!(text, "[[task]]\nname = \"t{index}\"\nperiod = \"1 s\"\ncost = \"1 us\"\n").unwrap();
    }
    assert_eq!(parse(&text).unwrap().activities().len(), ACTIVITIES_MAX);
    let line = text.lines().count() + 1;
    assert_errors(
        &(text + TASK),
        &[&format!("{line}:1: found activity number 1025, expected at most 1024")],
    );
    let loads: String = (0..=ACTIVITIES_MAX)
        .map(|n| format!("[[background]]\nname = \"{n}\"\nspin = 1\n"))
        .collect();
    assert_errors(
        &format!("{TASK}{loads}"),
        &["3077:1: found background number 1025, expected at most 1024"],
    );
}

#[test]
fn invalid_utf8_is_refused_at_its_position() {
    let error = Spec::parse("spec.toml", b"# \xc3\xa9\nname\xff = 1").unwrap_err();
    let expected = "spec.toml:2:5: found byte 0xff at offset 9, expected UTF-8 text";
    assert_eq!(error.to_string(), expected);
    let error = Spec::parse("spec.toml", b"\xff\xfep\0").unwrap_err();
    let expected = "spec.toml:1:1: found byte 0xff at offset 0, expected UTF-8 text";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_file_beyond_the_limit_is_refused_with_one_line() {
    let comment = |bytes: usize| format!("{TASK}#{}", "-".repeat(bytes - TASK.len() - 1));
    assert!(parse(&comment(FILE_BYTES_MAX)).is_ok());
    assert_errors(
        &comment(FILE_BYTES_MAX + 1),
        &[" found more than 1048576 bytes, expected at most 1 MiB"],
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("big.toml");
    std::fs::write(&path, vec![0xff; 10 << 20]).unwrap();
    let error = Spec::read(&path).unwrap_err();
    let expected =
        format!("{}: found more than 1048576 bytes, expected at most 1 MiB", path.display());
    assert_eq!(error.to_string(), expected);
    // This file has no end; the reader must stop at its limit.
    assert!(Spec::read(Path::new("/dev/zero")).unwrap_err().to_string().contains("more than"));
}

#[test]
fn a_file_that_cannot_be_read_gives_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("no\nsuch.toml");
    let error = Spec::read(&missing).unwrap_err().to_string();
    let said = "such.toml: cannot be read: No such file or directory (os error 2); expected a TOML \
                file, as those in examples/";
    assert!(error.ends_with(said), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let error = Spec::read(directory.path()).unwrap_err().to_string();
    let said = ": cannot be read: Is a directory (os error 21); expected a TOML file";
    assert!(error.ends_with(said), "{error}");
    let good = directory.path().join("good.toml");
    std::fs::write(&good, TASK).unwrap();
    assert_eq!(Spec::read(&good).unwrap().tasks.len(), 1);
    let error = Spec::read(&good.with_extension("")).unwrap_err().to_string();
    assert!(error.ends_with(&format!("; did you mean {}?", good.display())), "{error}");
}

#[test]
fn an_error_shows_the_line_and_what_is_wrong_with_it() {
    let text = edited(STREAM, &["\trate = \"90\" # slow", "-rate", "-pdu"]);
    let expected = r#"spec.toml:1:1: stream "camera": pdu: missing, expected a size such as "1470 B"
  |
1 | [[stream]]
  | ^^^^^^^^^^ pdu is missing
spec.toml:7:9: stream "camera": rate: found "90", expected a rate such as "90/s"
  |
7 |     rate = "90" # slow
  |            ^^^^ expected a rate such as "90/s""#;
    assert_eq!(parse(&text).unwrap_err().to_string(), expected);
}

#[test]
fn an_error_in_a_very_long_line_stays_readable() {
    let long = "x".repeat(500_000);
    for text in [
        format!("policy = \"{long}\"\n{TASK}"),
        format!("{long} = 1\n{TASK}"),
        format!("cpus = [ {} 5.0 ]\n{TASK}", " ".repeat(500_000)),
        format!("policy = \"{}\"\n{TASK}", "\u{e9}\u{4e2d}".repeat(9_000)),
    ] {
        let error = parse(&text).unwrap_err();
        assert_eq!(error.lines().count(), 1);
        for line in error.to_string().lines() {
            assert!(line.chars().count() < 400, "{} characters", line.chars().count());
        }
    }
}

#[test]
fn errors_found_later_have_a_position() {
    let spec = parse(&format!("cpus = [0, 7]\n{STREAM}")).unwrap();
    let error =
        spec.source.error_at(spec.cpu_spans[1].clone(), "cpus", "7", "a CPU of this machine");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines, ["spec.toml:1:12: cpus: found 7, expected a CPU of this machine"]);
    let place = &spec.streams[0].place;
    let error = spec.source.error_in(place, "receive", "the port in use", "a free one");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(
        lines,
        ["spec.toml:9:11: stream \"camera\": receive: found the port in use, expected a free one"]
    );
    let refusal = "interface eth1: the port is taken";
    let error = spec.source.refusal_in(place, "receive", refusal, "a flow of the daemon");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(
        lines,
        ["spec.toml:9:11: stream \"camera\": receive: interface eth1: the port is taken"]
    );
    let wild = spec.source.error_at(usize::MAX - 1..usize::MAX, "cpus", "none", "one");
    assert_eq!(
        wild.lines().collect::<Vec<_>>(),
        ["spec.toml:10:1: cpus: found none, expected one"]
    );
    let error = spec.source.error_in(place, "quantum", "none", "one");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines, ["spec.toml:2:1: stream \"camera\": quantum: found none, expected one"]);
}

/// First lines of a file with one valid task, and the errors that follow.
#[rustfmt::skip]
const FILE_MISTAKES: &[(&str, &[&str])] = &[
    (r#"policy = "edf""#,
     &[r#"1:10: policy: found "edf", expected one of "rmdp", "rm", "dws", "ps", "dwcs""#]),
    ("policy = 1",
     &[r#"1:10: policy: found 1, expected one of "rmdp", "rm", "dws", "ps", "dwcs""#]),
    (r#"policy = "RMDP""#,
     &[r#"1:10: policy: found "RMDP", expected one of "rmdp", "rm", "dws", "ps", "dwcs""#]),
    (r#"policy = """#,
     &[r#"1:10: policy: found "", expected one of "rmdp", "rm", "dws", "ps", "dwcs""#]),
    (r#"polcy = "rmdp""#,
     &[r#"1:1: polcy: found an unknown key, did you mean "policy"?"#]),
    ("cpus = 1",
     &["1:8: cpus: found 1, expected an array of CPU numbers such as [1]"]),
    ("cpus = []",
     &["1:8: cpus: found an empty array, expected an array of CPU numbers such as [1]"]),
    ("cpus = [1, 1]",
     &["1:12: cpus: found 1 a second time, expected each CPU once"]),
    ("cpus = [1024]",
     &["1:9: cpus: found 1024, expected CPU numbers from 0 to 1023"]),
    ("cpus = [-1]",
     &["1:9: cpus: found -1, expected CPU numbers from 0 to 1023"]),
    (r#"cpus = ["1"]"#,
     &[r#"1:9: cpus: found "1", expected CPU numbers from 0 to 1023"#]),
    ("cpus = [1, 2.0, 0x1, [3]]",
     &["1:12: cpus: found 2.0, expected CPU numbers from 0 to 1023",
       "1:17: cpus: found 0x1 a second time, expected each CPU once",
       "1:22: cpus: found an array, expected CPU numbers from 0 to 1023"]),
    (r#"cpus = "0-3""#,
     &[r#"1:8: cpus: found "0-3", expected an array of CPU numbers such as [1]"#]),
    (r#"cpu_limit = "0 %""#,
     &[r#"1:13: cpu_limit: found "0 %", expected a share above 0 %"#]),
    (r#"cpu_limit = "100.1 %""#,
     &[r#"1:13: cpu_limit: found "100.1 %", expected a share of at most 100 %"#]),
    ("cpu_limit = 90",
     &[r#"1:13: cpu_limit: found 90, expected a share such as "45 %""#]),
    (r#"cpu_limit = "90""#,
     &[r#"1:13: cpu_limit: found "90", expected a share such as "45 %""#]),
    (r#"cpu_limit = "0.00005 %""#,
     &[r#"1:13: cpu_limit: found "0.00005 %", expected a share such as "45 %", in steps of 0.0001 %"#]),
    (r#"cpu_limit = "-5 %""#,
     &[r#"1:13: cpu_limit: found "-5 %", expected a share such as "45 %", not negative"#]),
    (r#"switch_cost = "automatic""#,
     &[r#"1:15: switch_cost: found "automatic", expected "auto" or a duration such as "20 ms""#]),
    ("switch_cost = 5",
     &[r#"1:15: switch_cost: found 5, expected "auto" or a duration such as "5 us""#]),
    (r#"switch_cost = "-5 us""#,
     &[r#"1:15: switch_cost: found "-5 us", expected "auto" or a duration such as "20 ms", not negative"#]),
    (r#"switch_cost = "2 h""#,
     &[r#"1:15: switch_cost: found "2 h", expected "auto" or a duration such as "20 ms", in ns, us, ms, s or min"#]),
    (r#"switch_cost = "61 min""#,
     &[r#"1:15: switch_cost: found "61 min", expected a duration from 0 ms to 3600 s"#]),
    (r#"switch_cost = ["auto"]"#,
     &[r#"1:15: switch_cost: found an array, expected "auto" or a duration such as "5 us""#]),
    ("wakeup_latency = 100",
     &[r#"1:18: wakeup_latency: found 100, expected a duration such as "20 ms""#]),
    (r#"wakeup_latency = "100""#,
     &[r#"1:18: wakeup_latency: found "100", expected a duration such as "20 ms""#]),
    (r#"time_quantum = "0 ms""#,
     &[r#"1:16: time_quantum: found "0 ms", expected a duration from 1 us to 3600 s"#]),
    (r#"wakeup_latency = "61 min""#,
     &[r#"1:18: wakeup_latency: found "61 min", expected a duration from 0 ms to 3600 s"#]),
    (r#"wakeup_latency = "-1 us""#,
     &[
        r#"1:18: wakeup_latency: found "-1 us", expected a duration such as "20 ms", not negative"#,
     ]),
    ("stream = 5",
     &["1:10: stream: found 5, expected tables that start with [[stream]]"]),
    (r#"background = "hog""#,
     &[r#"1:14: background: found "hog", expected tables that start with [[background]]"#]),
    ("task1 = []",
     &[r#"1:1: task1: found an unknown key, did you mean "task"?"#]),
    ("cpu = [1]",
     &[r#"1:1: cpu: found an unknown key, did you mean "cpus"?"#]),
    (r#"title = "mine""#,
     &["1:1: title: found an unknown key, expected one of policy, cpus, cpu_count, cpu_limit, switch_cost, wakeup_latency, time_quantum, stream, task, group, background"]),
    ("stream = [1]",
     &["1:11: stream: found 1, expected tables that start with [[stream]]"]),
    (r#"policy = "rmdp"
policy = "rm""#,
     &["2:1: policy: found it a second time, expected it once"]),
    (r#"policy = "rmdp"#,
     &[r#"1:15: syntax: invalid basic string, expected `"`"#]),
    ("policy",
     &["1:7: syntax: key with no value, expected `=`"]),
    ("policy = rmdp",
     &["1:10: syntax: string values must be quoted, expected literal string"]),
    ("[policy",
     &["1:8: syntax: unclosed table, expected `]`"]),
    ("policy = 'a' 'b'",
     &["1:14: syntax: unexpected key or value, expected newline, `#`"]),
    ("cpus = [1,",
     &["3:1: syntax: missing comma between array elements, expected `,`"]),
    (r#"[stream]
name = "a""#,
     &["1:1: stream: found a table, expected tables that start with [[stream]]"]),
    ("cpus = 1\ncpus.x = 2",
     &["2:1: syntax: cannot extend value of type integer with a dotted key"]),
    (r#"policy = "\q""#,
     &[r#"1:12: syntax: missing escaped value, expected `b`, `e`, `f`, `n`, `r`, `\`, `"`, `x`, `u`, `U`"#]),
    ("cpus = 0b12",
     &["1:11: syntax: invalid binary number"]),
    ("[task]",
     &["2:3: task: found it a second time, expected it once"]),
];

/// Edits of a valid background load after a valid task, and the errors that follow.
#[rustfmt::skip]
const BACKGROUND_MISTAKES: &[(&[&str], &[&str])] = &[
    (&["-name"],
     &[r#"5:1: background 1: name: missing, expected a name such as "camera""#]),
    (&[r#"name = """#],
     &[r#"6:8: background 1: name: found "", expected 1 to 64 printable characters without spaces, quotes, commas and slashes"#]),
    (&[r#"name = "a b""#],
     &[r#"6:8: background 1: name: found "a b", expected 1 to 64 printable characters without spaces, quotes, commas and slashes"#]),
    (&["-command"],
     &[r#"5:1: background "hog": command: missing, expected one of command, spin"#]),
    (&["command = []"],
     &[r#"7:11: background "hog": command: found an empty array, expected a program and its arguments such as ["stress-ng", "--cpu", "1"]"#]),
    (&[r#"command = "stress-ng""#],
     &[r#"7:11: background "hog": command: found "stress-ng", expected a program and its arguments such as ["stress-ng", "--cpu", "1"]"#]),
    (&[r#"command = ["stress-ng", 1]"#],
     &[r#"7:25: background "hog": command: found 1, expected a string"#]),
    (&[r#"command = [""]"#],
     &[r#"7:12: background "hog": command: found "", expected the name of a program"#]),
    (&[r#"command = ["a\u0000b"]"#],
     &[r#"7:12: background "hog": command: found "a\0b", expected a string without NUL"#]),
    (&["command = [[]]"],
     &[r#"7:12: background "hog": command: found an array, expected a string"#]),
    (&["spin = 1"],
     &[r#"8:8: background "hog": spin: found beside command, expected only one of command, spin"#]),
    (&["-command", "spin = 0"],
     &[r#"7:8: background "hog": spin: found 0, expected an integer from 1 to 1024"#]),
    (&["-command", "spin = 1025"],
     &[r#"7:8: background "hog": spin: found 1025, expected an integer from 1 to 1024"#]),
    (&["-command", r#"spin = "1""#],
     &[r#"7:8: background "hog": spin: found "1", expected an integer from 1 to 1024"#]),
    (&["-command", "spin = -1"],
     &[r#"7:8: background "hog": spin: found -1, expected an integer from 1 to 1024"#]),
    (&[r#"comand = ["x"]"#],
     &[r#"8:1: background "hog": comand: found an unknown key, did you mean "command"?"#]),
    (&[r#"cost = "1 ms""#],
     &[
        r#"8:1: background "hog": cost: found an unknown key, expected one of name, command, spin"#,
     ]),
    (&["-command", "spin = 1.0"],
     &[r#"7:8: background "hog": spin: found 1.0, expected an integer from 1 to 1024"#]),
];
