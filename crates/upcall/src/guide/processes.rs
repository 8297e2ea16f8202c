//! Chapter 7: several processes under one daemon.
//!
//! Each process that starts a [`Runtime`](crate::Runtime) has an admission of its own. Two such
//! processes on one CPU know nothing of each other, and together may ask for more than the CPU has.
//! The daemon, `upcalld`, puts their handlers into one order. It has one admission for all, and the
//! most urgent handler runs next, in any of the processes. A process under a daemon is a *domain*.
//! Every policy works under a daemon. Under `ps`, policy, time quantum and the definition of shared
//! groups must agree. `upcall run` and `upcalld` lock the CPUs whose time they promise. The library
//! locks nothing: a program that needs its promises beside other programs attaches to a daemon.
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
//! refused:
//!
//! ```no_run
//! use upcall::activity::{ActivityParams, Claim, GroupId, Terms};
//! use upcall::discipline::ps_with_groups;
//! use upcall::policy::ps::{Group, QUANTUM_DEFAULT};
//! use upcall::time::Span;
//! use upcall::{Attach, Config, Runtime, admission::Share, daemon_socket};
//!
//! let share = Share::from_ppm(400_000).ok_or("a share of 0")?;
//! let video = Group { claim: Claim::Share(share), parent: None };
//! let ps = ps_with_groups(QUANTUM_DEFAULT, vec![video])?.naming_groups(vec!["video".into()])?;
//! let discipline = Box::leak(Box::new(ps));
//! let daemon = Some(Attach { socket: daemon_socket()?, name: "player".into() });
//! let mut upcall = Runtime::start(Config { discipline, daemon, ..Config::default() })?;
//! let need = ActivityParams::new(Span::from_millis(40), Span::from_millis(1)).batch(20);
//! let terms = Terms { group: Some(GroupId(0)), weight: Some(3), ..Terms::default() };
//! let decode = upcall.handler("decode", (need, terms), |batch| while batch.proceed() {})?;
//! upcall.run(decode)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The other process differs only in its name, its handler and the weight 1. A group has its part
//! on each CPU where it has a member. So the numbers above are those of two processes on one CPU
//! (`upcalld --policy ps --cpus 1`).
//!
//! Under `dwcs` a process may reserve a part of a CPU for the events of its handlers
//! ([`Runtime::reserve_events`](crate::Runtime::reserve_events)).
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
