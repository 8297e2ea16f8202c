//! The network as a scheduled activity, without the network: wire formats, destinations, quotas,
//! queues and the order of packets (proportional-share-1998 §4, decision 0024).
//!
//! The crate uses no clock, system call or randomness. Time is an argument, and so are random
//! words. The runtime and the daemon use it beside their devices, the simulator in virtual time.
//! The wire formats are those of `smoltcp`; what happens to a packet is decided here.
//!
//! | module | what it holds |
//! |---|---|
//! | [`flow`] | destinations, and the slot of each |
//! | [`packet`] | headers of a frame, their checks, and frames that answer |
//! | [`fragments`] | where fragments go that have no port |
//! | [`host`] | the IP host of an interface: ARP, neighbor discovery, echo, errors, path MTU, groups |
//! | [`quota`] | how many packets of a destination pass |
//! | [`credit`] | how many pass, in step with what a receiver takes |
//! | [`queues`] | bounded queues and their counts |
//! | [`schedule`] | which packet is processed next |
//! | [`transmit`] | which flow sends next |
//! | [`weight`] | what the protocol activity needs of the CPU |
//! | [`link`] | a wire with faults |
//!
//! ```
//! use upcall_core::time::{Instant, Span};
//! use upcall_proto::quota::Quota;
//! use upcall_proto::schedule::{PacketSchedule, Service};
//!
//! // A receiver of 200 packets a second, under a flood of 1000 a second.
//! let mut schedule = PacketSchedule::new(Service::Eligible, 1);
//! schedule.bind(0, Quota::of_receiver(Span::from_millis(5), 0, 1, Span::from_millis(10)));
//! let mut taken = 0;
//! for ms in 0..1_000 {
//!     let now = Instant::ZERO + Span::from_millis(ms);
//!     let _dropped_if_full = schedule.push(0, ms, now);
//!     if ms % 10 == 0 {
//!         schedule.begin(4);
//!         while schedule.next(now).is_some() {
//!             taken += 1;
//!         }
//!     }
//! }
//! assert_eq!((taken, schedule.counts(0).dropped_in_all()), (199, 798));
//! ```

#![forbid(unsafe_code)]

pub mod credit;
pub mod flow;
pub mod fragments;
pub mod host;
pub mod link;
pub mod packet;
pub mod queues;
pub mod quota;
pub mod schedule;
mod seeded;
pub mod transmit;
pub mod weight;
