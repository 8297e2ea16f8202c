//! The pure core of Upcall: what decides, and nothing that acts.
//!
//! It knows no clock, no thread, no system call and no randomness: time is an
//! argument, and everything that happens comes in as an [`scheduler::Input`]
//! and goes out as a [`scheduler::Command`]. Three drivers run
//! it: the in-process runtime, the daemon and the simulator. Whoever wants to
//! know why something was scheduled reads this crate and no other.
//!
//! | module | what it decides |
//! |---|---|
//! | [`time`] | what an instant and a length of time are |
//! | [`activity`] | the parameters of anything that is scheduled |
//! | [`qos`] | from what a user says to those parameters |
//! | [`admission`] | whether a set keeps every deadline, and where each activity runs |
//! | [`policy`] | who outranks whom |
//! | [`scheduler`] | what one CPU does next |
//! | [`cost`] | what a PDU costs, as observed |
//! | [`events`] | which handler is invoked next, with which events of a channel |
//! | [`record`] | what is known of a finished job |
//! | [`trace`] | what crossed the interface, and the same again |

#![forbid(unsafe_code)]

pub mod activity;
pub mod admission;
pub mod cost;
mod debug;
pub mod discipline;
pub mod events;
mod heap;
pub mod policy;
pub mod qos;
pub mod record;
pub mod scheduler;
mod share;
pub mod time;
pub mod trace;
