//! Streams: bytes or messages through shared memory, within a process or between two.
//!
//! A stream has one [`StreamWriter`] and one [`StreamReader`]. A handler may have either end. With
//! [`Runtime::stream_reader_handler`](crate::Runtime::stream_reader_handler) the handler is
//! upcalled when it can read enough. With
//! [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) it is upcalled when it
//! can write enough.
//!
//! ```
//! # extern crate upcall_runtime as upcall;
//! use upcall::stream::{Closed, Stream, StreamForm};
//!
//! let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
//! let (mut writer, mut reader) = (stream.writer()?, stream.reader()?);
//! assert!(writer.push(b"frame 1")?); // `false`: no room now
//! writer.commit()?; // from here on the reader sees it
//!
//! let mut bytes = [0; 1024];
//! assert_eq!(reader.pop(&mut bytes)?, Some(7));
//! drop(writer); // ends the stream
//! assert_eq!(reader.front().err(), Some(Closed::Ended));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Neither writing nor reading takes a lock or allocates. They make a system call only if the other
//! end sleeps and waits for this write or read.
//!
//! # How it works
//!
//! (split-level-1991 §4, decision 0010.) A program creates a [`Stream`]. It hands the stream's
//! descriptor to another process, or keeps both ends.
//! [`Runtime::stream_reader_handler`](crate::Runtime::stream_reader_handler) ties a reader to a
//! scheduler, and [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) a
//! writer. Any thread may have either end and block on it. The module `stream` of the crate
//! `upcall-shm` moves the data. This module decides which thread is woken, and how.
//!
//! ```text
//!   StreamWriter               the stream's memory              executor of the reader's CPU
//!   commit: N_write (1) --->  level reached? wait word 0 (2) -->  polls, at a boundary or turn (3)
//!        futex, only if the wait word says "asleep" ----------->  wakes: it slept on all words (4)
//!                                                                eligible: Input::Message (5)
//! ```
//!
//! 1. A commit makes a store and a fence. If no reader waits for this level, it does nothing else.
//! 2. Only the write that reaches the level makes an exchange on the wait word.
//! 3. An executor that is awake needs no system call. It reads each wait word that it watches
//!    between two upcalls, and at each boundary of the running handler. That handler must yield
//!    only if it is outranked. Only then [`Interrupt::IoReady`](crate::Interrupt::IoReady) is
//!    requested.
//! 4. If the executor sleeps, there is one system call on either side. The executor sleeps on its
//!    notifier and the wait words of all its streams together. A peer can write to the word of its
//!    own stream only.
//! 5. The message logically arrives now. The declared rate and `Terms::workahead_max` apply as they
//!    do for a task.
//!
//! The other direction is the same. The reader's release clears the writer's wait word in two
//! cases: it makes the room that a writer's handler waits for, or it starts a source that rests.
//! The writer's executor then finds the word cleared.
//!
//! # Death
//!
//! Dropping an end ends the stream. If a panic drops it, the end has died. If a process is killed,
//! a thread of the other process notices. If the stream went through a [`StreamListener`], that
//! thread watches the connection. Otherwise it watches the descriptor that the program passes to
//! [`Stream::guard`]. In each case the other end first reads what was committed, and then finds
//! [`Closed`]. A thread that sleeps is woken, and a handler is upcalled.

pub use upcall_shm::stream::{Closed, End, Kept, Payload, StreamError, StreamFault, StreamForm};

mod adapters;
mod handle;
mod io_pump;
mod listener;
mod memory;
mod reader;
#[cfg(test)]
mod tests;
mod wait;
mod watches;
mod work;
mod writer;

pub use adapters::{AsyncStreamReader, AsyncStreamWriter};
pub use handle::{Stream, StreamOpenError};
pub use io_pump::{Carried, CarryEnd, IoPump, IoPumpError, Wait};
pub use listener::{ReceivedStream, StreamConnection, StreamListener, StreamListenerError};
pub use memory::{Memory, Message, WriteChunk};
pub use reader::StreamReader;
pub(crate) use wait::{check_kernel, set_among_domains};
pub(crate) use watches::{WATCHES_MAX, Watches};
pub(crate) use work::StreamWork;
pub use writer::StreamWriter;
