//! An ordinary user, in a bare environment such as that of `su` or cron: without `XDG_RUNTIME_DIR`,
//! and with a limit on priorities or with none.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::{
    Running, SpecFile, TWO_DOMAINS, UPCALL, UPCALLD, list, machine, number, text, truth,
};

/// A user id that no machine has whose users come from useradd.
const USER: u32 = 59_431;
/// Another such user.
const OTHER_USER: u32 = 59_432;

/// The programs, a spec and a folder for temporary files, which any user may enter.
struct Public {
    spec: SpecFile,
    temporary: PathBuf,
}

impl Public {
    fn new() -> Public {
        let spec = SpecFile::new(TWO_DOMAINS);
        for (program, name) in [(UPCALL, "upcall"), (UPCALLD, "upcalld")] {
            fs::copy(program, spec.beside(name)).expect("the folder is writable");
        }
        let temporary = spec.folder.path().join("tmp");
        fs::create_dir(&temporary).expect("the folder is writable");
        for (path, mode) in [(spec.folder.path(), 0o755), (&temporary, 0o1777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .expect("the test owns the file");
        }
        Public { spec, temporary }
    }

    /// The folder of the user's sockets.
    fn folder(&self) -> PathBuf {
        self.temporary.join(format!("upcall-{USER}"))
    }

    /// A shell without variables except `TMPDIR`. In it `$as_user ...` runs a command as the user,
    /// without rights, and with `limit` as its highest real-time priority.
    fn shell(&self, limit: u8, script: &str) -> Command {
        let before = format!(
            "ulimit -r {limit}\nas_user='setpriv --reuid {USER} --regid {USER} --clear-groups \
             --bounding-set -all --inh-caps -all'\ncd '{}'\n",
            self.spec.folder.path().display()
        );
        let mut command = Command::new("env");
        command.args(["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.arg(format!("TMPDIR={}", self.temporary.display()));
        command.args(["sh", "-c", &format!("{before}{script}")]);
        command
    }

    /// As `shell`, with mounts of its own and without real-time priorities. In it `await PATH`
    /// waits until a daemon answers at this socket, and ends the script if none does.
    fn mounts(&self, script: &str) -> Command {
        let shell = self.shell(
            0,
            &format!(
                "await() {{
                     for _ in $(seq 600); do
                         $as_user ./upcall ps --json --socket \"$1\" > awaited 2>&1 && return
                         sleep 0.1
                     done
                     exit 8
                 }}
                 {script}"
            ),
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]).arg(shell.get_program());
        command.args(shell.get_args());
        command
    }

    fn start(&self, limit: u8, arguments: &str) -> Running {
        Running::start(&mut self.shell(limit, &format!("$as_user ./upcall {arguments}")))
    }

    /// The output of `upcall ps` once both domains have their activities.
    fn domains(&self, limit: u8) -> Value {
        let mut told = Value::Null;
        support::wait_until("both domains have their activities", || {
            let asked = self.start(limit, "ps --json").finish();
            told = serde_json::from_str(&asked.stdout).unwrap_or_default();
            let domains = told["domains"].as_array().cloned().unwrap_or_default();
            domains.iter().filter(|of| !list(of, "activities").is_empty()).count() == 2
        });
        told
    }
}

#[test]
#[ignore = "needs setpriv and root"]
fn two_domains_run_without_a_runtime_folder_and_ps_finds_their_daemon() {
    let _machine = machine();
    let public = Public::new();
    let run = public.start(0, "run spec.toml --duration 6s --json");
    let told = public.domains(0);
    assert!(list(&told, "domains").iter().all(|of| number(of, "uid") == u64::from(USER)));
    let folder = fs::metadata(public.folder()).expect("the daemon's socket is there");
    assert_eq!((folder.uid(), folder.mode() & 0o7777), (USER, 0o700));

    let done = run.finish();
    let outcome = done.assert_code(&[0, 4]).json();
    for activity in list(&outcome, "activities") {
        assert!(number(activity, "completed") > 10, "{activity:#}");
    }
    // The messages of the daemon and of the run name the file that needs the right.
    let program = public.spec.beside("upcall");
    for start in ["upcalld: SCHED_FIFO", "upcall: the daemon has no right"] {
        let line = done.stderr.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no line `{start}`: {done:#?}"));
        assert!(
            line.contains(&format!("setcap cap_sys_nice,cap_ipc_lock+ep {program}`")),
            "{line}"
        );
        assert!(line.contains(&format!("`:{USER} - rtprio 62`")), "{line}");
    }
}

#[test]
#[ignore = "needs setpriv and root"]
fn a_folder_of_another_user_is_refused_by_name() {
    let _machine = machine();
    let public = Public::new();
    fs::create_dir(public.folder()).expect("the folder is writable");
    chown(public.folder(), Some(OTHER_USER), Some(OTHER_USER)).expect("this is root");
    // A hostile user could have a socket there that answers.
    for mode in [0o755, 0o777] {
        fs::set_permissions(public.folder(), fs::Permissions::from_mode(mode)).expect("root");
        for arguments in ["run spec.toml --duration 1s", "ps", "daemon", "top"] {
            let done = public.start(0, arguments).finish();
            assert_eq!(done.code(), 2, "{arguments}: {done:#?}");
            let said = format!("{} cannot be trusted", public.folder().display());
            assert!(done.stderr.contains(&said), "{arguments}: {done:#?}");
            assert!(done.stderr.contains(&format!("user {OTHER_USER} owns it")), "{done:#?}");
        }
    }
    assert_eq!(fs::read_dir(public.folder()).expect("root").count(), 0);
}

#[test]
#[ignore = "needs setpriv, unshare and root"]
fn the_systems_daemon_serves_users_without_a_daemon_of_their_own() {
    let _machine = machine();
    let public = Public::new();
    let cpu = support::a_cpu();
    // The script has its own /run, so that it finds no daemon of this machine.
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run || exit 9
         # As after a login of root: no other user may enter that folder.
         mkdir -m 700 /run/of-root
         XDG_RUNTIME_DIR=/run/of-root ./upcalld --cpus {cpu} --switch-cost 20us \
             --access everyone & system=$!
         await /run/upcall.sock
         $as_user ./upcall ps --json > first
         $as_user ./upcall daemon --cpus {cpu} --switch-cost 20us --policy dws & own=$!
         await '{}/upcall.sock'
         $as_user ./upcall ps --json > second
         kill $own; wait $own
         $as_user ./upcall ps --json > third
         kill $system; wait $system
         chown {OTHER_USER} '{}'; ./upcalld --cpus {cpu} --switch-cost 20us --access everyone & system=$!
         await /run/upcall.sock
         $as_user ./upcall ps --json > fourth
         kill $system; wait $system",
        public.folder().display(),
        public.folder().display()
    );
    let done = Running::start(&mut public.mounts(&script)).finish();
    // The fourth: the folder of another user keeps no user from the system's daemon.
    for (name, policy) in
        [("first", "rmdp"), ("second", "dws"), ("third", "rmdp"), ("fourth", "rmdp")]
    {
        let told = fs::read_to_string(public.spec.beside(name)).expect("the script wrote it");
        let told: Value =
            serde_json::from_str(&told).unwrap_or_else(|_| panic!("{name}: {done:#?}"));
        assert_eq!(text(&told, "policy"), policy, "{name}: {done:#?}");
    }
}

#[test]
#[ignore = "needs setpriv, unshare and root"]
fn a_user_may_reserve_only_the_share_of_the_flag() {
    let _machine = machine();
    let public = Public::new();
    let cpu = support::a_cpu();
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run || exit 9
         for share in 1 400; do
             ./upcalld --cpus {cpu} --switch-cost 20us --access everyone \
                 --user-share $share% & system=$!
             await /run/upcall.sock
             $as_user ./upcall run spec.toml --duration 200ms --json > run$share 2> said$share
             echo $? > code$share
             kill $system; wait $system
         done"
    );
    let done = Running::start(&mut public.mounts(&script)).finish();
    let read = |name: &str| fs::read_to_string(public.spec.beside(name)).unwrap_or_default();
    assert_eq!(read("code1").trim(), "3", "{done:#?} {}", read("said1"));
    assert!(read("said1").contains("its quota is 1 %"), "{}", read("said1"));
    assert!(["0", "4"].contains(&read("code400").trim()), "{done:#?} {}", read("said400"));
}

/// Priority of a thread in `SCHED_FIFO`; 0 in another class (proc_pid_stat(5)).
fn fifo_priority(tid: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = behind_name.split(' ').collect();
    match fields.get(37..39) {
        Some([priority, "1"]) => priority.parse().unwrap_or_default(),
        _ => 0,
    }
}

/// The threads of `pid` whose names begin with `name`.
fn threads(pid: u32, name: &str) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a running process");
    let named = tasks.flatten().filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|found| found.starts_with(name))
    });
    named.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

#[test]
#[ignore = "needs setpriv, CAP_SYS_RESOURCE and root"]
fn a_limit_on_priorities_lowers_the_daemon_and_its_domains_together() {
    let _machine = machine();
    let public = Public::new();
    let cpu = support::a_cpu();
    // `exec`, so that the pid is the daemon's: its threads are found by it. The long grace keeps a
    // slow machine from making a domain an offender.
    let arguments = format!("--cpus {cpu} --switch-cost 20us --grace 10s");
    let script = format!("exec $as_user ./upcalld {arguments}");
    let daemon = Running::start(&mut public.shell(20, &script));
    let socket = public.folder().join("upcall.sock");
    support::wait_until("the daemon", || upcall::status::status(&socket).is_ok());
    let run = public.start(20, "run spec.toml --duration 6s --json");
    let told = public.domains(20);
    assert!(truth(&told, "real_time"), "{told:#}");
    let virtual_processors: Vec<&Value> = list(&told, "domains")
        .iter()
        .flat_map(|domain| list(domain, "virtual_processors"))
        .collect();
    assert_eq!(virtual_processors.len(), 2, "{told:#}");
    for virtual_processor in virtual_processors {
        // The priority is 18, or 19 until the end of a quantum in which the thread was blocked.
        let found = fifo_priority(number(virtual_processor, "tid"));
        assert!((18..=19).contains(&found), "{found}: {virtual_processor:#}");
    }
    for (name, expected) in [("upcall-watchdog", 20), ("upcall-kls", 17)] {
        let found: Vec<u64> = threads(daemon.pid(), name).into_iter().map(fifo_priority).collect();
        assert_eq!(found, [expected], "{name}");
    }
    let done = run.finish();
    let outcome = done.assert_code(&[0, 4]).json();
    assert!(truth(&outcome, "platform.real_time"), "{done:#?}");
    daemon.signal("TERM");
    let daemon = daemon.finish();
    let class = "real-time class, handlers at priority 18, by RLIMIT_RTPRIO 20";
    assert!(daemon.stderr.contains(class), "{daemon:#?}");
}

#[test]
#[ignore = "needs setpriv, CAP_SYS_RESOURCE and root"]
fn a_run_reports_the_right_and_the_limit_of_its_class() {
    let _machine = machine();
    let public = Public::new();
    for (limit, handlers) in [(99, 60), (62, 60), (20, 18), (5, 3)] {
        let done = public.start(limit, "run spec.toml --duration 300ms --json").finish();
        let line = format!(
            "upcall: real-time class, handlers at priority {handlers}, by RLIMIT_RTPRIO {limit}"
        );
        assert!(done.stderr.lines().any(|said| said == line), "{limit}: {done:#?}");
        assert!(truth(&done.json(), "platform.real_time"), "{limit}: {done:#?}");
    }
    let done = public.start(4, "run spec.toml --duration 300ms --json").finish();
    assert!(
        done.stderr.contains("RLIMIT_RTPRIO is 4, expected 62 or more (5 for lower"),
        "{done:#?}"
    );
    assert!(!truth(&done.json(), "platform.real_time"), "{done:#?}");
}

#[test]
#[ignore = "needs setpriv, unshare and root"]
fn setcap_is_not_suggested_where_it_cannot_work() {
    let _machine = machine();
    let public = Public::new();
    let script =
        "mkdir nosuid && mount -t tmpfs -o nosuid tmpfs nosuid && cp upcall nosuid || exit 9
        $as_user nosuid/upcall run spec.toml --duration 300ms
        $as_user --no-new-privs ./upcall run spec.toml --duration 300ms";
    let done = Running::start(&mut public.mounts(script)).finish();
    for part in ["nosuid/upcall cannot grant it (its filesystem is mounted nosuid)", "no_new_privs"]
    {
        assert!(done.stderr.contains(part), "no `{part}`: {done:#?}");
    }
    assert!(!done.stderr.contains("sudo setcap"), "{done:#?}");
    assert!(done.stderr.contains("- rtprio 62"), "{done:#?}");
}

/// The script makes a group that the user may write, if this machine has groups for CPUs at all,
/// and starts a program outside of it and inside.
#[test]
#[ignore = "needs setpriv and root"]
fn a_user_has_programs_in_a_delegated_group_and_is_told_elsewhere_what_is_missing() {
    let _machine = machine();
    let public = Public::new();
    let script = "
        $as_user ./upcall exec --share 20% -- touch tmp/outside 2> tmp/told
        echo \"outside $?\"
        for root in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do
            group=$root/upcall-test-$$
            mkdir $group 2> /dev/null || continue
            if [ -e $group/cpu.shares ] || [ -e $group/cpu.weight ]; then
                chown -R 59431 $group
                echo $$ > $group/cgroup.procs
                $as_user ./upcall exec --share 20% --json -- touch tmp/inside 2> tmp/report
                echo \"inside $?\"
                echo $$ > $root/cgroup.procs
            fi
            for _ in $(seq 100); do
                rmdir $group 2> /dev/null && break
                sleep 0.1
            done
            [ -e tmp/report ] && break
        done
    ";
    let done = Running::start(&mut public.shell(0, script)).finish();
    assert!(done.stdout.starts_with("outside 2\n"), "{done:#?}");
    let told = fs::read_to_string(public.temporary.join("told")).expect("the script wrote it");
    assert!(told.contains("nothing was run") && told.contains("group"), "{told}");
    assert!(!public.temporary.join("outside").exists());
    let Ok(report) = fs::read_to_string(public.temporary.join("report")) else {
        return support::skipped("no group with the controller `cpu` can be made here");
    };
    assert!(done.stdout.ends_with("inside 0\n"), "{done:#?} {report}");
    let last = report.lines().last().unwrap_or_default();
    let report: Value = serde_json::from_str(last).expect("a report");
    assert!(truth(&report, "admitted") && truth(&report, "kept_to_end"));
    assert!(public.temporary.join("inside").exists());
}
