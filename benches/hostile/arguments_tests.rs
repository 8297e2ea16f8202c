//! Tests of the arguments of the bench `hostile`, in the library for the same reason as those of
//! the verdict.

use crate::arguments::{Request, parse};

fn parsed(words: &[&str]) -> Result<Request, String> {
    let names = ["endless loop", "endless, --kill"];
    parse(words.iter().map(|word| (*word).to_owned()), &names)
}

#[test]
fn a_name_chooses_rows_and_options_are_not_names() {
    assert_eq!(parsed(&["--bench", "--smoke"]), Ok(Request::Run { row: None }));
    let row = Some("endless".to_owned());
    assert_eq!(parsed(&["endless", "--bench"]), Ok(Request::Run { row }));
    assert_eq!(parsed(&["--bench", "--help"]), Ok(Request::Help));
    let row = Some("endless, --kill".to_owned());
    assert_eq!(parsed(&["endless, --kill"]), Ok(Request::Run { row }));
}

#[test]
fn a_wrong_argument_is_an_error() {
    assert_eq!(parsed(&["forks"]).unwrap_err(), "no row has `forks` in its name");
    assert_eq!(parsed(&["--kill"]).unwrap_err(), "unknown option `--kill`");
    let two = parsed(&["endless", "loop"]).unwrap_err();
    assert_eq!(two, "found `endless` and `loop`, expected one name");
}
