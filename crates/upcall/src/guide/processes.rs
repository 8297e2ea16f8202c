//! Chapter 7: several processes under one daemon.
//!
//! Each process that starts a [`Runtime`](crate::Runtime) is admitted by itself. Two such processes
//! on one CPU know nothing of each other, and together may ask for more than the CPU has. The
//! daemon, `upcalld`, puts their handlers into one order: one admission for all, and the most
//! urgent handler next, whichever process has it. A process under a daemon is a *domain*. Policies
//! `rmdp`, `rm` and `dws`.
//!
//! ```no_run
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::{Attach, Config, Runtime, daemon_answers, daemon_socket};
//!
//! let socket = daemon_socket()?; // `$UPCALL_SOCKET`, or where a daemon listens by default
//! let daemon = daemon_answers(&socket)?.then(|| Attach { socket, name: "player".into() });
//! // `None`: no daemon, so this process is alone, and runs all the same.
//! let mut upcall = Runtime::start(Config { daemon, ..Config::default() })?;
//! let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(200));
//! let player = upcall.handler("player", need, |batch| while batch.proceed() {})?;
//! upcall.run(player)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start the daemon, then the programs:
//!
//! ```sh
//! upcalld --socket /tmp/upcall.sock &
//! UPCALL_SOCKET=/tmp/upcall.sock ./player
//! upcall ps --socket /tmp/upcall.sock     # who is there, and how they do
//! ```
//!
//! - The CPUs are the daemon's, and [`Config::cpus`](crate::Config::cpus) does not count.
//! - A refusal is the daemon's: `CreateError::RefusedByDaemon`, with reason and hint in words.
//! - A process that keeps the CPU when it should yield is put last, and told so:
//!   [`Runtime::offences`](crate::Runtime::offences).
//! - If the daemon ends, the processes go on with what they have, and attach to the next daemon at
//!   the same socket. What that one does not take over is a [`Notice`](crate::Notice).
//! - [`status::status`](crate::status::status) asks a daemon how things stand, as `upcall ps` does.
//!
//! Next: [beside tokio](super::beside_tokio).
