//! Messages and descriptors between processes of this machine: Unix sockets of kind
//! `SOCK_SEQPACKET`.
//!
//! The daemon listens, and processes that attach to it connect. A message arrives whole, with the
//! descriptors it was sent with, or not at all. The kernel identifies the process at the other end.
//! Only [`Listener::bind`] can block; for all else, wait with [`crate::readiness`]. The content of
//! the messages is defined elsewhere. See unix(7).
//!
//! A received descriptor is an [`OwnedFd`](std::os::fd::OwnedFd) at once, and closed on exec. So no
//! later error leaves one open.

mod connection;
mod error;
mod folder;
mod listener;
mod passed;
mod peer;
#[cfg(test)]
mod tests;

pub use connection::{Connection, FDS_MAX, Received};
pub use error::ReceiveError;
pub use listener::{Access, Listener};
pub use peer::Credentials;
