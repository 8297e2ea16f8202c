//! Every mistake in a group, and the line it is reported with.

use super::{TASK, assert_errors, parse};

/// A task in a group, and two groups, one inside the other.
const GROUPS: &str = r#"policy = "ps"
[[task]]
name = "t1"
period = "40 ms"
cost = "250 us"
group = "inner"
weight = 2

[[group]]
name = "inner"
group = "outer"
weight = 3

[[group]]
name = "outer"
share = "30 %"
"#;

#[test]
fn every_mistake_in_a_group_is_named() {
    assert!(parse(GROUPS).is_ok());
    for (from, to, expected) in MISTAKES {
        assert_eq!(GROUPS.matches(from).count(), 1, "{from}");
        assert_errors(&GROUPS.replacen(from, to, 1), expected);
    }
    let many: String = (0..65).map(|n| format!("[[group]]\nname = \"g{n}\"\n")).collect();
    assert_errors(
        &format!("policy = \"ps\"\n{TASK}{many}"),
        &["134:1: found group number 65, expected at most 64"],
    );
}

/// Replacements of a text in `GROUPS`, and the errors that follow.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (r#"policy = "ps""#, r#"policy = "rmdp""#,
     &[r#"10:8: group "inner": name: found a group under policy "rmdp", expected policy "ps""#]),
    (r#"group = "inner""#, r#"group = "iner""#,
     &[r#"6:9: task "t1": group: found "iner", expected one of the groups "outer", "inner""#]),
    ("weight = 2", r#"share = "2 %""#,
     &[r#"7:9: task "t1": share: found a share in a group, expected a weight within the group"#]),
    (r#"group = "outer""#, r#"group = "other""#,
     &[
        r#"11:9: group "inner": group: found "other", expected one of the groups "inner", "outer""#,
     ]),
    (r#"share = "30 %""#, r#"group = "inner""#,
     &[r#"11:9: group "inner": group: found "outer", expected a group that is not inside it: see line 14"#]),
    ("weight = 3", r#"share = "3 %""#,
     &[r#"12:9: group "inner": share: found inside another group, expected a weight within that group"#]),
    (r#"share = "30 %""#, "share = \"30 %\"\nweight = 1",
     &[r#"17:10: group "outer": weight: found beside share, expected one of share, weight"#]),
    (r#"share = "30 %""#, r#"share = "130 %""#,
     &[r#"16:9: group "outer": share: found "130 %", expected a share of at most 100 %"#]),
    ("weight = 3", "weight = 0",
     &[r#"12:10: group "inner": weight: found 0, expected an integer from 1 to 1000000"#]),
    (r#"name = "outer""#, r#"name = "inner""#,
     &[r#"11:9: group "inner": group: found "outer", expected one of the groups "inner", "inner""#,
       r#"15:8: group "inner": name: found "inner" again, expected another name: line 10 has it already"#]),
    (r#"name = "outer""#, "",
     &[r#"11:9: group "inner": group: found "outer", expected one of the groups "inner""#,
       r#"14:1: group 2: name: missing, expected a name such as "camera""#]),
    (r#"share = "30 %""#, r#"part = "30 %""#,
     &[r#"16:1: group "outer": part: found an unknown key, expected one of name, share, weight, group"#]),
];
