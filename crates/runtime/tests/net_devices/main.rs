//! One suite of checks for every device: order, loss, sizes, bounds, headroom, VLAN tags, full
//! rings, damaged frames, the account of frames, and the end of an interface.
//!
//! A test of a real interface runs in a process with a network namespace of its own, which goes
//! with the process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod choice;
mod faults;
mod files;
mod frames;
mod interfaces;
mod packet_ring;
mod suite;
mod system_calls;
mod udp;
mod wire;
mod xdp;
