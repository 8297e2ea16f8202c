//! The program of the early drop: its object is the one that its source gives.
//!
//! The object is in the source, so nobody needs clang to build Upcall. A reader of the source must
//! be able to trust the object. So this gate compiles again and compares both the object and its
//! listing, byte for byte. Another major version of clang makes other code.

use crate::child;
use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// The object of the early drop is the one that its source gives.
pub const GATE: Gate = Gate {
    name: "bpf",
    about: "clang makes the object and the listing of the early drop again, byte for byte",
    run,
};

/// The folder of the program. clang runs in it, so that the object has no path of this machine.
const FOLDER: &str = "crates/sys/src/early_drop";
const SOURCE: &str = "early_drop.bpf.c";
const OBJECT: &str = "early_drop.bpf.o";
const LISTING: &str = "early_drop.bpf.txt";

/// `v3`: compare and swap, and 32-bit jumps (Linux 5.12). No type information, because nothing
/// reads it and it names paths.
const CLANG: [&str; 10] = [
    "-target",
    "bpf",
    "-mcpu=v3",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-ident",
    "-c",
    SOURCE,
];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let folder = workspace.root.join(FOLDER);
    let stored = |name: &str| {
        let path = folder.join(name);
        fs::read(&path).map_err(|error| failed(&path, &error))
    };
    let (object, listing) = (stored(OBJECT)?, stored(LISTING)?);
    for program in ["clang", "llvm-objdump"] {
        if !child::is_installed(program) {
            return Ok(Verdict::Skipped(format!("no `{program}` here")));
        }
    }
    let ours = clang_version(&folder)?;
    let text = String::from_utf8_lossy(&listing);
    let theirs = text.lines().next().unwrap_or_default().to_owned();
    if theirs != ours {
        let why = format!("the listing is by `{theirs}`, and here is `{ours}`");
        return Ok(Verdict::Skipped(why));
    }
    let made = workspace.metadata.target_directory.join("bpf").into_std_path_buf();
    make(&folder, &made)?;
    let again = |name: &str| {
        let path = made.join(name);
        fs::read(&path).map_err(|error| failed(&path, &error))
    };
    let mut findings = Vec::new();
    for (name, stored, again) in
        [(OBJECT, &object, again(OBJECT)?), (LISTING, &listing, again(LISTING)?)]
    {
        if *stored != again {
            findings.push(format!(
                "{FOLDER}/{name} is not what the source gives; read and copy {}",
                made.join(name).display()
            ));
        }
    }
    judge(&findings, format!("{} bytes by {ours}", object.len()))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

/// `clang 14`.
fn clang_version(folder: &Path) -> Result<String, Failure> {
    let output = child::output(Command::new("clang").arg("--version").current_dir(folder))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let major = major(&text).ok_or_else(|| Failure(format!("no version in `{text}`")))?;
    Ok(format!("clang {major}"))
}

/// The major version in what `clang --version` prints.
fn major(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("clang version ")?;
    rest.split('.').next()?.parse().ok()
}

/// Makes object and listing in the folder `made`.
fn make(folder: &Path, made: &Path) -> Result<(), Failure> {
    fs::create_dir_all(made).map_err(|error| failed(made, &error))?;
    let object = made.join(OBJECT);
    let mut clang = Command::new("clang");
    child::succeed(clang.args(CLANG).arg("-o").arg(&object).current_dir(folder))?;
    let mut text = clang_version(folder)?;
    text += &format!("\nclang {} -o {OBJECT}\n", CLANG.join(" "));
    for what in [
        ["--section-headers", "--syms"].as_slice(),
        &["--full-contents", "--section=maps", "--section=license"],
        &["--disassemble", "--reloc"],
    ] {
        // In the folder of the object, because the listing names the file.
        let mut objdump = Command::new("llvm-objdump");
        let output = child::output(objdump.args(what).arg(OBJECT).current_dir(made))?;
        if !output.status.success() {
            return Err(child::exited(&objdump, output.status));
        }
        text += &String::from_utf8_lossy(&output.stdout);
    }
    // No space ends a line, as in all our files.
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let path = made.join(LISTING);
    fs::write(&path, lines.join("\n") + "\n").map_err(|error| failed(&path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_found() {
        assert_eq!(major("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu"), Some(14));
        assert_eq!(major("clang version 19.1.0-rc2 (https://example.org)"), Some(19));
        assert_eq!(major("gcc (Debian 12.2.0)"), None);
    }
}
