//! Every mistake in `same_cpu_as`, and the line it is reported with.

use super::{STREAM, assert_errors, edited, parse};
use crate::spec::Activity;

/// Tasks of which the second and the third ask for the CPU of the one before.
const CHAIN: &str = r#"[[task]]
name = "a"
period = "40 ms"
cost = "250 us"

[[task]]
name = "b"
period = "40 ms"
cost = "250 us"
same_cpu_as = "a"

[[task]]
name = "c"
period = "40 ms"
cost = "250 us"
same_cpu_as = "b"
"#;

#[test]
fn every_mistake_in_same_cpu_as_is_named() {
    assert!(parse(CHAIN).is_ok());
    for (from, to, expected) in MISTAKES {
        assert_eq!(CHAIN.matches(from).count(), 1, "{from}");
        assert_errors(&CHAIN.replacen(from, to, 1), expected);
    }
}

/// Replacements of a text in `CHAIN`, and the errors that follow.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (r#"same_cpu_as = "a""#, r#"same_cpu_as = "x""#,
     &[r#"10:15: task "b": same_cpu_as: found "x", expected the name of a stream or task that stands before it"#]),
    (r#"same_cpu_as = "a""#, r#"same_cpu_as = "b""#,
     &[r#"10:15: task "b": same_cpu_as: found "b", its own name, expected another one"#]),
    // A cycle has one that names a later one.
    (r#"same_cpu_as = "a""#, r#"same_cpu_as = "c""#,
     &[r#"10:15: task "b": same_cpu_as: found "c" of line 13, expected a stream or task that stands before it"#]),
    (r#"same_cpu_as = "a""#, "same_cpu_as = 1",
     &[r#"10:15: task "b": same_cpu_as: found 1, expected 1 to 64 printable characters without spaces, quotes, commas and slashes"#]),
    (r#"same_cpu_as = "b""#, "same_cpu_as = \"b\"\ndomain = \"other\"",
     &[r#"16:15: task "c": same_cpu_as: found "b" of the domain "main", expected a stream or task of its domain "other""#]),
    (r#"same_cpu_as = "a""#, "same_cpu_as = \"a\"\noptional = true",
     &[r#"17:15: task "c": same_cpu_as: found "b", which is optional, expected one that is not, or optional = true here"#]),
    // The error of the other entry is the only one.
    (r#"name = "a""#, "name = \"a\"\nbatch = 0",
     &[r#"3:9: task "a": batch: found 0, expected an integer from 1 to 1000000"#]),
];

#[test]
fn streams_and_tasks_name_each_other_and_come_in_order() {
    let stream = edited(STREAM, &["same_cpu_as = \"c\"", "optional = true"]);
    let follows = CHAIN.replace("name = \"a\"", "name = \"d\"\nsame_cpu_as = \"camera\"");
    let follows = follows.replace("\"a\"", "\"d\"").replace("\"b\"", "\"e\"");
    let follows =
        follows.replace("\"c\"", "\"f\"").replace("[[task]]", "[[task]]\noptional = true");
    let spec = parse(&format!("{CHAIN}{stream}{follows}")).unwrap();
    let activities = spec.activities();
    let names: Vec<&str> = activities.iter().map(|each| each.name()).collect();
    assert_eq!(names, ["a", "b", "c", "camera", "d", "e", "f"]);
    let named: Vec<Option<&str>> = activities.iter().map(|each| each.same_cpu_as()).collect();
    let expected = [None, Some("a"), Some("b"), Some("c"), Some("camera"), Some("d"), Some("e")];
    assert_eq!(named, expected);
    assert!(matches!(activities[3], Activity::Stream(_)));
    // The name of the common process may be written out.
    let main = CHAIN.replace("same_cpu_as = \"a\"", "same_cpu_as = \"a\"\ndomain = \"main\"");
    assert!(parse(&main).is_ok());
}
