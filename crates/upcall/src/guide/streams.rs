//! Chapter 4: streams.
//!
//! A stream moves bytes or messages through shared memory from one writer, its
//! [`StreamWriter`](crate::stream::StreamWriter), to one reader, its [`StreamReader`](crate::stream::StreamReader). Either
//! end may be with a handler, a thread, a task of another executor, or in another process.
//!
//! | [`StreamForm`](crate::stream::StreamForm) | what moves |
//! |---|---|
//! | `Bytes` | plain bytes, copied |
//! | `Messages` | messages of any length, copied |
//! | `Slots` | messages up to a fixed length, used in place and in order |
//! | `Buffers` | the same, kept and given back in any order |
//!
//! The second argument of [`Stream::create`](crate::stream::Stream::create) is 0 here: it is for
//! sources that [rest](crate::stream::StreamWriter::rest) while the stream holds enough.
//!
//! # In one process
//!
//! A thread writes, a handler reads. The handler is upcalled when its *level* is reached, here 8
//! messages, and when the stream ends. It is finished when it has found the end.
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
//! let frames = upcall.stream_reader_handler("frames", need, stream.reader()?, 8, move |reader, batch| {
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
//!         // No room: commits, and sleeps until there is room for 8 bytes.
//!         writer.wait(8, Some(clock::after(Span::from_secs(5))));
//!     }
//! }
//! writer.end(); // commits the rest, and ends the stream
//! upcall.wait(&[frames], None);
//! assert_eq!(sum.load(Ordering::Relaxed), 5050);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`StreamWriter::commit`](crate::stream::StreamWriter::commit) hands over what was pushed. To commit many
//!   at once is cheaper. What was pushed and not committed is lost when the writer is dropped.
//! - A stream that is full does not lose data: `push` says `false`, and the writer decides.
//! - [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) creates a handler that writes, and
//!   is upcalled when there is room.
//! - [`IoPump::source`](crate::stream::IoPump::source) feeds a stream from a file, pipe or socket,
//!   [`IoPump::sink`](crate::stream::IoPump::sink) empties one into such.
//!
//! # Between two processes
//!
//! One process creates the stream and offers it at a path, where the other has a
//! [`StreamListener`](crate::stream::StreamListener). Both are of the same user. After that no third party is involved.
//!
//! The door comes first: `offer` does not wait for it, and fails with `ENOENT` if no door is at the
//! path. So the process with the door starts the other one after `StreamListener::bind`, or the other process
//! tries `offer` again. The file at the path stays when the door is dropped; remove it. In a folder
//! where others may write, such as `/tmp`, another user may take the path first: choose one that
//! only this user may write to.
//!
//! ```no_run
//! use std::path::Path;
//! use upcall::stream::{StreamListener, End, Stream, StreamForm};
//! use upcall::time::Span;
//! use upcall::{Runtime, activity::ActivityParams, clock};
//!
//! // The process that reads: it knows what it needs, so it creates the stream.
//! fn display(upcall: &mut Runtime, need: ActivityParams) -> Result<(), Box<dyn std::error::Error>> {
//!     let stream = Stream::create(StreamForm::Slots { slots: 32, slot_bytes: 1024 }, 0)?;
//!     let reader = stream.reader()?;
//!     stream.send(Path::new("/tmp/camera"), End::Writer)?; // "you write"
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
//! // The process that writes: it has the door.
//! fn camera() -> Result<(), Box<dyn std::error::Error>> {
//!     let door = StreamListener::bind(Path::new("/tmp/camera"))?;
//!     let offer = door.accept(Some(clock::after(Span::from_secs(10))))?;
//!     std::fs::remove_file("/tmp/camera")?; // the only offer has come
//!     let mut writer = offer.stream.writer()?;
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
//! all that was committed. The memory of the other process is never trusted: an index that cannot
//! be is [`Closed::Fault`](crate::stream::Closed::Fault).
//!
//! `cargo run --release -p upcall --example stream_processes` is this as a whole program, with a
//! handler at either end. The example `file_stream` moves a file to a handler of another process.
//! How handlers of several processes are admitted together is [chapter 7](super::processes).
//!
//! Next: [tasks](super::tasks).
