//! Memory shared between processes: a sealed memfd, mapped.
//!
//! A process that shares state with a child or a peer uses this module. The parent creates a
//! mapping and passes its descriptor on. The child maps the same pages. The crate `upcall-shm`
//! gives the words a meaning. In this module they are plain words.
//!
//! The file must stay as long as its mappings. A process that touches a page beyond the file's end
//! gets SIGBUS. So the creator seals the file against every change of size. The receiver of a file
//! checks first its seals, then its size, and only then maps it. See memfd_create(2), and
//! F_ADD_SEALS in fcntl(2).
//!
//! Some pages have one writer, and other processes must only read them. A read-only descriptor does
//! not enforce that. Its holder may open `/proc/self/fd/N` again for writing, because a memfd
//! belongs to its creator with mode 0666 (Linux 6.18: also as another user). A seal against new
//! writers enforces it:
//!
//! ```text
//!  creator                         owner                   reader
//!  (1) create_to_seal
//!           ---- fd ------------->
//!                                  (2) from_fd: may write
//!           <--- "mapped" --------
//!  (3) seal_future_writes
//!           ---- read_only_fd ---------------------------->
//!                                                          (4) ReadOnlyMapping
//! ```
//!
//! Mappings made before (3) stay writable, including the creator's own. After (3) no process can
//! make a writable mapping, whatever descriptor it holds. That includes the creator after a
//! restart.
//!
//! Step (3) waits while another holder of the descriptor writes to the file or punches a hole. A
//! hostile one can make that last for good: it writes from memory whose faults it handles itself.
//! So a process that must not wait lets the other one seal, and only looks at the seals:
//!
//! ```text
//!  offers                          takes
//!  (1) OfferedMapping::create
//!           ---- fd ------------->
//!                                  (2) from_fd, populate, seal_future_writes
//!           <--- "taken" ---------
//!  (3) accept: sealed? all pages?
//! ```
//!
//! After (3) no page goes away, because sealed memory cannot be punched. All pages are charged to
//! the process that took the memory, however long it keeps them.

mod error;
mod offered;
mod pages;
mod read_only;
mod seals;
mod shared;
#[cfg(test)]
mod tests;

pub use error::MapError;
pub use offered::OfferedMapping;
pub use read_only::ReadOnlyMapping;
pub use shared::SharedMapping;
