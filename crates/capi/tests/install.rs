//! `install.sh` finds the libraries, and installs all files or none.
//!
//! The libraries here are files with a word in them. `tests/c.rs` uses real ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A temporary folder with the files of a build below it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(TempDir::new().unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Makes a build in `folder` whose libraries hold `word`.
    fn build(&self, folder: &str, word: &str) {
        fs::create_dir_all(self.path(folder)).unwrap();
        for library in ["libupcall_c.a", "libupcall_c.so"] {
            fs::write(self.path(folder).join(library), word).unwrap();
        }
    }

    /// The script, started in this folder.
    fn install(&self, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Output {
        let mut command = Command::new("sh");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh")).args(arguments);
        command.current_dir(self.0.path()).env_remove("DESTDIR").env_remove("CARGO_TARGET_DIR");
        command.env_remove("CARGO_BUILD_TARGET_DIR");
        change(&mut command);
        command.output().unwrap()
    }

    /// Every file below `folder` with its content, and every link with its target.
    fn files(&self, folder: &str) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let top = self.path(folder);
        let mut folders = vec![top.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&top).unwrap().display().to_string();
                if let Ok(target) = fs::read_link(&path) {
                    files.insert(name, format!("-> {}", target.display()));
                } else if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(name, fs::read_to_string(&path).unwrap());
                }
            }
        }
        files
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_installed(output: &Output, files: &BTreeMap<String, String>, word: &str) {
    assert!(output.status.success(), "{output:?}");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let library = format!("lib/libupcall_c.so.{VERSION}");
    let expected = [
        "include/upcall.h",
        "lib/libupcall_c.a",
        "lib/libupcall_c.so",
        "lib/libupcall_c.so.0",
        &library,
        "lib/pkgconfig/upcall.pc",
    ];
    assert_eq!(names, expected);
    assert_eq!((files["lib/libupcall_c.a"].as_str(), files[&library].as_str()), (word, word));
    assert_eq!(files["lib/libupcall_c.so"], "-> libupcall_c.so.0");
    assert_eq!(files["lib/libupcall_c.so.0"], format!("-> libupcall_c.so.{VERSION}"));
}

#[test]
fn it_takes_the_libraries_from_where_cargo_builds() {
    let place = Place::new();
    let prefix = place.path("usr");
    let prefix = prefix.to_str().unwrap();
    // From the environment, relative to the folder of both commands.
    place.build("by-variable/release", "variable");
    let done = place.install(&[prefix], |command| {
        command.env("CARGO_TARGET_DIR", "by-variable");
    });
    assert_installed(&done, &place.files("usr"), "variable");
    // From a configuration file, over an existing installation.
    place.build("by-configuration/release", "configuration");
    fs::create_dir(place.path(".cargo")).unwrap();
    let configuration = "[build]\ntarget-dir = \"by-configuration\"\n";
    fs::write(place.path(".cargo/config.toml"), configuration).unwrap();
    let done = place.install(&[prefix], |_| {});
    assert_installed(&done, &place.files("usr"), "configuration");
    // From the argument.
    place.build("said", "said");
    let done = place.install(&[prefix, place.path("said").to_str().unwrap()], |command| {
        command.env("CARGO_TARGET_DIR", "by-variable");
    });
    assert_installed(&done, &place.files("usr"), "said");
}

#[test]
fn a_packager_installs_below_destdir_and_the_files_name_the_prefix() {
    let place = Place::new();
    place.build("out", "word");
    let done = place.install(&["/opt/up & call", "out"], |command| {
        command.env("DESTDIR", place.path("root"));
    });
    let files = place.files("root/opt/up & call");
    assert_installed(&done, &files, "word");
    let named = &files["lib/pkgconfig/upcall.pc"];
    assert!(named.contains("prefix=/opt/up & call\n"), "{named}");
    let mode = |path| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("root/opt/up & call/include/upcall.h"), 0o644);
    assert_eq!(mode("root/opt/up & call/lib/pkgconfig/upcall.pc"), 0o644);
    assert_eq!(mode("root/opt/up & call/lib/libupcall_c.so.0"), 0o755);
}

#[test]
fn what_is_missing_is_named_before_anything_is_made() {
    let place = Place::new();
    place.build("out", "word");
    fs::remove_file(place.path("out/libupcall_c.so")).unwrap();
    let prefix = place.path("usr");
    let done = place.install(&[prefix.to_str().unwrap(), "out"], |_| {});
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(said(&done).contains("out/libupcall_c.so is not there; `cargo build"), "{done:?}");
    assert!(!prefix.exists());
}

/// A search path that begins with a command `name`. The command works as the real one, except
/// that call number `fails` fails.
fn failing(place: &Place, name: &str, fails: usize) -> std::ffi::OsString {
    let folder = place.path("bin");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let script = format!(
        "#!/bin/sh\necho call >> {count}\n[ $(wc -l < {count}) -ne {fails} ] || exit 9\n\
         PATH=${{PATH#*:}} exec {name} \"$@\"\n",
        count = folder.join("count").display()
    );
    fs::write(folder.join(name), script).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    let mut path = folder.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    path
}

#[test]
fn a_step_that_fails_leaves_all_as_it_was() {
    let place = Place::new();
    place.build("first", "first");
    place.build("second", "second");
    let prefix = place.path("deep/usr");
    let prefix = prefix.to_str().unwrap();
    let steps: Vec<(&str, usize)> = (1..=6)
        .map(|call| ("mv", call))
        .chain((1..=3).map(|call| ("install", call)))
        .chain([("mktemp", 1), ("mkdir", 1), ("mkdir", 3), ("ln", 2), ("sed", 3)])
        .collect();
    // Without an earlier installation not even a folder is left.
    for &(name, call) in &steps {
        let path = failing(&place, name, call);
        let done = place.install(&[prefix, "first"], |command| {
            command.env("PATH", &path);
        });
        assert!(!done.status.success(), "{name} {call}: {done:?}");
        assert!(!place.path("deep").exists(), "{name} {call}: {:?}", place.files("deep"));
    }
    // An earlier installation is still there.
    let done = place.install(&[prefix, "first"], |_| {});
    assert_installed(&done, &place.files("deep/usr"), "first");
    let before = place.files("deep/usr");
    for (name, call) in steps.into_iter().filter(|step| *step != ("mkdir", 3)) {
        let path = failing(&place, name, call);
        let done = place.install(&[prefix, "second"], |command| {
            command.env("PATH", &path);
        });
        assert!(!done.status.success(), "{name} {call}: {done:?}");
        assert_eq!(place.files("deep/usr"), before, "{name} {call}");
    }
    // A folder is in the way.
    fs::remove_file(place.path("deep/usr/lib/libupcall_c.a")).unwrap();
    fs::create_dir(place.path("deep/usr/lib/libupcall_c.a")).unwrap();
    let before = place.files("deep/usr");
    let done = place.install(&[prefix, "second"], |_| {});
    assert!(said(&done).contains("lib/libupcall_c.a is a folder"), "{done:?}");
    assert_eq!(place.files("deep/usr"), before);
}

#[test]
fn a_link_to_a_folder_is_replaced_and_nothing_goes_into_that_folder() {
    let place = Place::new();
    place.build("out", "word");
    fs::create_dir(place.path("elsewhere")).unwrap();
    fs::create_dir_all(place.path("usr/lib")).unwrap();
    for link in ["libupcall_c.so", "libupcall_c.a"] {
        let link = place.path("usr/lib").join(link);
        std::os::unix::fs::symlink(place.path("elsewhere"), link).unwrap();
    }
    let prefix = place.path("usr");
    let prefix = prefix.to_str().unwrap();
    let before = place.files("usr");
    let path = failing(&place, "mv", 5);
    let done = place.install(&[prefix, "out"], |command| {
        command.env("PATH", &path);
    });
    assert!(!done.status.success(), "{done:?}");
    assert_eq!(place.files("usr"), before);
    let done = place.install(&[prefix, "out"], |_| {});
    assert_installed(&done, &place.files("usr"), "word");
    assert_eq!(place.files("elsewhere"), BTreeMap::new());
}

#[test]
fn a_second_signal_does_not_stop_what_the_first_one_undoes() {
    let place = Place::new();
    place.build("first", "first");
    place.build("second", "second");
    let prefix = place.path("usr");
    let prefix = prefix.to_str().unwrap();
    assert!(place.install(&[prefix, "first"], |_| {}).status.success());
    let before = place.files("usr");
    // Call 3 belongs to the installation, call 4 to its undoing.
    let path = failing(&place, "mv", usize::MAX);
    let count = place.path("bin/count");
    let script = format!(
        "#!/bin/sh\necho call >> {count}\ncase $(wc -l < {count}) in [34]) kill -TERM $PPID ;; \
         esac\nPATH=${{PATH#*:}} exec mv \"$@\"\n",
        count = count.display()
    );
    fs::write(place.path("bin/mv"), script).unwrap();
    let done = place.install(&[prefix, "second"], |command| {
        command.env("PATH", &path);
    });
    assert_eq!(done.status.code(), Some(130), "{done:?}");
    assert_eq!(place.files("usr"), before);
}

#[test]
fn the_search_path_of_cd_and_a_destination_like_an_option_change_nothing() {
    let place = Place::new();
    place.build("out", "word");
    fs::create_dir_all(place.path("other/capi")).unwrap();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new("sh");
    command.current_dir(crates).env("CDPATH", place.path("other")).env_remove("DESTDIR");
    command.arg("capi/install.sh").arg(place.path("usr")).arg(place.path("out"));
    assert_installed(&command.output().unwrap(), &place.files("usr"), "word");
    let done = place.install(&["/usr", "out"], |command| {
        command.env("DESTDIR", "-d");
    });
    assert_installed(&done, &place.files("-d/usr"), "word");
}

#[test]
fn pkg_config_gives_a_prefix_with_a_space_as_one_word() {
    let place = Place::new();
    place.build("out", "word");
    let prefix = place.path("my files");
    assert!(place.install(&[prefix.to_str().unwrap(), "out"], |_| {}).status.success());
    let named = &place.files("my files")["lib/pkgconfig/upcall.pc"];
    assert!(named.contains("\nCflags: -I\"${includedir}\"\n"), "{named}");
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(["--cflags", "upcall"]);
    // Without pkg-config there is no more to check.
    if let Ok(output) = command.output() {
        let flags = String::from_utf8_lossy(&output.stdout).into_owned();
        let word = prefix.join("include").display().to_string().replace(' ', "\\ ");
        assert_eq!(flags.trim(), format!("-I{word}"), "{output:?}");
    }
}

#[test]
fn it_says_how_it_is_called() {
    let place = Place::new();
    for flag in ["--help", "-h"] {
        let done = place.install(&[flag], |_| {});
        let help = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && help.contains("Usage: install.sh PREFIX"), "{done:?}");
        assert!(help.contains("DESTDIR") && help.contains("CARGO_TARGET_DIR"), "{help}");
    }
    for wrong in [&[][..], &["usr"], &["/usr", "a", "b"]] {
        let done = place.install(wrong, |_| {});
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(said(&done).contains("expected"), "{done:?}");
    }
    assert_eq!(place.files(""), BTreeMap::new());
}
