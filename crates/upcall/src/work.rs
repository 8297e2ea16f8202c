//! Named processors: what is done with a PDU.
//!
//! A spec says `work = "..."` with one of the names of [`WorkKind`]. The
//! runtime makes one [`Work`] per stream before the stream starts, gives it
//! each datagram it receives and calls it once per complete PDU, inside the
//! stream's quantum. Nothing here waits, reads a socket or a wall clock, or
//! takes memory after [`Work::new`] (one exception, named at [`WorkKind::RtpJpeg`]).
//!
//! ```text
//!            datagram                 PDU
//!   socket ----------> Work::take ---------> Work::process --> Work::output
//!                        |  More: wait for the next datagram
//!                        |  Rejected: typed, counted, forgotten
//! ```
//!
//! What arrives is not trusted: every length is checked, no bytes make a
//! processor panic, and none make it hold more than it took at the start.
//!
//! RTP payload types are **not** enforced. Most are dynamic (RFC 3551 §3) and
//! the spec names the processor already, so a stream of L16 may come as 96 or
//! as 11. Contributing sources, header extensions and padding are skipped.
//!
//! # Sending to a stream
//!
//! [`sample_payload`] makes what an embedded load generator sends. From
//! outside, with ffmpeg 5.1 (all tried on this code):
//!
//! ```sh
//! # rtp-jpeg. RFC 2435 sends no Huffman tables, so they must be the default ones: ffmpeg refuses to send
//! # others. 4:2:0 is a must too: what ffmpeg's encoder makes of 4:2:2 its own RTP sender refuses.
//! ffmpeg -re -f lavfi -i testsrc=size=320x240:rate=25 -c:v mjpeg -huffman default \
//!     -force_duplicated_matrix 1 -pix_fmt yuvj420p -f rtp rtp://127.0.0.1:5004
//! # rtp-l16, 8.3 ms of stereo a packet
//! ffmpeg -re -f lavfi -i sine=frequency=440:sample_rate=44100 -ac 2 -c:a pcm_s16be \
//!     -f rtp rtp://127.0.0.1:5004
//! # rtp-pcmu, 128 ms a packet; rtp-pcma with pcm_alaw
//! ffmpeg -re -f lavfi -i sine=frequency=440:sample_rate=8000 -ac 1 -c:a pcm_mulaw \
//!     -f rtp rtp://127.0.0.1:5004
//! ```
//!
//! Without `-force_duplicated_matrix 1` ffmpeg sends one quantization table
//! where RFC 2435 wants two, and says so; both are understood here.

mod audio;
mod buffer;
mod calibration;
mod clock;
mod counters;
mod jpeg;
mod kind;
mod outcome;
mod processor;
mod rtp;
mod sample;
mod spin;

pub use calibration::Calibration;
pub use clock::CpuClock;
pub use counters::WorkCounters;
pub use kind::{UnknownWork, WorkKind};
pub use outcome::{Reject, Taken, WorkError};
pub use processor::Work;
pub use sample::{sample_datagrams, sample_payload};

#[cfg(test)]
mod tests;
