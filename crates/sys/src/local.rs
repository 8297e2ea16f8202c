//! Messages and descriptors between processes of this machine: Unix sockets of
//! kind `SOCK_SEQPACKET`.
//!
//! Called by the daemon, which listens, and by who attaches to it. A message
//! arrives whole or not at all, with the descriptors it was sent with, and the
//! kernel says who is at the other end. But for [`Listener::bind`] nothing here blocks: wait with
//! [`crate::readiness`]. What the messages say is the business of others. See
//! unix(7).
//!
//! A received descriptor is an [`OwnedFd`] from the moment it exists, and closed
//! on exec: whatever goes wrong afterwards, none is left open.

mod connection;
mod error;
mod listener;
mod passed;
mod peer;
#[cfg(test)]
mod tests;

pub use connection::{Connection, FDS_MAX, Received};
pub use error::ReceiveError;
pub use listener::{Access, Listener};
pub use peer::Credentials;
