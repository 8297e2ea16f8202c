//! The control messages that come with a datagram (cmsg(3)).
//!
//! The module reads bytes, without pointers: a header of length, level and type, then the data,
//! then padding to a word.

use core::mem::size_of;

/// Length (`size_t`), level and type (`int`).
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

/// Size of the two messages that a socket requests, drops (`u32`) and arrival (`timespec`), and of
/// the longest message that can precede them. That is `SCM_TIMESTAMPING` (three `timespec`), if the
/// owner of an adopted socket asked for it. Then the message of `UDP_GRO` (`int`). The kernel puts
/// the messages of IP after them.
pub(super) const CONTROL_BYTES: usize = 160;

/// The content of the messages that came with one datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// Drops at the socket before this datagram was queued, modulo 2^32. Absent while there are
    /// none.
    pub drops: Option<u32>,
    /// Arrival time of the datagram.
    pub arrival_realtime_ns: Option<u64>,
    /// Bytes of each datagram but the last, if the kernel joined several.
    pub joined_bytes: Option<usize>,
}

impl Control {
    /// Reads `bytes`, the part that the kernel filled in. Leaves out messages that are unknown or
    /// do not fit.
    pub fn parse(mut bytes: &[u8]) -> Control {
        let mut control = Control::default();
        while let Some((length, level, kind)) = header(bytes) {
            let Some(data) = bytes.get(HEADER_BYTES..length) else { break };
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    control.drops = word(data, 0).map(u32::from_ne_bytes);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    control.arrival_realtime_ns = arrival_ns(data);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let bytes = word(data, 0).map(i32::from_ne_bytes);
                    control.joined_bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
                }
                _ => {}
            }
            bytes = bytes.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        }
        control
    }
}

/// Length (with header), level and type of the first message in `bytes`.
fn header(bytes: &[u8]) -> Option<(usize, i32, i32)> {
    let length = usize::from_ne_bytes(word(bytes, 0)?);
    let level = i32::from_ne_bytes(word(bytes, 8)?);
    let kind = i32::from_ne_bytes(word(bytes, 12)?);
    (length >= HEADER_BYTES && length <= bytes.len()).then_some((length, level, kind))
}

/// A `timespec`: seconds and nanoseconds, 64 bits each.
fn arrival_ns(data: &[u8]) -> Option<u64> {
    let seconds = u64::from_ne_bytes(word(data, 0)?);
    let nanoseconds = u64::from_ne_bytes(word(data, 8)?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

fn word<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<[u8; BYTES]> {
    bytes.get(at..at + BYTES)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_BYTES + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0xEE);
        bytes
    }

    fn both() -> Vec<u8> {
        let mut time = 3u64.to_ne_bytes().to_vec();
        time.extend(5u64.to_ne_bytes());
        let mut bytes = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time);
        bytes.extend(message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7u32.to_ne_bytes()));
        bytes
    }

    #[test]
    fn both_messages_are_found_beside_others() {
        let mut bytes = message(libc::SOL_IP, libc::IP_TTL, &1u32.to_ne_bytes());
        bytes.extend(both());
        let expected = Control {
            drops: Some(7),
            arrival_realtime_ns: Some(3_000_000_005),
            ..Control::default()
        };
        assert_eq!(Control::parse(&bytes), expected);
        assert_eq!(Control::parse(&both()), expected);
        assert_eq!(Control::parse(&[]), Control::default());
    }

    #[test]
    fn the_size_of_joined_datagrams_is_found_and_a_negative_one_is_not() {
        for (found, expected) in [(1000i32, Some(1000)), (-1, None)] {
            let bytes = message(libc::SOL_UDP, libc::UDP_GRO, &found.to_ne_bytes());
            assert_eq!(Control::parse(&bytes).joined_bytes, expected);
        }
    }

    #[test]
    fn both_messages_and_hardware_times_fit_into_the_buffer() {
        let times = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &[0; 48]);
        let joined = message(libc::SOL_UDP, libc::UDP_GRO, &[0; 4]);
        assert!(both().len() + times.len() + joined.len() <= CONTROL_BYTES);
    }

    #[test]
    fn a_truncated_message_or_a_wrong_length_ends_the_reading() {
        let bytes = both();
        for length in 0..bytes.len() {
            Control::parse(&bytes[..length]); // must not panic
        }
        for wrong in [0, 1, HEADER_BYTES - 1, usize::MAX, usize::MAX - 7] {
            let mut bytes = bytes.clone();
            bytes[..8].copy_from_slice(&wrong.to_ne_bytes());
            assert_eq!(Control::parse(&bytes), Control::default());
        }
    }
}
