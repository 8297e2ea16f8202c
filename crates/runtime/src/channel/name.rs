//! Names of services, and where their sockets are.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ChannelOpenError;

/// Bytes of the longest name.
const NAME_BYTES_MAX: usize = 64;

/// Where the sockets of services are: `$UPCALL_SERVICES`; else `upcall` in `$XDG_RUNTIME_DIR`; else `/run/upcall` for
/// root, and for others `upcall-UID` where temporary files are. Used only if it is this user's, or root's, and
/// nobody else may write to it.
pub fn services_folder() -> PathBuf {
    let named = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("UPCALL_SERVICES")
        .or_else(|| named("XDG_RUNTIME_DIR").map(|folder| folder.join("upcall")))
        .unwrap_or_else(|| match user() {
            0 => PathBuf::from("/run/upcall"),
            user => std::env::temp_dir().join(format!("upcall-{user}")),
        })
}

/// Number of this user.
fn user() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |found| found.uid())
}

/// That nobody else can have put the sockets there.
pub(super) fn check_folder(path: &Path) -> Result<(), ChannelOpenError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let failed = |error| ChannelOpenError::Folder(folder.to_owned(), error);
    let found = std::fs::symlink_metadata(folder).map_err(failed)?;
    let is_ours = found.uid() == user() || found.uid() == 0;
    if found.is_dir() && is_ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(failed(ErrorKind::PermissionDenied.into()))
}

/// The socket of the service `name`.
pub(super) fn path_of(name: &str) -> Result<PathBuf, ChannelOpenError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(is_plain);
    if !is_name {
        return Err(ChannelOpenError::Name(name.to_owned()));
    }
    Ok(services_folder().join(name))
}

/// Makes the folder of `path`, for this user alone, if it is not there.
pub(super) fn make_folder(path: &Path) -> Result<(), ChannelOpenError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(|error| ChannelOpenError::Folder(folder.to_owned(), error))?;
    check_folder(path)
}
