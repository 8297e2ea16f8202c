//! M-JPEG of real senders: packets captured from ffmpeg, pictures made by libjpeg, and both of them
//! broken on purpose. Each picture is compared with that of another decoder, or with the same
//! picture by another path.

#![expect(clippy::cast_possible_truncation, reason = "fixtures are smaller than any field")]

mod broken;
mod senders;
mod valid;
