//! Names of services, and where their sockets are.

use std::path::{Path, PathBuf};

use super::errors::ChannelOpenError;
use crate::folder;

/// Bytes of the longest name.
const NAME_BYTES_MAX: usize = 64;

/// Where the sockets of services are: `$UPCALL_SERVICES`; else `upcall` in `$XDG_RUNTIME_DIR`
/// if that folder is the user's; else `/run/upcall` for root, and for others `upcall` in the
/// folder `upcall-UID` where temporary files are. Used only if it is this user's, or root's,
/// and nobody else may write to it.
pub fn services_folder() -> PathBuf {
    folder::variable("UPCALL_SERVICES").unwrap_or_else(|| folder::user_folder().join("upcall"))
}

/// That nobody else can have put the socket there.
pub(super) fn check_folder(path: &Path) -> Result<(), ChannelOpenError> {
    let Some(above) = path.parent() else { return Ok(()) };
    folder::check(above).map_err(ChannelOpenError::Folder)
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
    let Some(above) = path.parent() else { return Ok(()) };
    folder::make(above).map_err(ChannelOpenError::Folder)
}
