//! The pages of the facade name no private crate and no private module.
//!
//! The gate `doc` calls this after rustdoc has built the pages. rustdoc itself accepts an example
//! that says `use upcall_runtime::`, because it compiles in the crate where the example stands.

use crate::gate::Failure;
use std::path::Path;

/// Words that a program which depends on `upcall` cannot write, or that its reader cannot look up.
const PRIVATE: [&str; 5] =
    ["upcall_core::", "upcall_runtime::", "upcall_shm::", "upcall_sys::", "module’s head"];

/// A line for each private word on each page below `pages`.
///
/// # Errors
/// If a page cannot be read, or if there is no page.
pub fn findings(pages: &Path) -> Result<Vec<String>, Failure> {
    let unreadable = |path: &Path, error| Failure(format!("{}: {error}", path.display()));
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut folders = vec![pages.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| unreadable(&folder, error))? {
            let path = entry.map_err(|error| unreadable(&folder, error))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let page =
                    std::fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
                looked_at += 1;
                let words = private_words(&page);
                found.extend(words.map(|word| format!("{}: says `{word}`", path.display())));
            }
        }
    }
    found.sort();
    match looked_at {
        0 => Err(Failure(format!("{}: no page", pages.display()))),
        _ => Ok(found),
    }
}

/// The words of [`PRIVATE`] that a reader of the page sees.
fn private_words(page: &str) -> impl Iterator<Item = &'static str> {
    let text = text_of(page);
    PRIVATE.into_iter().filter(move |word| text.contains(word))
}

/// The text of a page without its tags. The tags name the crates of the source.
fn text_of(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    for piece in page.split('<') {
        text.push_str(piece.split_once('>').map_or(piece, |(_, text)| text));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    /// `cargo doc --open` at the root opens the pages of the library.
    #[test]
    fn the_root_documents_the_library_and_not_the_command() {
        let metadata = Workspace::load().unwrap().metadata;
        let members = metadata.workspace_default_packages();
        let targets = members.iter().flat_map(|package| &package.targets);
        let documented =
            targets.filter(|target| target.doc && (target.is_lib() || target.is_bin()));
        let names: Vec<&str> = documented.map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["upcall"]);
    }

    #[test]
    fn private_words_are_found_in_the_text_and_not_in_tags() {
        let page = "<p>use <b>upcall_runtime</b>::Batch; see the module’s head</p>\
            <a href=\"../src/upcall_core/time.rs.html\" title=\"upcall_core::time\">Source</a>";
        let found: Vec<_> = private_words(page).collect();
        assert_eq!(found, ["upcall_runtime::", "module’s head"]);
        assert_eq!(private_words("<p>use upcall::Batch;</p>").count(), 0);
    }

    #[test]
    fn a_folder_without_pages_is_a_failure() {
        let empty = std::env::temp_dir().join(format!("xtask-pages-{}", std::process::id()));
        std::fs::create_dir(&empty).unwrap();
        let found = findings(&empty);
        std::fs::remove_dir(&empty).unwrap();
        assert!(found.is_err(), "{found:?}");
    }
}
