use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

fn printed(reader: &Reader, script: &str) -> String {
    let output = reader.shell(script, Duration::from_secs(20)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn reader(account: Account) -> Reader {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("upcall-reader-{}-{}-{number}", account.name(), std::process::id());
    let home = std::env::temp_dir().join(name);
    std::fs::create_dir_all(home.join("upcall")).unwrap();
    std::fs::create_dir_all(home.join(".cargo")).unwrap();
    let reader = Reader { account, home, seen_home: child::own_home(), toolchain: "/usr".into() };
    reader.write_passwd().unwrap();
    reader.make_own_folders().unwrap();
    reader
}

fn remove(reader: &Reader) {
    std::fs::remove_dir_all(&reader.home).unwrap();
    std::fs::remove_file(reader.passwd()).unwrap();
    std::fs::remove_dir_all(reader.own_folders()).unwrap();
}

#[test]
fn the_present_user_has_a_home_and_no_other_variable() {
    let reader = reader(Account::Present);
    let home = reader.home.display().to_string();
    let script = "pwd; env | cut -d= -f1 | grep -v -e PWD -e OLDPWD -e ^_ | sort | tr '\\n' ' '";
    let expected = format!("{home}/upcall\nCARGO_HOME HOME LANG LOGNAME PATH SHELL USER");
    assert_eq!(printed(&reader, script), expected);
    remove(&reader);
}

#[test]
fn a_command_is_interrupted_at_its_limit() {
    let reader = reader(Account::Present);
    let status = reader.shell("sleep 30", Duration::from_secs(1)).status().unwrap();
    assert!(was_interrupted(status) && !was_killed(status), "{status}");
    remove(&reader);
}

#[test]
#[ignore = "needs root and setpriv"]
fn the_ordinary_user_has_no_rights_and_leaves_nothing_behind() {
    let reader = reader(Account::Ordinary);
    let folder = reader.clone_folder();
    std::os::unix::fs::chown(&folder, Some(ORDINARY_ID), Some(ORDINARY_ID)).unwrap();
    let script = "id -un; pwd; ulimit -r; grep CapEff /proc/self/status; touch here; \
        test -x /media/rust/bin/env; (sleep 1000.54321 >/dev/null 2>&1 &); \
        touch /tmp/left-by-reader-54321; ls \"$HOME\"";
    let shown = printed(&reader, script);
    let lines: Vec<&str> = shown.lines().collect();
    let place = child::own_home().join("upcall").display().to_string();
    assert_eq!(lines[..3], ["reader", &*place, "0"]);
    assert_eq!(lines[3], "CapEff:\t0000000000000000");
    assert!(!reader.is_realtime());
    assert!(folder.join("here").exists() && !Path::new(TOOLCHAIN).exists());
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    assert!(!users.contains("\nreader:"), "the host has a new user");
    if !child::own_home().starts_with("/tmp") {
        assert!(!Path::new("/tmp/left-by-reader-54321").exists(), "the host has a new file");
    }
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let command = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let mut commands = processes.filter_map(command);
    assert!(!commands.any(|line| line == b"sleep\x001000.54321\0"), "a process is left");
    remove(&reader);
}

#[test]
#[ignore = "needs root and setpriv"]
fn files_in_tmp_and_run_are_not_on_the_host() {
    let reader = reader(Account::Root);
    let name = format!("upcall-left-{}", std::process::id());
    for folder in ["/tmp", "/run"] {
        let found = printed(
            &reader,
            &format!("(ls -A {folder} | grep upcall) || true; touch {folder}/{name}"),
        );
        assert_eq!(found, "", "a command finds what is on the host");
        let left = Path::new(folder).join(&name);
        let is_left = left.exists();
        let _ = std::fs::remove_file(&left);
        assert!(!is_left, "{}", left.display());
        // A command in another shell finds it.
        printed(&reader, &format!("test -f {folder}/{name}"));
    }
    // Name servers and the home are where they were, wherever that is.
    let script = "cat /etc/resolv.conf; cd \"$HOME/upcall\"; touch here";
    let servers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    assert_eq!(printed(&reader, &format!("{script} || true")), servers.trim());
    assert!(reader.clone_folder().join("here").exists());
    remove(&reader);
}
