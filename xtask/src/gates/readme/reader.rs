//! The accounts that run the commands, each with a home of its own.
//!
//! Root starts each command in new namespaces of mounts and processes. In these:
//!
//! - The toolchain is at `/media/rust`, and `/etc/passwd` has one user more.
//! - The reader's home is mounted over the home of the user who runs this program. At another path
//!   cargo would compile every library again, because the path of its registry would differ.
//! - `/tmp` and `/run` belong to the reader, and all its shells share them. A command finds no
//!   daemon of the machine and leaves no socket there.
//!
//! All mounts, and all processes that a command leaves behind, end with the command. The host gets
//! no user, no mount, and no file outside of the target directory. Without root the commands run in
//! the account of the user who runs this program.
//!
//! The environment holds only `HOME`, `USER`, `LOGNAME`, `SHELL`, `LANG` and `PATH`, so there is no
//! `XDG_RUNTIME_DIR`. `CARGO_HOME` is set too if cargo's folder is not in the home. Cargo's folder
//! holds a copy of the registry, except in the account of the user who runs this program.

use crate::child;
use crate::gate::Failure;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// User and group number of the ordinary account. No file on the host has this number.
pub const ORDINARY_ID: u32 = 54_321;
/// Where the commands in namespaces find the toolchain.
const TOOLCHAIN: &str = "/media/rust";
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long a command may take to end after an interrupt.
const KILL_AFTER: &str = "--kill-after=15";
/// Sets the namespace up, and runs the command after its first seven arguments. The shell stays,
/// because the first process of a namespace must wait for processes that lost their parent.
const ENTER: &str = r#"
home=$1 toolchain=$2 passwd=$3 seen_home=$4 seen_toolchain=$5 seen_cargo_home=$6 own=$7
shift 7
mount -t tmpfs -o mode=755 reader /media
mkdir "$seen_toolchain" /media/home /media/tmp /media/run
mount --bind -o ro "$toolchain" "$seen_toolchain"
mount --bind "$passwd" /etc/passwd
# The home may be in /tmp, and the list of name servers in /run.
mount --bind "$home" /media/home
mount --bind "$own/tmp" /media/tmp
mount --bind "$own/run" /media/run
name_servers=$(readlink -f /etc/resolv.conf) || name_servers=
[ ! -f "$name_servers" ] || cp "$name_servers" /media/name_servers
mount --bind /media/tmp /tmp
mount --bind /media/run /run
mkdir -p "$seen_home"
if [ -f /media/name_servers ] && [ ! -f "$name_servers" ]; then
    mkdir -p "$(dirname "$name_servers")"
    mv /media/name_servers "$name_servers"
fi
if [ "$seen_cargo_home" != "$seen_home/.cargo" ]; then
    mkdir -p "$seen_cargo_home"
    mount --bind /media/home/.cargo "$seen_cargo_home"
fi
mount --bind /media/home "$seen_home"
umount /media/home /media/tmp /media/run
cd "$seen_home/upcall"
status=0
"$@" || status=$?
exit $status
"#;

/// An account on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// Root.
    Root,
    /// A new user without any right.
    Ordinary,
    /// The account that runs this program, if it is not root.
    Present,
}

impl Account {
    /// The name of the account in reports, and the name of its home.
    pub fn name(self) -> &'static str {
        match self {
            Account::Root => "root",
            Account::Ordinary => "user",
            Account::Present => "present-user",
        }
    }
}

/// An account with its home, in which the folder `upcall` is a clone of the project.
#[derive(Debug)]
pub struct Reader {
    /// The account whose home this is.
    pub account: Account,
    /// Its home as this program sees it.
    pub home: PathBuf,
    /// Its home as its commands see it: the path of the home of the user who runs this program.
    pub seen_home: PathBuf,
    /// The toolchain's folder, with `bin/cargo`.
    pub toolchain: PathBuf,
}

impl Reader {
    /// The clone as this program sees it.
    pub fn clone_folder(&self) -> PathBuf {
        self.home.join("upcall")
    }

    /// Runs `script` in the clone by `sh -e`, and interrupts it after `limit`. The exit status is
    /// 124 after an interrupt, and 137 if the command had to be killed.
    pub fn shell(&self, script: &str, limit: Duration) -> Command {
        self.command(self.account, script, limit)
    }

    /// The same, but `script` runs in the reader's clone as root if this program does.
    pub fn shell_of_root(&self, script: &str, limit: Duration) -> Command {
        let account = if self.account == Account::Present { self.account } else { Account::Root };
        self.command(account, script, limit)
    }

    fn command(&self, account: Account, script: &str, limit: Duration) -> Command {
        let mut command = match account {
            Account::Present => {
                let mut command = Command::new("env");
                command.current_dir(self.clone_folder());
                command
            }
            Account::Root | Account::Ordinary => {
                let mut command = self.namespaces();
                if account == Account::Ordinary {
                    let id = ORDINARY_ID;
                    command.args(["prlimit", "--rtprio=0:0", "--nice=0:0"]);
                    command.args(["--memlock=8388608:8388608", "--", "setpriv"]);
                    command.args([format!("--reuid={id}"), format!("--regid={id}")]);
                    command.args(["--clear-groups", "--inh-caps=-all", "--"]);
                }
                command.arg("env");
                command
            }
        };
        command.arg("-i").args(self.environment(account));
        command.args(["timeout", "--signal=INT", KILL_AFTER, &limit.as_secs().to_string()]);
        command.args(["sh", "-e", "-c", script]).stdin(Stdio::null());
        command
    }

    /// A command in new namespaces. It runs the command that the caller adds as further arguments.
    fn namespaces(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-e", "-c", ENTER, "sh"]);
        command.arg(&self.home).arg(&self.toolchain).arg(self.passwd());
        command.arg(&self.seen_home).arg(TOOLCHAIN).arg(child::cargo_home());
        command.arg(self.own_folders());
        command
    }

    /// The variables of the reader's shell.
    fn environment(&self, account: Account) -> Vec<String> {
        let (home, toolchain) = match account {
            Account::Present => (self.home.as_path(), self.toolchain.as_path()),
            Account::Root | Account::Ordinary => (&*self.seen_home, Path::new(TOOLCHAIN)),
        };
        let cargo_home = child::cargo_home();
        let cargo_home = (cargo_home != home.join(".cargo"))
            .then(|| format!("CARGO_HOME={}", cargo_home.display()));
        let user = match account {
            Account::Root => "root".to_owned(),
            Account::Ordinary => "reader".to_owned(),
            Account::Present => std::env::var("USER").unwrap_or_else(|_| "reader".to_owned()),
        };
        let variables = [
            format!("HOME={}", home.display()),
            format!("PATH={}/bin:{SYSTEM_PATH}", toolchain.display()),
            format!("USER={user}"),
            format!("LOGNAME={user}"),
            "SHELL=/bin/sh".to_owned(),
            "LANG=C.UTF-8".to_owned(),
        ];
        variables.into_iter().chain(cargo_home).collect()
    }

    /// The folder with `/tmp` and `/run` of the reader.
    fn own_folders(&self) -> PathBuf {
        self.home.with_extension("own")
    }

    /// Makes `/tmp` and `/run` of the reader, empty.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn make_own_folders(&self) -> Result<(), Failure> {
        let own = self.own_folders();
        let failed = |error| Failure(format!("{} cannot be made: {error}", own.display()));
        if own.exists() {
            std::fs::remove_dir_all(&own).map_err(failed)?;
        }
        for (name, mode) in [("tmp", 0o1777), ("run", 0o755)] {
            let folder = own.join(name);
            std::fs::create_dir_all(&folder).map_err(failed)?;
            std::fs::set_permissions(&folder, Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(())
    }

    fn passwd(&self) -> PathBuf {
        self.home.with_extension("passwd")
    }

    /// Writes the `/etc/passwd` of the namespace: the host's, with the ordinary account added.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn write_passwd(&self) -> Result<(), Failure> {
        let failed = |error| Failure(format!("/etc/passwd cannot be copied: {error}"));
        let users = std::fs::read_to_string("/etc/passwd").map_err(failed)?;
        let id = ORDINARY_ID;
        let one_more = format!("reader:x:{id}:{id}::{}:/bin/sh\n", self.seen_home.display());
        std::fs::write(self.passwd(), users + &one_more).map_err(failed)
    }

    /// Tries whether the reader's programs may have the class `SCHED_FIFO`.
    pub fn is_realtime(&self) -> bool {
        let mut attempt = self.shell("chrt -f 1 true", Duration::from_secs(10));
        attempt.stdout(Stdio::null()).stderr(Stdio::null());
        attempt.status().is_ok_and(|status| status.success())
    }
}

/// The accounts that can run commands here, that with the fewest rights first, and why the others
/// cannot.
pub fn accounts() -> (Vec<Account>, Option<String>) {
    if !child::is_root() {
        let why = "root and a new user: only root can run commands in these accounts";
        return (vec![Account::Present], Some(why.to_owned()));
    }
    let mut attempt = Command::new("unshare");
    attempt.args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-e", "-c"]);
    attempt.arg("mount -t tmpfs reader /media");
    match attempt.stdout(Stdio::null()).output() {
        Ok(output) if output.status.success() => (vec![Account::Ordinary, Account::Root], None),
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            let why = format!("a new user: no namespaces: {} ({})", message.trim(), output.status);
            (vec![Account::Present], Some(why))
        }
        Err(error) => (vec![Account::Present], Some(format!("a new user: `unshare`: {error}"))),
    }
}

/// Whether the command ended after it was interrupted at its limit.
pub fn was_interrupted(status: std::process::ExitStatus) -> bool {
    status.code() == Some(124)
}

/// Whether the command had to be killed after the interrupt.
pub fn was_killed(status: std::process::ExitStatus) -> bool {
    status.code() == Some(137) || status.signal() == Some(9)
}
