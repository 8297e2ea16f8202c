//! The library crates can be published, and a program can embed them without the codecs.

use crate::child;
use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;
use cargo_metadata::Package;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// `cargo publish` accepts every crate that is meant to be published.
pub const GATE: Gate = Gate {
    name: "publish",
    about: "cargo would publish every library crate; the facade builds without codecs",
    run,
};

/// Crates that only the feature `codecs` of the facade may bring.
const CODECS: [&str; 4] = ["audio-codec-algorithms", "rtp-types", "zune-core", "zune-jpeg"];
/// The limits of crates.io.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_BYTES_MAX: usize = 20;

/// Cargo makes the packages of all crates in the order of their edges and checks each manifest. It
/// takes siblings that are not published yet from these packages. Then it builds the package of the
/// facade and of the crates that the facade uses, which shows that no file is missing.
fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let published: Vec<&Package> =
        workspace.metadata.packages.iter().filter(|package| is_published(package)).collect();
    let findings: Vec<String> = published.iter().flat_map(|package| missing(package)).collect();
    let looked_at = format!("{} crates", published.len());
    judge(&findings, looked_at.clone())?;
    without_codecs(workspace)?;
    let own = OwnRegistry::new(workspace);
    let publish = |choice: &[&str]| {
        let mut command = child::cargo(&workspace.root);
        command.env("CARGO_TARGET_DIR", &own.target);
        // A developer's tree has changes that are not committed.
        command.args(["publish", "--dry-run", "--allow-dirty", "--locked"]).args(choice);
        child::succeed(&mut command)
    };
    publish(&["--workspace", "--no-verify"])?;
    publish(&[
        "-p",
        "upcall",
        "-p",
        "upcall-runtime",
        "-p",
        "upcall-core",
        "-p",
        "upcall-proto",
        "-p",
        "upcall-shm",
        "-p",
        "upcall-sys",
    ])?;
    Ok(Verdict::Passed(looked_at))
}

/// A target directory, and with it a registry of siblings, for one run. Removed when dropped.
///
/// Cargo assumes that a registry never changes what it unpacked or compiled from it. A second run
/// with the same registry would therefore build the siblings of the first run.
struct OwnRegistry {
    target: PathBuf,
    /// The folder in which cargo unpacks crates, with a folder for each registry.
    unpacked: PathBuf,
    before: BTreeSet<PathBuf>,
}

impl OwnRegistry {
    fn new(workspace: &Workspace) -> Self {
        let name = format!("publish-{}", std::process::id());
        let target = workspace.metadata.target_directory.join(name).into_std_path_buf();
        let unpacked = child::cargo_home().join("registry/src");
        OwnRegistry { target, before: local_registries(&unpacked), unpacked }
    }
}

impl Drop for OwnRegistry {
    fn drop(&mut self) {
        let made = local_registries(&self.unpacked);
        for folder in made.difference(&self.before).chain([&self.target]) {
            // A folder that stays takes disk space, but no later run uses it.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The folders of registries that are local folders. These have no host, so the name begins with
/// the `-` before the number.
fn local_registries(unpacked: &Path) -> BTreeSet<PathBuf> {
    let folders = std::fs::read_dir(unpacked).into_iter().flatten().flatten();
    let is_local = |name: &OsStr| name.as_encoded_bytes().starts_with(b"-");
    folders.filter(|folder| is_local(&folder.file_name())).map(|folder| folder.path()).collect()
}

/// Whether `publish = false` is absent.
fn is_published(package: &Package) -> bool {
    package.publish.is_none()
}

/// A line for each thing that crates.io or its readers would miss.
fn missing(package: &Package) -> Vec<String> {
    let fields = [
        ("description", package.description.is_some()),
        ("license", package.license.is_some()),
        ("readme", package.readme.is_some()),
        ("repository", package.repository.is_some()),
        ("categories", !package.categories.is_empty()),
        ("keywords", !package.keywords.is_empty()),
        ("at most 5 keywords", package.keywords.len() <= KEYWORDS_MAX),
        (
            "keywords of at most 20 letters",
            package.keywords.iter().all(|word| word.len() <= KEYWORD_BYTES_MAX),
        ),
    ];
    let wanting = fields.into_iter().filter(|(_, is_there)| !is_there);
    let mut found: Vec<String> =
        wanting.map(|(field, _)| format!("{}: expected {field}", package.name)).collect();
    // Cargo removes the path of a dependency, so the dependency needs a version.
    let bare = package.dependencies.iter().filter(|used| {
        used.path.is_some()
            && used.kind == cargo_metadata::DependencyKind::Normal
            && used.req.comparators.is_empty()
    });
    found.extend(bare.map(|used| format!("{}: {} has no version", package.name, used.name)));
    found
}

/// Checks that the facade builds without features, and that it needs no codec then.
fn without_codecs(workspace: &Workspace) -> Result<(), Failure> {
    let choice = ["-p", "upcall", "--no-default-features", "--locked"];
    child::succeed(child::cargo(&workspace.root).arg("check").args(choice))?;
    let mut tree = child::cargo(&workspace.root);
    tree.arg("tree").args(choice).args(["--edges", "normal", "--prefix", "none"]);
    let output = child::output(&mut tree)?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(child::exited(&tree, output.status));
    }
    let found = codecs(&String::from_utf8_lossy(&output.stdout));
    judge(&found, String::new()).map(drop)
}

/// A line for each codec in the output of `cargo tree`, which has a line for each crate.
fn codecs(tree: &str) -> Vec<String> {
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let found = CODECS.iter().filter(|codec| names.contains(codec));
    found.map(|codec| format!("upcall without features needs {codec}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_below_crates_is_published_and_no_other() {
        let workspace = Workspace::load().unwrap();
        let crates: Vec<&str> =
            workspace.crates().map(|(_, package)| package.name.as_str()).collect();
        for package in &workspace.metadata.packages {
            let name = package.name.as_str();
            assert_eq!(is_published(package), crates.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_field_that_is_missing_is_named() {
        let workspace = Workspace::load().unwrap();
        let is_core = |package: &&Package| package.name.as_str() == "upcall-core";
        let core = workspace.metadata.packages.iter().find(is_core).unwrap();
        assert_eq!(missing(core), Vec::<String>::new());
        let mut poor = core.clone();
        (poor.readme, poor.keywords) = (None, vec!["word".to_owned(); 6]);
        let expected = ["upcall-core: expected readme", "upcall-core: expected at most 5 keywords"];
        assert_eq!(missing(&poor), expected);
    }

    #[test]
    fn a_run_removes_what_cargo_unpacked_for_it() {
        let workspace = Workspace::load().unwrap();
        let scratch = workspace.metadata.target_directory.join("publish-test").into_std_path_buf();
        let (old, new) = (scratch.join("-old"), scratch.join("-new"));
        let of_others = scratch.join("index.crates.io-1");
        std::fs::create_dir_all(&old).unwrap();
        let before = local_registries(&scratch);
        let own = OwnRegistry { target: scratch.join("t"), unpacked: scratch.clone(), before };
        for made in [&new, &of_others, &own.target] {
            std::fs::create_dir_all(made).unwrap();
        }
        drop(own);
        assert!(old.exists() && of_others.exists() && !new.exists());
        assert!(!scratch.join("t").exists());
        std::fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn a_codec_in_the_tree_is_found() {
        let tree = "upcall v0.1.0 (/a)\nzune-jpeg v0.5.15\nlibc v0.2.191\n";
        assert_eq!(codecs(tree), ["upcall without features needs zune-jpeg"]);
        assert_eq!(codecs("upcall v0.1.0 (/zune-jpeg)\n"), Vec::<String>::new());
    }
}
