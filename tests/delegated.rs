//! `upcall exec` for an ordinary user: in a control group that is delegated to the user it works,
//! and elsewhere it says exactly what is missing.
//!
//! Root makes the delegated group, as systemd does with `Delegate=cpu`: the folder and the files
//! that move processes and divide belong to the user, and the user's shell is in it. The machine
//! may have version 1 or 2 of control groups. What is missing makes the tests skipped.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use upcall_sys::cgroup::{Cgroup, Hierarchy, Version};

use support::{Done, Running, UPCALL, UPCALLD, folder, number, skipped, text, truth, wait_until};

/// `nobody`.
const USER: u32 = 65_534;

/// The commands and a folder for the socket, which the user may enter.
struct Public(tempfile::TempDir);

impl Public {
    fn new() -> Self {
        let folder = folder();
        for (program, name) in [(UPCALL, "upcall"), (UPCALLD, "upcalld")] {
            fs::copy(program, folder.path().join(name)).unwrap();
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let temporary = folder.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        chown(&temporary, Some(USER), Some(USER)).unwrap();
        Public(folder)
    }

    /// Runs `exec` as the user, without any right, in the group with these files of processes.
    fn exec(&self, groups: &[PathBuf], words: &str) -> Running {
        let enter: String = groups
            .iter()
            .map(|of| format!("echo $$ > '{}'/cgroup.procs; ", of.display()))
            .collect();
        let script = format!(
            "{enter}exec setpriv --reuid {USER} --regid {USER} --clear-groups --bounding-set -all \
             --inh-caps -all ./upcall exec --json {words}"
        );
        let mut command = Command::new("env");
        command.args(["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.arg(format!("TMPDIR={}", self.0.path().join("tmp").display()));
        command.args(["sh", "-c", &script]).current_dir(self.0.path());
        Running::start(&mut command)
    }
}

/// A group that is delegated to the user.
struct Delegated {
    above: Cgroup,
    group: Cgroup,
}

impl Delegated {
    /// `None`: this process may make none, and the test is skipped.
    fn new(name: &str) -> Option<Self> {
        let above = Hierarchy::find().and_then(|hierarchy| hierarchy.writable());
        let created = above.and_then(|above| {
            above.divide()?;
            let group = above.create(&format!("upcall-{name}-{}", std::process::id()))?;
            Ok((above, group))
        });
        match created {
            Ok((above, group)) => {
                let delegated = Delegated { above, group };
                delegated.give();
                Some(delegated)
            }
            Err(error) => {
                skipped(&error.to_string());
                None
            }
        }
    }

    /// Gives the files to the user that systemd gives (systemd.resource-control(5), `Delegate=`).
    fn give(&self) {
        let files = ["", "cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"];
        for file in files.map(|file| self.group.folder().join(file)) {
            if file.exists() {
                chown(file, Some(USER), Some(USER)).unwrap();
            }
        }
    }

    fn folder(&self) -> Vec<PathBuf> {
        vec![self.group.folder().to_owned()]
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for _ in 0..1_000 {
            for pid in self.group.processes().unwrap_or_default() {
                let _ = self.above.add(pid);
            }
            if self.group.remove().is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(std::thread::panicking(), "groups are left in {:?}", self.group);
    }
}

/// The object on the last line of standard error.
#[track_caller]
fn report(done: &Done) -> Value {
    let last = done.stderr.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {done:#?}"))
}

/// Whether this process may change its user, and so make the situations of this file.
fn is_root() -> bool {
    let is_root = upcall_sys::process::effective_user() == 0;
    if !is_root {
        skipped("needs root, which makes the delegated group");
    }
    is_root
}

#[test]
#[ignore = "needs root and setpriv"]
fn an_ordinary_user_gives_shares_in_a_delegated_group() {
    let _machine = support::machine();
    if !is_root() {
        return;
    }
    let Some(delegated) = Delegated::new("delegated") else { return };
    let public = Public::new();
    let script = "read group < /proc/self/cgroup; cat /proc/self/cgroup; id -u; exit 7";
    let mut shell = fs::File::create(public.0.path().join("program")).unwrap();
    std::io::Write::write_all(&mut shell, script.as_bytes()).unwrap();
    let done = public.exec(&delegated.folder(), "--share 45% -- sh ./program").finish();
    done.assert_code(&[7]);
    let report = report(&done);
    assert!(truth(&report, "admitted") && truth(&report, "kept_to_end"), "{report:#}");
    assert_eq!(report["share"], 0.45);
    // Without the right to the real-time class the kernel's own tick keeps the quantum.
    assert!(!truth(&report, "promise.ticker"), "{report:#}");
    assert!(number(&report, "promise.quantum_ns") >= 1_000_000);
    // The program was in a group of its own inside the delegated one, as the user.
    let inside = delegated.group.folder().file_name().unwrap().to_str().unwrap();
    let own = |line: &&str| line.contains(&format!("/{inside}/upcall-")) && line.ends_with("/p1");
    assert!(done.stdout.lines().any(|line| own(&line)), "{done:#?}");
    assert_eq!(done.stdout.lines().last(), Some("65534"));
    // Nothing is left once its daemon has ended.
    wait_until("no group", || delegated.group.children() == Ok(Vec::new()));
}

#[test]
#[ignore = "needs root and setpriv"]
fn an_ordinary_user_without_a_delegated_group_is_told_what_to_write() {
    let _machine = support::machine();
    if !is_root() {
        return;
    }
    let public = Public::new();
    let done = public.exec(&[], "--share 45% -- touch tmp/it-ran").finish();
    done.assert_code(&[2]);
    let refused = report(&done);
    assert_eq!(text(&refused, "cause"), "no groups");
    assert!(!truth(&refused, "admitted"));
    assert!(!public.0.path().join("tmp/it-ran").exists());
    let reason = text(&refused, "reason");
    let file = reason.strip_prefix("no right to write ").and_then(|rest| rest.split(':').next());
    let file = Path::new(file.unwrap_or_default());
    assert!(file.is_absolute() && file.exists(), "{reason}");
    for part in ["needs root", "delegated to this user", "Delegate=cpu", "systemd-run"] {
        assert!(reason.contains(part), "no `{part}` in: {reason}");
    }
    assert!(done.stderr.contains("nothing was run"), "{done:#?}");
}

/// The user may move processes there, and not make groups.
#[test]
#[ignore = "needs root and setpriv"]
fn a_group_that_is_delegated_in_part_names_the_file_that_is_missing() {
    let _machine = support::machine();
    if !is_root() {
        return;
    }
    let Some(delegated) = Delegated::new("in-part") else { return };
    let folder = delegated.group.folder();
    let file = match delegated.group.version() {
        Version::V1 => folder.join("cgroup.procs"),
        Version::V2 => folder.to_owned(),
    };
    chown(&file, Some(0), Some(0)).unwrap();
    let public = Public::new();
    let done = public.exec(&delegated.folder(), "--share 45% -- true").finish();
    done.assert_code(&[2]);
    let refused = report(&done);
    let reason = text(&refused, "reason");
    assert!(reason.starts_with(&format!("no right to write {}:", file.display())), "{reason}");
    assert_eq!(text(&refused, "cause"), "no groups");
}
