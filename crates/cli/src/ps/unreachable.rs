//! Why a daemon's socket cannot be connected to, and what helps.
//!
//! The system tells an error number only. Owner and mode of the socket, and of the
//! folders above it, tell the rest.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is in the way at `socket`, in a line, where connecting failed with `error`. Reads
/// the state of the files; allocates.
pub fn unreachable(socket: &Path, error: &io::Error) -> String {
    let path = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("no daemon: there is no socket {path}; `upcall daemon` starts one")
        }
        io::ErrorKind::ConnectionRefused => format!(
            "no daemon: the socket {path} is there, but the daemon that listened at it has \
             ended; `upcall daemon` starts another there"
        ),
        io::ErrorKind::PermissionDenied => {
            let (owner, needed) = match (closed_folder(socket), std::fs::metadata(socket)) {
                (Some((folder, of)), _) => (
                    of.uid(),
                    format!(
                        "folder {} belongs to user {} and has mode {:03o}; connecting needs the \
                         right to search it",
                        folder.display(),
                        of.uid(),
                        of.mode() & 0o777
                    ),
                ),
                (None, Ok(of)) => (
                    of.uid(),
                    format!(
                        "the socket belongs to user {} and has mode {:03o}; connecting needs the \
                         right to write to it",
                        of.uid(),
                        of.mode() & 0o777
                    ),
                ),
                (None, Err(error)) => return format!("{path}: {error}"),
            };
            format!(
                "{path}: {error}: {needed}; run this as user {owner} or as root, or let the \
                 daemon be started with --access everyone, where other users can reach its socket"
            )
        }
        _ => format!("{path}: {error}"),
    }
}

/// The first folder on the way to `socket` that this process may not search.
fn closed_folder(socket: &Path) -> Option<(&Path, std::fs::Metadata)> {
    let mut folders: Vec<&Path> = socket.ancestors().skip(1).collect();
    folders.reverse();
    let mut before: Option<(&Path, std::fs::Metadata)> = None;
    for folder in folders.into_iter().chain([socket]) {
        match std::fs::metadata(folder) {
            Ok(of) => before = Some((folder, of)),
            // What is in a folder cannot be looked at unless the folder can be searched.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return before,
            Err(_) => return None,
        }
    }
    None
}
