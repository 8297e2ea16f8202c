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
        io::ErrorKind::PermissionDenied => format!("{path}: {error}: {}", missing_right(socket)),
        _ => format!("{path}: {error}"),
    }
}

/// Which right is missing, who has it, and how to get it.
fn missing_right(socket: &Path) -> String {
    // Of a relative path the folders above it count, too.
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
