//! The gates that run one cargo command each: `fmt`, `clippy`, `doc`.

use crate::child;
use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;

mod facade_pages;

/// rustfmt has nothing to change in any file.
pub const FMT: Gate =
    Gate { name: "fmt", about: "rustfmt has nothing to change in any file", run: fmt };

/// Clippy and the compiler give no warning.
pub const CLIPPY: Gate =
    Gate { name: "clippy", about: "no warning from clippy, in tests and benches too", run: clippy };

/// The documentation builds without a warning, and the facade's pages name no private crate.
pub const DOC: Gate = Gate {
    name: "doc",
    about: "rustdoc builds without a warning, and the facade's pages name no private crate",
    run: doc,
};

fn fmt(workspace: &Workspace) -> Result<Verdict, Failure> {
    if !child::cargo_has(&workspace.root, "fmt") {
        return Ok(component_missing("rustfmt"));
    }
    child::succeed(child::cargo(&workspace.root).args(["fmt", "--all", "--check"]))?;
    Ok(Verdict::Passed("every file".to_owned()))
}

fn clippy(workspace: &Workspace) -> Result<Verdict, Failure> {
    if !child::cargo_has(&workspace.root, "clippy") {
        return Ok(component_missing("clippy"));
    }
    child::succeed(child::cargo(&workspace.root).args([
        "clippy",
        "--workspace",
        "--all-targets",
        // Else the gates would never compile the comparison of the bench `stream` with iceoryx2.
        "--features",
        "upcall-benches/iceoryx2",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    Ok(Verdict::Passed("every target".to_owned()))
}

/// Builds the pages of the command first, then those of all other crates.
///
/// The command and the facade are both called `upcall`, so their pages have the same path (cargo
/// issue 6313). In this order both are checked, and the facade's pages stay. The command is chosen
/// by name because its manifest asks for no documentation.
fn doc(workspace: &Workspace) -> Result<Verdict, Failure> {
    let choices: [&[&str]; 2] =
        [&["-p", "upcall-cli", "--lib", "--bins"], &["--workspace", "--exclude", "upcall-cli"]];
    let pages = workspace.metadata.target_directory.join("doc/upcall");
    for choice in choices {
        // Old pages may describe items that are gone. Without pages rustdoc runs again.
        let _ = std::fs::remove_dir_all(&pages);
        let mut command = child::cargo(&workspace.root);
        command.env("RUSTDOCFLAGS", "-D warnings").arg("doc").args(choice);
        child::succeed(command.args(["--no-deps", "--locked"]))?;
    }
    judge(&facade_pages::findings(pages.as_std_path())?, "every crate".to_owned())
}

fn component_missing(component: &str) -> Verdict {
    Verdict::Skipped(format!("no {component}; `rustup component add {component}` installs it"))
}
