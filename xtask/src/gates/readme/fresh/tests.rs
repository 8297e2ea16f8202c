use super::*;

#[test]
fn only_what_is_compiled_of_others_is_taken() {
    let folder = std::env::temp_dir().join(format!("upcall-fresh-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let workspace = Workspace::load().unwrap();
    let others = ["libc-0123", "liblibc-0123.rlib", "serde_json-4567.d", "upcaller-89ab"];
    let ours = ["upcall-0123", "libupcall_core-4567.rlib", "upcall-cli-89ab", "stream-cdef.d"];
    for name in others.iter().chain(&ours) {
        std::fs::write(folder.join(name), "").unwrap();
    }
    let mut taken: Vec<String> = compiled_of_others(&folder, &names(&workspace))
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    taken.sort();
    assert_eq!(taken, others);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(compiled_of_others(&folder, &BTreeSet::new()).is_empty(), "nothing built is no error");
}
