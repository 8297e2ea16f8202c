//! Closes connections without waiting for what the other end has sent.
//!
//! A client may send descriptors, and to close one can block: a TCP socket with `SO_LINGER`, a file
//! of a FUSE server, a terminal. From Linux 6.16 on the kernel refuses such messages
//! (`Listener::refuse_descriptors`). Before, the messages stay in the socket unread. This module
//! closes such a socket in a thread that does nothing else, one for each user who sends such
//! messages. The server's thread uses it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use upcall_sys::local::Connection;

/// See the module's head. When it is dropped, the threads go on until all is closed.
#[derive(Debug, Default)]
pub(super) struct Closer(BTreeMap<u32, Closing>);

/// The connections of a user that are being closed.
#[derive(Debug)]
struct Closing {
    sender: Sender<Connection>,
    /// Those that are not closed yet.
    left: Arc<AtomicUsize>,
}

impl Closer {
    /// Closes a connection of a user. Does not block. The system calls are bounded: see
    /// [`Connection::drain`].
    pub(super) fn close(&mut self, uid: u32, connection: Connection) {
        if connection.drain() {
            return;
        }
        self.0.retain(|_, closing| closing.left() > 0);
        let Closing { sender, left } = self.0.entry(uid).or_insert_with(Closing::start);
        // Relaxed: a count.
        left.fetch_add(1, Ordering::Relaxed);
        if let Err(unsent) = sender.send(connection) {
            // The system has no more threads. The descriptor is lost, but nobody waits, and it
            // stays counted for the user.
            std::mem::forget(unsent.0);
        }
    }

    /// How many connections of a user are not closed yet.
    pub(super) fn left_of(&self, uid: u32) -> usize {
        self.0.get(&uid).map_or(0, Closing::left)
    }
}

impl Closing {
    fn start() -> Self {
        let (sender, connections) = channel();
        let left = Arc::new(AtomicUsize::new(0));
        let counted = left.clone();
        let thread = std::thread::Builder::new().name("upcall-closer".into());
        // Without a thread the receiver is dropped here, and `close` finds that.
        let _ = thread.spawn(move || close_all(&connections, &counted));
        Closing { sender, left }
    }

    fn left(&self) -> usize {
        // Relaxed: a count.
        self.left.load(Ordering::Relaxed)
    }
}

fn close_all(connections: &Receiver<Connection>, left: &AtomicUsize) {
    for connection in connections {
        drop(connection);
        // Relaxed: a count.
        left.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    #[test]
    fn a_connection_with_descriptors_is_closed_by_another_thread() {
        let mut closer = Closer::default();
        let (here, there) = Connection::pair().unwrap();
        here.send(b"plain", &[]).unwrap();
        closer.close(1, there);
        assert_eq!((closer.left_of(1), closer.0.len()), (0, 0), "closed at once, without a thread");
        let (here, there) = Connection::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        here.send(b"with", &[writer.as_fd()]).unwrap();
        drop(writer);
        closer.close(2, there);
        // The only writer is gone once the connection is closed.
        assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
        let give_up = Instant::now() + Duration::from_secs(60);
        while closer.left_of(2) > 0 {
            assert!(Instant::now() < give_up, "still counted after a minute");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
