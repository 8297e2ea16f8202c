use super::*;

#[test]
fn only_compiled_libraries_are_copied() {
    let folder = std::env::temp_dir().join(format!("upcall-fresh-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let workspace = Workspace::load().unwrap();
    let others = ["libc-0123", "liblibc-0123.rlib", "serde_json-4567.d", "upcaller-89ab"];
    let ours = ["upcall-0123", "libupcall_core-4567.rlib", "upcall-cli-89ab", "stream-cdef.d"];
    for name in others.iter().chain(&ours) {
        std::fs::write(folder.join(name), "").unwrap();
    }
    let mut taken: Vec<String> = compiled_libraries(&folder, &names(&workspace))
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    taken.sort();
    assert_eq!(taken, others);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(
        compiled_libraries(&folder, &BTreeSet::new()).is_empty(),
        "a missing folder is no error"
    );
}

/// All files below `folder`.
fn files(folder: &Path) -> Vec<std::fs::Metadata> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .flat_map(|entry| match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path()),
            false => vec![entry.metadata().unwrap()],
        })
        .collect()
}

#[test]
fn a_clone_shares_no_file_with_the_repository() {
    use std::os::unix::fs::MetadataExt;
    let folder = std::env::temp_dir().join(format!("upcall-clone-{}", std::process::id()));
    let (from, into) = (folder.join("from"), folder.join("into"));
    std::fs::create_dir_all(&from).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(&from).args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.invalid",
        ]);
        child::succeed(command.args(arguments)).unwrap();
    };
    git(&["init", "--quiet"]);
    git(&["commit", "--quiet", "--allow-empty", "-m", "one"]);
    clone(&from, &into).unwrap();
    let objects = files(&into.join(".git/objects"));
    assert!(!objects.is_empty());
    assert!(objects.iter().all(|object| object.nlink() == 1), "{objects:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_next_clone_has_what_the_one_before_compiled() {
    let folder = std::env::temp_dir().join(format!("upcall-build-{}", std::process::id()));
    let [before, next] = ["before", "next"].map(|name| Reader {
        account: Account::Present,
        home: folder.join(name),
        seen_home: child::own_home(),
        toolchain: "/usr".into(),
    });
    let compiled = |reader: &Reader| reader.clone_folder().join("target/release/upcall");
    assert!(take_build(&before, &next).is_err(), "there is no build");
    std::fs::create_dir_all(compiled(&before).parent().unwrap()).unwrap();
    std::fs::create_dir_all(next.clone_folder()).unwrap();
    std::fs::write(compiled(&before), "").unwrap();
    take_build(&before, &next).unwrap();
    assert!(!compiled(&before).exists() && compiled(&next).exists());
    std::fs::remove_dir_all(&folder).unwrap();
}
