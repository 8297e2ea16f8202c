//! Chapter 7: several processes under one daemon.
//!
//! Each process that starts a [`Runtime`](crate::Runtime) has an admission of its own. Two such
//! processes on one CPU know nothing of each other, and together may ask for more than the CPU has.
//! The daemon, `upcalld`, puts their handlers into one order. It has one admission for all, and the
//! most urgent handler runs next, in any of the processes. A process under a daemon is a *domain*.
//! Every policy works under a daemon, but no groups. Under `ps` both must have the same time
//! quantum. `upcall run` and `upcalld` lock the CPUs whose time they promise. The library locks
//! nothing: a program that needs its promises beside other programs attaches to a daemon.
//!
//! ```no_run
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::{Attach, Config, Runtime, daemon_answers, daemon_socket};
//!
//! let socket = daemon_socket()?; // `$UPCALL_SOCKET`, or where a daemon listens by default
//! let daemon = daemon_answers(&socket)?.then(|| Attach { socket, name: "player".into() });
//! // `None`: no daemon answers, so this process runs alone.
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
//! upcall ps --socket /tmp/upcall.sock     # the domains, and their counters
//! ```
//!
//! Under `upcalld --policy ps` processes have shares and weights of a CPU:
//!
//! ```no_run
//! use upcall::activity::{ActivityParams, Claim, Terms};
//! use upcall::{Attach, Config, Runtime, admission::Share, daemon_socket, discipline::PS};
//! use upcall::time::Span;
//!
//! let daemon = Some(Attach { socket: daemon_socket()?, name: "video".into() });
//! let mut upcall = Runtime::start(Config { discipline: &PS, daemon, ..Config::default() })?;
//! // 8 ms in each 25 ms are 32 %. A share must exceed what the handler needs.
//! let need = ActivityParams::new(Span::from_millis(25), Span::from_millis(1)).batch(8);
//! let terms = Terms { share: Share::from_ppm(450_000), ..Terms::default() };
//! let video = upcall.handler("video", (need, terms), |batch| while batch.proceed() {})?;
//! upcall.run(video)?;
//! if let Some(more) = Share::from_ppm(500_000) {
//!     upcall.reweigh(video, Claim::Share(more))?; // while it runs
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With `Terms { weight: Some(2), .. }` a handler gets a part of what all shares leave, and may ask
//! for any amount. Of the 90 % that a daemon gives out, a share of 45 % and weights of 1 and 2 in
//! two other processes give 45, 15 and 30 %. `upcall ps` shows the lag of each process.
//!
//! Handlers of several processes may share one part: those whose `Terms::group` has one name
//! ([`ps_with_groups`](crate::discipline::ps_with_groups) and
//! [`naming_groups`](crate::discipline::Discipline::naming_groups)). In a group of 40 %, weights of
//! 1 and 3 in two processes give 10 and 30 %. A process that says another share for the group is
//! refused.
//!
//! - The process runs on the CPUs of the daemon. [`Config::cpus`](crate::Config::cpus) is ignored.
//! - The daemon refuses with `CreateError::RefusedByDaemon`, with reason and hint in words.
//! - A process that keeps the CPU when it should yield is ranked last.
//!   [`Runtime::offences`](crate::Runtime::offences) tells it so.
//! - If the daemon ends, the processes go on with their reservations, and attach to the next daemon
//!   at the same socket. A reservation that the next daemon does not take over gives a
//!   [`Notice`](crate::Notice).
//! - [`status::status`](crate::status::status) asks a daemon for its state, as `upcall ps` does.
//!
//! Next: [beside tokio](super::beside_tokio).
