//! Names of services, and the paths of their sockets.

use std::path::{Path, PathBuf};

use super::errors::ChannelOpenError;
use crate::folder;

/// The length of the longest name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The folder with the sockets of services: `$UPCALL_SERVICES`; else `upcall` in `$XDG_RUNTIME_DIR`
/// if that folder is the user's; else `/run/upcall` for root. Other users get `upcall` in the
/// folder `upcall-UID` among the temporary files. The folder is used only if it belongs to this
/// user or to root, and no other user may write to it.
pub fn services_folder() -> PathBuf {
    folder::variable("UPCALL_SERVICES").unwrap_or_else(|| folder::user_folder().join("upcall"))
}

/// Checks that no other user can have put the socket there.
pub(super) fn check_folder(path: &Path) -> Result<(), ChannelOpenError> {
    let Some(above) = path.parent() else { return Ok(()) };
    folder::check(above).map_err(ChannelOpenError::Folder)
}

/// The path of the socket of the service `name`.
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

/// Creates the folder of `path`, for this user alone, if it does not exist.
pub(super) fn make_folder(path: &Path) -> Result<(), ChannelOpenError> {
    let Some(above) = path.parent() else { return Ok(()) };
    folder::make(above).map_err(ChannelOpenError::Folder)
}
