//! The C API as C and C++ programs use it: the header under the strictest warnings,
//! its layout against Rust's, an installation, and programs built from it.
//!
//! The tests compare counts and orders, never absolute times. A test whose compiler is not
//! installed prints that it is skipped, and the gate `test` counts it so. `cargo xtask packages`
//! installs the compilers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "c/daemon.rs"]
mod daemon;

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use upcall_c::abi::LAYOUT;

/// Warnings under which every file must compile.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// Further warnings for the header alone, because programs may choose them.
const STRICTER: [&str; 4] = ["-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wcast-qual"];
/// The compiler that a test needs, and another that is used too where it is installed.
const C: [&str; 2] = ["gcc", "clang"];
const CPP: [&str; 2] = ["g++", "clang++"];
/// A program that takes longer hangs: each takes a second on an idle machine.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(300);

/// Attempts that must succeed before as many fail, at checks that a busy machine may spoil.
const MOST: usize = 3;

/// Fails unless most attempts print `expected`.
#[track_caller]
fn prints_in_most_attempts(expected: &str, run: impl Fn() -> String) {
    let (mut succeeded, mut others) = (0, Vec::new());
    while succeeded < MOST {
        let printed = run();
        if printed == expected {
            succeeded += 1
        } else {
            others.push(printed)
        }
        assert!(others.len() < MOST, "expected {expected:?}, found {others:?}");
    }
}

/// One program at a time: each has a runtime, and two would share CPUs.
static ALONE: Mutex<()> = Mutex::new(());

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether a program is installed.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// As [`is_installed`]. Prints a missing program even if the output of passing tests is
/// hidden.
fn is_there(program: &str) -> bool {
    let found = is_installed(program);
    if !found {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no `{program}` here");
    }
    found
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Runs `command` and returns its output, if it succeeds.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (printed, errors) = text(&output);
    assert!(output.status.success(), "{command:?}: {}\n{printed}{errors}", output.status);
    printed
}

/// Compiles `source` in each language standard with each installed compiler.
#[track_caller]
fn compiles_as_c11_and_cpp17(name: &str, source: &str) {
    let directory = TempDir::new().unwrap();
    for ([needed, other], ending, standard) in [(C, "c", "-std=c11"), (CPP, "cpp", "-std=c++17")] {
        let compilers = [is_there(needed).then_some(needed), is_installed(other).then_some(other)];
        let file = directory.path().join(format!("{name}.{ending}"));
        std::fs::write(&file, source).unwrap();
        for compiler in compilers.into_iter().flatten() {
            let mut command = Command::new(compiler);
            command.arg(standard).args(STRICT).args(STRICTER).args(["-fsyntax-only", "-I"]);
            succeed(command.arg(here("include")).arg(file.as_os_str()));
        }
    }
}

#[test]
fn the_header_compiles_alone_and_twice_as_c11_and_cpp17() {
    compiles_as_c11_and_cpp17("twice", "#include <upcall.h>\n#include <upcall.h>\n");
}

#[test]
fn every_struct_lies_in_c_as_it_does_in_rust() {
    let mut source = "#include <upcall.h>\n#ifdef __cplusplus\n#define MUST static_assert\n\
        #else\n#define MUST _Static_assert\n#endif\n"
        .to_owned();
    for (name, size, members) in LAYOUT {
        writeln!(source, "MUST(sizeof(struct {name}) == {size}, \"size of {name}\");").unwrap();
        for (member, offset) in *members {
            let what = format!("offsetof(struct {name}, {member}) == {offset}");
            writeln!(source, "MUST({what}, \"{name}.{member}\");").unwrap();
        }
    }
    compiles_as_c11_and_cpp17("layout", &source);
}

#[test]
fn a_layout_that_differs_would_be_seen() {
    if !is_there("gcc") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("wrong.c");
    let wrong = "#include <upcall.h>\n\
        _Static_assert(offsetof(struct rts_attr, batch) == 8, \"batch\");\n";
    std::fs::write(&file, wrong).unwrap();
    let mut command = Command::new("gcc");
    command.args(["-std=c11", "-fsyntax-only", "-I"]).arg(here("include")).arg(file);
    let output = command.output().unwrap();
    assert!(!output.status.success() && text(&output).1.contains("batch"));
}

#[test]
fn every_member_and_constant_of_the_header_is_known_to_rust() {
    let header = std::fs::read_to_string(here("include/upcall.h")).unwrap();
    assert!(header.contains(&format!("RTS_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))));
    let most = upcall_c::abi::DESCRIPTORS_MAX;
    assert!(header.contains(&format!("RTS_DESCRIPTORS_MAX {most}\n")));
    for (name, _, members) in LAYOUT {
        let (_, body) = header.split_once(&format!("struct {name} {{")).unwrap();
        let (body, _) = body.split_once("\n};").unwrap();
        // One member per line, with a comment after it.
        let declared = body.lines().filter(|line| line.contains(';')).count();
        assert_eq!(declared, members.len(), "members of {name}");
    }
}

/// An installation in a temporary directory.
struct Installation(TempDir);

impl Installation {
    /// Installs the libraries that cargo built beside this test.
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let mut install = Command::new("sh");
        install.arg(here("install.sh")).arg(directory.path()).arg(beside).env_remove("DESTDIR");
        succeed(&mut install);
        Installation(directory)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// The output of `pkg-config`.
    fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig")).args(arguments).arg("upcall");
        succeed(&mut command).split_whitespace().map(ToOwned::to_owned).collect()
    }

    /// Compiles a file of this crate with `flags`, runs it, and returns its output. The
    /// program must end by itself, with success.
    #[track_caller]
    fn build_and_run(
        &self,
        compiler: &str,
        standard: &str,
        file: &str,
        flags: &[String],
    ) -> String {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        self.build(compiler, standard, file, flags);
        self.run(file, &[], |_| {})
    }

    /// Compiles a file of this crate with `flags`.
    #[track_caller]
    fn build(&self, compiler: &str, standard: &str, file: &str, flags: &[String]) {
        let mut command = Command::new(compiler);
        command.arg(standard).args(STRICT).args(["-O2", "-pthread", "-o"]);
        succeed(command.arg(self.path("program")).arg(here(file)).args(flags));
    }

    /// Runs the program compiled from `file`. It must end by itself, with success.
    #[track_caller]
    fn run(&self, file: &str, arguments: &[&str], change: impl FnOnce(&mut Command)) -> String {
        let mut command = Command::new(self.path("program"));
        command.env("LD_LIBRARY_PATH", self.path("lib")).env_remove("UPCALL_SOCKET");
        change(command.args(arguments));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let give_up = Instant::now() + PROGRAM_TIME_MAX;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > give_up {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        let (printed, errors) = text(&output);
        assert!(output.status.success(), "{file}: {}\n{printed}{errors}", output.status);
        printed
    }
}

/// An installation, if the tools to use one are installed.
fn installed(compiler: &str) -> Option<Installation> {
    (is_there(compiler) && is_there("pkg-config")).then(Installation::new)
}

/// The number after `word` in the line of `name`.
#[track_caller]
fn number(printed: &str, name: &str, word: &str) -> u64 {
    let line = printed.lines().find(|line| line.starts_with(name)).expect(name);
    let (_, rest) = line.split_once(word).expect(word);
    rest.trim_start().split([',', ' ']).next().unwrap().parse().unwrap()
}

#[test]
fn the_example_processes_every_pdu_of_its_streams() {
    let Some(installation) = installed("gcc") else { return };
    let shared = installation.flags(&["--cflags", "--libs"]);
    // The archive, and the libraries that pkg-config adds.
    let archive: Vec<String> = installation
        .flags(&["--static", "--cflags", "--libs"])
        .into_iter()
        .map(|flag| if flag == "-lupcall_c" { "-l:libupcall_c.a".to_owned() } else { flag })
        .collect();
    assert!(archive.contains(&"-l:libupcall_c.a".to_owned()), "{archive:?}");
    for flags in [shared, archive] {
        let printed = installation.build_and_run("gcc", "-std=c11", "examples/periodic.c", &flags);
        for (name, pdus, jobs) in [("audio", 40, 20), ("video", 100, 10)] {
            assert_eq!(number(&printed, name, "PDUs"), pdus, "{printed}");
            assert_eq!(number(&printed, name, "jobs"), jobs, "{printed}");
            // More upcalls if one handler had to yield to the other.
            assert!(number(&printed, name, "upcalls") >= jobs, "{printed}");
        }
    }
}

#[test]
fn the_calls_do_what_table_1_says_and_refuse_what_c_gets_wrong() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    let printed = installation.build_and_run("gcc", "-std=c11", "tests/c/semantics.c", &flags);
    assert_eq!(printed, "all of it holds\n");
}

/// Before, a C program had no call for what the watchdog did.
#[test]
fn a_c_program_learns_that_its_handler_kept_the_cpu() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    let printed = installation.build_and_run("gcc", "-std=c11", "tests/c/offence.c", &flags);
    if printed == "no right\n" {
        let test = "a_c_program_learns_that_its_handler_kept_the_cpu";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no right to the real-time class");
        return;
    }
    assert_eq!(printed, "one offence\n");
}

/// A measure without a constant would be a number that no C program knows.
#[test]
fn the_constants_of_offences_are_the_numbers_of_the_measures() {
    use upcall::Measure::{
        self, Demoted, Disbelieved, Killed, LeftCpu, LockWait, OutPrioritised, Slowed,
    };
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "tests/c/offence.c", &flags);
    let printed = installation.run("tests/c/offence.c", &["numbers"], |_| {});
    let measures = (1..).map_while(Measure::of_number).collect::<Vec<_>>();
    let expected = [OutPrioritised, Demoted, Killed, Disbelieved, Slowed, LockWait, LeftCpu];
    assert_eq!(measures, expected);
    let numbers: Vec<_> = measures.into_iter().map(|of| (of as u32).to_string()).collect();
    assert_eq!(printed, numbers.join(" ") + "\n");
}

#[test]
fn every_term_of_a_policy_changes_what_is_admitted_or_called() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    let printed = installation.build_and_run("gcc", "-std=c11", "tests/c/policies.c", &flags);
    assert_eq!(printed, "every term counts\n");
}

#[test]
fn two_c_handlers_on_one_cpu_count_without_a_lock_and_lose_nothing() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    let printed = installation.build_and_run("gcc", "-std=c11", "tests/c/same_cpu.c", &flags);
    if printed == "one CPU\n" {
        let test = "two_c_handlers_on_one_cpu_count_without_a_lock_and_lose_nothing";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: one CPU");
        return;
    }
    assert_eq!(printed, "nothing is lost\n");
}

#[test]
fn a_process_that_ends_lets_handlers_with_an_abort_phase_close_what_they_have_open() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "tests/c/abort.c", &flags);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = |how| installation.run("tests/c/abort.c", &[how], |_| {});
    let closed = "polite resets\npolite is free\nmain is over\n";
    for (how, printed) in
        [("return", closed), ("signal", closed), ("stubborn", closed), ("exit", "main is over\n")]
    {
        // The phase has half a second, which can be too short on a busy machine.
        prints_in_most_attempts(printed, || run(how));
    }
}

#[test]
#[ignore = "needs setpriv, setcap, gcc, pkg-config and root"]
fn a_c_program_without_rights_is_told_to_grant_them_to_its_own_file() {
    let Some(installation) = installed("gcc") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    installation.build("gcc", "-std=c11", "tests/c/notices.c", &flags);
    let everyone = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(installation.0.path(), everyone).unwrap();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -r 0; exec setpriv --reuid 65534 --regid 65534 --clear-groups \
        --bounding-set -all --inh-caps -all \"$0\"",
    ]);
    command.arg(installation.path("program")).env("LD_LIBRARY_PATH", installation.path("lib"));
    let printed = succeed(command.env_remove("UPCALL_SOCKET"));
    let line = printed.lines().find(|line| line.contains("no right to the real-time class"));
    let line = line.unwrap_or_else(|| panic!("no such notice: {printed}"));
    let program = installation.path("program");
    let setcap = format!("sudo setcap cap_sys_nice,cap_ipc_lock+ep {}`", program.display());
    assert!(line.contains(&setcap), "{line}");
    // With the capability the loader ignores the variable that leads to the library.
    assert!(line.contains("-Wl,-rpath"), "{line}");
    let rpath = format!("-Wl,-rpath,{}", installation.path("lib").display());
    let flags = [flags, vec![rpath]].concat();
    installation.build("gcc", "-std=c11", "tests/c/notices.c", &flags);
    let mut command = Command::new("setcap");
    succeed(command.arg("cap_sys_nice,cap_ipc_lock+ep").arg(installation.path("program")));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"]);
    let printed = succeed(command.arg(installation.path("program")).env_remove("UPCALL_SOCKET"));
    assert!(!printed.contains("no right"), "{printed}");
}

#[test]
fn a_cpp_program_uses_the_same_header_and_library() {
    let Some(installation) = installed("g++") else { return };
    let flags = installation.flags(&["--cflags", "--libs"]);
    let printed = installation.build_and_run("g++", "-std=c++17", "tests/c/plain.cpp", &flags);
    assert_eq!(printed, "PDUs 25 25, jobs 3\n");
}

#[test]
fn an_installation_has_the_names_that_linkers_and_loaders_want() {
    let Some(installation) = installed("gcc") else { return };
    let version = env!("CARGO_PKG_VERSION");
    let library = installation.path("lib/libupcall_c.so").canonicalize().unwrap();
    assert_eq!(library.file_name().unwrap(), format!("libupcall_c.so.{version}").as_str());
    assert_eq!(installation.flags(&["--modversion"]), [version]);
    let prefix = installation.0.path().to_str().unwrap();
    assert_eq!(
        installation.flags(&["--cflags", "--libs"]),
        [format!("-I{prefix}/include"), format!("-L{prefix}/lib"), "-lupcall_c".to_owned()]
    );
}
