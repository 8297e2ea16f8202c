//! Control groups of the controller `cpu`: the weights by which the fair class divides a CPU.
//!
//! The daemon gives programs their shares with it. A [`Hierarchy`] says where the groups are, in
//! version 2 (cgroups(7), `cpu.weight`) or in version 1 (`cpu.shares`). A [`Cgroup`] is a group.
//! Weights have one unit for both: millionths of the greatest weight.
//!
//! In version 1 CPU time is counted by another controller, `cpuacct`, which may have a hierarchy of
//! its own. Then a [`Cgroup`] has a folder in each, and makes all changes in both.
//!
//! No path is assumed: `/proc/self/mountinfo` and `/proc/self/cgroup` say where everything is.

mod error;
mod group;
mod hierarchy;
mod mounts;

pub use error::CgroupError;
pub use group::{Cgroup, Version, WEIGHT_MAX_PPM};
pub use hierarchy::Hierarchy;
