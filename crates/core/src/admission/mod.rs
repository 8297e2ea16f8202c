//! Admission: whether a set keeps every deadline, and where each activity runs.
//!
//! Called by `upcall plan`, by the runtime when an activity is created
//! (`rts_creat`, rtu-1995 §6), and by whoever wants the worst response of what
//! runs already. It decides from numbers alone and starts nothing.
//!
//! | file | what it holds |
//! |---|---|
//! | `response_time` | the exact test: worst response under deferred preemption |
//! | [`dws`] | the same for DWS: the exact demand-bound test, and delay bounds |
//! | `bounds` | the three sufficient tests, reported beside it |
//! | `utilization` | sums of shares of a CPU, compared without rounding |
//! | `verdict` | all tests of one CPU, and which of them decides |
//! | `ps` | the tests for proportional share |
//! | `dwcs` | the same for windows |
//! | `event_server` | what a CPU's event server may spend |
//! | `hint` | one change that would make a refused activity fit |
//! | `reweigh` | another claim of one that is reserved |
//! | `refusal` | what is said of a refusal |
//!
//! Activities are spread over the CPUs first-fit: each goes to the first CPU,
//! in the order given, where the exact test passes for all that would be there.

mod bounds;
mod cpu;
mod dwcs;
pub mod dws;
mod event_server;
mod hint;
mod platform;
mod ps;
mod refusal;
mod reservations;
mod response_time;
mod reweigh;
mod screen;
mod test_result;
#[cfg(test)]
mod tests;
mod utilization;
mod verdict;

pub use crate::share::Share;
pub use cpu::ReservationId;
pub use hint::Hint;
pub use platform::Platform;
pub use refusal::{Reason, Refusal};
pub use reservations::{CpuLoad, Reservation, Reservations, Spot};
pub use screen::AdmissionTest;
pub(crate) use screen::Test;
pub use test_result::TestResult;
