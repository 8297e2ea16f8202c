//! Runs child commands. Each is first printed as a line that can be pasted into a shell.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long the output of a command may stay open after the command ended.
const LEFT_BEHIND_WAIT_MAX: Duration = Duration::from_secs(5);

/// A `cargo` command in `root`: the cargo that started this program, or the one on the path.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Prints and runs `command`, which writes to the output streams of this program.
///
/// # Errors
/// If it cannot be started.
pub fn status(command: &mut Command) -> Result<ExitStatus, Failure> {
    println!("$ {}", shell_line(command));
    command.status().map_err(|error| not_started(command, &error))
}

/// As [`status`], but does not print the command.
///
/// # Errors
/// If it cannot be started.
pub fn status_silent(command: &mut Command) -> Result<ExitStatus, Failure> {
    command.status().map_err(|error| not_started(command, &error))
}

/// As [`status`], but an exit status other than 0 is a failure.
///
/// # Errors
/// If it cannot be started, or does not exit with 0.
pub fn succeed(command: &mut Command) -> Result<(), Failure> {
    let status = status(command)?;
    if status.success() { Ok(()) } else { Err(exited(command, status)) }
}

/// As [`succeed`], for at most `time_max`. Then `command` is killed, but not its children.
///
/// # Errors
/// As [`succeed`], and if it did not end in time.
pub fn succeed_within(command: &mut Command, time_max: Duration) -> Result<(), Failure> {
    println!("$ {}", shell_line(command));
    let mut child = command.spawn().map_err(|error| not_started(command, &error))?;
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(|error| not_started(command, &error))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(exited(command, status)),
            None if begun.elapsed() >= time_max => break,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    // This fails if the command has ended just now.
    let _ = child.kill();
    let _ = child.wait();
    let line = shell_line(command);
    Err(Failure(format!("`{line}` did not end within {} s", time_max.as_secs_f64())))
}

/// Prints and runs `command`, and returns its output without showing it.
///
/// # Errors
/// If it cannot be started.
pub fn output(command: &mut Command) -> Result<Output, Failure> {
    println!("$ {}", shell_line(command));
    command.output().map_err(|error| not_started(command, &error))
}

/// Prints and runs `command`, shows its standard output line by line, and returns its exit status
/// and this output. Its standard error goes to that of this program.
///
/// # Errors
/// If it cannot be started.
pub fn shown(command: &mut Command) -> Result<(ExitStatus, String), Failure> {
    let line = shell_line(command);
    println!("$ {line}");
    let not_run = |error: std::io::Error| Failure(format!("`{line}` cannot be run: {error}"));
    let (reader, writer) = std::io::pipe().map_err(not_run)?;
    let started = command.stdout(writer).spawn();
    // `command` holds the write end of the pipe until it gets another stream.
    command.stdout(Stdio::null());
    let mut child = started.map_err(not_run)?;
    let text = show_and_keep(reader);
    Ok((child.wait().map_err(not_run)?, text))
}

/// Prints and runs `command`, shows its output line by line, and returns the output too. Both of
/// its streams come in the order written. Bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
/// If the command cannot be started, or if a process that it started keeps the output open after
/// the command ended. That process might never end, so this does not wait for it.
pub fn tee(command: &mut Command) -> Result<(ExitStatus, String), Failure> {
    let line = shell_line(command);
    println!("$ {line}");
    let not_run = |error: std::io::Error| Failure(format!("`{line}` cannot be run: {error}"));
    let (reader, writer) = std::io::pipe().map_err(not_run)?;
    let errors = writer.try_clone().map_err(not_run)?;
    let started = command.stdout(writer).stderr(errors).spawn();
    // `command` holds the write ends of the pipe until it gets other streams.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = started.map_err(not_run)?;
    let copier = std::thread::spawn(move || show_and_keep(reader));
    let status = child.wait().map_err(not_run)?;
    let ended = Instant::now();
    while !copier.is_finished() && ended.elapsed() < LEFT_BEHIND_WAIT_MAX {
        std::thread::sleep(Duration::from_millis(10));
    }
    if !copier.is_finished() {
        let what = "ended, but left a process behind that holds its output open";
        return Err(Failure(format!("`{line}` {what}")));
    }
    let kept = copier.join().map_err(|_| Failure(format!("output of `{line}` cannot be shown")))?;
    Ok((status, kept))
}

/// Prints each line of `output`, and returns all of them at its end.
fn show_and_keep(output: PipeReader) -> String {
    let mut kept = String::new();
    // A read error ends the copy. The exit status of the command then decides.
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        kept.push_str(&line);
        kept.push('\n');
    }
    kept
}

/// The failure of a command that ran but did not succeed.
pub fn exited(command: &Command, status: ExitStatus) -> Failure {
    Failure(format!("`{}`: {status}, expected success", shell_line(command)))
}

/// Whether `cargo NAME` is installed (rustfmt and clippy are components).
pub fn cargo_has(root: &Path, name: &str) -> bool {
    let probe =
        cargo(root).args([name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// Whether the program `name` is on the path, or in the folders where Debian keeps programs for
/// root.
pub fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| directory.join(name).is_file())
}

/// Whether this program runs as root: root owns `/proc/self` then (proc(5)).
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

/// Whether this program may set up the network (`CAP_NET_ADMIN`).
pub fn is_net_admin() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    has_capability(CAP_NET_ADMIN)
}

/// Whether this program may raise limits (`CAP_SYS_RESOURCE`).
pub fn may_raise_limits() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    has_capability(CAP_SYS_RESOURCE)
}

/// Whether this process has the capability. Even root may lack it, for example in a container
/// (proc_pid_status(5), capabilities(7)).
fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> number & 1 == 1)
}

/// Tries whether a child may have the class `SCHED_FIFO`. The error says why not.
/// Capabilities, rlimits and cgroups all decide about it, so this runs a child.
pub fn realtime() -> Result<(), String> {
    let attempt = Command::new("chrt").args(["-f", "1", "true"]).output();
    match attempt {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            Err(format!("`chrt -f 1 true` fails: {}", message.trim()))
        }
        Err(error) => Err(format!("`chrt` (util-linux) cannot be run: {error}")),
    }
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure(format!("`{}` cannot be run: {error}", shell_line(command)))
}

/// `command` as a user would type it in its folder: variables, name, arguments.
fn shell_line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let variables = command
        .get_envs()
        .filter_map(|(key, value)| Some(format!("{}={}", key.to_string_lossy(), quoted(value?))));
    variables
        .chain([quoted(name)])
        .chain(command.get_args().map(quoted))
        .collect::<Vec<_>>()
        .join(" ")
}

/// `text`, in single quotes if a shell would split or expand it.
fn quoted(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Where cargo keeps its registry (The Cargo Book, "Cargo Home").
pub fn cargo_home() -> PathBuf {
    std::env::var_os("CARGO_HOME").map_or_else(|| own_home().join(".cargo"), PathBuf::from)
}

/// The home of the user who runs this program.
pub fn own_home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_printed_as_a_user_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.env("RUSTDOCFLAGS", "-D warnings").args(["doc", "--no-deps", "it's"]);
        assert_eq!(
            shell_line(&command),
            r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'"
        );
    }

    #[test]
    fn the_output_that_is_shown_is_also_returned() {
        let (status, text) =
            tee(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"])).unwrap();
        assert_eq!((status.code(), text.as_str()), (Some(3), "one\ntwo\n"));
    }

    #[test]
    fn an_output_that_stays_open_is_a_failure() {
        let failure = tee(Command::new("sh").args(["-c", "sleep 20 & echo started"])).unwrap_err();
        assert!(failure.0.contains("left a process behind"), "{failure}");
    }

    #[test]
    fn a_missing_program_and_a_failing_one_are_failures() {
        assert!(succeed(&mut Command::new("no-such-program-upcall")).is_err());
        let failure = succeed(&mut Command::new("false")).unwrap_err();
        assert_eq!(failure.0, "`false`: exit status: 1, expected success");
        assert!(is_installed("sh") && !is_installed("no-such-program-upcall"));
    }
}
