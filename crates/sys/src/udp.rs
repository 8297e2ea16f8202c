//! UDP sockets, read and written in batches.
//!
//! The runtime's streams use it. A handler takes the arrived datagrams with one system call and
//! never blocks. The kernel's drop counter tells how many datagrams came while the buffer was full.
//! Threads that may block can use [`UdpSocket::wait_readable`]. See udp(7), socket(7).

mod address;
mod bind;
mod buffer;
mod control;
mod counter;
mod gro;
mod group;
mod icmp;
mod interface;
mod limits;
mod receive;
mod send;
mod socket;
#[cfg(test)]
mod tests;

pub use buffer::receive_buffer_bytes;
pub(crate) use gro::separate_datagrams;
pub(crate) use icmp::is_icmp;
pub use interface::Interface;
pub use limits::{BATCH_MAX, PAYLOAD_BYTES_MAX};
pub use receive::{Datagram, ReceiveBatch};
pub use send::{PushError, SendBatch};
pub use socket::UdpSocket;
