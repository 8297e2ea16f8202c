//! A program whose `main` returns an error of the library: the text that its user reads.
//!
//! It does not use the test harness, whose `main` returns no such error. The program calls itself.

use std::error::Error;
use std::process::Command;

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Config, Runtime};

/// Tells the program which error to return. The test itself runs without it.
const ASKED: &str = "UPCALL_TEST_ERROR";

fn main() -> Result<(), Box<dyn Error>> {
    let Ok(asked) = std::env::var(ASKED) else {
        returned_errors_print_as_sentences();
        return Ok(());
    };
    // One CPU, on which the two handlers do not both fit.
    let cpus = upcall::default_cpus()?.into_iter().take(1).collect();
    let mut runtime = Runtime::start(Config { cpus, ..Config::default() })?;
    let cost = Span::from_millis(if asked == "refused" { 6 } else { 60 });
    for name in ["first", "second"] {
        runtime.handler(name, ActivityParams::new(Span::from_millis(10), cost), |_| {})?;
    }
    Ok(())
}

fn returned_errors_print_as_sentences() {
    for (asked, expected) in [
        ("params", "Error: a batch costs 60 ms, expected at most the period, 10 ms\n"),
        ("refused", "Error: `second` is refused: with it"),
    ] {
        let mut program = Command::new(std::env::current_exe().expect("the path of this program"));
        let output = program.env(ASKED, asked).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with(expected), "{stderr}");
        assert!(!stderr.contains("Params") && !stderr.contains('{'), "{stderr}");
    }
    println!("test returned_errors_print_as_sentences ... ok");
}
