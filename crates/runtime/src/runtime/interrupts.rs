//! A runtime's calls for user interrupts (split-level-1991 §3.2.1).

use std::fmt;
use std::os::fd::AsFd;

use upcall_core::time::Instant;
use upcall_shm::kernel_area::Interrupt;
use upcall_sys::OsError;
use upcall_sys::readiness::{Direction, Watch};

use super::Runtime;
use crate::config::Mode;
use crate::cpu::link::Control;
use crate::thread_error::ThreadError;

impl Runtime {
    /// Calls `handler` with each user interrupt of the scheduling thread of `cpu`. That thread
    /// calls it between two upcalls or at a quantum boundary of the handler that runs, never inside
    /// a quantum. The interrupt handler is not admitted and uses the time of the handler that runs,
    /// so it should be short. A panic ends the interrupt handler only. While
    /// [`Batch::mask_interrupts`](crate::Batch::mask_interrupts) holds, interrupts wait.
    ///
    /// Under a daemon the interrupt handler is called while this domain has the turn.
    /// [`Interrupt::Resume`] says that the domain has the turn again after it was passed over as
    /// blocked, stopped or out-prioritised. Only the daemon raises that interrupt.
    ///
    /// Each CPU has at most one interrupt handler. Allocates.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use std::sync::mpsc;
    /// use upcall::time::Span;
    /// use upcall::{Config, Interrupt, Runtime, clock};
    ///
    /// let mut runtime = Runtime::start(Config::default())?;
    /// let cpu = runtime.config().cpus[0];
    /// let (sender, receiver) = mpsc::sync_channel(8);
    /// runtime.on_interrupt(cpu, move |interrupt| {
    ///     let _ = sender.try_send(interrupt); // short, and never blocks
    /// })?;
    /// runtime.interrupt_at(cpu, clock::after(Span::from_millis(5)))?;
    /// assert_eq!(receiver.recv()?, Interrupt::Timer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`InterruptError`].
    pub fn on_interrupt<F>(&mut self, cpu: u32, handler: F) -> Result<(), InterruptError>
    where
        F: FnMut(Interrupt) + Send + 'static,
    {
        let executor = self.interrupted(cpu)?;
        let taken = &mut self.executors[executor].has_interrupt_handler;
        if std::mem::replace(taken, true) {
            return Err(InterruptError::Taken { cpu });
        }
        self.send(executor, Control::OnInterrupt { handler: Box::new(handler) });
        Ok(())
    }

    /// Requests [`Interrupt::Timer`] on `cpu` once, at the first boundary from `at` on. Replaces an
    /// earlier request (the paper's `set_timer`).
    ///
    /// # Errors
    /// See [`InterruptError`].
    pub fn interrupt_at(&mut self, cpu: u32, at: Instant) -> Result<(), InterruptError> {
        let executor = self.interrupted(cpu)?;
        self.send(executor, Control::InterruptAt { at });
        Ok(())
    }

    /// Requests [`Interrupt::IoReady`] on `cpu` once, when `fd` is readable, has reached its end,
    /// or has failed. Interrupts at once if that is the case already. [`IoInterrupt::arm`] requests
    /// it again.
    ///
    /// # Errors
    /// See [`InterruptError`].
    pub fn interrupt_on_ready(
        &mut self,
        cpu: u32,
        fd: &impl AsFd,
    ) -> Result<IoInterrupt, InterruptError> {
        let executor = self.interrupted(cpu)?;
        let shared = &self.executors[executor].link.shared;
        let reactor = match self.reactor.take() {
            Some(reactor) => reactor,
            None => self.start_reactor().map_err(InterruptError::Thread)?,
        };
        let (readiness, number) = self.reactor.insert(reactor).interrupter(shared);
        let watch = Watch::new(&readiness, fd.as_fd(), Direction::Readable, number);
        Ok(IoInterrupt { watch: watch.map_err(InterruptError::Watch)? })
    }

    /// The executor of `cpu`, for calls about its interrupts.
    fn interrupted(&self, cpu: u32) -> Result<usize, InterruptError> {
        if self.config.mode != Mode::Upcall {
            return Err(InterruptError::NotInMode(self.config.mode));
        }
        let mut executors = self.executors.iter();
        executors.position(|one| one.cpu == cpu).ok_or(InterruptError::NoSuchCpu { cpu })
    }
}

/// A descriptor that interrupts when it is ready, until this value is dropped.
#[derive(Debug)]
#[must_use = "the descriptor interrupts only until this is dropped"]
pub struct IoInterrupt {
    watch: Watch,
}

impl IoInterrupt {
    /// Requests the next interrupt after one was delivered. Interrupts at once if the descriptor is
    /// ready. One system call; does not block or allocate.
    ///
    /// # Errors
    /// The kernel has no memory (`ENOMEM`).
    pub fn arm(&self) -> Result<(), OsError> {
        self.watch.arm()
    }
}

/// Why no interrupt was requested.
#[derive(Clone)]
#[non_exhaustive]
pub enum InterruptError {
    /// The runtime has no scheduling thread on the CPU.
    NoSuchCpu {
        /// The CPU.
        cpu: u32,
    },
    /// In this mode the kernel decides, and each handler has a thread of its own.
    NotInMode(Mode),
    /// The CPU has an interrupt handler already.
    Taken {
        /// The CPU.
        cpu: u32,
    },
    /// The thread that waits for descriptors did not start.
    Thread(ThreadError),
    /// The descriptor cannot be waited for.
    Watch(OsError),
}

impl fmt::Display for InterruptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterruptError::NoSuchCpu { cpu } => {
                write!(f, "CPU {cpu} has no scheduling thread of this runtime")
            }
            InterruptError::NotInMode(mode) => {
                write!(f, "mode {} has no user interrupts, expected mode upcall", mode.name())
            }
            InterruptError::Taken { cpu } => {
                write!(f, "CPU {cpu} has an interrupt handler already, expected none")
            }
            InterruptError::Thread(error) => {
                write!(f, "the thread that waits for descriptors did not start: {error}")
            }
            InterruptError::Watch(error) => {
                write!(f, "the descriptor cannot be waited for: {error}")
            }
        }
    }
}

upcall_core::debug_as_display!(InterruptError);

impl std::error::Error for InterruptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InterruptError::Thread(error) => Some(error),
            InterruptError::Watch(error) => Some(error),
            _ => None,
        }
    }
}
