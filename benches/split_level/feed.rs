//! A reader in a process of its own, and the outputs that feed it.

use std::io::{PipeReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use upcall::stream::{Stream, StreamForm, StreamWriter};
use upcall_sys::clock::{monotonic_ns, process_cpu_ns};
use upcall_sys::process::switches_of;

use crate::log::{Log, path_of};
use crate::reader::{MESSAGE_BYTES, ROLE, ReaderSpec};
use crate::variant::Variant;

/// Slots of a stream: as many messages as a pipe has room for.
const SLOTS: u32 = 1_024;
/// Distinguishes the names of the sockets of this process.
static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// A running reader process.
pub struct Reader {
    pub log: Log,
    pub outputs: Vec<Output>,
    child: Child,
}

/// The end into which messages to a reader are written.
pub enum Output {
    Stream(Box<StreamWriter>),
    Bytes(Box<dyn Write + Send>),
}

/// CPU time, switches and messages of a process so far.
#[derive(Clone, Copy)]
pub struct Usage {
    pub cpu_ns: u64,
    pub switches: u64,
    pub messages: u64,
}

impl Reader {
    /// Starts a reader with `networks` network activities, and blocks until the reader waits.
    pub fn start(mut spec: ReaderSpec, networks: usize) -> Self {
        let log = Log::create();
        let (mut outputs, mut pipes) = (Vec::new(), Vec::<PipeReader>::new());
        let mut streams = Vec::new();
        let mut listener = None;
        for _ in 0..networks {
            if spec.variant.level().is_some() {
                let bytes = u32::try_from(MESSAGE_BYTES).expect("a size of this bench");
                let moves = StreamForm::Slots { slots: SLOTS, slot_bytes: bytes };
                let stream = Stream::create(moves, 0).expect("memory");
                spec.inputs.push(path_of(&std::os::fd::AsRawFd::as_raw_fd(&stream.fd())));
                outputs.push(Output::Stream(Box::new(stream.writer().expect("a new stream"))));
                streams.push(stream);
            } else if spec.variant == Variant::ThreadSocket {
                let (listener, path) = listener.get_or_insert_with(listen);
                let _ = &listener;
                spec.inputs.push(path.display().to_string());
            } else {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                spec.inputs.push(path_of(&reader));
                pipes.push(reader);
                outputs.push(Output::Bytes(Box::new(writer)));
            }
        }
        let child = Command::new(std::env::current_exe().expect("this program"))
            .env(ROLE, spec.text(&log))
            .stdin(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        if let Some((listener, path)) = listener {
            for _ in 0..networks {
                let (socket, _) = listener.accept().expect("the reader connects");
                outputs.push(Output::Bytes(Box::new(socket)));
            }
            let _ = std::fs::remove_file(path);
        }
        while !log.is_ready() {
            std::thread::sleep(Duration::from_micros(500));
        }
        Reader { log, outputs, child }
    }

    /// The usage of the reader so far.
    pub fn usage(&self) -> Usage {
        let pid = self.child.id();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let switches = tasks
            .filter_map(|task| task.file_name().to_str()?.parse().ok())
            .filter_map(|tid| switches_of(pid, tid).ok())
            .map(|found| found.voluntary + found.involuntary)
            .sum();
        let cpu_ns = process_cpu_ns(pid).expect("the reader is there");
        Usage { cpu_ns, switches, messages: self.log.count() }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.outputs.clear();
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Output {
    /// Sends one message. Blocks while there is no room.
    pub fn send(&mut self) {
        let mut message = [0; MESSAGE_BYTES];
        message[..8].copy_from_slice(&monotonic_ns().to_ne_bytes());
        match self {
            Output::Stream(writer) => {
                while !writer.push(&message).expect("the reader is there") {
                    writer.wait(message.len(), None);
                }
                writer.commit().expect("the reader is there");
            }
            Output::Bytes(bytes) => bytes.write_all(&message).expect("the reader is there"),
        }
    }
}

/// A listening socket and its path.
fn listen() -> (UnixListener, PathBuf) {
    // Relaxed: only its own value matters.
    let name = format!("upcall-bench-{}-{}", std::process::id(), SOCKETS.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    (UnixListener::bind(&path).expect("a socket"), path)
}
