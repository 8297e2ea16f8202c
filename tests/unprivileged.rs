//! Without rights: the same program, the same interface, and a plain word on
//! what is not promised.

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

/// The program and a spec where anyone may read them.
struct Public {
    spec: SpecFile,
    program: PathBuf,
}

impl Public {
    fn new() -> Public {
        let spec = SpecFile::new(with_ports(SET).0);
        let program = spec.folder.path().join("upcall");
        fs::copy(UPCALL, &program).expect("the folder is ours");
        for (path, mode) in [(spec.folder.path(), 0o755), (&program, 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        Public { spec, program }
    }

    /// Runs the set as nobody; `limits` are given to the shell's `ulimit`.
    fn run(&self, limits: &str, options: &[&str]) -> Done {
        // Limits outlive the change of user, rights do not.
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

/// Work was done, though nothing was promised.
fn assert_ran(run: &Value) {
    for activity in list(run, "activities") {
        assert!(number(activity, "completed") > 0, "{activity:#}");
    }
    assert!(number(&list(run, "streams")[0], "processed") > 0, "{run:#}");
    assert!(number(&list(run, "background")[0], "cpu_ns") > 0, "{run:#}");
}

#[test]
#[ignore = "needs setpriv and root"]
fn without_the_real_time_class_it_runs_and_says_once_what_is_not_promised() {
    let _machine = machine();
    let public = Public::new();
    let done = public.run("ulimit -r 0;", &["--json"]);
    let lines = notices(&done, "real-time class");
    let [line] = lines.as_slice() else { panic!("expected one line, found {done:#?}") };
    // What is missing, what is done instead, how to grant it.
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
fn a_person_reads_it_before_the_outcome() {
    let _machine = machine();
    let done = Public::new().run("ulimit -r 0;", &[]);
    assert_eq!(notices(&done, "NOT promised").len(), 1, "{done:#?}");
    let verdict = "promised: nothing, no right to the real-time class; judged anyway:\noutcome: ";
    assert!(done.stdout.contains(verdict), "{done:#?}");
    assert!(!done.stdout.contains("promise kept") && !done.stdout.contains("BROKEN"), "{done:#?}");
}

#[test]
#[ignore = "needs setpriv and root"]
fn without_locked_memory_it_runs_and_says_so() {
    let _machine = machine();
    let done = Public::new().run("ulimit -r 0; ulimit -l 0;", &["--json"]);
    let lines = notices(&done, "memory is not locked");
    let [line] = lines.as_slice() else { panic!("expected one line, found {done:#?}") };
    // The line of the class has the remedy for both; the JSON has it in each.
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
fn with_little_memory_to_lock_it_runs() {
    let _machine = machine();
    // Enough for a part: whether it is granted is the kernel's affair.
    for limit in ["64", "8192"] {
        let done = Public::new().run(&format!("ulimit -r 0; ulimit -l {limit};"), &["--json"]);
        assert_ran(&done.json());
    }
}

#[test]
#[ignore = "needs setpriv and root"]
fn the_fifo_baseline_says_that_it_is_none() {
    let _machine = machine();
    let done = Public::new().run("ulimit -r 0;", &["--json", "--mode", "fifo"]);
    assert_eq!(notices(&done, "real-time class").len(), 1, "{done:#?}");
    let run = done.json();
    assert!(!truth(&run, "platform.real_time"));
    assert_ran(&run);
}

/// The program as another user, without any right.
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
    fs::copy(UPCALL, &program).expect("the folder is ours");
    for path in [spec.folder.path().to_str().expect("it is text"), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("it is ours");
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

    // Neither to look nor to attach.
    let stranger = as_user("65533", &program, &["ps", "--json"], &socket).finish();
    let said = "Permission denied (os error 13): the socket belongs to user 65534 and has mode 600";
    assert!(stranger.stderr.contains(&format!("{socket}: {said}")), "{stranger:#?}");
    assert_eq!((stranger.code(), stranger.stderr.lines().count()), (2, 1), "{stranger:#?}");
    // Nor to find out whether there is a socket, in a folder that is closed to it.
    let closed = spec.beside("closed");
    fs::DirBuilder::new().mode(0o700).create(&closed).expect("the folder is ours");
    let outside = as_user("65533", &program, &["ps"], &format!("{closed}/upcall.sock")).finish();
    let said = format!("folder {closed} belongs to user 0 and has mode 700");
    assert!(outside.stderr.contains(&said), "{outside:#?}");
    let stranger = as_user("65533", &program, &["run", spec.path(), "--duration", "1s"], &socket);
    let stranger = stranger.finish();
    assert!(stranger.stderr.contains("ermission denied"), "{stranger:#?}");

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
