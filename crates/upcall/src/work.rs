//! Named processors: the code that processes the PDUs of a stream.
//!
//! A spec has `work = "..."` with one of the names of [`WorkKind`]. The runtime makes one [`Work`]
//! for each stream before the stream starts. It gives each datagram that it receives to the `Work`.
//! It calls the `Work` once for each complete PDU, inside the stream's quantum. No processor waits,
//! or reads a socket or a wall clock. None allocates memory after [`Work::new`], with one
//! exception, which [`WorkKind::RtpJpeg`] names.
//!
//! ```text
//!            datagram                 PDU
//!   socket ----------> Work::take ---------> Work::process --> Work::output
//!                        |  More: the PDU needs more datagrams
//!                        |  Rejected: dropped and counted; the caller gets the reason
//! ```
//!
//! Datagrams are not trusted. Every length is checked. No bytes make a processor panic, and none
//! make it hold more memory than it took at the start.
//!
//! RTP payload types are **not** enforced. Most are dynamic (RFC 3551 §3), and the spec names the
//! processor already. So a stream of L16 may come as type 96 or as type 11. Contributing sources,
//! header extensions and padding are skipped.
//!
//! # Sending to a stream
//!
//! [`sample_payload`] makes the datagrams of an embedded load generator. These commands send from
//! outside, with ffmpeg 5.1 (each was tried with this code):
//!
//! ```sh
//! # rtp-jpeg. RFC 2435 sends no Huffman tables, so they must be the default ones: ffmpeg refuses
//! # to send others. 4:2:0 is required too: ffmpeg's RTP sender refuses the 4:2:2 pictures that
//! # ffmpeg's encoder makes.
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
//! Without `-force_duplicated_matrix 1` ffmpeg sends one quantization table where RFC 2435 requires
//! two, and prints a warning. The processor understands both.

mod audio;
mod buffer;
mod calibration;
mod clock;
mod counters;
mod jpeg;
mod kind;
mod media_clock;
mod outcome;
mod processor;
mod rtp;
mod sample;
mod spin;

pub use calibration::Calibration;
pub use clock::CpuClock;
pub use counters::WorkCounters;
pub use kind::{UnknownWork, WorkKind};
pub use media_clock::MediaClock;
pub use outcome::{Reject, Taken, WorkError};
pub use processor::Work;
pub use sample::{sample_datagrams, sample_payload};

#[cfg(test)]
mod tests;
