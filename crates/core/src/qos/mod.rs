//! QoS specification: the parameters that the user of a stream states (rtu-1996 §2).
//!
//! There are four application classes, each with the parameters that a user of that class knows.
//! [`mapping`] derives everything else: "applications can only specify high level parameters, and
//! other low level parameters must be derived automatically" (rtu-1996 §2). Spec files and programs
//! write specifications; only the mapping reads them. [`map`] checks all values.
//!
//! Declared values are upper limits: the highest rate, the largest PDU, the longest cost. Nothing
//! is promised to PDUs beyond the limits. [`mapping`] describes how they affect the promise.

pub mod mapping;
mod spec;

pub use mapping::{MapError, Mapping, map};
pub use spec::{Class, Flow, Rate, StreamSpec};
