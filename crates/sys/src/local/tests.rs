use super::connection::socket;
use super::folder::Folder;
use super::*;
use crate::OsError;
use crate::forked::forked;
use crate::process::Exit;
use crate::process::PidFd;
use crate::readiness::{Direction, is_ready, wait_until};
use core::fmt;
use rustix::net::SocketAddrUnix;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A directory of its own for one test, removed afterwards.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Place {
        let path = std::env::temp_dir().join(format!("upcall-{test}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn errno<T: fmt::Debug>(result: Result<T, OsError>) -> i32 {
    result.unwrap_err().raw_os_error()
}

fn is_closed_on_exec(fd: &impl AsFd) -> bool {
    rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC)
}

/// Whether the other end of a pipe stays open. A child of another test has copies of all
/// descriptors while it lives. So the function checks more than once.
fn is_read_by_anyone(mut writer: impl Write) -> bool {
    (0..2_000).all(|_| {
        std::thread::sleep(core::time::Duration::from_millis(1));
        writer.write_all(b"x").is_ok()
    })
}

#[test]
fn messages_stay_separate_and_in_order_until_the_end() {
    let place = Place::new("order");
    let listener = Listener::bind(&place.socket(), Access::Owner).unwrap();
    assert!(listener.accept().unwrap().is_none());
    let client = Connection::connect(&place.socket()).unwrap();
    let server = listener.accept().unwrap().unwrap();
    assert!(is_closed_on_exec(&listener) && is_closed_on_exec(&client));
    assert!(is_closed_on_exec(&server));
    client.send(b"one", &[]).unwrap();
    client.send(b"second", &[]).unwrap();
    let mut buffer = [0; 6];
    for expected in [&b"one"[..], b"second"] {
        let received = server.receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..received.len], expected);
        assert!(received.fds.is_empty());
    }
    assert!(server.receive(&mut buffer).unwrap_err().is_would_block());
    drop(client);
    assert!(is_ready(server.as_fd(), Direction::Readable).unwrap());
    assert_eq!(server.receive(&mut buffer).unwrap().len, 0);
    assert_eq!(errno(server.send(b"x", &[])), libc::EPIPE);
}

#[test]
fn a_sent_descriptor_arrives_as_a_copy() {
    let (here, there) = Connection::pair().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let memory = crate::memfd::SharedMapping::create("upcall-test", 4096).unwrap();
    here.send(b"m", &[writer.as_fd(), memory.fd()]).unwrap();
    let mut received = there.receive(&mut [0; 8]).unwrap();
    assert_eq!((received.len, received.fds.len()), (1, 2));
    assert!(received.fds.iter().all(is_closed_on_exec));
    let theirs = crate::memfd::SharedMapping::from_fd(received.fds.pop().unwrap(), 4096).unwrap();
    theirs.words()[3].store(4, core::sync::atomic::Ordering::Relaxed);
    assert_eq!(memory.words()[3].load(core::sync::atomic::Ordering::Relaxed), 4);
    drop(writer);
    std::fs::File::from(received.fds.pop().unwrap()).write_all(b"through").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");
}

#[test]
fn the_maximum_of_descriptors_is_sent_and_one_more_is_refused() {
    let (here, there) = Connection::pair().unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    let most = [writer.as_fd(); FDS_MAX];
    here.send(b"m", &most).unwrap();
    assert_eq!(there.receive(&mut [0; 8]).unwrap().fds.len(), FDS_MAX);
    let more = [writer.as_fd(); FDS_MAX + 1];
    assert_eq!(errno(here.send(b"m", &more)), libc::EINVAL);
}

#[test]
fn a_message_that_is_too_long_is_an_error_and_its_descriptors_are_closed() {
    let (here, there) = Connection::pair().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    here.send(b"longer", &[reader.as_fd()]).unwrap();
    here.send(b"next", &[]).unwrap();
    drop(reader);
    let error = there.receive(&mut [0; 5]).unwrap_err();
    assert_eq!(error, ReceiveError::Message { room_bytes: 5 });
    assert!(!is_read_by_anyone(writer));
    assert_eq!(there.receive(&mut [0; 5]).unwrap().len, 4);
}

#[test]
fn untaken_descriptors_are_closed_with_the_message_and_with_the_socket() {
    let (here, there) = Connection::pair().unwrap();
    let pipes: [_; 2] = core::array::from_fn(|_| std::io::pipe().unwrap());
    for (reader, _) in &pipes {
        here.send(b"m", &[reader.as_fd()]).unwrap();
    }
    let writers = pipes.map(|(_, writer)| writer);
    drop(there.receive(&mut [0; 5]).unwrap());
    drop((here, there));
    for writer in writers {
        assert!(!is_read_by_anyone(writer));
    }
}

#[test]
fn too_many_descriptors_for_the_process_are_an_error_and_are_closed() {
    let (here, there) = Connection::pair().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    here.send(b"m", &[reader.as_fd(); 20]).unwrap();
    here.send(b"next", &[]).unwrap();
    // In a child, because the limit belongs to the process. The child may open ten more at most.
    // SAFETY: system calls only. `receive` allocates only for descriptors, and its result here has
    // none.
    let child = unsafe {
        forked(|| {
            let lowest = libc::dup(there.as_fd().as_raw_fd());
            libc::close(lowest);
            let end = lowest + 10;
            let limit = libc::rlimit { rlim_cur: end.unsigned_abs().into(), rlim_max: 4096 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            let open = || (0..end).filter(|&fd| libc::fcntl(fd, libc::F_GETFD) >= 0).count();
            let before = open();
            let failed = there.receive(&mut [0; 8]).err() == Some(ReceiveError::Descriptors);
            let leaked = open() != before;
            let next = there.receive(&mut [0; 8]).is_ok_and(|next| next.len == 4);
            i32::from(!failed) + 2 * i32::from(leaked) + 4 * i32::from(!next)
        })
    };
    assert_eq!(child.wait(), Exit::Code(0));
}

#[test]
fn a_full_connection_refuses_messages_without_blocking() {
    let (here, there) = Connection::pair().unwrap();
    let mut sent = 0;
    let error = loop {
        match here.send(&[7; 4096], &[]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_would_block() && sent > 0, "{error} after {sent}");
    let mut buffer = [0; 4096];
    for _ in 0..sent {
        assert_eq!(there.receive(&mut buffer).unwrap().len, 4096);
    }
    here.send(b"again", &[]).unwrap();
}

#[test]
fn empty_messages_and_buffers_are_refused() {
    let (here, there) = Connection::pair().unwrap();
    assert_eq!(errno(here.send(b"", &[])), libc::EINVAL);
    assert_eq!(errno(here.send(&vec![0; 64 << 20], &[])), libc::EMSGSIZE);
    here.send(b"m", &[]).unwrap();
    let error = there.receive(&mut []).unwrap_err();
    assert_eq!(error, ReceiveError::Os(OsError::new("recvmsg", libc::EINVAL)));
    assert_eq!(there.receive(&mut [0]).unwrap().len, 1);
}

#[test]
fn a_stale_socket_is_replaced_and_a_served_one_is_not() {
    let place = Place::new("stale");
    let path = place.socket();
    let first = Listener::bind(&path, Access::Owner).unwrap();
    assert_eq!(errno(Listener::bind(&path, Access::Owner)), libc::EADDRINUSE);
    // The attempt above connected to check. Take that connection.
    drop(first.accept().unwrap());
    let client = Connection::connect(&path).unwrap();
    assert!(first.accept().unwrap().is_some());
    drop((first, client));
    assert_eq!(errno(Connection::connect(&path)), libc::ECONNREFUSED);
    let second = Listener::bind(&path, Access::Owner).unwrap();
    let _client = Connection::connect(&path).unwrap();
    assert!(second.accept().unwrap().is_some());
}

#[test]
fn other_files_at_the_path_stay() {
    let place = Place::new("other");
    let path = place.socket();
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(errno(Listener::bind(&path, Access::Owner)), libc::EADDRINUSE);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    let stream = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(errno(Listener::bind(&path, Access::Owner)), libc::EADDRINUSE);
    drop(stream);
    std::fs::remove_file(&path).unwrap();
    // Neither the check nor the removal follows a link.
    std::os::unix::fs::symlink(place.0.join("nowhere"), &path).unwrap();
    assert_eq!(errno(Listener::bind(&path, Access::Owner)), libc::EADDRINUSE);
    assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
}

#[test]
fn a_second_bind_waits_for_the_lock_for_a_limited_time() {
    let place = Place::new("lock");
    let folder = Folder::open(&place.socket()).unwrap();
    let lock = folder.lock().unwrap();
    assert!(Listener::bind(&place.socket(), Access::Owner).unwrap_err().is_would_block());
    std::thread::scope(|threads| {
        let other = threads.spawn(|| Listener::bind(&place.socket(), Access::Owner));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(lock);
        other.join().unwrap().unwrap();
    });
    let left = std::fs::read_dir(&place.0).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["socket"], "the file of the lock is removed");
}

/// Every user who may read a folder can lock it. That must not delay a bind.
#[test]
fn a_lock_on_the_folder_by_another_process_does_not_delay_a_bind() {
    let place = Place::new("folder-lock");
    let folder = std::fs::File::open(&place.0).unwrap();
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    Listener::bind(&place.socket(), Access::Owner).unwrap();
}

#[test]
fn a_folder_that_others_may_write_to_is_refused_unless_it_is_sticky() {
    for (mode, is_trusted) in
        [(0o700, true), (0o755, true), (0o775, false), (0o777, false), (0o1777, true)]
    {
        let place = Place::new(&format!("folder-{mode:o}"));
        std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(mode)).unwrap();
        let bound = Listener::bind(&place.socket(), Access::Owner);
        assert_eq!(bound.is_ok(), is_trusted, "{mode:o}: {bound:?}");
        if let Err(error) = bound {
            assert_eq!(error.raw_os_error(), libc::EPERM);
            assert!(error.to_string().contains("may write to it"), "{error}");
            assert!(!place.socket().exists());
        }
    }
}

/// Says so even if the output of passed tests is not shown: the gate `test` counts such lines.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: local::tests::{test}: {why}");
}

/// The user `nobody` owns the folder of the socket and replaces the socket by a link.
#[test]
fn a_foreign_folder_is_refused_and_no_link_is_followed() {
    if rustix::process::geteuid().as_raw() != 0 {
        return skipped(
            "a_foreign_folder_is_refused_and_no_link_is_followed",
            "only root can make a folder of another user",
        );
    }
    let place = Place::new("foreign");
    std::os::unix::fs::chown(&place.0, Some(65534), None).unwrap();
    let error = Listener::bind(&place.socket(), Access::Everyone).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EPERM, "{error}");
    // In a folder that is trusted, too, the mode is not set on the target of a link.
    std::os::unix::fs::chown(&place.0, Some(0), None).unwrap();
    let precious = place.0.join("precious");
    std::fs::write(&precious, "").unwrap();
    std::fs::set_permissions(&precious, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&precious, place.socket()).unwrap();
    let folder = Folder::open(&place.socket()).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    assert_eq!(errno(folder.set_mode_of_socket(mode)), libc::EPERM);
    assert_eq!(std::fs::metadata(&precious).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_foreign_file_in_the_place_of_the_lock_is_refused() {
    let place = Place::new("lock-link");
    std::os::unix::fs::symlink("precious", place.0.join(".socket.lock")).unwrap();
    let error = Listener::bind(&place.socket(), Access::Owner).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EPERM, "{error}");
    assert!(!place.0.join("precious").exists(), "the link was not followed");
}

#[test]
fn a_listener_that_refuses_descriptors_gets_none() {
    let place = Place::new("no-descriptors");
    let listener = Listener::bind(&place.socket(), Access::Owner).unwrap();
    if !listener.refuse_descriptors().unwrap() {
        return skipped(
            "a_listener_that_refuses_descriptors_gets_none",
            "Linux before 6.16 has no SO_PASSRIGHTS",
        );
    }
    let client = Connection::connect(&place.socket()).unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(errno(client.send(b"m", &[reader.as_fd()])), libc::EPERM);
    client.send(b"m", &[]).unwrap();
    let server = listener.accept().unwrap().unwrap();
    assert_eq!(server.receive(&mut [0; 8]).unwrap().len, 1);
    // The other direction is not affected.
    server.send(b"m", &[reader.as_fd()]).unwrap();
    assert_eq!(client.receive(&mut [0; 8]).unwrap().fds.len(), 1);
}

#[test]
fn the_mode_is_independent_of_the_umask() {
    for (access, expected) in [(Access::Owner, 0o600), (Access::Everyone, 0o666)] {
        let place = Place::new(&format!("mode-{expected:o}"));
        let _listener = Listener::bind(&place.socket(), access).unwrap();
        let mode = std::fs::metadata(place.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, expected);
    }
}

#[test]
fn a_path_that_is_too_long_is_refused() {
    let place = Place::new("path");
    let long = place.0.join("x".repeat(200));
    assert_eq!(errno(Listener::bind(&long, Access::Owner)), libc::ENAMETOOLONG);
    assert_eq!(errno(Connection::connect(&long)), libc::ENAMETOOLONG);
    let missing = place.0.join("missing/socket");
    assert_eq!(errno(Listener::bind(&missing, Access::Owner)), libc::ENOENT);
    assert_eq!(errno(Connection::connect(&missing)), libc::ENOENT);
}

#[test]
fn the_kernel_identifies_the_peer_and_reports_its_end() {
    let place = Place::new("peer");
    let listener = Listener::bind(&place.socket(), Access::Owner).unwrap();
    let address = SocketAddrUnix::new(place.socket()).unwrap();
    let (mut gate, opener) = std::io::pipe().unwrap();
    // SAFETY: system calls only, none of which allocates.
    let child = unsafe {
        forked(|| {
            libc::close(opener.as_raw_fd());
            let Ok(socket) = socket() else { return 1 };
            if rustix::net::connect(&socket, &address).is_err() {
                return 2;
            }
            let mut byte = [0];
            let _ = gate.read(&mut byte); // until the test drops `opener`
            7
        })
    };
    assert!(wait_until(listener.as_fd(), Direction::Readable, None).unwrap());
    let server = listener.accept().unwrap().unwrap();
    let credentials = server.peer_credentials().unwrap();
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let expected = Credentials { pid: child.pid(), uid: uid.as_raw(), gid: gid.as_raw() };
    assert_eq!(credentials, expected);
    // By the socket where the kernel supports it, and by the number as before Linux 6.5.
    let by_number = PidFd::open(credentials.pid).unwrap();
    let handle = server.peer_pidfd().unwrap();
    if let Err(error) = server.peer_pidfd_by_socket() {
        assert_eq!(error.raw_os_error(), libc::ENOPROTOOPT);
    }
    assert!(is_closed_on_exec(&handle));
    assert!(!handle.has_exited().unwrap() && !by_number.has_exited().unwrap());
    drop(opener);
    assert!(handle.wait(None).unwrap() && by_number.wait(None).unwrap());
    assert_eq!(child.wait(), Exit::Code(7));
    // The process is reaped. A handle shows that, or the kernel gives none.
    match server.peer_pidfd() {
        Ok(handle) => assert!(handle.has_exited().unwrap()),
        Err(error) => {
            assert!(matches!(error.raw_os_error(), libc::ESRCH | libc::EINVAL), "{error}");
        }
    }
}

#[test]
fn errors_name_the_limits() {
    let text = ReceiveError::Message { room_bytes: 5 }.to_string();
    assert_eq!(text, "a message is longer than the 5 bytes expected at most");
    assert!(ReceiveError::Descriptors.to_string().contains("RLIMIT_NOFILE"));
}

#[test]
fn a_look_at_a_message_leaves_it_and_its_descriptors_in_the_socket() {
    let place = Place::new("peek");
    let listener = Listener::bind(&place.socket(), Access::Owner).unwrap();
    let client = Connection::connect(&place.socket()).unwrap();
    let server = listener.accept().unwrap().unwrap();
    let mut buffer = [0; 4];
    assert_eq!(errno(server.peek(&mut buffer)), libc::EAGAIN);
    let (mut reader, writer) = std::io::pipe().unwrap();
    client.send(b"bye", &[writer.as_fd()]).unwrap();
    drop((client, writer));
    for _ in 0..2 {
        assert_eq!(server.peek(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"bye");
    }
    // The pipe's only write end is in the message.
    let received = server.receive(&mut buffer).unwrap();
    assert_eq!((received.len, received.fds.len()), (3, 1));
    std::fs::File::from(received.fds.into_iter().next().unwrap()).write_all(b"x").unwrap();
    let mut bytes = [0; 2];
    assert_eq!(reader.read(&mut bytes).unwrap(), 1);
    assert_eq!(server.peek(&mut buffer).unwrap(), 0, "the other end has gone");
}

#[test]
fn a_plain_receive_leaves_descriptors_in_the_socket() {
    let (here, there) = Connection::pair().unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    here.send(b"one", &[]).unwrap();
    here.send(b"longer", &[]).unwrap();
    here.send(b"m", &[writer.as_fd()]).unwrap();
    let mut buffer = [0; 5];
    assert_eq!(there.receive_plain(&mut buffer), Ok(3));
    assert_eq!(there.receive_plain(&mut buffer), Err(ReceiveError::Message { room_bytes: 5 }));
    for _ in 0..2 {
        assert_eq!(there.receive_plain(&mut buffer), Err(ReceiveError::Unexpected));
    }
    assert!(!there.drain(), "a message with descriptors is left");
    assert_eq!(there.receive(&mut buffer).unwrap().fds.len(), 1);
    assert!(there.drain());
    assert_eq!(errno(here.send(b"m", &[])), libc::EPIPE, "a drained connection takes no message");
    assert!(ReceiveError::Unexpected.to_string().contains("expected a message without"));
}

/// Found by reading: an empty message looked like the end, so `drain` returned `true`, and the
/// close of the connection closed the descriptors behind it.
#[test]
fn an_empty_message_does_not_hide_descriptors_from_a_drain() {
    let empty = rustix::net::SendFlags::empty();
    for is_closed in [false, true] {
        let (here, there) = Connection::pair().unwrap();
        let (_reader, writer) = std::io::pipe().unwrap();
        for _ in 0..3 {
            rustix::net::send(here.as_fd(), &[], empty).unwrap();
        }
        here.send(b"m", &[writer.as_fd()]).unwrap();
        let here = Some(here).filter(|_| !is_closed);
        assert!(!there.drain(), "a message with descriptors is left");
        assert_eq!(there.receive(&mut [0; 5]).unwrap().fds.len(), 1);
        assert!(there.drain());
        drop(here);
    }
    let (here, there) = Connection::pair().unwrap();
    rustix::net::send(here.as_fd(), &[], empty).unwrap();
    assert!(there.drain(), "nothing but an empty message");
}

/// A TCP socket with `SO_LINGER` and unsent data: to close its last descriptor blocks.
fn lingering_socket() -> (OwnedFd, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // The receiver holds far less than the sender, so some data stays unsent whenever it arrives.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4_096).unwrap();
    let sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&sender, 200_000).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while (&sender).write(&[0; 65_536]).is_ok() {}
    let linger = Some(core::time::Duration::from_secs(600));
    rustix::net::sockopt::set_socket_linger(&sender, linger).unwrap();
    (sender.into(), receiver)
}

#[test]
fn a_lingering_socket_in_a_message_delays_only_the_thread_that_closes_it() {
    let (here, there) = Connection::pair().unwrap();
    let (socket, receiver) = lingering_socket();
    here.send(b"m", &[socket.as_fd()]).unwrap();
    drop((socket, here));
    let mut buffer = [0; 8];
    assert_eq!(there.receive_plain(&mut buffer), Err(ReceiveError::Unexpected));
    assert!(!there.drain());
    let closing = std::thread::spawn(move || drop(there));
    // This shows why: the thread sleeps in the kernel until the receiver ends the connection.
    std::thread::sleep(core::time::Duration::from_millis(100));
    assert!(!closing.is_finished());
    rustix::net::sockopt::set_socket_linger(&receiver, Some(core::time::Duration::ZERO)).unwrap();
    drop(receiver);
    closing.join().unwrap();
}
