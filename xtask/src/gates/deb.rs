//! Builds the Debian packages, installs them into a clean root, and uses them there.
//!
//! `[package.metadata.deb]` of crates/cli and crates/capi lists what the packages hold. The build
//! does not make the manual pages, the completions and the layout of the C library. This gate makes
//! them in `target/package-assets` and then calls cargo-deb. `docs/install.md` explains the
//! packages to users.

use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages install and work in a root with nothing but Debian's essential packages.
pub const GATE: Gate = Gate {
    name: "deb",
    about: "the Debian packages build, install into a clean root and work there",
    run,
};

/// The crates in the Debian packages.
pub const PACKAGES: [&str; 2] = ["upcall-cli", "upcall-capi"];
/// The release of cargo-deb. Debian has no package of it, so it is built once into `target/tools`.
const CARGO_DEB: &str = "3.8.0";
/// The folder in which it is installed.
const TOOLS: &str = "target/tools";
/// Shells, with the prefix and the suffix that each expects around a program's name.
const SHELLS: [(&str, &str, &str); 3] = [("bash", "", ""), ("zsh", "_", ""), ("fish", "", ".fish")];
/// Files that the package of the command must hold, beside its programs.
const FILES: [&str; 9] = [
    "usr/share/man/man1/upcall.1.gz",
    "usr/share/man/man1/upcall-run.1.gz",
    "usr/share/man/man8/upcalld.8.gz",
    "usr/share/bash-completion/completions/upcall",
    "usr/share/zsh/vendor-completions/_upcalld",
    "usr/share/fish/vendor_completions.d/upcall.fish",
    "usr/lib/systemd/system/upcalld.socket",
    "usr/lib/systemd/system/upcalld.service",
    "usr/share/doc/upcall/copyright",
];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    for program in ["dpkg-deb", "dpkg-shlibdeps"] {
        if !child::is_installed(program) {
            return Ok(Verdict::Skipped(format!("no `{program}` here: not a Debian machine")));
        }
    }
    let packages = build(workspace)?;
    c_library(workspace, &packages.c_library)?;
    if !child::is_root() || !child::is_installed("mmdebstrap") {
        let why = "built, but not installed: that needs root and `mmdebstrap`";
        return Ok(Verdict::Skipped(why.to_owned()));
    }
    let root = CleanRoot::make(&workspace.root)?;
    install_and_use(&root, &packages.command)?;
    Ok(Verdict::Passed("upcall, upcalld and libupcall-c-dev".to_owned()))
}

/// The files that cargo-deb made.
struct Packages {
    command: PathBuf,
    c_library: PathBuf,
}

fn build(workspace: &Workspace) -> Result<Packages, Failure> {
    let root = &workspace.root;
    child::succeed(&mut programs(root))?;
    let release = workspace.metadata.target_directory.join("release");
    let assets = root.join("target/package-assets");
    remove(&assets)?;
    program_assets(release.join("upcall").as_std_path(), &assets)?;
    let mut install = Command::new(root.join("crates/capi/install.sh"));
    install.env("DESTDIR", assets.join("c")).arg("/usr").arg(&release);
    child::succeed(&mut install)?;
    let cargo_deb = cargo_deb(root)?;
    let package = |name: &str, file: &str| {
        let path = root.join("target/debian").join(file);
        let mut command = Command::new(&cargo_deb);
        // cargo-deb expects its own name first, as a subcommand of cargo. `--fast` compresses
        // less: this gate checks what is in a package, not its size.
        command.current_dir(root).args([
            "deb",
            "--no-build",
            "--locked",
            "--strip",
            "--fast",
            "-p",
            name,
            "-o",
        ]);
        child::succeed(command.arg(&path))?;
        Ok(path)
    };
    Ok(Packages {
        command: package("upcall-cli", "upcall.deb")?,
        c_library: package("upcall-capi", "libupcall-c-dev.deb")?,
    })
}

/// Lets the command make its manual pages and completions.
fn program_assets(upcall: &Path, assets: &Path) -> Result<(), Failure> {
    let man = assets.join("man");
    make(&man)?;
    child::succeed(Command::new(upcall).arg("man").arg(&man))?;
    for (shell, prefix, suffix) in SHELLS {
        let folder = assets.join(shell);
        make(&folder)?;
        for program in ["upcall", "upcalld"] {
            let mut command = Command::new(upcall);
            let script = printed_by(command.args(["completions", shell, "--program", program]))?;
            let path = folder.join(format!("{prefix}{program}{suffix}"));
            fs::write(&path, script).map_err(|error| failed(&path, &error))?;
        }
    }
    Ok(())
}

/// The program cargo-deb: the one on the path, or the one in `target/tools`, which is built once.
fn cargo_deb(root: &Path) -> Result<PathBuf, Failure> {
    if child::is_installed("cargo-deb") {
        return Ok("cargo-deb".into());
    }
    let own = root.join(TOOLS).join("bin/cargo-deb");
    if !own.is_file() {
        child::succeed(&mut install_cargo_deb(root))?;
    }
    Ok(own)
}

/// Compiles the programs and the C library.
fn programs(root: &Path) -> Command {
    let mut command = child::cargo(root);
    command.args(["build", "--release", "--locked"]);
    command.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    command
}

/// Compiles cargo-deb into `target/tools`.
fn install_cargo_deb(root: &Path) -> Command {
    let mut command = child::cargo(root);
    // It runs only twice, and a build without optimisation takes a quarter of the time.
    command.args(["install", "cargo-deb", "--version", CARGO_DEB, "--locked", "--debug"]);
    command.args(["--no-default-features", "--root"]).arg(root.join(TOOLS));
    command
}

/// What this gate compiles.
pub fn builds(workspace: &Workspace) -> Vec<Command> {
    let root = &workspace.root;
    let has_tool =
        child::is_installed("cargo-deb") || root.join(TOOLS).join("bin/cargo-deb").is_file();
    let tool = (!has_tool).then(|| install_cargo_deb(root));
    std::iter::once(programs(root)).chain(tool).collect()
}

/// Builds and runs a C program with the files of the package alone.
fn c_library(workspace: &Workspace, package: &Path) -> Result<(), Failure> {
    let root = workspace.root.join("target/package-c");
    remove(&root)?;
    child::succeed(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    if !child::is_installed("gcc") || !child::is_installed("pkg-config") {
        println!("no `gcc` or no `pkg-config`: the C library is not tested");
        return Ok(());
    }
    let mut flags = Command::new("pkg-config");
    flags.env("PKG_CONFIG_PATH", root.join("usr/lib/pkgconfig"));
    flags.env("PKG_CONFIG_SYSROOT_DIR", &root).args(["--cflags", "--libs", "upcall"]);
    let flags = printed_by(&mut flags)?;
    let program = root.join("periodic");
    let mut gcc = Command::new("gcc");
    gcc.arg(workspace.root.join("crates/capi/examples/periodic.c")).arg("-o").arg(&program);
    child::succeed(gcc.args(flags.split_whitespace()))?;
    child::succeed(Command::new(&program).env("LD_LIBRARY_PATH", root.join("usr/lib")))?;
    remove(&root)
}

/// A Debian system with its essential packages. Removed when dropped.
struct CleanRoot(PathBuf);

impl CleanRoot {
    fn make(root: &Path) -> Result<Self, Failure> {
        let path = root.join("target/clean-root");
        remove(&path)?;
        let release = printed_by(
            Command::new("sh").args(["-c", ". /etc/os-release; echo $VERSION_CODENAME"]),
        )?;
        // mmdebstrap binds folders of the host, such as /dev/shm, into the root. In a namespace of
        // its own the mounts end with it, so that removing the root never removes their content.
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "mmdebstrap",
            "--quiet",
            "--variant=essential",
            "--include=passwd",
            release.trim(),
        ]);
        let clean = CleanRoot(path);
        child::succeed(command.arg(&clean.0))?;
        Ok(clean)
    }

    /// A command that runs in this root.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.0).arg(program).args(arguments).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

impl Drop for CleanRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn install_and_use(root: &CleanRoot, package: &Path) -> Result<(), Failure> {
    let inside = root.0.join("upcall.deb");
    fs::copy(package, &inside).map_err(|error| failed(&inside, &error))?;
    child::succeed(&mut root.command("dpkg", &["--install", "/upcall.deb"]))?;
    for file in FILES {
        if !root.0.join(file).is_file() {
            return Err(Failure(format!(
                "/{file} is missing after the installation of {}",
                package.display()
            )));
        }
    }
    let version = printed_by(&mut root.command("upcall", &["--version"]))?;
    if version.trim() != format!("upcall {}", env!("CARGO_PKG_VERSION")) {
        return Err(Failure(format!("found `{version}`, expected the version of this tree")));
    }
    let conference = "/usr/share/doc/upcall/examples/conference.toml";
    child::succeed(&mut root.command("upcall", &["plan", conference]))?;
    child::succeed(&mut root.command("upcalld", &["--help"]))?;
    child::succeed(&mut root.command("getent", &["group", "upcall"]))?;
    for program in ["upcall", "upcalld"] {
        stripped(&root.0.join("usr/bin").join(program))?;
    }
    manual_pages(root)?;
    units(root)?;
    child::succeed(&mut root.command("dpkg", &["--purge", "upcall"]))?;
    match root.0.join("usr/bin/upcalld").exists() {
        true => Err(Failure("/usr/bin/upcalld is still there after a purge".to_owned())),
        false => Ok(()),
    }
}

/// Checks that the program has no table of symbols.
fn stripped(program: &Path) -> Result<(), Failure> {
    if !child::is_installed("readelf") {
        return Ok(());
    }
    match printed_by(Command::new("readelf").args(["--sections", "--wide"]).arg(program))? {
        sections if sections.contains(".symtab") => {
            Err(Failure(format!("{} is not stripped", program.display())))
        }
        _ => Ok(()),
    }
}

/// Checks that man(1) formats the pages without a warning.
fn manual_pages(root: &CleanRoot) -> Result<(), Failure> {
    if !child::is_installed("man") {
        println!("no `man`: the manual pages are not formatted");
        return Ok(());
    }
    for page in FILES.iter().filter(|file| file.contains("/man/")) {
        let mut command = Command::new("man");
        command.args(["--warnings", "-l"]).arg(root.0.join(page)).env("MANWIDTH", "80");
        let output = child::output(&mut command)?;
        let (text, wrong) = (output.stdout, String::from_utf8_lossy(&output.stderr));
        if !output.status.success() || !wrong.is_empty() || text.is_empty() {
            return Err(Failure(format!("/{page}: {wrong}")));
        }
    }
    Ok(())
}

/// Checks that systemd accepts the units.
fn units(root: &CleanRoot) -> Result<(), Failure> {
    if !child::is_installed("systemd-analyze") {
        println!("no `systemd-analyze`: the units are not verified");
        return Ok(());
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--recursive-errors=no", "--man=no"]);
    command.arg(format!("--root={}", root.0.display()));
    let output = child::output(command.args(["upcalld.socket", "upcalld.service"]))?;
    let wrong = String::from_utf8_lossy(&output.stderr);
    match output.status.success() && wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure(format!("systemd-analyze verify: {wrong}"))),
    }
}

/// The output of `command`, which must succeed.
fn printed_by(command: &mut Command) -> Result<String, Failure> {
    let output = child::output(command)?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(child::exited(command, output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))
}

/// Removes a folder of `target` if it exists.
fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(folder, &error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}
