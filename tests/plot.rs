//! `upcall plot`, as a whole program: what `--trace` and `--json` wrote, drawn.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;

use support::{folder, upcall};

const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/conference.toml");

#[test]
fn a_trace_and_an_outcome_become_pictures() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, json, picture) = (path("t.pftrace"), path("o.json"), path("out.svg"));
    let done = upcall(&["sim", SPEC, "--duration", "1s", "--json", "--trace", &trace]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    fs::write(&json, &done.stdout).expect("a free disk");
    for (from, drawn) in [(&trace, "slack of all jobs"), (&json, "response (median")] {
        let done = upcall(&["plot", from, "-o", &picture]);
        assert_eq!((done.status.code(), &*done.stdout), (Some(0), ""), "{done:?}");
        let svg = fs::read_to_string(&picture).expect("it was written");
        assert!(svg.starts_with("<svg") && svg.contains(drawn), "{svg}");
        for name in ["audio", "video", "file"] {
            assert!(svg.contains(name), "{name}");
        }
    }
}

#[test]
fn what_cannot_be_drawn_is_said_and_nothing_is_written() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, picture) = (path("t.pftrace"), path("out.svg"));
    let done = upcall(&["sim", SPEC, "--duration", "100ms", "--trace", &trace]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    fs::write(path("other.json"), "{\"a\": 1}").expect("a free disk");
    fs::write(path("cut.json"), "{\"a\"").expect("a free disk");
    for (file, more, said) in [
        (SPEC.to_owned(), None, "no Perfetto trace"),
        (path("other.json"), None, "found no activities"),
        (path("cut.json"), None, "EOF"),
        (path("missing"), None, "No such file"),
        (trace, Some("5s"), "found nothing from 5000 ms on, the trace lasts 100 ms"),
    ] {
        let mut arguments = vec!["plot", &*file, "-o", &*picture];
        arguments.extend(more.iter().flat_map(|from| ["--from", *from]));
        let done = upcall(&arguments);
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(done.stderr.contains(said), "{done:?}");
        assert!(!std::path::Path::new(&picture).exists(), "{file}");
    }
}
