//! Why a connection to a daemon's socket failed, and what helps.
//!
//! The system returns only an error number. Owner and mode of the socket and of the folders above
//! it explain the error.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is wrong at `socket`, as one line, after connecting failed with `error`. Reads the state of
/// the files; allocates.
pub fn unreachable(socket: &Path, error: &io::Error) -> String {
    let path = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("no daemon: there is no socket {path}; `upcalld` starts one")
        }
        io::ErrorKind::ConnectionRefused => format!(
            "no daemon: the socket {path} is there, but the daemon that listened at it has \
             ended; `upcalld` starts another there"
        ),
        io::ErrorKind::PermissionDenied => format!("{path}: {error}: {}", missing_right(socket)),
        _ => format!("{path}: {error}"),
    }
}

/// The missing right, its owner, and how to get it.
fn missing_right(socket: &Path) -> String {
    // The folders above a relative path count, too.
    let socket = &std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let (what, needed, remedy, of) = match (closed_folder(socket), std::fs::metadata(socket)) {
        (Some((folder, of)), _) => {
            let remedy = "give the daemon a --socket in a folder that both users may search";
            (format!("folder {}", folder.display()), "search it", remedy, of)
        }
        (None, Ok(of)) => {
            let remedy = "start the daemon with --access everyone";
            ("the socket".to_owned(), "write to it", remedy, of)
        }
        (None, Err(error)) => return format!("its owner is not known: {error}"),
    };
    let (owner, mode) = (of.uid(), of.mode() & 0o777);
    let who = if owner == 0 { "root".to_owned() } else { format!("user {owner} or root") };
    format!(
        "{what} belongs to user {owner} and has mode {mode:03o}; connecting needs the right to \
         {needed}: run this as {who}, or {remedy}"
    )
}

/// The first folder on the path to `socket` that this process may not search.
fn closed_folder(socket: &Path) -> Option<(&Path, std::fs::Metadata)> {
    let mut folders: Vec<&Path> = socket.ancestors().skip(1).collect();
    folders.reverse();
    let mut before: Option<(&Path, std::fs::Metadata)> = None;
    for folder in folders.into_iter().chain([socket]) {
        match std::fs::metadata(folder) {
            Ok(of) => before = Some((folder, of)),
            // The entries of a folder cannot be inspected without the right to search the folder.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return before,
            Err(_) => return None,
        }
    }
    None
}
