//! Makes a fresh clone in an empty home, with the libraries that are compiled already.
//!
//! The clone holds what is committed, and nothing is built in it. The home gets a copy of cargo's
//! registry, and the first clone gets the compiled libraries of the workspace. This saves the
//! time to download and compile them. Cargo decides by itself whether they fit. Every crate of this
//! project is compiled in the first clone. The next clone takes over what the first one compiled.
//! Both are at the same path for their readers, so cargo finds it fresh.

use super::reader::{Account, ORDINARY_ID, Reader};
use crate::child;
use crate::gate::Failure;
use crate::workspace::Workspace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(test)]
mod tests;

/// The folders below `target/release` in which cargo keeps a compiled crate.
const ARTIFACTS: [&str; 3] = [".fingerprint", "build", "deps"];

/// A reader of `account` with a clone in which nothing is compiled.
///
/// # Errors
/// If a command fails: `git clone`, `cp`, `chown`.
pub fn reader(workspace: &Workspace, account: Account) -> Result<Reader, Failure> {
    let folder = workspace.metadata.target_directory.join("readme");
    let reader = Reader {
        account,
        home: folder.join(account.name()).into(),
        seen_home: child::own_home(),
        toolchain: toolchain(workspace)?,
    };
    remove(&reader.home)?;
    std::fs::create_dir_all(reader.home.join(".cargo"))
        .map_err(|error| Failure(format!("{} cannot be made: {error}", reader.home.display())))?;
    reader.write_passwd()?;
    reader.make_own_folders()?;
    clone(workspace.root.as_ref(), &reader.clone_folder())?;
    let registry = child::cargo_home().join("registry");
    if account != Account::Present && registry.is_dir() {
        copy(&[registry], &reader.home.join(".cargo"))?;
    }
    give(account, &reader.home)?;
    Ok(reader)
}

/// Copies the compiled libraries of the workspace, but none of its own crates, into the clone.
///
/// # Errors
/// If a command fails: `cp`, `chown`.
pub fn libraries(workspace: &Workspace, reader: &Reader) -> Result<(), Failure> {
    let ours = names(workspace);
    let (from, into) = (&workspace.metadata.target_directory, reader.clone_folder().join("target"));
    for kind in ARTIFACTS {
        let compiled = compiled_libraries(from.join("release").join(kind).as_std_path(), &ours);
        copy(&compiled, &into.join("release").join(kind))?;
    }
    if into.exists() { give(reader.account, &into) } else { Ok(()) }
}

/// Moves all that was compiled in the clone of `before` into the clone of `next`, which is root.
/// The clone of `before` cannot be used any more.
///
/// # Errors
/// If it cannot be moved.
pub fn take_build(before: &Reader, next: &Reader) -> Result<(), Failure> {
    let [from, into] = [before, next].map(|reader| reader.clone_folder().join("target"));
    std::fs::rename(&from, &into)
        .map_err(|error| Failure(format!("{} cannot be moved: {error}", from.display())))
}

/// Makes `account` the owner of `folder`, which belongs to the user who runs this program.
fn give(account: Account, folder: &Path) -> Result<(), Failure> {
    if account != Account::Ordinary {
        return Ok(());
    }
    let owner = format!("{ORDINARY_ID}:{ORDINARY_ID}");
    child::succeed(Command::new("chown").args(["-R", &owner]).arg(folder))
}

/// Clones the repository at `from` into `into`. The clone shares no file with the repository. By
/// default git makes hard links of the objects, and a new owner of the clone would own these too.
fn clone(from: &Path, into: &Path) -> Result<(), Failure> {
    let mut command = Command::new("git");
    command.args(["clone", "--quiet", "--no-hardlinks"]).arg(from).arg(into);
    child::succeed(&mut command)
}

/// Removes the home, with the clone.
///
/// # Errors
/// If it exists and cannot be removed.
pub fn remove(home: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure(format!("{} cannot be removed: {error}", home.display())))
        }
        _ => Ok(()),
    }
}

/// The folder of the toolchain that builds the project.
fn toolchain(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = child::output(command.current_dir(&workspace.root).args(["--print", "sysroot"]))?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if folder.join("bin/cargo").is_file() {
        return Ok(folder);
    }
    Err(Failure(format!("no bin/cargo in the toolchain's folder `{}`", folder.display())))
}

/// The names of our crates and targets, as they are in the names of compiled files.
fn names(workspace: &Workspace) -> BTreeSet<String> {
    let packages = &workspace.metadata.packages;
    let targets = packages.iter().flat_map(|package| &package.targets);
    packages
        .iter()
        .map(|package| package.name.as_str())
        .chain(targets.map(|target| target.name.as_str()))
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// The entries of `folder`, `NAME-HASH` or `libNAME-HASH.rlib`, whose name is not in `ours`.
fn compiled_libraries(folder: &Path, ours: &BTreeSet<String>) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((name, hash)) = file.rsplit_once('-') else { return false };
            let is_library = [".rlib", ".rmeta", ".so", ".a"].iter().any(|end| hash.ends_with(end));
            let name = if is_library { name.strip_prefix("lib").unwrap_or(name) } else { name };
            !ours.contains(&name.replace('-', "_"))
        })
        .collect()
}

/// Copies `paths` into the new folder `into`. Keeps their times, because cargo compares them.
fn copy(paths: &[PathBuf], into: &Path) -> Result<(), Failure> {
    if paths.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(into)
        .map_err(|error| Failure(format!("{} cannot be made: {error}", into.display())))?;
    let mut command = Command::new("cp");
    command.args(["-a", "--reflink=auto", "-t"]).arg(into).args(paths);
    let output = command.output().map_err(|error| Failure(format!("`cp`: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(Failure(format!("copying to {}: {}", into.display(), message.trim())))
}
