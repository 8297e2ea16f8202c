//! One line of text for a user: how to grant a program the rights that real-time guarantees need.
//!
//! Code calls this after such a right was refused. The line names the running file, because the
//! program may be any that uses the library. Reads `/proc`, `/etc/passwd` and the mount of that
//! file. Allocates.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::schedule::Band;

/// Programs that run code of other files: their names start with one of these.
const INTERPRETERS: [&str; 26] = [
    "python", "pypy", "perl", "ruby", "node", "deno", "bun", "java", "lua", "php", "guile", "bash",
    "dash", "zsh", "ksh", "busybox", "tclsh", "julia", "octave", "dotnet", "mono", "beam.smp",
    "qemu", "gdb", "ld-linux", "ld-musl",
];

/// How to grant a missing right, in words for a user. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Why a capability of the program's file is no way: "setcap on ... cannot grant it (...)".
    pub obstacle: Option<String>,
    /// The ways that are left: "grant it with ...".
    pub grant: String,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(obstacle) = &self.obstacle {
            write!(f, "{obstacle}; ")?;
        }
        f.write_str(&self.grant)
    }
}

/// The remedy for this process and its user.
pub fn how_to_grant() -> Remedy {
    match program() {
        Some(program) => how_to_grant_to(&program),
        None => without_file(),
    }
}

/// The remedy for a program that may not drop packets early ([`crate::early_drop`]). No limit of a
/// user gives these rights.
pub fn how_to_drop_early() -> Remedy {
    how_to_grant_capabilities("cap_bpf,cap_net_admin,cap_perfmon")
}

/// The remedy for a program that may not read and write frames ([`crate::af_xdp`],
/// [`crate::frame_file`]). No limit of a user gives these rights.
pub fn how_to_use_frames() -> Remedy {
    how_to_grant_capabilities("cap_net_admin,cap_net_raw")
}

/// The remedy for a program that lacks `capabilities`, which no limit gives.
fn how_to_grant_capabilities(capabilities: &str) -> Remedy {
    let ambient = capabilities.to_uppercase().replace(',', " ");
    let in_service = format!("in a systemd service with `AmbientCapabilities={ambient}`");
    let ways = |file: Option<&Path>| match file {
        Some(file) => format!(
            "grant it with `sudo setcap {capabilities}+ep {}` or {in_service}",
            shell_word(file)
        ),
        None => format!("grant it {in_service}"),
    };
    match program() {
        Some(file) => match obstacle(&file) {
            Some(obstacle) => Remedy {
                obstacle: Some(format!(
                    "setcap on {} cannot grant it ({obstacle})",
                    shell_word(&file)
                )),
                grant: ways(None),
            },
            None => Remedy { obstacle: None, grant: ways(Some(&file)) },
        },
        None => Remedy { obstacle: None, grant: ways(None) },
    }
}

/// As [`how_to_grant`], for the file `program`, another program of this user.
pub fn how_to_grant_to(program: &Path) -> Remedy {
    let limits = by_limits(&user_name());
    match obstacle(program) {
        Some(obstacle) => {
            let path = shell_word(program);
            Remedy {
                obstacle: Some(format!("setcap on {path} cannot grant it ({obstacle})")),
                grant: format!("grant it with {limits}"),
            }
        }
        None => Remedy {
            obstacle: None,
            grant: format!("grant it with {} or with {limits}", by_capability(program)),
        },
    }
}

/// The file that this process runs; `None` without `/proc`.
pub fn program() -> Option<PathBuf> {
    let link = fs::read_link("/proc/self/exe").ok()?;
    Some(file_of(link, Path::new("/proc/self/exe")))
}

/// The path in `link`, which the kernel made for the file `runs`. The kernel appends " (deleted)"
/// if the file was removed or replaced. A file name may also end that way.
fn file_of(link: PathBuf, runs: &Path) -> PathBuf {
    let file = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let is_there = file(&link).is_some_and(|there| Some(there) == file(runs));
    match link.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) if !is_there => PathBuf::from(OsStr::from_bytes(path)),
        _ => link,
    }
}

fn without_file() -> Remedy {
    Remedy { obstacle: None, grant: format!("grant it with {}", by_limits(&user_name())) }
}

fn by_capability(program: &Path) -> String {
    let path = shell_word(program);
    let again = if is_built_by_cargo(program) { " (again after each build)" } else { "" };
    let linked = match is_found_by_variable() {
        true => " (link it with -Wl,-rpath before: the loader then ignores LD_LIBRARY_PATH)",
        false => "",
    };
    format!("`sudo setcap cap_sys_nice,cap_ipc_lock+ep {path}`{again}{linked}")
}

/// Whether this process loaded the C library from a folder that `LD_LIBRARY_PATH` names. The loader
/// ignores that variable for a file with capabilities (ld.so(8), secure-execution mode). Then the
/// program would not start any more.
fn is_found_by_variable() -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&named).filter_map(|folder| fs::canonicalize(folder).ok());
    let mut libraries = folders.map(|folder| folder.join("libupcall_c.so"));
    libraries.any(|library| maps.contains(&*library.to_string_lossy()))
}

/// The lines for limits.conf(5), and the settings for a systemd service.
fn by_limits(user: &str) -> String {
    let priority = Band::WHOLE.watchdog();
    format!(
        "the lines `{user} - rtprio {priority}` and `{user} - memlock unlimited` in \
         /etc/security/limits.d/upcall.conf and a new login, or in a systemd service with \
         LimitRTPRIO={priority} and LimitMEMLOCK=infinity"
    )
}

/// The reason why a capability of the file would not reach this process, or would also reach other
/// programs.
fn obstacle(program: &Path) -> Option<&'static str> {
    let name = program.file_name()?.to_string_lossy();
    if is_interpreter(&name) {
        return Some("it is an interpreter: every program that it runs would have the right");
    }
    let mount = rustix::fs::statvfs(program).ok();
    if mount.is_some_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOSUID)) {
        return Some("its filesystem is mounted nosuid");
    }
    if rustix::thread::no_new_privs() == Ok(true) {
        return Some("this process may not gain rights: no_new_privs is set");
    }
    None
}

fn is_interpreter(name: &str) -> bool {
    INTERPRETERS.iter().any(|interpreter| {
        // `python3.11` is an interpreter, `perlin` is not.
        let rest = name.strip_prefix(interpreter);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphabetic()))
    })
}

/// Cargo keeps `.fingerprint` beside its output, or one folder up for examples and tests.
fn is_built_by_cargo(program: &Path) -> bool {
    program.ancestors().skip(1).take(2).any(|folder| folder.join(".fingerprint").is_dir())
}

/// A path as a shell reads it, in one line and without control characters. So the name of a folder
/// cannot control the terminal that shows the message. `$'...'` works in bash and zsh.
fn shell_word(path: &Path) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    match path.to_str() {
        Some(text) if text.bytes().all(is_plain) => text.into(),
        Some(text) if text.chars().all(is_visible) => {
            format!("'{}'", text.replace('\'', r"'\''")).into()
        }
        _ => format!("$'{}'", escaped(path.as_os_str().as_bytes())).into(),
    }
}

/// Whether the character is neither a control character, nor one that changes the text direction
/// (Unicode, `Bidi_Control`) or ends a line.
fn is_visible(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' | '\u{061c}' | '\u{2028}' | '\u{2029}');
    !character.is_control() && !turns
}

/// `bytes` for `$'...'`: bytes that are not visible ASCII become octal.
fn escaped(bytes: &[u8]) -> String {
    let one = |&byte: &u8| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    bytes.iter().map(one).collect()
}

/// The name of this process's user, or `:UID`, which limits.conf(5) also accepts.
fn user_name() -> String {
    let uid = fs::metadata("/proc/self").map_or(0, |found| found.uid());
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(uid, &users).unwrap_or_else(|| format!(":{uid}"))
}

/// Reads passwd(5): `name:password:uid:...`.
fn name_of(uid: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_text_names_the_running_file_and_warns_of_rebuilds() {
        let said = how_to_grant().to_string();
        let file = std::env::current_exe().unwrap();
        assert!(said.contains(file.to_str().unwrap()), "{said}");
        if !said.contains("cannot grant it") {
            assert!(said.contains("(again after each build)"), "{said}");
        }
        for part in ["- rtprio 62", "- memlock unlimited", "LimitRTPRIO=62"] {
            assert!(said.contains(part), "no `{part}`: {said}");
        }
    }

    #[test]
    fn the_text_for_an_installed_program_omits_builds() {
        let said = how_to_grant_to(Path::new("/usr/bin/env")).to_string();
        assert!(said.contains("/usr/bin/env"), "{said}");
        assert!(!said.contains("after each build"), "{said}");
    }

    #[test]
    fn an_interpreter_gets_no_capability() {
        for path in
            ["/usr/bin/python3.11", "/usr/bin/perl", "/usr/bin/zsh", "/lib64/ld-linux-x86-64.so.2"]
        {
            let said = how_to_grant_to(Path::new(path)).to_string();
            assert!(said.contains("interpreter") && said.contains("rtprio"), "{said}");
            assert!(!said.contains("sudo setcap"), "{said}");
        }
        for name in ["perlin", "javac", "upcall", "nodes"] {
            assert!(!is_interpreter(name), "{name}");
        }
    }

    #[test]
    fn a_path_can_be_copied_into_a_shell() {
        assert_eq!(shell_word(Path::new("/usr/bin/upcall")), "/usr/bin/upcall");
        assert_eq!(shell_word(Path::new("/my files/it's")), r"'/my files/it'\''s'");
        assert_eq!(shell_word(Path::new("/bücher/-x")), "'/bücher/-x'");
    }

    #[test]
    fn a_path_is_harmless_to_a_terminal_and_valid_in_a_shell() {
        let names: [&[u8]; 5] =
            [b"a\x1b[2Jb", b"a\nsudo rm -rf b", b"\xff'\\", "\u{202e}x".as_bytes(), b"\xc2\x9b2J"];
        for name in names {
            let path = Path::new("/tmp").join(OsStr::from_bytes(name));
            let word = shell_word(&path);
            assert!(word.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{word:?}");
            let printed = Command::new("bash").arg("-c").arg(format!("printf %s {word}")).output();
            // Without bash, only the assertion above applies.
            if let Ok(printed) = printed {
                assert_eq!(printed.stdout, path.as_os_str().as_bytes(), "{word}");
            }
        }
    }

    #[test]
    fn a_removed_file_is_distinguished_from_a_misleading_name() {
        let folder = std::env::temp_dir().join(format!("upcall-grant-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (plain, marked) = (folder.join("program"), folder.join("program (deleted)"));
        for path in [&plain, &marked] {
            fs::write(path, "").unwrap();
        }
        assert_eq!(file_of(marked.clone(), &marked), marked);
        assert_eq!(file_of(marked.clone(), &plain), plain);
        assert_eq!(file_of(plain.clone(), &plain), plain);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_user_without_a_name_is_named_by_number() {
        let users = "root:x:0:0::/root:/bin/sh\nbroken\nalice:x:1000:1000::/:/bin/sh\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("alice"));
        assert_eq!(name_of(7, users), None);
    }
}
