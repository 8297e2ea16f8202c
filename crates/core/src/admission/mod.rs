//! Admission: whether a set keeps every deadline, and on which CPU each activity runs.
//!
//! `upcall plan` calls this module. So does the runtime when it creates an activity (`rts_creat`,
//! rtu-1995 §6), and any code that needs the worst responses of the activities that run. Admission
//! decides from numbers alone and starts nothing.
//!
//! | file | content |
//! |---|---|
//! | `platform`, `cpu`, `load` | the machine, the reservations on one CPU, and how much they are |
//! | `reservations` | all CPUs: reserve, release, report |
//! | `same_cpu` | places on the CPU of another activity |
//! | `screen` | which test admits under which policy |
//! | `response_time` | the exact test: worst response under delayed preemption |
//! | [`dws`] | the test of DWS: the exact demand-bound test, and delay bounds |
//! | `bounds` | the three sufficient tests, reported beside the exact one |
//! | `utilization` | sums of shares of a CPU, compared without rounding |
//! | `verdict` | all tests of one CPU, and which of them decides |
//! | `ps` | the tests for proportional share |
//! | `dwcs` | the tests for windows |
//! | `event_server` | the share of a CPU's event server |
//! | `isolation`, `ahead` | what users may take from each other beyond their reservations |
//! | `hint` | one change that would make a refused activity fit |
//! | `reweigh` | another claim of a reserved activity |
//! | [`program`] | shares of programs below the handlers |
//! | `refusal`, `test_result` | the reason for a refusal, and the outcome of a test |
//!
//! Activities are assigned to CPUs first-fit: each goes to the first CPU, in the order given, on
//! which the exact test passes for all activities that would be there. An activity may ask for the
//! CPU of another one that has its place already. Then only that CPU is tried.

mod ahead;
mod bounds;
mod cpu;
mod dwcs;
pub mod dws;
mod event_server;
mod hint;
mod isolation;
mod load;
mod platform;
pub mod program;
mod ps;
mod refusal;
mod reservations;
mod response_time;
mod reweigh;
mod same_cpu;
mod screen;
mod test_result;
#[cfg(test)]
mod tests;
mod utilization;
mod verdict;

pub use crate::share::Share;
pub use cpu::ReservationId;
pub use hint::Hint;
pub use isolation::Isolation;
pub use load::CpuLoad;
pub use platform::Platform;
pub use refusal::{Reason, Refusal};
pub use reservations::{Reservation, Reservations, Spot};
pub use screen::AdmissionTest;
pub(crate) use screen::Test;
pub use test_result::TestResult;
