//! The communication area: frames in shared memory, and the queues that hand them over
//! (rtu-1996 §7.2; docs/decisions/0024-network.md).
//!
//! The owner of an interface maps one area of frames. Devices, the owner and its flows name a frame
//! by its index, so no address crosses a process. A [`Descriptor`] names a part of a frame. The
//! runtime calls this module. It makes no system call, and trusts neither a domain nor the kernel.
//!
//! ```text
//!   kernel                      owner                               domain
//!   (1) receive ring   ---->    (2) receive queue         ---->     (3) reads the frame
//!   (5) fill ring      <----    (4) received queue        <----         gives it back
//!   (7) transmit ring  <----    (6) transmit queue        <----     fills a frame of its own
//!   (8) completion     ---->        transmitted queue     ---->     has it again
//! ```
//!
//! The owner manages the free frames for receiving, the domain those for transmitting. So no list
//! of free frames has two users, and there is no lock. Each arrow is a queue with one writer and
//! one reader: towards a domain a [`queue`], towards the kernel an [`xdp_ring`]. The rings of a
//! packet socket ([`packet_ring`]) hold the frames themselves, which are copied. The owner writes
//! each hand-over into its own [`Account`]. A domain may die at any instruction: the owner then
//! takes back what its account says it lent.

pub mod account;
mod area;
mod descriptor;
mod note;
pub mod packet_ring;
pub mod queue;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
pub mod xdp_ring;

pub use account::Account;
pub use area::FrameArea;
pub use descriptor::{Descriptor, FrameForm, FrameSize};
pub use note::{HEADROOM_BYTES, NOTE_BYTES, Note, NoteKind};
