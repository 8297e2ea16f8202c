//! How the program of a flow waits for datagrams: by a descriptor, or in a call that blocks.
//!
//! Who looks in each period needs none of it, and costs the owner no system call.
//!
//! ```text
//!   looks  -- (1) take: nothing --> arms -- (2) arm: nothing came meanwhile --> waits
//!     ^                              |                                          |
//!     +---- (3) arm: something came -+       (4) the descriptor is readable     |
//!     +-------------------------------------------------------------------------+
//! ```
//!
//! The descriptor stays readable until the next (2). It is also readable once the flow is closed,
//! and then (2) says so.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use upcall_core::time::Instant;
use upcall_sys::readiness::{Direction, wait_until};
use upcall_sys::wake_socket::Cleared;

use super::{FlowError, UdpFlow};

impl UdpFlow {
    /// Asks the owner to make the descriptor of the flow readable once something arrives, and looks
    /// whether something did already: then it returns `true`, and the program takes it first. Does
    /// what [`UdpFlow::flush`] does. The owner wakes once for each call, at the end of its batch. A
    /// wake-up may be spurious. One system call, which does not block.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// # use upcall::net::UdpFlow;
    /// /// Takes what is there. The descriptor of `flow` is readable once there is more.
    /// fn on_readable(flow: &mut UdpFlow) -> Result<(), upcall::net::FlowError> {
    ///     let mut payload = [0; 2048];
    ///     loop {
    ///         while let Some((length, peer, _)) = flow.receive(&mut payload)? {
    ///             println!("{length} bytes from {peer}");
    ///         }
    ///         if !flow.arm()? {
    ///             return Ok(());
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`FlowError::Closed`]: the owner closed the flow, or has ended. [`FlowError::Os`]: the
    /// descriptor is not one of a flow. Otherwise as [`UdpFlow::take`].
    pub fn arm(&mut self) -> Result<bool, FlowError> {
        self.flush();
        // First, so that a wake-up for what this asks for is not cleared.
        match self.wake.clear().map_err(FlowError::Os)? {
            Cleared::Open => Ok(self.receive.arm()?),
            Cleared::Gone => Err(FlowError::Closed),
        }
    }

    /// Blocks until something arrives, or until `deadline` (`None`: without limit). Returns whether
    /// there is something to take. For threads that may block: a handler uses
    /// [`UdpFlow::arm`]. A few system calls.
    ///
    /// # Errors
    /// As [`UdpFlow::arm`], and [`FlowError::Os`] with the kernel's error (`ENOMEM`).
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, FlowError> {
        let deadline_ns = deadline.map(Instant::as_nanos);
        loop {
            if self.arm()? {
                return Ok(true);
            }
            let woken = wait_until(self.wake.as_fd(), Direction::Readable, deadline_ns);
            if !woken.map_err(FlowError::Os)? {
                return Ok(false);
            }
        }
    }
}

impl AsFd for UdpFlow {
    /// Readable once the owner woke the program ([`UdpFlow::arm`]). The program must not read it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl AsRawFd for UdpFlow {
    /// As [`AsFd`], for libraries that take numbers.
    fn as_raw_fd(&self) -> RawFd {
        self.wake.as_fd().as_raw_fd()
    }
}
