//! The folder that holds a user's sockets: those of the user's daemon and services.
//!
//! [`crate::domain`] and [`crate::channel`] use it. A user who may write to such a folder can put a
//! socket of their own there. So a folder is used only if no other user may write to it.

use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use upcall_sys::process::effective_user;

/// Why a folder cannot hold sockets.
#[non_exhaustive]
pub enum FolderError {
    /// Another user owns it, others may write to it, or it is no folder.
    NotPrivate {
        /// The folder.
        folder: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its mode: the kind of file and the permissions (inode(7)).
        mode: u32,
    },
    /// The folder could not be made or inspected.
    Os {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::NotPrivate { folder, uid, mode } => write!(
                f,
                "folder {} cannot be trusted with sockets: user {uid} owns it, its mode is {:o}; \
                 expected a folder of user {} or root that nobody else may write to; \
                 XDG_RUNTIME_DIR may name another",
                folder.display(),
                mode & 0o7777,
                effective_user()
            ),
            FolderError::Os { folder, error } => {
                write!(f, "folder {} cannot hold sockets: {error}", folder.display())
            }
        }
    }
}

upcall_core::debug_as_display!(FolderError);

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FolderError::NotPrivate { .. } => None,
            FolderError::Os { error, .. } => Some(error),
        }
    }
}

/// The value of an environment variable that is set and not empty, as a path.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `$XDG_RUNTIME_DIR` if it is a folder of this user. Otherwise `/run` for root, and `upcall-UID`
/// in the folder for temporary files for other users. The folder need not exist yet.
pub(crate) fn user_folder() -> PathBuf {
    variable("XDG_RUNTIME_DIR").filter(|folder| is_own(folder)).unwrap_or_else(|| {
        match effective_user() {
            0 => PathBuf::from("/run"),
            user => std::env::temp_dir().join(format!("upcall-{user}")),
        }
    })
}

/// Whether `folder` is an absolute path of a folder that belongs to this user. A relative path
/// names another folder for each program (the XDG Base Directory Specification says to ignore it).
fn is_own(folder: &Path) -> bool {
    folder.is_absolute()
        && std::fs::metadata(folder)
            .is_ok_and(|found| found.is_dir() && found.uid() == effective_user())
}

/// Makes `folder` and the missing folders above it, for this user alone. A folder that exists must
/// be private.
pub(crate) fn make(folder: &Path) -> Result<(), FolderError> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(folder);
    // If a file of another kind is at the path, the check says so.
    check(folder).map_err(|refused| match made {
        Err(error) if !folder.exists() => FolderError::Os { folder: folder.to_owned(), error },
        _ => refused,
    })
}

/// Checks that only this user and root can have put a socket into `folder`, or `folder` into
/// [`user_folder`].
pub(crate) fn check(folder: &Path) -> Result<(), FolderError> {
    let above = user_folder();
    if folder != above && folder.starts_with(&above) {
        check_one(&above)?;
    }
    check_one(folder)
}

fn check_one(folder: &Path) -> Result<(), FolderError> {
    let folder = folder.to_owned();
    match std::fs::symlink_metadata(&folder) {
        Err(error) => Err(FolderError::Os { folder, error }),
        Ok(found) => {
            let (uid, mode) = (found.uid(), found.mode());
            let is_ours = uid == effective_user() || uid == 0;
            match found.is_dir() && is_ours && mode & 0o022 == 0 {
                true => Ok(()),
                false => Err(FolderError::NotPrivate { folder, uid, mode }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_made_for_this_user_alone() {
        let beside = tempfile::tempdir().unwrap();
        let folder = beside.path().join("one/two");
        make(&folder).unwrap();
        for made in [&folder, &beside.path().join("one")] {
            assert_eq!(std::fs::metadata(made).unwrap().mode() & 0o7777, 0o700, "{made:?}");
        }
        make(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o720, 0o702, 0o1777] {
            std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            let refused = make(folder.path()).unwrap_err();
            assert!(matches!(refused, FolderError::NotPrivate { .. }), "{refused:?}");
            let said = refused.to_string();
            let name = folder.path().to_str().unwrap();
            assert!(said.contains(name) && said.contains(&format!("{mode:o}")), "{said}");
            // Any user can take a name in /tmp first: the message names the remedy.
            assert!(said.contains("XDG_RUNTIME_DIR"), "{said}");
        }
    }

    #[test]
    fn only_an_absolute_path_names_a_folder_of_this_user() {
        let folder = tempfile::tempdir_in(".").unwrap();
        assert!(is_own(&folder.path().canonicalize().unwrap()));
        let name = Path::new(folder.path().file_name().unwrap());
        assert!(name.is_dir() && !is_own(name), "{name:?}");
    }

    #[test]
    fn a_symbolic_link_is_refused() {
        let beside = tempfile::tempdir().unwrap();
        let link = beside.path().join("link");
        std::os::unix::fs::symlink(beside.path(), &link).unwrap();
        assert!(matches!(make(&link), Err(FolderError::NotPrivate { .. })));
    }

    #[test]
    fn a_file_in_its_place_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(make(file.path()), Err(FolderError::NotPrivate { .. })));
        assert!(matches!(make(&file.path().join("in it")), Err(FolderError::Os { .. })));
    }
}
