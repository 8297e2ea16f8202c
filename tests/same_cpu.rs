//! `same_cpu_as` of a spec, as a whole program: where streams and tasks are placed, what is said if
//! they do not fit there, and that each process of a run places them in the same way.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use serde_json::Value;
use support::{SpecFile, field, list, machine, named, number, skipped, text, upcall};

/// Two tasks that fill one CPU each, so far that a third one and a stream fit beside both.
const SET: &str = r#"cpus = [0, 1]
switch_cost = "10 us"
[[task]]
name = "big"
period = "10 ms"
cost = "6 ms"
[[task]]
name = "head"
period = "10 ms"
cost = "4 ms"
[[task]]
name = "second"
period = "10 ms"
cost = "500 us"
[[stream]]
name = "third"
class = "continuous-media"
rate = "100/s"
pdu = "100 B"
delay = "50 ms"
cost = "100 us"
receive = "udp://127.0.0.1:5004"
"#;

/// `SET` with the lines `more` after the name of each of these.
fn set(more: &[(&str, &str)]) -> String {
    more.iter().fold(SET.to_owned(), |set, (name, more)| {
        let name = format!("name = \"{name}\"\n");
        assert!(set.contains(&name));
        set.replace(&name, &format!("{name}{more}\n"))
    })
}

/// In virtual time, because the machine of the test may have one CPU only.
fn sim(spec: &str, code: i32) -> Value {
    let file = SpecFile::new(spec);
    let arguments = ["sim", file.path(), "--duration", "100ms", "--json"];
    upcall(&arguments).assert_code(&[code]).json()
}

fn cpu(output: &Value, name: &str) -> u64 {
    number(named(output, "activities", name), "cpu")
}

#[test]
fn a_stream_and_a_task_are_on_the_cpu_of_the_one_they_name() {
    let cpus = |more: &[(&str, &str)]| {
        let output = sim(&set(more), 0);
        ["big", "head", "second", "third"].map(|name| cpu(&output, name))
    };
    assert_eq!(cpus(&[]), [0, 1, 0, 0]);
    assert_eq!(cpus(&[("second", "same_cpu_as = \"head\"")]), [0, 1, 1, 0]);
    assert_eq!(cpus(&[("third", "same_cpu_as = \"head\"")]), [0, 1, 0, 1]);
    let chain = [("second", "same_cpu_as = \"head\""), ("third", "same_cpu_as = \"second\"")];
    assert_eq!(cpus(&chain), [0, 1, 1, 1]);
}

#[test]
fn one_that_does_not_fit_there_is_refused_with_the_other_one_and_the_cpu() {
    let spec = set(&[("head", "same_cpu_as = \"big\""), ("second", "same_cpu_as = \"head\"")]);
    let refused = sim(&spec, 3);
    let reason = |name| text(named(&refused, "refusals", name), "reason");
    let start = "it must be on CPU 0, the CPU of `big`: with it";
    assert!(reason("head").starts_with(start), "{refused:#}");
    assert_eq!(reason("second"), "it must be on the CPU of `head`, which is refused");
    let head = named(&refused, "activities", "head");
    assert_eq!((field(head, "cpu"), text(head, "same_cpu_as")), (&Value::Null, "big"));
    assert!(field(named(&refused, "activities", "big"), "same_cpu_as").is_null());
    // The hint is about that CPU, too.
    assert!(field(named(&refused, "refusals", "head"), "hint").is_string(), "{refused:#}");

    // Optional ones are left out together, and the other CPU stays free.
    let optional = |name| format!("optional = true\nsame_cpu_as = {name:?}");
    let (head, second) = (optional("big"), optional("head"));
    let output = sim(&set(&[("head", &head), ("second", &second)]), 0);
    let names: Vec<&str> =
        list(&output, "activities").iter().map(|each| text(each, "name")).collect();
    assert_eq!(names, ["big", "third"]);
    assert_eq!(list(&output, "refusals").len(), 2);

    // Refused ones that run all the same are on that CPU, too.
    let file = SpecFile::new(spec);
    let soft = upcall(&["sim", file.path(), "--duration", "100ms", "--json", "--soft"]);
    let soft = soft.assert_code(&[0, 4]).json();
    assert_eq!(["head", "second"].map(|name| cpu(&soft, name)), [0, 0]);
}

#[test]
fn a_wrong_name_is_an_error_with_its_place() {
    let file = SpecFile::new(set(&[("second", "same_cpu_as = \"heap\"")]));
    let done = upcall(&["plan", file.path()]);
    done.assert_code(&[2]);
    let line = "spec.toml:13:15: task \"second\": same_cpu_as: found \"heap\", expected the name";
    assert!(done.stderr.contains(line), "{}", done.stderr);
}

/// Tasks of two processes, small enough to run for real.
const DOMAINS: &str = r#"cpu_limit = "20 %"
switch_cost = "10 us"
[[task]]
name = "big"
domain = "one"
period = "20 ms"
cost = "2400 us"
[[task]]
name = "head"
domain = "two"
period = "20 ms"
cost = "2 ms"
[[task]]
name = "second"
domain = "two"
period = "20 ms"
cost = "200 us"
same_cpu_as = "head"
[[task]]
name = "other"
domain = "one"
period = "20 ms"
cost = "200 us"
"#;

#[test]
fn each_process_of_a_run_places_the_set_in_the_same_way_in_every_mode() {
    let _machine = machine();
    let cpus = upcall::allowed_cpus().expect("the kernel tells");
    let &[first, second, ..] = cpus.as_slice() else { return skipped("one CPU") };
    let file = SpecFile::new(format!("cpus = [{first}, {second}]\n{DOMAINS}"));
    for mode in ["upcall", "threads", "fifo"] {
        let arguments = ["run", file.path(), "--duration", "300ms", "--mode", mode, "--json"];
        let run = upcall(&arguments).assert_code(&[0, 4]).json();
        let places = ["big", "head", "second", "other"].map(|name| cpu(&run, name));
        let expected = [first, second, second, first].map(u64::from);
        assert_eq!(places, expected, "{mode}: {run:#}");
    }
}
