//! The crates and files of the project, read-only.
//!
//! The crates come from `cargo metadata` without dependencies, which needs no network. The files
//! come from the directory tree.

use crate::child;
use crate::failure::Failure;
use cargo_metadata::{Metadata, MetadataCommand, Package};
use std::path::{Path, PathBuf};

/// Folders without sources: build output and git's data.
const NOT_OURS: [&str; 3] = ["target", "out", ".git"];

/// The workspace that the gates check.
pub struct Workspace {
    /// Absolute path of the repository.
    pub root: PathBuf,
    /// Its crates, and the folder in which cargo builds.
    pub metadata: Metadata,
    /// The names of the gates that this program was asked to run.
    pub chosen: Vec<&'static str>,
}

/// A text file of the repository.
pub struct Source {
    /// Relative to the root, with `/` between its parts.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl Workspace {
    /// Asks cargo. This takes about 50 ms.
    ///
    /// # Errors
    /// If cargo fails, for example because `Cargo.lock` is out of date.
    pub fn load() -> Result<Workspace, Failure> {
        // Two clones that share a target directory share this binary, which was built in one of
        // them. Cargo names the clone at run time.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR");
        let root = manifest.map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from).join("..");
        let root = root
            .canonicalize()
            .map_err(|error| Failure(format!("{} cannot be found: {error}", root.display())))?;
        let metadata = ask_cargo(&root, &["--no-deps"])?;
        Ok(Workspace { root, metadata, chosen: Vec::new() })
    }

    /// Metadata of the crates and of all their dependencies on every platform. May download.
    ///
    /// # Errors
    /// As [`Workspace::load`], and if a crate cannot be fetched.
    pub fn with_dependencies(&self) -> Result<Metadata, Failure> {
        ask_cargo(&self.root, &[])
    }

    /// The same for a crate outside the workspace, in `folder` relative to the root.
    ///
    /// # Errors
    /// As [`Workspace::with_dependencies`].
    pub fn dependencies_of(&self, folder: &str) -> Result<Metadata, Failure> {
        ask_cargo(&self.root.join(folder), &[])
    }

    /// The crates below `crates/`, each with the name of its folder.
    pub fn crates(&self) -> impl Iterator<Item = (&str, &Package)> {
        self.with_folder()
            .filter_map(|(folder, package)| Some((folder.strip_prefix("crates/")?, package)))
    }

    /// All crates of the workspace: those below `crates/` with the name of their folder there,
    /// the others with the path of their folder.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Package)> {
        self.with_folder()
            .map(|(folder, package)| (folder.strip_prefix("crates/").unwrap_or(folder), package))
    }

    fn with_folder(&self) -> impl Iterator<Item = (&str, &Package)> {
        self.metadata.packages.iter().filter_map(|package| {
            let relative = package.manifest_path.strip_prefix(&self.root).ok()?;
            Some((relative.parent()?.as_str(), package))
        })
    }

    /// Paths of all files of the project, relative to the root, sorted.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn files(&self) -> Result<Vec<String>, Failure> {
        let mut files = Vec::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            let unreadable =
                |error| Failure(format!("{} cannot be read: {error}", directory.display()));
            for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let kind = entry.file_type().map_err(unreadable)?;
                let path = entry.path();
                if NOT_OURS.iter().any(|name| entry.file_name() == *name) {
                    continue;
                }
                if kind.is_dir() {
                    directories.push(path);
                } else if kind.is_file()
                    && let Ok(relative) = path.strip_prefix(&self.root)
                {
                    files.push(relative.to_string_lossy().into_owned());
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// All files of the project whose name ends in one of `endings`, with their text.
    ///
    /// # Errors
    /// If a file or directory cannot be read, or a file is not UTF-8.
    pub fn sources(&self, endings: &[&str]) -> Result<Vec<Source>, Failure> {
        let wanted = |path: &String| endings.iter().any(|ending| path.ends_with(ending));
        self.files()?.into_iter().filter(wanted).map(|path| self.read(path)).collect()
    }

    /// The file at `path`, relative to the root.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn read(&self, path: String) -> Result<Source, Failure> {
        match std::fs::read_to_string(self.root.join(&path)) {
            Ok(text) => Ok(Source { path, text }),
            Err(error) => Err(Failure(format!("{path} cannot be read: {error}"))),
        }
    }
}

fn ask_cargo(root: &Path, more: &[&str]) -> Result<Metadata, Failure> {
    let mut command = child::cargo(root);
    command.args(["metadata", "--format-version", "1", "--locked"]).args(more);
    let output = child::output(&mut command)?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(child::exited(&command, output.status));
    }
    MetadataCommand::parse(String::from_utf8_lossy(&output.stdout))
        .map_err(|error| Failure(format!("`cargo metadata` cannot be understood: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_and_files_of_this_repository_are_found() {
        let workspace = Workspace::load().unwrap();
        let crates: Vec<&str> = workspace.crates().map(|(name, _)| name).collect();
        assert!(crates.contains(&"core") && crates.contains(&"cli"), "{crates:?}");
        assert!(!crates.contains(&"xtask") && !crates.contains(&"benches"), "{crates:?}");
        let files = workspace.files().unwrap();
        assert!(files.contains(&"xtask/src/workspace.rs".to_owned()));
        assert!(
            files.iter().all(|path| !path.starts_with("target/") && !path.starts_with(".git/"))
        );
    }
}
