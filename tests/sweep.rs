//! `upcall sweep`, as a whole program: the same rows whoever writes them, and
//! however often it begins again.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::path::PathBuf;

use support::{Done, folder, upcall};

const SWEEP: &str = "utilizations = [\"60 %\", \"100 %\"]\nactivities = [4]\nbatch = 4\nquanta = [1, 4]\n\
                     sets = 15\nduration = \"300 ms\"\nswitch_costs = [\"20 us\"]\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new(sweep: &str) -> Self {
        let place = Place(folder());
        fs::write(place.path("sweep.toml"), sweep).expect("a free disk");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sweep(&self, out: &str, more: &[&str]) -> Done {
        let (file, out) = (self.path("sweep.toml"), self.path(out));
        let paths = [file.to_str().expect("a path"), "-o", out.to_str().expect("a path")];
        upcall(&[&["sweep"], &paths[..], more].concat())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("it was written")
    }
}

#[test]
fn the_rows_are_the_same_for_any_number_of_threads_and_after_an_interruption() {
    let place = Place::new(SWEEP);
    let done = place.sweep("one.csv", &["--threads", "1", "--json"]);
    done.assert_code(&[0]);
    let told = done.json();
    assert_eq!(
        (&told["sets"], &told["done"], &told["resumed"]),
        (&60.into(), &60.into(), &0.into())
    );
    let whole = place.read("one.csv");
    assert_eq!(whole.lines().count(), 1 + 60 * 5);
    place.sweep("four.csv", &["--threads", "4"]).assert_code(&[0]);
    assert_eq!(place.read("four.csv"), whole);
    // Cut amid a row, between the rows of a set, in the header, and not at all.
    let after = |lines: usize| whole.split_inclusive('\n').take(lines).map(str::len).sum::<usize>();
    for (cut, resumed) in
        [(after(1 + 33) + 7, 6), (after(1 + 52), 10), (11, 0), (0, 0), (whole.len(), 60)]
    {
        fs::write(place.path("cut.csv"), &whole[..cut]).expect("a free disk");
        let done = place.sweep("cut.csv", &["--json"]);
        done.assert_code(&[0]);
        assert_eq!(done.json()["resumed"], resumed, "cut at {cut}");
        assert_eq!(place.read("cut.csv"), whole, "cut at {cut}");
    }
}

#[test]
fn a_curve_falls_with_the_load_and_what_is_admitted_misses_nothing() {
    let place = Place::new(SWEEP);
    let told = place.sweep("out.csv", &["--json"]).json();
    let curve = told["curve"].as_array().expect("an array");
    assert_eq!(curve.len(), 5 * 4);
    for point in curve {
        assert_eq!(point["sets"], 15);
        assert_eq!(point["admitted_with_misses"], 0, "{point}");
        assert!(point["jobs"].as_u64() > Some(100), "{point}");
        // With hand-offs, nothing fits a CPU that is full without.
        if point["utilization"] == 1.0 && point["policy"] != "ps" {
            assert_eq!(point["admitted"], 0, "{point}");
        }
    }
    let admitted = |policy: &str| {
        let points = curve.iter().filter(|point| point["policy"] == policy);
        points.map(|point| point["admitted"].as_u64().unwrap_or(0)).sum::<u64>()
    };
    assert!(admitted("rmdp") > 0 && admitted("dws") >= admitted("rmdp"), "{told:#}");
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_overwritten() {
    let place = Place::new(SWEEP);
    place.sweep("out.csv", &[]).assert_code(&[0]);
    let whole = place.read("out.csv");
    fs::write(place.path("sweep.toml"), SWEEP.replace("sets = 15", "sets = 16"))
        .expect("a free disk");
    let done = place.sweep("out.csv", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("the results of another sweep"), "{done:#?}");
    assert_eq!(place.read("out.csv"), whole);
    fs::write(place.path("notes.txt"), "my notes\n").expect("a free disk");
    let done = place.sweep("notes.txt", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("a file of something else"), "{done:#?}");
    assert_eq!(place.read("notes.txt"), "my notes\n");
    fs::write(place.path("sweep.toml"), "activities = [4]\n").expect("a free disk");
    let done = place.sweep("new.csv", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("utilizations: missing"), "{done:#?}");
    assert!(!place.path("new.csv").exists());
    // A device that would be read for ever.
    fs::write(place.path("sweep.toml"), SWEEP).expect("a free disk");
    let file = place.path("sweep.toml");
    let done = upcall(&["sweep", file.to_str().expect("a path"), "-o", "/dev/zero"]);
    assert!(done.assert_code(&[2]).stderr.contains("no regular file"), "{done:#?}");
}
