//! QoS specification: what a user of a stream says (rtu-1996 §2).
//!
//! Four application classes, each with the parameters a user of that class
//! knows. [`mapping`] derives everything else: "applications can only specify
//! high level parameters, and other low level parameters must be derived
//! automatically" (rtu-1996 §2). Written by spec files and by programs; read by
//! the mapping only. Nothing here is checked before [`map`] checks it.
//!
//! What is declared is a most: the rate is the highest that may come, the PDU
//! the largest, the cost the longest. What comes beyond it is not promised
//! anything, and what it does to the promise stands in [`mapping`].

pub mod mapping;
mod spec;

pub use mapping::{MapError, Mapping, map};
pub use spec::{Class, Flow, Rate, StreamSpec};
