//! `upcall sweep`, as a whole program: the rows are the same for any number of threads, and after
//! any number of interruptions.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use support::{Done, folder, upcall};

const SWEEP: &str = "utilizations = [\"60 %\", \"100 %\"]\nactivities = [4]\nbatch = 4\nquanta = [1, 4]\n\
                     sets = 15\nduration = \"300 ms\"\nswitch_costs = [\"20 us\"]\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new(sweep: &str) -> Self {
        let place = Place(folder());
        fs::write(place.path("sweep.toml"), sweep).expect("space on the disk");
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
        fs::read_to_string(self.path(name)).expect("the file was written")
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
    // Cut inside a row, between the rows of a set, in the header, and not at all.
    let after = |lines: usize| whole.split_inclusive('\n').take(lines).map(str::len).sum::<usize>();
    for (cut, resumed) in
        [(after(1 + 33) + 7, 6), (after(1 + 52), 10), (11, 0), (0, 0), (whole.len(), 60)]
    {
        fs::write(place.path("cut.csv"), &whole[..cut]).expect("space on the disk");
        let done = place.sweep("cut.csv", &["--json"]);
        done.assert_code(&[0]);
        assert_eq!(done.json()["resumed"], resumed, "cut at {cut}");
        assert_eq!(place.read("cut.csv"), whole, "cut at {cut}");
    }
}

#[test]
fn admitted_sets_miss_nothing_and_full_cpus_admit_nothing() {
    let place = Place::new(SWEEP);
    let told = place.sweep("out.csv", &["--json"]).json();
    let curve = told["curve"].as_array().expect("an array");
    assert_eq!(curve.len(), 5 * 4);
    for point in curve {
        assert_eq!(point["sets"], 15);
        assert_eq!(point["admitted_with_misses"], 0, "{point}");
        assert!(point["jobs"].as_u64() > Some(100), "{point}");
        // A CPU that is full without hand-offs admits nothing with them.
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
fn invalid_input_is_refused_and_nothing_is_overwritten() {
    let place = Place::new(SWEEP);
    place.sweep("out.csv", &[]).assert_code(&[0]);
    let whole = place.read("out.csv");
    fs::write(place.path("sweep.toml"), SWEEP.replace("sets = 15", "sets = 16"))
        .expect("space on the disk");
    let done = place.sweep("out.csv", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("the results of another sweep"), "{done:#?}");
    assert_eq!(place.read("out.csv"), whole);
    fs::write(place.path("notes.txt"), "my notes\n").expect("space on the disk");
    let done = place.sweep("notes.txt", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("another kind of file"), "{done:#?}");
    assert_eq!(place.read("notes.txt"), "my notes\n");
    fs::write(place.path("sweep.toml"), "activities = [4]\n").expect("space on the disk");
    let done = place.sweep("new.csv", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("utilizations: missing"), "{done:#?}");
    assert!(!place.path("new.csv").exists());
    // Reading this device would never end.
    fs::write(place.path("sweep.toml"), SWEEP).expect("space on the disk");
    let file = place.path("sweep.toml");
    let done = upcall(&["sweep", file.to_str().expect("a path"), "-o", "/dev/zero"]);
    assert!(done.assert_code(&[2]).stderr.contains("no regular file"), "{done:#?}");
}

/// The rows of a Parquet file: the names of its columns, and the values as a CSV file has them.
fn parquet_rows(path: &Path) -> (String, Vec<String>) {
    let file = fs::File::open(path).expect("the file was written");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let schema = reader.metadata().file_metadata().schema_descr();
    let names: Vec<_> = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let types: Vec<_> = schema.columns().iter().map(|column| column.physical_type()).collect();
    use parquet::basic::Type::{BOOLEAN, BYTE_ARRAY, DOUBLE, INT64};
    let expected =
        [BYTE_ARRAY, INT64, BYTE_ARRAY, DOUBLE, INT64, INT64, INT64, BOOLEAN, BYTE_ARRAY];
    assert_eq!(types, [&expected[..], &[INT64; 5]].concat());
    let text = |field: &Field| match field {
        Field::Str(text) => text.clone(),
        Field::Long(number) => number.to_string(),
        Field::Double(number) => format!("{number:.6}"),
        Field::Bool(truth) => if *truth { "1" } else { "0" }.to_owned(),
        Field::Null => String::new(),
        other => panic!("found {other:?}"),
    };
    let rows = reader.get_row_iter(None).expect("rows").map(|row| {
        let row = row.expect("a row");
        row.get_column_iter().map(|(_, field)| text(field)).collect::<Vec<_>>().join(",")
    });
    (names.join(","), rows.collect())
}

#[test]
fn parquet_has_the_rows_of_the_csv_and_a_finished_file_is_kept() {
    for sweep in [SWEEP.to_owned(), SWEEP.replace("duration = \"300 ms\"\n", "\n")] {
        let place = Place::new(&sweep);
        place.sweep("out.csv", &[]).assert_code(&[0]);
        let csv = place.read("out.csv");
        // An earlier sweep wrote some of the rows into the CSV beside it.
        let begun: String = csv.split_inclusive('\n').take(1 + 33).collect();
        fs::write(place.path("out.parquet.csv"), begun).expect("space on the disk");
        let done = place.sweep("out.parquet", &["--json"]);
        done.assert_code(&[0]);
        assert_eq!(done.json()["resumed"], 6);
        let (names, rows) = parquet_rows(&place.path("out.parquet"));
        let mut lines = csv.lines();
        assert_eq!(Some(&*names), lines.next());
        assert!(rows.iter().eq(lines));
        // Neither the CSV nor a draft remains.
        let mut left: Vec<_> = fs::read_dir(place.0.path())
            .expect("the folder exists")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["out.csv", "out.parquet", "sweep.toml"]);
        // A second sweep says that the file is complete, and keeps it.
        let whole = fs::read(place.path("out.parquet")).expect("the file was written");
        let again = place.sweep("out.parquet", &["--json"]);
        again.assert_code(&[0]);
        assert!(again.stderr.contains("all 60 sets are already in it"), "{again:#?}");
        assert_eq!(again.json()["curve"], done.json()["curve"]);
        assert_eq!(again.json()["resumed"], 60);
        assert_eq!(fs::read(place.path("out.parquet")).expect("the file was written"), whole);
        fs::write(place.path("sweep.toml"), sweep.replace("sets = 15", "sets = 14"))
            .expect("space on the disk");
        let other = place.sweep("out.parquet", &[]);
        assert!(other.assert_code(&[2]).stderr.contains("the results of another sweep"));
        assert_eq!(fs::read(place.path("out.parquet")).expect("the file was written"), whole);
    }
}

#[test]
fn other_files_stay_and_a_failed_write_leaves_no_partial_file() {
    let place = Place::new(SWEEP);
    fs::write(place.path("notes.parquet"), "my notes\n").expect("space on the disk");
    let done = place.sweep("notes.parquet", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("another kind of file"), "{done:#?}");
    assert_eq!(place.read("notes.parquet"), "my notes\n");
    assert!(!place.path("notes.parquet.csv").exists());
    let done = place.sweep("no/such/out.parquet", &[]);
    assert!(done.assert_code(&[2]).stderr.contains("no/such/out.parquet.csv: No such file"));
    // The draft cannot be made, because a folder has its name. The rows stay.
    fs::create_dir(place.path("out.parquet.tmp")).expect("space on the disk");
    let done = place.sweep("out.parquet", &[]);
    let said = "the same command continues";
    assert!(done.assert_code(&[2]).stderr.contains(said), "{done:#?}");
    assert!(!place.path("out.parquet").exists());
    assert_eq!(place.read("out.parquet.csv").lines().count(), 1 + 60 * 5);
    fs::remove_dir(place.path("out.parquet.tmp")).expect("the folder is empty");
    let done = place.sweep("out.parquet", &["--json"]);
    assert_eq!(done.assert_code(&[0]).json()["resumed"], 60);
    assert_eq!(parquet_rows(&place.path("out.parquet")).1.len(), 60 * 5);
}
