//! Memory shared between processes: a sealed memfd, mapped.
//!
//! Called by whoever starts a process and wants to hear from it. The parent
//! creates a mapping and hands its descriptor over; the child maps the same
//! pages. What the words mean is the business of the shm room; here they are
//! words.
//!
//! A mapping must not end before its pages do: touching a page that the file
//! no longer has is SIGBUS, in whichever process touches it. So the file is
//! sealed against any change of size, and a file from elsewhere is mapped only
//! after its seals and then its size have been looked at. See memfd_create(2)
//! and F_ADD_SEALS in fcntl(2).
//!
//! Some pages have one writer and are read by processes that must not change
//! them. A descriptor that was opened for reading is not enough: whoever has it
//! may open `/proc/self/fd/N` again for writing, for a memfd belongs to its
//! creator with mode 0666 (Linux 6.18: also as another user). What is enough is a
//! seal against new writers:
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
//! Mappings made before (3), the creator's among them, stay writable; no other can
//! be made so, by anyone, whatever descriptor they hold. It also holds for the creator
//! when it is started anew.

mod error;
mod pages;
mod read_only;
mod seals;
mod shared;
#[cfg(test)]
mod tests;

pub use error::MapError;
pub use read_only::ReadOnlyMapping;
pub use shared::SharedMapping;
