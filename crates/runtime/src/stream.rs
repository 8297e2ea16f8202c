//! Streams: bytes or messages through shared memory, within a process or between two.
//!
//! A stream has one [`StreamWriter`], which writes, and one [`StreamReader`], which reads. A handler may have
//! either end. With [`Runtime::stream_reader_handler`](crate::Runtime::stream_reader_handler) it is upcalled when
//! enough can be read, with [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) when there
//! is enough room to write.
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
//! To write and to read takes no lock and no allocation. It takes a system call only if the other
//! end sleeps until just this write or read.
//!
//! # How it works
//!
//! (split-level-1991 §4, decision 0010.) A program makes a [`Stream`] and hands its descriptor to
//! another process, or keeps both ends: an [`StreamWriter`] writes, an [`StreamReader`] reads.
//! [`Runtime::stream_reader_handler`](crate::Runtime::stream_reader_handler) ties a reader to a scheduler,
//! [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) a writer; any thread may have
//! either end and block on it. What moves the data is `stream` of the crate `upcall-shm`; here is
//! what must be done outside of it: who is woken, and by what.
//!
//! ```text
//!   StreamWriter                     the stream's memory                executor of the reader's CPU
//!   commit: N_write (1) ---->  level reached? bell 0 (2)  ----->  hears, at a boundary or turn (3)
//!        futex, only if the bell says that it sleeps ---------->  wakes: it slept on all bells (4)
//!                                                                 eligible: Input::Message (5)
//! ```
//!
//! 1. A store and a fence. If nobody waits for this level, that is all.
//! 2. One exchange, by the write that reaches the level, and by no other.
//! 3. No system call: the executor is awake, and looks at each bell it watches between two upcalls,
//!    and at each boundary of the handler that runs. That one must yield only if it is
//!    outranked, and only then is [`Interrupt::IoReady`](crate::Interrupt::IoReady) requested.
//! 4. One system call on either side. The executor sleeps on its doorbell and the bells of all its streams
//!    together; a peer can write to its own stream's alone.
//! 5. The message logically arrives now; the declared rate and `Terms::workahead_max` hold as
//!    for a task.
//!
//! The other way round it is the same: the release that makes the room a writer's handler waits for, or that
//! starts it if it rests, clears the writer's bell, and its executor hears it.
//!
//! # Death
//!
//! An end that is dropped ends the stream; dropped by a panic, it died. That a process was killed is heard by
//! a thread of the other one: by itself if the stream was handed over at a [`StreamListener`], otherwise by what
//! [`Stream::guard`] is given. What was committed is read first in any case, then [`Closed`] is found;
//! who sleeps is woken, and a handler upcalled.

pub use upcall_shm::stream::{Closed, End, Kept, Payload, StreamError, StreamFault, StreamForm};

mod adapters;
mod handle;
mod io_pump;
mod listener;
mod memory;
mod reader;
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
