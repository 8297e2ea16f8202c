//! The pure core of Upcall: it makes every scheduling decision and performs no action.
//!
//! The core uses no clock, thread, system call or randomness. Time is an argument. Everything that
//! happens comes in as a [`scheduler::Input`]; everything to do goes out as a
//! [`scheduler::Command`]. Two drivers run its scheduler: the runtime, alone or under the daemon,
//! and the simulator. The daemon uses admission. To find out why something was scheduled, read this
//! crate and no other.
//!
//! | module | what it decides or describes |
//! |---|---|
//! | [`time`] | instants and lengths of time |
//! | [`activity`] | the parameters of anything that is scheduled |
//! | [`qos`] | how a user's specification becomes those parameters |
//! | [`policy`] | which ready activity runs first |
//! | [`scheduler`] | what one CPU does next |
//! | [`admission`] | whether a set keeps every deadline, and on which CPU each activity runs |
//! | [`discipline`] | which policy goes with which admission test, by name |
//! | [`cost`] | the observed cost of a PDU |
//! | [`events`] | which handler is invoked next, with which events of a channel; when frames are shown |
//! | [`record`] | the facts about a finished job |
//! | [`trace`] | every call of the core and its answer, and a replay of them |

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
