//! Runs each example that needs no argument, with the command in its head, and checks its output.
//!
//! `together` and `file_stream` have their own tests in the folder `tests` of the workspace.

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// Checks before an example counts as hung: two minutes after its build.
const CHECKS_MAX: u32 = 6_000;
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Two programs with real-time threads at once would disturb each other.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn stream_processes_moves_each_frame_once_and_in_order() {
    let printed = run("stream_processes");
    assert_eq!(printed, ["display: 200 frames, 0 out of order", "camera: 200 frames"]);
}

#[test]
fn socket_task_answers_each_datagram() {
    let printed = run("socket_task");
    assert_eq!(printed.len(), 1, "{printed:?}");
    let [echoed, messages, missed] = numbers(&printed[0])[..] else { panic!("{printed:?}") };
    assert_eq!(echoed, 100);
    // At most one for each datagram, one for the empty one, and one before the first wait.
    assert!((1..=102).contains(&messages) && missed <= messages, "{printed:?}");
}

#[test]
fn service_client_gets_an_answer_to_each_event() {
    assert_eq!(run("service_client"), ["raised 100, answered 100, sum 5050, by call 5050"]);
}

#[test]
fn beside_tokio_gives_the_posts_to_the_handler() {
    let printed = run("beside_tokio");
    let [address, answer, handler] = &printed[..] else { panic!("{printed:?}") };
    assert!(address.starts_with("http://127.0.0.1:"), "{printed:?}");
    assert_eq!(answer, "bytes 2000, sum 2000");
    let [jobs, missed] = numbers(handler)[..] else { panic!("{printed:?}") };
    assert!((1..=21).contains(&jobs) && missed <= jobs, "{printed:?}");
}

/// The lines that an example printed. The example must end in order.
#[track_caller]
fn run(name: &str) -> Vec<String> {
    // The build has no time limit: it may start from nothing, or wait for another build.
    let cargo = |verb: &str| {
        let mut command = Command::new(env!("CARGO"));
        command.args([verb, "--quiet", "--locked", "--package", "upcall", "--example", name]);
        command.env_remove("UPCALL_SOCKET");
        command
    };
    assert!(cargo("build").status().expect("cargo starts").success(), "{name} is built");
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    // cargo finds the program built and replaces itself by it, so the process stays the same.
    let mut command = cargo("run");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("cargo starts");
    await_end(&mut child, name);
    let output = child.wait_with_output().expect("it has ended");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("panicked"), "{name}: {output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Waits for the end. The output of the examples fits into a pipe, so none waits for its reader.
#[track_caller]
fn await_end(child: &mut Child, name: &str) {
    for _ in 0..CHECKS_MAX {
        if child.try_wait().expect("it is our child").is_some() {
            return;
        }
        sleep(CHECK_EVERY);
    }
    child.kill().expect("it is our child");
    panic!("{name} did not end");
}

/// The numbers in a line.
fn numbers(line: &str) -> Vec<u64> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}
