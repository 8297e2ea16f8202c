//! Chapter 4: streams.
//!
//! A stream moves bytes or messages through shared memory from one writer, its
//! [`Outlet`](crate::stream::Outlet), to one reader, its [`Inlet`](crate::stream::Inlet). Either
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
//! sources that [rest](crate::stream::Outlet::rest) while the stream holds enough.
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
//! let mut outlet = stream.outlet()?;
//!
//! // At most 16 messages of at most 20 us each, every 2 ms.
//! let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(20)).batch(16);
//! let sum = Arc::new(AtomicU64::new(0));
//! let added = sum.clone();
//! let frames = upcall.stream_handler("frames", need, stream.inlet()?, 8, move |inlet, batch| {
//!     let mut number = [0; 8];
//!     while let Some(message) = inlet.next(batch) {
//!         message.payload().copy_to(0, &mut number);
//!         message.done();
//!         added.fetch_add(u64::from_le_bytes(number), Ordering::Relaxed);
//!     }
//! })?;
//! upcall.run(frames)?;
//!
//! for number in 1..=100u64 {
//!     while !outlet.push(&number.to_le_bytes())? {
//!         // No room: commits, and sleeps until there is room for 8 bytes.
//!         outlet.wait(8, Some(clock::after(Span::from_secs(5))));
//!     }
//! }
//! outlet.end(); // commits the rest, and ends the stream
//! upcall.wait(&[frames], None);
//! assert_eq!(sum.load(Ordering::Relaxed), 5050);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Outlet::commit`](crate::stream::Outlet::commit) hands over what was pushed. To commit many
//!   at once is cheaper. What was pushed and not committed is lost when the outlet is dropped.
//! - A stream that is full does not lose data: `push` says `false`, and the writer decides.
//! - [`Runtime::outlet_handler`](crate::Runtime::outlet_handler) creates a handler that writes, and
//!   is upcalled when there is room.
//! - [`Porter::source`](crate::stream::Porter::source) feeds a stream from a file, pipe or socket,
//!   [`Porter::sink`](crate::stream::Porter::sink) empties one into such.
//!
//! # Between two processes
//!
//! One process creates the stream and offers it at a path, where the other has a
//! [`Door`](crate::stream::Door). Both are of the same user. After that no third party is involved.
//!
//! The door comes first: `offer` does not wait for it, and fails with `ENOENT` if no door is at the
//! path. So the process with the door starts the other one after `Door::bind`, or the other process
//! tries `offer` again. The file at the path stays when the door is dropped; remove it. In a folder
//! where others may write, such as `/tmp`, another user may take the path first: choose one that
//! only this user may write to.
//!
//! ```no_run
//! use std::path::Path;
//! use upcall::stream::{Door, End, Stream, StreamForm};
//! use upcall::time::Span;
//! use upcall::{Runtime, activity::ActivityParams, clock};
//!
//! // The process that reads: it knows what it needs, so it creates the stream.
//! fn display(upcall: &mut Runtime, need: ActivityParams) -> Result<(), Box<dyn std::error::Error>> {
//!     let stream = Stream::create(StreamForm::Slots { slots: 32, slot_bytes: 1024 }, 0)?;
//!     let inlet = stream.inlet()?;
//!     stream.offer(Path::new("/tmp/camera"), End::Writer)?; // "you write"
//!     let display = upcall.stream_handler("display", need, inlet, 8, |inlet, batch| {
//!         while let Some(frame) = inlet.next(batch) {
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
//!     let door = Door::bind(Path::new("/tmp/camera"))?;
//!     let offer = door.accept(Some(clock::after(Span::from_secs(10))))?;
//!     std::fs::remove_file("/tmp/camera")?; // the only offer has come
//!     let mut outlet = offer.stream.outlet()?;
//!     loop {
//!         // Blocks until there is room for a frame, or the reader is gone.
//!         outlet.wait(1024, None);
//!         outlet.push(&[0; 1024])?; // an error once the reader is gone
//!         outlet.commit()?;
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
