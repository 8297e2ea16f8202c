//! Why the early drop could not be attached.

use crate::OsError;
use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use rustix::thread::CapabilitySet;
use std::fmt;
use std::io;

/// Why the early drop could not be attached. Only `Verifier` has more than a few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyDropError {
    /// A right was missing. [`crate::grant::how_to_drop_early`] says how to grant it.
    Rights(OsError),
    /// The interface, or one above it, has another XDP program. This crate replaces none.
    Busy(OsError),
    /// The kernel refused the program. The text is the end of the verifier's log.
    Verifier(OsError, String),
    /// The compiled program is not the expected one: it lacks this part. A fault of the build.
    Object(&'static str),
    /// Any other error of a system call.
    Os(OsError),
}

impl fmt::Display for EarlyDropError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EarlyDropError::Rights(error) => {
                write!(f, "{error}: an XDP program needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
            }
            EarlyDropError::Busy(error) => {
                write!(f, "{error}: the interface has another XDP program")
            }
            EarlyDropError::Verifier(error, log) => {
                write!(f, "{error}: the kernel refused the program of the early drop: {log}")
            }
            EarlyDropError::Object(part) => {
                write!(f, "the compiled program of the early drop lacks `{part}`")
            }
            EarlyDropError::Os(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EarlyDropError {}

impl From<OsError> for EarlyDropError {
    fn from(error: OsError) -> Self {
        match error.is_permission() {
            true => EarlyDropError::Rights(error),
            false => EarlyDropError::Os(error),
        }
    }
}

/// Bytes of the end of the verifier's log that an error keeps. The end has the reason.
const LOG_BYTES_MAX: usize = 500;

pub(super) fn of_object(error: EbpfError) -> EarlyDropError {
    match error {
        EbpfError::MapError(error) => of_map(error),
        EbpfError::ProgramError(error) => of_program(error),
        EbpfError::FileError { error, .. } => OsError::of_io("open(/sys)")(error).into(),
        _ => EarlyDropError::Object("a form that aya reads"),
    }
}

pub(super) fn of_map(error: MapError) -> EarlyDropError {
    match error {
        MapError::CreateError { io_error, .. } => {
            OsError::of_io("bpf(BPF_MAP_CREATE)")(io_error).into()
        }
        MapError::SyscallError(error) => OsError::of_io(error.call)(error.io_error).into(),
        MapError::IoError(error) => OsError::of_io("bpf(map)")(error).into(),
        _ => EarlyDropError::Object("a map of this type and size"),
    }
}

pub(super) fn of_program(error: ProgramError) -> EarlyDropError {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            let error = OsError::of_io("bpf(BPF_PROG_LOAD)")(io_error);
            match lacks_rights() {
                true => EarlyDropError::Rights(error),
                false => EarlyDropError::Verifier(error, end_of(&verifier_log.to_string())),
            }
        }
        ProgramError::SyscallError(error) => OsError::of_io(error.call)(error.io_error).into(),
        ProgramError::MapError(error) => of_map(error),
        ProgramError::IOError(error) => OsError::of_io("bpf(program)")(error).into(),
        _ => EarlyDropError::Object("an XDP program"),
    }
}

/// The error of `operation` on a map that exists.
pub(super) fn os_of_map(operation: &'static str, error: MapError) -> OsError {
    let error = match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::IoError(error) => error,
        MapError::OutOfBounds { .. } => io::Error::from_raw_os_error(libc::EINVAL),
        MapError::KeyNotFound | MapError::ElementNotFound => {
            io::Error::from_raw_os_error(libc::ENOENT)
        }
        error => io::Error::other(error),
    };
    OsError::of_io(operation)(error)
}

/// Whether the thread lacks a right that loading needs. Without `CAP_PERFMON` the verifier refuses
/// to add numbers to pointers into a packet, also with EACCES, so the errno does not tell.
fn lacks_rights() -> bool {
    let needed = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
    let held = rustix::thread::capabilities(None).map_or(CapabilitySet::all(), |of| of.effective);
    !held.contains(needed) && !held.contains(CapabilitySet::SYS_ADMIN)
}

fn end_of(log: &str) -> String {
    let from = log.len().saturating_sub(LOG_BYTES_MAX);
    let from = (from..log.len()).find(|&at| log.is_char_boundary(at)).unwrap_or(log.len());
    log[from..].trim().to_owned()
}
