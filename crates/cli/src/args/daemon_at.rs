//! The daemon that a command asks.

use std::path::PathBuf;

/// The daemon to ask.
#[derive(Debug, clap::Args)]
pub struct DaemonAt {
    /// The daemon's socket. Default: $UPCALL_SOCKET, or else your own daemon's socket, or
    /// /run/upcall.sock if only the system's daemon answers.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}
