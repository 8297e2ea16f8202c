//! Chapter 4: streams.
//!
//! A stream moves bytes or messages through shared memory from one writer to one reader, its
//! [`StreamWriter`](crate::stream::StreamWriter) and its
//! [`StreamReader`](crate::stream::StreamReader). Either end may belong to a handler, a thread, a
//! task of another executor, or another process.
//!
//! | [`StreamForm`](crate::stream::StreamForm) | fields | what moves | levels count |
//! |---|---|---|---|
//! | `Bytes` | `capacity` in bytes | plain bytes, copied | bytes |
//! | `Messages` | `capacity` in bytes; a message takes 8 more than its own | messages of any length, copied | bytes |
//! | `Slots` | `slots`, and `slot_bytes` of each | messages up to a fixed length, used in place and in order | slots |
//! | `Buffers` | `buffers`, and `buffer_bytes` of each | messages up to a fixed length, kept and given back in any order | buffers |
//!
//! The second argument of [`Stream::create`](crate::stream::Stream::create) is 0 here. Other values
//! are for sources that [rest](crate::stream::StreamWriter::rest) while the stream holds enough.
//!
//! # In one process
//!
//! A thread writes, a handler reads. The handler is upcalled when its *level* is reached, here 8
//! messages, and when the stream ends. The handler is finished when it has found the end.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use upcall::activity::ActivityParams;
//! use upcall::stream::{Stream, StreamForm};
//! use upcall::time::Span;
//! use upcall::{Config, Runtime, clock};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
//! let mut writer = stream.writer()?;
//!
//! // At most 16 messages of at most 20 us each, every 2 ms.
//! let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(20)).batch(16);
//! let sum = Arc::new(AtomicU64::new(0));
//! let added = sum.clone();
//! let reader = stream.reader()?;
//! let frames = upcall.stream_reader_handler("frames", need, reader, 8, move |reader, batch| {
//!     let mut number = [0; 8];
//!     while let Some(message) = reader.next(batch) {
//!         message.payload().copy_to(0, &mut number);
//!         message.done();
//!         added.fetch_add(u64::from_le_bytes(number), Ordering::Relaxed);
//!     }
//! })?;
//! upcall.run(frames)?;
//!
//! for number in 1..=100u64 {
//!     while !writer.push(&number.to_le_bytes())? {
//!         // The stream is full: `wait` commits, and sleeps until there is room for 8 bytes.
//!         writer.wait(8, Some(clock::after(Span::from_secs(5))));
//!     }
//! }
//! writer.end(); // commits the rest, and ends the stream
//! upcall.wait(&[frames], None);
//! assert_eq!(sum.load(Ordering::Relaxed), 5050);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`StreamWriter::commit`](crate::stream::StreamWriter::commit) hands over the pushed messages.
//!   One commit for many messages is cheaper. Messages that were pushed but not committed are lost
//!   when the writer is dropped.
//! - A full stream does not lose data: `push` returns `false`, and the writer decides.
//! - [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) creates a handler
//!   that writes. It is upcalled when there is room.
//! - [`IoPump::source`](crate::stream::IoPump::source) feeds a stream from a file, pipe or socket.
//!   [`IoPump::sink`](crate::stream::IoPump::sink) empties a stream into one of these.
//!
//! A thread of the program, which may block, reads with
//! [`StreamReader::pop`](crate::stream::StreamReader::pop) and
//! [`StreamReader::wait`](crate::stream::StreamReader::wait):
//!
//! ```
//! use upcall::stream::{Closed, Stream, StreamError, StreamForm};
//!
//! let stream = Stream::create(StreamForm::Messages { capacity: 4096 }, 0)?;
//! let (mut writer, mut reader) = (stream.writer()?, stream.reader()?);
//! let thread = std::thread::spawn(move || {
//!     let (mut message, mut bytes) = ([0; 64], 0);
//!     loop {
//!         match reader.pop(&mut message) {
//!             Ok(Some(len)) => bytes += len, // the message is `message[..len]`
//!             // Gives back the room, and sleeps until a byte comes or the stream is closed.
//!             Ok(None) => assert!(reader.wait(1, None)),
//!             Err(StreamError::Closed(Closed::Ended)) => return Ok(bytes),
//!             Err(error) => return Err(error),
//!         }
//!     }
//! });
//! for text in ["one", "three", "seven"] {
//!     writer.push(text.as_bytes())?; // fits, so it returns `true`
//! }
//! writer.end();
//! assert_eq!(thread.join().expect("no panic")?, 13);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Between two processes
//!
//! One process creates the stream and sends it to a path, where the other process has a
//! [`StreamListener`](crate::stream::StreamListener). Both processes belong to the same user. After
//! that no third process is involved.
//!
//! Bind the listener first: `send` does not wait for it, and fails with `ENOENT` if no listener is
//! at the path. So the process with the listener starts the other one after `StreamListener::bind`,
//! or the other process retries `send`. Remove the file at the path: it stays when the listener is
//! dropped. Choose a folder in which only this user may write: in a folder such as `/tmp`, another
//! user may take the path first.
//!
//! ```no_run
//! use std::path::Path;
//! use upcall::stream::{StreamListener, End, Stream, StreamForm};
//! use upcall::time::Span;
//! use upcall::{Runtime, activity::ActivityParams, clock};
//!
//! type Result = std::result::Result<(), Box<dyn std::error::Error>>;
//!
//! // The process that reads. It creates the stream, because it knows how much it needs.
//! fn display(upcall: &mut Runtime, need: ActivityParams) -> Result {
//!     let stream = Stream::create(StreamForm::Slots { slots: 32, slot_bytes: 1024 }, 0)?;
//!     let reader = stream.reader()?;
//!     stream.send(Path::new("/tmp/camera"), End::Writer)?; // the other process writes
//!     let display = upcall.stream_reader_handler("display", need, reader, 8, |reader, batch| {
//!         while let Some(frame) = reader.next(batch) {
//!             frame.done();
//!         }
//!     })?;
//!     upcall.run(display)?;
//!     upcall.wait(&[display], None);
//!     Ok(())
//! }
//!
//! // The process that writes. It has the listener.
//! fn camera() -> Result {
//!     let listener = StreamListener::bind(Path::new("/tmp/camera"))?;
//!     let received = listener.accept(Some(clock::after(Span::from_secs(10))))?;
//!     std::fs::remove_file("/tmp/camera")?; // the only stream has come
//!     let mut writer = received.stream.writer()?;
//!     loop {
//!         // Blocks until there is room for a frame, or the reader is gone.
//!         writer.wait(1024, None);
//!         writer.push(&[0; 1024])?; // an error once the reader is gone
//!         writer.commit()?;
//!     }
//! }
//! ```
//!
//! If either process is killed, the other finds [`Closed::Died`](crate::stream::Closed::Died) after
//! all committed data. The memory of the other process is never trusted: an impossible index gives
//! [`Closed::Fault`](crate::stream::Closed::Fault).
//!
//! The example `stream_processes` is this as a whole program, with a handler at either end: `cargo
//! run --release -p upcall --example stream_processes`. The example `file_stream` moves a file to a
//! handler of another process. [Chapter 7](super::processes) shows how handlers of several
//! processes are admitted together.
//!
//! Next: [tasks](super::tasks).
