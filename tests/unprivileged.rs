//! Without rights: the same program and interface, and a plain message about the missing promises.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::{
    Done, Running, SpecFile, TWO_DOMAINS, UPCALL, list, machine, number, text, truth, with_ports,
};

const SET: &str = r#"
[[stream]]
name = "voice"
class = "continuous-media"
rate = "50/s"
pdu = "100 B"
delay = "100 ms"
cost = "500 us"
receive = "udp://127.0.0.1:{}"
source = "embedded"
[[task]]
name = "control"
period = "10 ms"
cost = "100 us"
[[background]]
name = "hog"
spin = 1
"#;

/// The program and a spec, which any user may read.
struct Public {
    spec: SpecFile,
    program: PathBuf,
}

impl Public {
    fn new() -> Public {
        let spec = SpecFile::new(with_ports(SET).0);
        let program = spec.folder.path().join("upcall");
        fs::copy(UPCALL, &program).expect("the folder is writable");
        for (path, mode) in [(spec.folder.path(), 0o755), (&program, 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .expect("the test owns the file");
        }
        Public { spec, program }
    }

    /// Runs the set as the user `nobody`. The shell's `ulimit` gets `limits`.
    fn run(&self, limits: &str, options: &[&str]) -> Done {
        // Limits stay after the change of user, rights do not.
        let script = format!(
            "{limits} exec setpriv --reuid 65534 --regid 65534 --clear-groups \
                              --bounding-set -all --inh-caps -all \"$@\""
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(&self.program);
        command.args(["run", self.spec.path(), "--duration", "1s"]).args(options);
        let done = Running::start(&mut command).finish();
        done.assert_code(&[0, 4]);
        done
    }
}

/// The lines that name a missing right.
fn notices<'d>(done: &'d Done, what: &str) -> Vec<&'d str> {
    done.stderr.lines().filter(|line| line.contains(what)).collect()
}

/// Checks that work was done, although nothing was promised.
fn assert_ran(run: &Value) {
    for activity in list(run, "activities") {
        assert!(number(activity, "completed") > 0, "{activity:#}");
    }
    assert!(number(&list(run, "streams")[0], "processed") > 0, "{run:#}");
    assert!(number(&list(run, "background")[0], "cpu_ns") > 0, "{run:#}");
}

#[test]
#[ignore = "needs setpriv and root"]
fn without_the_real_time_class_a_run_reports_once_what_is_not_promised() {
    let _machine = machine();
    let public = Public::new();
    let done = public.run("ulimit -r 0;", &["--json"]);
    let lines = notices(&done, "real-time class");
    let [line] = lines.as_slice() else { panic!("expected one line, found {done:#?}") };
    // The line says what is missing, what is done instead, and how to grant it.
    let setcap = format!("sudo setcap cap_sys_nice,cap_ipc_lock+ep {}`", public.program.display());
    for part in ["no right", "NOT promised", "ordinary thread", &setcap] {
        assert!(line.contains(part), "no `{part}`: {line}");
    }
    let run = done.json();
    assert!(!truth(&run, "platform.real_time") && !truth(&run, "promised"));
    let told = list(&run, "platform.notices");
    assert!(told.iter().any(|notice| line.contains(notice.as_str().unwrap_or("?"))), "{run:#}");
    assert_eq!(text(&run, "mode"), "upcall");
    assert_ran(&run);
}

#[test]
#[ignore = "needs setpriv and root"]
fn the_text_shows_the_missing_promise_before_the_outcome() {
    let _machine = machine();
    let done = Public::new().run("ulimit -r 0;", &[]);
    assert_eq!(notices(&done, "NOT promised").len(), 1, "{done:#?}");
    let verdict = "promised: nothing, no right to the real-time class; judged anyway:\noutcome: ";
    assert!(done.stdout.contains(verdict), "{done:#?}");
    assert!(!done.stdout.contains("promise kept") && !done.stdout.contains("BROKEN"), "{done:#?}");
}

#[test]
#[ignore = "needs setpriv and root"]
fn without_locked_memory_a_run_reports_it() {
    let _machine = machine();
    let done = Public::new().run("ulimit -r 0; ulimit -l 0;", &["--json"]);
    let lines = notices(&done, "memory is not locked");
    let [line] = lines.as_slice() else { panic!("expected one line, found {done:#?}") };
    // The line about the class has the command for both rights. The JSON has it in each notice.
    assert!(line.ends_with("; granted as told above"), "{line}");
    assert_eq!(done.stderr.matches("cap_ipc_lock").count(), 1, "{done:#?}");
    let run = done.json();
    let of_memory = |notice: &&Value| notice.as_str().is_some_and(|n| n.contains("not locked"));
    let told = list(&run, "platform.notices").iter().find(of_memory);
    assert!(told.is_some_and(|notice| notice.to_string().contains("cap_ipc_lock")), "{run:#}");
    assert!(!truth(&run, "platform.memory_locked") && !truth(&run, "platform.real_time"));
    assert_ran(&run);
}

#[test]
#[ignore = "needs setpriv and root"]
fn a_run_needs_little_lockable_memory() {
    let _machine = machine();
    // Enough for a part of the memory. The kernel decides whether it is granted.
    for limit in ["64", "8192"] {
        let done = Public::new().run(&format!("ulimit -r 0; ulimit -l {limit};"), &["--json"]);
        assert_ran(&done.json());
    }
}

#[test]
#[ignore = "needs setpriv and root"]
fn the_fifo_mode_without_the_class_is_reported() {
    let _machine = machine();
    let done = Public::new().run("ulimit -r 0;", &["--json", "--mode", "fifo"]);
    assert_eq!(notices(&done, "real-time class").len(), 1, "{done:#?}");
    let run = done.json();
    assert!(!truth(&run, "platform.real_time"));
    assert_ran(&run);
}

/// Starts the program as another user, without any right.
fn as_user(user: &str, program: &str, arguments: &[&str], socket: &str) -> Running {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -r 0; exec setpriv --reuid \"$0\" --regid \"$0\" --clear-groups \
                         --bounding-set -all --inh-caps -all \"$@\"",
    ]);
    command.args([user, program]).args(arguments).env("UPCALL_SOCKET", socket);
    Running::start(&mut command)
}

#[test]
#[ignore = "needs setpriv and root"]
fn a_daemon_without_rights_serves_its_own_user_and_no_other() {
    let _machine = machine();
    let spec = SpecFile::new(TWO_DOMAINS);
    let (program, socket) = (spec.beside("upcall"), spec.beside("upcalld.sock"));
    fs::copy(UPCALL, &program).expect("the folder is writable");
    // The daemon refuses a folder in which another user may replace its socket.
    for (path, mode) in [(spec.folder.path(), 0o1777), (program.as_ref(), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .expect("the test owns the file");
    }
    let daemon = as_user("65534", &program, &["daemon"], &socket);
    let listens = || fs::metadata(&socket).is_ok_and(|of| of.permissions().mode() & 0o777 == 0o600);
    support::wait_until("the daemon listens", listens);

    let run =
        as_user("65534", &program, &["run", spec.path(), "--duration", "2s", "--json"], &socket);
    let mut told = Value::Null;
    support::wait_until("both domains have their activities", || {
        told = as_user("65534", &program, &["ps", "--json"], &socket).finish().json();
        list(&told, "domains").iter().filter(|of| !list(of, "activities").is_empty()).count() == 2
    });
    assert!(!truth(&told, "real_time"), "{told:#}");
    assert!(list(&told, "domains").iter().all(|of| number(of, "uid") == 65534), "{told:#}");

    // Another user may neither see nor attach.
    let other = as_user("65533", &program, &["ps", "--json"], &socket).finish();
    let said = "Permission denied (os error 13): the socket belongs to user 65534 and has mode 600";
    assert!(other.stderr.contains(&format!("{socket}: {said}")), "{other:#?}");
    assert_eq!((other.code(), other.stderr.lines().count()), (2, 1), "{other:#?}");
    // Another user also cannot find out whether a closed folder has a socket.
    let closed = spec.beside("closed");
    fs::DirBuilder::new().mode(0o700).create(&closed).expect("the folder is writable");
    let outside = as_user("65533", &program, &["ps"], &format!("{closed}/upcall.sock")).finish();
    let said = format!("folder {closed} belongs to user 0 and has mode 700");
    assert!(outside.stderr.contains(&said), "{outside:#?}");
    let other = as_user("65533", &program, &["run", spec.path(), "--duration", "1s"], &socket);
    let other = other.finish();
    assert!(other.stderr.contains("ermission denied"), "{other:#?}");

    let run = run.finish();
    let outcome = run.assert_code(&[0, 4]).json();
    for activity in list(&outcome, "activities") {
        assert!(number(activity, "completed") > 10, "{activity:#}");
    }
    let lines = notices(&run, "the daemon has no right to the real-time class");
    let [line] = lines.as_slice() else { panic!("expected one line, found {run:#?}") };
    assert!(line.contains("NOT promised"), "{line}");
    daemon.signal("TERM");
    let daemon = daemon.finish();
    assert!(
        daemon.stderr.contains("SCHED_FIFO") && daemon.stderr.contains("without guarantees"),
        "{daemon:#?}"
    );
    let attached = format!("{}{}", daemon.stdout, daemon.stderr).matches("of user 65534").count();
    assert_eq!(attached, 2, "{daemon:#?}");
}
