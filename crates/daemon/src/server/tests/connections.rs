//! The limits of connections, and what a client learns of them.

use super::status::ByHand;
use super::*;
use std::io::Read;
use upcall_runtime::status::status;

/// Whether the daemon closes the connection, whatever it sends first.
fn is_closed(by_hand: &ByHand) -> bool {
    for _ in 0..1_000 {
        if by_hand.receive().is_none() {
            return true;
        }
    }
    false
}

#[test]
fn a_silent_connection_is_closed_and_a_silent_domain_is_not() {
    // Longer than a busy machine takes for the lines from a connection to its first message.
    let daemon = Running::start(|config| config.silent_max = Span::from_secs(3));
    let domain = ByHand::connect(&daemon);
    domain.attach();
    let (silent, inspector) = (ByHand::connect(&daemon), ByHand::connect(&daemon));
    inspector.send(&ToDaemon::Inspect);
    assert!(is_closed(&silent) && is_closed(&inspector));
    domain.create("the domain is still attached");
    drop(domain);
    daemon.status_when(|reply| reply.domains.is_empty());
    daemon.stop();
}

#[test]
fn a_connection_beyond_the_limit_of_a_user_gets_the_reason_and_the_others_go_on() {
    let daemon = Running::start(|config| config.connections_max = 3);
    let domain = ByHand::connect(&daemon);
    domain.attach();
    let others = [(); 2].map(|()| ByHand::connect(&daemon));
    for _ in 0..5 {
        let refused = ByHand::connect(&daemon);
        let Some((ToDomain::Rejected { reason }, _)) = refused.receive() else {
            panic!("no reason");
        };
        assert!(reason.ends_with("has the maximum number of connections, 3"), "{reason}");
        assert!(refused.receive().is_none());
    }
    // The daemon may close the connection before the request is sent. Then the reason is not read.
    wait_until("reason", || {
        let status = status(&daemon.socket).unwrap_err().to_string();
        status.contains("has the maximum number of connections, 3")
    });
    domain.create("the domain is still attached");
    drop(others);
    let refusals =
        daemon.stop().into_iter().filter(|event| matches!(event, DaemonEvent::Refused { .. }));
    assert!((6..=20).contains(&refusals.count()));
}

#[test]
fn refusals_beyond_twenty_are_not_reported() {
    let daemon = Running::start(|_| {});
    let by_hand = ByHand::connect(&daemon);
    by_hand.attach();
    for request in 0..100 {
        let (need, name) = (upcall_shm::wire::Need::default(), "x".to_owned());
        by_hand.send(&ToDaemon::Create { request, unscreened: false, need, name });
        assert!(matches!(by_hand.receive(), Some((ToDomain::Refused { .. }, _))));
    }
    assert_eq!(status(&daemon.socket).unwrap().domains.len(), 1);
    let events = daemon.stop();
    let refusals: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            DaemonEvent::Refused { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(refusals.len(), 20);
    assert!(refusals[19].ends_with("; more of this user for 10 s untold"), "{}", refusals[19]);
}

/// The metrics count what the log leaves out.
#[test]
fn every_refusal_is_counted_also_those_that_are_not_reported() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
    let mut daemon = Daemon::start(Config::new(directory.path().join("s"), vec![cpu])).unwrap();
    let before = daemon.events.len();
    for uid in [1, 2] {
        for _ in 0..100 {
            daemon.report_refusal_of(crate::registry::Owner { uid, pid: 1 }, "why".to_owned());
        }
    }
    assert_eq!(daemon.events.len() - before, 40);
    assert_eq!(daemon.refused_ever().load(Ordering::Relaxed), 200);
}

/// A daemon that does not run: the test calls its methods.
fn at_rest(change: impl FnOnce(&mut Config)) -> (Daemon, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
    let mut config = Config::new(directory.path().join("s"), vec![cpu]);
    change(&mut config);
    (Daemon::start(config).unwrap(), directory)
}

fn connect(daemon: &Daemon) -> Connection {
    Connection::connect(&daemon.config.socket).unwrap()
}

fn is_open(client: &Connection) -> bool {
    client.peek(&mut [0]).is_err_and(|error| error.is_would_block())
}

/// Found by attacks: the queue of one user's connections stayed full, and others waited for
/// seconds.
#[test]
fn all_connections_of_a_user_beyond_its_limit_are_closed_before_the_next_message() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut daemon, _directory) = at_rest(|config| config.connections_max = 3);
    for _ in 0..2 {
        let clients: Vec<_> = (0..100).map(|_| connect(&daemon)).collect();
        // A message that is not read.
        let _ = clients[99].send(b"x", &[]);
        daemon.accept().unwrap();
        assert_eq!(daemon.sessions.len(), 3);
        assert!(daemon.listener.accept().unwrap().is_none(), "none waits");
        let told = clients.iter().filter(|of| of.peek(&mut [0]).is_ok_and(|len| len > 0));
        // Twenty in ten seconds.
        assert!([0, 20].contains(&told.count()));
        let open = clients.iter().filter(|of| is_open(of)).count();
        assert!([0, 3].contains(&open), "{open}");
    }
    assert_eq!(daemon.refused_ever().load(Ordering::Relaxed), 197);
}

#[test]
fn the_user_with_the_most_silent_connections_gets_no_new_one_if_descriptors_are_short() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut daemon, _directory) = at_rest(|_| {});
    let clients = [(); 3].map(|()| connect(&daemon));
    daemon.accept().unwrap();
    daemon.descriptors_max = 1;
    let new = connect(&daemon);
    daemon.accept().unwrap();
    assert!(!is_open(&new) && clients.iter().all(is_open));
    assert_eq!((daemon.sessions.len(), daemon.accept_from), (3, None));
}

#[test]
fn a_connection_waits_while_domains_alone_use_all_descriptors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut daemon, _directory) = at_rest(|_| {});
    let most = std::mem::replace(&mut daemon.descriptors_max, 1);
    let client = connect(&daemon);
    daemon.accept().unwrap();
    assert!(daemon.accept_from.is_some() && is_open(&client));
    daemon.descriptors_max = most;
    daemon.accept().unwrap();
    assert_eq!(daemon.sessions.len(), 1);
}

/// As a client before Linux 6.16, or one that connected before the daemon started.
#[test]
fn a_message_with_descriptors_ends_its_session_and_they_are_closed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
    let mut daemon = Daemon::start(Config::new(directory.path().join("s"), vec![cpu])).unwrap();
    let (here, there) = Connection::pair().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    here.send(&ToDaemon::Inspect.encode(), &[writer.as_fd()]).unwrap();
    drop(writer);
    daemon.add_session(there).unwrap();
    let stopper = daemon.stopper();
    let thread = std::thread::spawn(move || daemon.run(|_, _| {}));
    // The only writer is in the message.
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    // Nothing was answered: the message was never read.
    assert!(here.receive(&mut [0; 8]).is_err_and(|error| !error.is_would_block()));
    stopper.stop();
    thread.join().unwrap();
}
